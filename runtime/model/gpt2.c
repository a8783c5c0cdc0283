/* gpt2.c - GPT-2 as a page: its blocks, its two ends, and the checks of its sizes. */
#include "runtime/model/architectures.h"

#include <math.h>

#include "proto/base/error.h"

#define INIT_STD 0.02
#define EPSILON  1e-5

static double gpt2_epsilon(const struct gpt2_config *c)
{
    return c->epsilon > 0 ? c->epsilon : EPSILON;
}

static int block(struct writer *w, const struct gpt2_config *c, int index, int source)
{
    double residual = INIT_STD / sqrt(2.0 * c->layers);
    int C = c->channels, layer = program_layer(w, "h.%d", index);
    double epsilon = gpt2_epsilon(c);
    int x = program_input(w, source);
    int h = program_layer_norm(w, x, "ln_1", epsilon);
    h = program_linear(w, h, 3 * C, "attn.c_attn", true, INIT_STD);
    h = program_attention_packed(w, h, c->heads, c->heads, true);
    x = program_add(w, x, program_linear(w, h, C, "attn.c_proj", true, residual));
    h = program_layer_norm(w, x, "ln_2", epsilon);
    h = program_linear(w, h, c->hidden ? c->hidden : 4 * (int64_t)C, "mlp.c_fc", true, INIT_STD);
    h = program_activation(w, h, c->activation);
    program_result(w, program_add(w, x, program_linear(w, h, C, "mlp.c_proj", true, residual)));
    return layer;
}

static int gpt2_check(const struct gpt2_config *config, struct muster_error *err)
{
#define LIMIT(member, least, most) {#member, config->member, least, most},
    const struct size_limit limits[] = {GPT2_CONFIG_LIMITS(LIMIT)};
#undef LIMIT
    if (writer_check_sizes(limits, sizeof limits / sizeof *limits, err) < 0)
        return -1;
    if (config->channels % config->heads)
        return error_set(err, MUSTER_E_INVALID,
                         "model: channels (%d) must be a multiple of heads (%d), so that every head has the "
                         "same size",
                         config->channels, config->heads);
    return 0;
}

struct model *gpt2_create(const struct gpt2_config *config, struct muster_error *err)
{
    return gpt2_create_adapted(config, NULL, err);
}

struct model *gpt2_create_adapted(const struct gpt2_config *c, const struct lora *lora,
                                  struct muster_error *err)
{
    static const char *const metadata[] = {"architecture", "gpt2", "linear_layout", "in_out", NULL};
    if (gpt2_check(c, err))
        return NULL;
    struct writer w = writer_begin("gpt2-%dx%d", c->layers, c->channels);
    writer_adapt(&w, lora, "transformer."); /* GPT2LMHeadModel's name for all but the head */
    int tokens = writer_input(&w, "tokens", DTYPE_I32, true, 1);
    int targets = writer_input(&w, "targets", DTYPE_I32, true, 1);

    int last = program_layer(&w, "embedding");
    program_prefix(&w, "");
    int wte = program_parameter(&w, "wte.weight", c->vocab, c->channels, PARAM_INIT_NORMAL, INIT_STD);
    int wpe = program_parameter(&w, "wpe.weight", c->max_positions, c->channels, PARAM_INIT_NORMAL, INIT_STD);
    program_result(&w, program_embedding(&w, tokens, wte, wpe));

    for (int i = 0; i < c->layers; i++)
        last = block(&w, c, i, last);

    (void)program_layer(&w, "head");
    program_prefix(&w, "");
    int h = program_layer_norm(&w, program_input(&w, last), "ln_f", gpt2_epsilon(c));
    program_cross_entropy(&w, h, wte, targets);

    struct model *model = writer_finish(&w, err);
    for (int i = 0; model && i < model->param_count; i++) {
        /* The products of the blocks are what Hugging Face calls Conv1D. */
        const struct param_desc *p = &model->params[i];
        model->params[i].file_transposed = p->ndim == 2 && p->unit > 0 && !p->adapter;
    }
    if (model) {
        model->max_positions = c->max_positions;
        model->metadata = metadata;
    }
    return model;
}
