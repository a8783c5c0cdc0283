/* llama.c - Llama as a page: its blocks, its two ends, and the checks of its sizes. */
#include "runtime/model/architectures.h"

#include "proto/base/error.h"

#define INIT_STD 0.02

static int block(struct writer *w, const struct llama_config *c, int index, int source)
{
    int layer = program_layer(w, "model.layers.%d", index), kv = c->kv_heads * c->head_size;
    int x = program_input(w, source);
    int h = program_rms_norm(w, x, "input_layernorm", c->epsilon);
    int q = program_linear(w, h, (int64_t)c->heads * c->head_size, "self_attn.q_proj", c->attention_bias,
                           INIT_STD);
    int k = program_linear(w, h, kv, "self_attn.k_proj", c->attention_bias, INIT_STD);
    int v = program_linear(w, h, kv, "self_attn.v_proj", c->attention_bias, INIT_STD);
    q = program_rotary(w, q, c->heads, &c->rotary);
    k = program_rotary(w, k, c->kv_heads, &c->rotary);
    h = program_attention(w, q, k, v, c->heads, c->kv_heads, true);
    h = program_linear(w, h, c->channels, "self_attn.o_proj", c->attention_bias, INIT_STD);
    x = program_add(w, x, h);
    h = program_rms_norm(w, x, "post_attention_layernorm", c->epsilon);
    int gate = program_linear(w, h, c->hidden, "mlp.gate_proj", false, INIT_STD);
    int up = program_linear(w, h, c->hidden, "mlp.up_proj", false, INIT_STD);
    h = program_linear(w, program_swiglu(w, gate, up), c->channels, "mlp.down_proj", false, INIT_STD);
    program_result(w, program_add(w, x, h));
    return layer;
}

int llama_complete(struct llama_config *c, struct muster_error *err)
{
#define LIMIT(member, least, most) {#member, c->member, least, most},
    const struct size_limit limits[] = {LLAMA_CONFIG_LIMITS(LIMIT)};
#undef LIMIT
    if (writer_check_sizes(limits, sizeof limits / sizeof *limits, err) < 0)
        return -1;
    c->kv_heads = c->kv_heads ? c->kv_heads : c->heads;
    c->hidden = c->hidden ? c->hidden : (8 * c->channels / 3 + 63) / 64 * 64;
    c->epsilon = c->epsilon > 0 ? c->epsilon : 1e-5;
    c->rotary.theta = c->rotary.theta > 0 ? c->rotary.theta : 10000;
    if (c->heads % c->kv_heads)
        return error_set(err, MUSTER_E_INVALID, "model: heads (%d) must be a multiple of kv_heads (%d)",
                         c->heads, c->kv_heads);
    if (!c->head_size && c->channels % c->heads)
        return error_set(err, MUSTER_E_INVALID,
                         "model: channels (%d) must be a multiple of heads (%d), or head_size must be set",
                         c->channels, c->heads);
    c->head_size = c->head_size ? c->head_size : c->channels / c->heads;
    if (c->head_size % 2)
        return error_set(
            err, MUSTER_E_INVALID,
            "model: a head has %d elements; rotary positions turn pairs, so that the number must be "
            "even",
            c->head_size);
    const struct rotary *r = &c->rotary;
    if (r->kind != ROTARY_PLAIN && !(r->factor >= 1))
        return error_set(err, MUSTER_E_INVALID, "model: the rotary factor is %g, but must be at least 1",
                         r->factor);
    if (r->kind == ROTARY_LLAMA3 && !(r->low > 0 && r->high > r->low && r->original > 0))
        return error_set(
            err, MUSTER_E_INVALID,
            "model: llama3 scaling has low %g, high %g and original %d; low must be above 0, high "
            "above low and original above 0",
            r->low, r->high, r->original);
    return 0;
}

struct model *llama_create(const struct llama_config *config, struct muster_error *err)
{
    return llama_create_adapted(config, NULL, err);
}

struct model *llama_create_adapted(const struct llama_config *config, const struct lora *lora,
                                   struct muster_error *err)
{
    static const char *const metadata[] = {"architecture", "llama", "linear_layout", "out_in", NULL};
    struct llama_config c = *config;
    if (llama_complete(&c, err))
        return NULL;
    struct writer w = writer_begin("llama-%dx%d", c.layers, c.channels);
    writer_adapt(&w, lora, "");
    int tokens = writer_input(&w, "tokens", DTYPE_I32, true, 1);
    int targets = writer_input(&w, "targets", DTYPE_I32, true, 1);

    int last = program_layer(&w, "embedding");
    program_prefix(&w, "model.");
    int table =
        program_parameter(&w, "embed_tokens.weight", c.vocab, c.channels, PARAM_INIT_NORMAL, INIT_STD);
    program_result(&w, program_embedding(&w, tokens, table, -1));

    for (int i = 0; i < c.layers; i++)
        last = block(&w, &c, i, last);

    (void)program_layer(&w, "head");
    program_prefix(&w, "model.");
    int h = program_rms_norm(&w, program_input(&w, last), "norm", c.epsilon);
    program_prefix(&w, "");
    int weight =
        c.tied ? table
               : program_parameter(&w, "lm_head.weight", c.vocab, c.channels, PARAM_INIT_NORMAL, INIT_STD);
    program_cross_entropy(&w, h, weight, targets);

    struct model *model = writer_finish(&w, err);
    if (model) {
        model->max_positions = c.max_positions;
        model->metadata = metadata;
    }
    return model;
}
