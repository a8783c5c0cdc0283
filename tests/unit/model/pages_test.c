/* The pages, GPT-2 and Llama, on the double reference kernels: gradients against finite differences, chunks
 * of logits against one chunk, logits for sampling, and the contract of pages: names, sizes, errors. No
 * device and no plan: a list of layers, called in order. */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <stdlib.h>

#include "runtime/model/architectures.h"
#include "runtime/model/head.h"
#include "runtime/model/logits.h"
#include "runtime/model/past.h"
#include "runtime/model/rng.h"
#include "tests/support/faults.h"
#include "tests/unit/model/layer_bench.h"

enum { LAYERS = 8, PARAMS = 64 };

/* Everything that one forward and backward needs, from malloc. */
struct bench {
    struct model *model;
    int vocab;
    const struct kernels *kernels;
    struct shape shape;
    double *weight[PARAMS], *grad[PARAMS];
    void *out[LAYERS], *dout[LAYERS], *saved[LAYERS], *work[LAYERS];
    bool written[PARAMS]; /* in this backward */
    int32_t *tokens, *targets;
    struct step_scalars scalars;
    double loss;
    int64_t count;
    int64_t chunk_bytes;
    const struct layer_capture *capture; /* capture of the last layer */
};

static void *memory(int64_t bytes)
{
    /* not zero: reading unwritten memory shows */
    void *at = malloc((size_t)bytes + 8);
    assert_non_null(at);
    memset(at, 0xff, (size_t)bytes + 8);
    return at;
}

/* Takes the model. */
static void bench_with(struct bench *b, struct model *model, struct shape shape,
                       const struct kernels *kernels)
{
    *b = (struct bench){.shape = shape, .kernels = kernels, .model = model};
    assert_non_null(model);
    b->vocab = (int)model_vocabulary(model);
    assert_true(model->layer_count <= LAYERS && model->param_count <= PARAMS);
    for (int i = 0; i < model->param_count; i++) {
        const int64_t count = param_elements(&model->params[i]),
                      room = param_room(&model->params[i], kernels);
        b->weight[i] = memory(room * 8);
        b->grad[i] = memory(room * 8);
        memset(b->weight[i] + count, 0, (size_t)(room - count) * 8);
        /* larger than at the start of a training, biases too, so that nothing is near zero by accident */
        rng_normal_fill(1, RNG_INIT, (uint32_t)i, 0, count, b->weight[i]);
        for (int64_t j = 0; j < count; j++)
            b->weight[i][j] = 0.2 * b->weight[i][j] + (model->params[i].init == PARAM_INIT_ONE);
    }
    for (int i = 0; i < model->layer_count; i++) {
        struct layer_sizes sizes;
        model->layers[i].ops->sizes(model->layers[i].config, shape, DTYPE_F64, LAYER_TRAIN, b->kernels,
                                    &sizes);
        b->out[i] = memory(sizes.out);
        b->dout[i] = memory(sizes.out);
        b->saved[i] = memory(sizes.saved);
        b->work[i] = memory(sizes.work);
    }
    int n = shape.B * shape.T;
    b->tokens = memory(n * 4);
    b->targets = memory(n * 4);
    for (int i = 0; i < n; i++) {
        b->tokens[i] = (int32_t)(rng_bits(2, RNG_SAMPLE, 0, (uint64_t)i) % (uint64_t)b->vocab);
        b->targets[i] = (int32_t)(rng_bits(2, RNG_SAMPLE, 1, (uint64_t)i) % (uint64_t)b->vocab);
    }
    b->targets[1] = -1; /* does not count */
    b->scalars.inverse_tokens = 1.0 / (n - 1);
}

static void bench_of(struct bench *b, struct model *model, struct shape shape)
{
    bench_with(b, model, shape, kernels_ref_f64());
}

static void bench_end(struct bench *b)
{
    for (int i = 0; i < PARAMS; i++) {
        free(b->weight[i]);
        free(b->grad[i]);
    }
    for (int i = 0; i < LAYERS; i++) {
        free(b->out[i]);
        free(b->dout[i]);
        free(b->saved[i]);
        free(b->work[i]);
    }
    free(b->tokens);
    free(b->targets);
    model_destroy(b->model);
}

static void call(struct bench *b, int index, enum layer_mode mode, bool backward, int beta)
{
    const struct layer_desc *layer = &b->model->layers[index];
    const void *weight[LAYER_PARAMS], *in[1] = {index ? b->out[index - 1] : NULL};
    void *grad[LAYER_PARAMS], *din[1] = {index ? b->dout[index - 1] : NULL};
    uint8_t grad_beta[LAYER_PARAMS], din_beta[1] = {0};
    for (int i = 0; i < layer->param_count; i++) {
        int param = layer->param[i];
        weight[i] = b->weight[param];
        grad[i] = b->grad[param];
        grad_beta[i] = beta || b->written[param]; /* tied: the head wrote it */
        b->written[param] |= backward;
    }
    const struct batch batch = {{b->tokens, b->targets}};
    bool train = mode != LAYER_EVAL;
    const struct layer_context x = {
        .kernels = b->kernels,
        .mode = mode,
        .shape = b->shape,
        .weight = weight,
        .grad = grad,
        .grad_beta = grad_beta,
        .in = in,
        .out = b->out[index],
        .dout = b->dout[index],
        .din = din,
        .din_beta = din_beta,
        .saved = train ? b->saved[index] : NULL,
        .work = b->work[index],
        .batch = &batch,
        .scalars = &b->scalars,
        .loss_total = &b->loss,
        .loss_count = &b->count,
        .chunk_bytes = b->chunk_bytes,
        .capture = index == b->model->layer_count - 1 ? b->capture : NULL,
    };
    if (backward)
        layer->ops->backward(layer->config, &x, LAYER_INPUT | LAYER_WEIGHT);
    else
        layer->ops->forward(layer->config, &x);
}

static double train(struct bench *b, int beta)
{
    memset(b->written, 0, sizeof b->written);
    b->loss = 0;
    b->count = 0;
    for (int i = 0; i < b->model->layer_count; i++)
        call(b, i, LAYER_TRAIN, false, 0);
    for (int i = b->model->layer_count - 1; i >= 0; i--)
        call(b, i, LAYER_TRAIN, true, beta);
    return b->loss / (double)b->count;
}

/* The loss alone, from layers that keep nothing. */
static double evaluate(struct bench *b)
{
    b->loss = 0;
    b->count = 0;
    for (int i = 0; i < b->model->layer_count; i++) {
        struct layer_sizes sizes;
        const struct layer_desc *layer = &b->model->layers[i];
        layer->ops->sizes(layer->config, b->shape, DTYPE_F64, LAYER_EVAL, b->kernels, &sizes);
        assert_int_equal(sizes.saved, 0);
        void *kept = b->work[i];
        b->work[i] = memory(sizes.work);
        call(b, i, LAYER_EVAL, false, 0);
        free(b->work[i]);
        b->work[i] = kept;
    }
    return b->loss / (double)b->count;
}

static const struct gpt2_config tiny = {
    .layers = 2, .channels = 12, .heads = 3, .vocab = 17, .max_positions = 9};
static const struct llama_config tied = {.layers = 2,
                                         .channels = 12,
                                         .heads = 3,
                                         .vocab = 17,
                                         .max_positions = 9,
                                         .tied = true,
                                         .rotary = {.theta = 20}};
static const struct llama_config grouped = {
    .layers = 2,
    .channels = 10,
    .heads = 4,
    .kv_heads = 2,
    .head_size = 6,
    .hidden = 14,
    .vocab = 17,
    .max_positions = 9,
    .attention_bias = true,
    .epsilon = 1e-2,
    .rotary = {.theta = 20, .kind = ROTARY_LLAMA3, .factor = 8, .low = 1, .high = 4, .original = 24}};

enum { PAGES = 3 };
static struct model *page(int which)
{
    return which == 0   ? gpt2_create(&tiny, NULL)
           : which == 1 ? llama_create(&tied, NULL)
                        : llama_create(&grouped, NULL);
}

/* Central differences in double: the error is about h^2 f''' + eps/h, best near h = 1e-5. */
static void gradients_are_those_of_finite_differences_of(int which)
{
    struct bench b;
    bench_of(&b, page(which), (struct shape){2, 7});
    (void)train(&b, 0);
    assert_int_equal(b.count, 13);
    for (int p = 0; p < b.model->param_count; p++) {
        int64_t count = param_elements(&b.model->params[p]);
        for (int64_t i = 0; i < count; i += 1 + count / 23) {
            const double h = 1e-5, kept = b.weight[p][i];
            b.weight[p][i] = kept + h;
            double up = evaluate(&b);
            b.weight[p][i] = kept - h;
            double down = evaluate(&b);
            b.weight[p][i] = kept;
            double difference = (up - down) / (2 * h), found = b.grad[p][i];
            if (fabs(found - difference) > 1e-8 + 1e-6 * fabs(difference))
                fail_msg("%s[%lld]: %.12g, finite difference %.12g", b.model->params[p].name, (long long)i,
                         found, difference);
        }
    }
    bench_end(&b);
}

static void gradients_are_those_of_finite_differences(void **state)
{
    (void)state;
    for (int which = 0; which < PAGES; which++)
        gradients_are_those_of_finite_differences_of(which);
}

static void training_and_evaluation_give_one_loss_of(int which)
{
    struct bench b;
    bench_of(&b, page(which), (struct shape){2, 7});
    double loss = train(&b, 0);
    assert_true(loss == evaluate(&b)); /* the same operations in the same order */
    assert_true(loss == train(&b, 0));
    bench_end(&b);
}

static void training_and_evaluation_give_one_loss(void **state)
{
    (void)state;
    for (int which = 0; which < PAGES; which++)
        training_and_evaluation_give_one_loss_of(which);
}

static void a_second_backward_adds_of(int which)
{
    struct bench b;
    bench_of(&b, page(which), (struct shape){2, 7});
    (void)train(&b, 0);
    double *once[PARAMS];
    for (int p = 0; p < b.model->param_count; p++) {
        once[p] = memory(param_elements(&b.model->params[p]) * 8);
        memcpy(once[p], b.grad[p], (size_t)param_elements(&b.model->params[p]) * 8);
    }
    (void)train(&b, 1);
    for (int p = 0; p < b.model->param_count; p++) {
        for (int64_t i = 0; i < param_elements(&b.model->params[p]); i++)
            assert_true(fabs(b.grad[p][i] - 2 * once[p][i]) <= 1e-12 * (1 + fabs(once[p][i])));
        free(once[p]);
    }
    bench_end(&b);
}

static void a_second_backward_adds(void **state)
{
    (void)state;
    for (int which = 0; which < PAGES; which++)
        a_second_backward_adds_of(which);
}

/* A vocabulary so large that 64 MB hold 8 rows: 12 rows are two chunks of six. */
static void logits_are_formed_in_chunks(void **state)
{
    (void)state;
    assert_int_equal(head_rows(12, 1 << 20, DTYPE_F64, 0), 6);
    assert_int_equal(head_rows(1024, 50257, DTYPE_F32, 0), 256);
    assert_int_equal(head_rows(512, 256, DTYPE_F32, 0), 512);
    assert_int_equal(head_rows(5, INT32_MAX, DTYPE_F64, 0), 1);
    assert_int_equal(head_rows(512, 256, DTYPE_F32, 256 * 4 * 64), 64);
    assert_int_equal(head_rows(512, 256, DTYPE_F32, 256 * 4 * 200), 171); /* three equal chunks */
    assert_int_equal(head_rows(512, 256, DTYPE_F32, 1), 1);
    struct bench b;
    const struct gpt2_config wide = {
        .layers = 1, .channels = 2, .heads = 1, .vocab = 1 << 20, .max_positions = 6};
    bench_of(&b, gpt2_create(&wide, NULL), (struct shape){2, 6});
    double loss = train(&b, 0);
    assert_int_equal(b.count, 11);
    assert_true(loss == evaluate(&b));
    /* along one direction of wte, which is the parameter that every chunk adds to */
    double slope = 0, *direction = memory(param_elements(&b.model->params[0]) * 8);
    rng_normal_fill(5, RNG_SAMPLE, 0, 0, param_elements(&b.model->params[0]), direction);
    for (int64_t i = 0; i < param_elements(&b.model->params[0]); i++)
        slope += direction[i] * b.grad[0][i];
    double at[2];
    for (int side = 0; side < 2; side++) {
        for (int64_t i = 0; i < param_elements(&b.model->params[0]); i++)
            b.weight[0][i] += (side ? -2e-5 : 1e-5) * direction[i];
        at[side] = evaluate(&b);
    }
    double difference = (at[0] - at[1]) / 2e-5;
    if (fabs(slope - difference) > 1e-6 * (1 + fabs(difference)))
        fail_msg("slope %.12g, finite difference %.12g", slope, difference);
    free(direction);
    bench_end(&b);
}

/* Work memory begins as NaN, so values between the rows of logits would show; the copied values are dense.
 * Products form the further columns, too, with
 * rows of zeros after the weight's own. Chunks of eight rows, of 17 and of 18 elements. */
static void rows_of_logits_may_lie_apart(void **state)
{
    enum { ROWS = 12, VOCABULARY = 17, CHUNK = 8 * 18 * 8 };
    struct kernels apart = *kernels_ref_f64();
    (void)state;
    apart.row_multiple = 6;
    for (int which = 0; which < PAGES; which++) {
        const struct kernels *kernels[] = {kernels_ref_f64(), &apart};
        double logits[2][(ROWS + 1) * VOCABULARY], loss[2];
        struct bench b[2];
        for (int i = 0; i < 2; i++) {
            const struct layer_capture capture = {.value = LAYER_LOGITS, .rows = ROWS, .out = logits[i]};
            memset(logits[i], 0x55, sizeof logits[i]);
            bench_with(&b[i], page(which), (struct shape){2, 8}, kernels[i]);
            b[i].chunk_bytes = CHUNK;
            b[i].capture = &capture;
            loss[i] = train(&b[i], 0);
            b[i].capture = NULL;
        }
        assert_true(loss[0] == loss[1]);
        assert_memory_equal(logits[0], logits[1], sizeof logits[0]); /* nor anything after the rows */
        for (int p = 0; p < b[0].model->param_count; p++)
            assert_memory_equal(b[0].grad[p], b[1].grad[p],
                                (size_t)param_elements(&b[0].model->params[p]) * 8);
        for (int p = 0; p < b[1].model->param_count; p++)
            for (int64_t i = param_elements(&b[1].model->params[p]);
                 i < param_room(&b[1].model->params[p], &apart); i++)
                assert_true(b[1].grad[p][i] == 0);
        bench_end(&b[0]);
        bench_end(&b[1]);
    }
}

/* The head forms the cross entropy of the logits of the last position. */
static void logits_for_sampling_agree_with_the_loss_of(int which)
{
    struct bench b;
    const struct shape shape = {2, 7};
    bench_of(&b, page(which), shape);
    for (int i = 0; i < shape.B * shape.T; i++) {
        if (i % shape.T != shape.T - 1)
            b.targets[i] = -1;
    }
    double loss = evaluate(&b), expected = 0;
    assert_int_equal(b.count, shape.B);
    double logits[2 * 17];
    void *work = memory(model_logits_work(b.model, b.kernels, shape));
    const void *weights[PARAMS];
    memcpy(weights, b.weight, sizeof weights);
    const struct step_scalars none = {0};
    model_logits(b.model, b.kernels, weights, b.tokens, &none, shape, work, logits, NULL);
    for (int row = 0; row < shape.B; row++) {
        double total = 0;
        for (int v = 0; v < 17; v++)
            total += exp(logits[row * 17 + v]);
        expected += log(total) - logits[row * 17 + b.targets[row * shape.T + shape.T - 1]];
    }
    assert_true(fabs(loss - expected / shape.B) < 1e-12);
    free(work);
    bench_end(&b);
}

static void logits_for_sampling_agree_with_the_loss(void **state)
{
    (void)state;
    for (int which = 0; which < PAGES; which++)
        logits_for_sampling_agree_with_the_loss_of(which);
}

/* Position by position, and in two parts, with keys and values kept: the logits of the whole. */
static void kept_positions_agree_with_the_whole_of(int which, const struct kernels *kernels)
{
    enum { T = 7, VOCAB = 17 };
    struct bench b;
    bench_of(&b, page(which), (struct shape){1, T});
    float *values[PARAMS], whole[VOCAB], after[VOCAB];
    const void *weights[PARAMS];
    for (int i = 0; i < b.model->param_count; i++) {
        const int64_t count = param_elements(&b.model->params[i]);
        weights[i] = values[i] = memory(count * 4);
        for (int64_t j = 0; j < count; j++)
            values[i][j] = (float)b.weight[i][j];
    }
    const struct step_scalars none = {0};
    void *work = memory(model_logits_work(b.model, kernels, (struct shape){1, T}));
    struct past_sizes sizes;
    assert_true(model_past_sizes(b.model, kernels, T, &sizes));
    for (int part = 1; part <= 4; part += 3) {
        float *kept = memory(sizes.cache), *scratch = memory(sizes.work);
        struct layer_past past = {.room = T, .cache = kept, .work = scratch};
        while (past.at < T) {
            const int count = T - past.at < part ? T - past.at : part;
            model_logits_after(b.model, kernels, weights, b.tokens + past.at, &none, (struct shape){1, count},
                               work, after, NULL, &past);
            model_logits(b.model, kernels, weights, b.tokens, &none, (struct shape){1, past.at}, work, whole,
                         NULL);
            for (int v = 0; v < VOCAB; v++)
                if (!(fabsf(after[v] - whole[v]) <= 1e-5f * (1 + fabsf(whole[v]))))
                    fail_msg("page %d, %d positions: logit %d is %g, without keeping %g", which, past.at, v,
                             (double)after[v], (double)whole[v]);
        }
        free(kept);
        free(scratch);
    }
    for (int i = 0; i < b.model->param_count; i++)
        free(values[i]);
    free(work);
    bench_end(&b);
}

static void kept_positions_agree_with_the_whole(void **state)
{
    (void)state;
    for (int which = 0; which < PAGES; which++) {
        kept_positions_agree_with_the_whole_of(which, kernels_ref_f32());
        kept_positions_agree_with_the_whole_of(which, kernels_cpu((unsigned)-1));
    }
}

/* A position that sees later ones changes with each of them. */
static void attention_both_ways_keeps_nothing(void **state)
{
    (void)state;
    struct writer w = writer_begin("both ways");
    const int tokens = writer_input(&w, "tokens", DTYPE_I32, true, 1),
              targets = writer_input(&w, "targets", DTYPE_I32, true, 1);
    const int first = program_layer(&w, "embedding");
    const int table = program_parameter(&w, "table", 17, 8, PARAM_INIT_NORMAL, 0.02);
    program_result(&w, program_embedding(&w, tokens, table, -1));
    (void)program_layer(&w, "head");
    const int x = program_input(&w, first);
    const int q = program_linear(&w, x, 8, "q", false, 0.02), k = program_linear(&w, x, 8, "k", false, 0.02),
              v = program_linear(&w, x, 8, "v", false, 0.02);
    program_cross_entropy(&w, program_attention(&w, q, k, v, 2, 2, false), table, targets);
    struct model *model = writer_finish(&w, NULL);
    assert_non_null(model);
    struct past_sizes sizes;
    assert_false(model_past_sizes(model, kernels_ref_f32(), 4, &sizes));
    model_destroy(model);
}

static void the_builder_names_and_sizes_as_gpt2(void **state)
{
    (void)state;
    struct muster_error err = {0};
    const struct gpt2_config small = {
        .layers = 12, .channels = 768, .heads = 12, .vocab = 50257, .max_positions = 1024};
    GUARD(guard_model) struct model *model = gpt2_create(&small, &err);
    assert_non_null(model);
    int64_t total = 0;
    for (int i = 0; i < model->param_count; i++) {
        const struct param_desc *p = &model->params[i];
        total += param_elements(p);
        assert_int_equal(p->parameter_class, p->ndim == 2 ? 0 : 1);
    }
    assert_int_equal(total, 124439808);
    assert_int_equal(model->layer_count, 14);
    assert_string_equal(model->params[0].name, "wte.weight");
    assert_string_equal(model->params[4].name, "h.0.attn.c_attn.weight");
    assert_int_equal(model->params[4].dim[0], 3 * 768);
    assert_string_equal(model->params[model->param_count - 1].name, "ln_f.bias");
    assert_true(fabs(model->params[6].init_std - 0.02 / sqrt(24)) < 1e-15);
}

static void bad_configurations_are_named(void **state)
{
    (void)state;
    static const struct {
        struct gpt2_config config;
        const char *names;
    } bad[] = {
        {{0, 8, 2, 16, 8, 0, 0, ACTIVATION_GELU_TANH}, "layers is 0"},
        {{1, 8, 3, 16, 8, 0, 0, ACTIVATION_GELU_TANH}, "multiple of heads (3)"},
        {{1, 8, 2, 1, 8, 0, 0, ACTIVATION_GELU_TANH}, "vocab is 1"},
        {{1, 8, 2, 16, 0, 0, 0, ACTIVATION_GELU_TANH}, "max_positions is 0"},
        {{1, 99999, 1, 16, 8, 0, 0, ACTIVATION_GELU_TANH}, "channels is 99"},
        {{1, 8, 0, 16, 8, 0, 0, ACTIVATION_GELU_TANH}, "heads is 0"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct muster_error err = {0};
        assert_null(gpt2_create(&bad[i].config, &err));
        assert_int_equal(err.code, MUSTER_E_INVALID);
        assert_non_null(strstr(err.text, bad[i].names));
    }
}

/* SmolLM2-135M's sizes; names as in its checkpoint. */
static void llama_is_named_and_sized_as_its_checkpoints(void **state)
{
    (void)state;
    struct muster_error err = {0};
    static const char *const names[] = {
        "self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight",
        "self_attn.o_proj.weight", "mlp.gate_proj.weight",    "mlp.up_proj.weight",
        "mlp.down_proj.weight",    "input_layernorm.weight",  "post_attention_layernorm.weight"};
    const int64_t dims[][2] = {{576, 576},  {192, 576},  {192, 576}, {576, 576}, {1536, 576},
                               {1536, 576}, {576, 1536}, {576, 0},   {576, 0}};
    struct llama_config smol = {.layers = 30,
                                .channels = 576,
                                .heads = 9,
                                .kv_heads = 3,
                                .hidden = 1536,
                                .vocab = 49152,
                                .max_positions = 2048,
                                .tied = true,
                                .rotary = {.theta = 100000}};
    GUARD(guard_model) struct model *model = llama_create(&smol, &err);
    assert_non_null(model);
    assert_int_equal(model_parameters(model), 134515008);
    assert_string_equal(model->params[0].name, "model.embed_tokens.weight");
    assert_string_equal(model->params[model->param_count - 1].name, "model.norm.weight");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[MODEL_NAME_LIMIT];
        int found = 0;
        (void)snprintf(name, sizeof name, "model.layers.29.%s", names[i]);
        for (int p = 0; p < model->param_count; p++) {
            const struct param_desc *param = &model->params[p];
            if (strcmp(param->name, name) != 0)
                continue;
            assert_int_equal(param->dim[0], dims[i][0]);
            assert_int_equal(param->ndim > 1 ? param->dim[1] : 0, dims[i][1]);
            found++;
        }
        assert_int_equal(found, 1);
    }
    smol.tied = false;
    GUARD(guard_model) struct model *untied = llama_create(&smol, &err);
    assert_non_null(untied);
    assert_string_equal(untied->params[untied->param_count - 1].name, "lm_head.weight");
    assert_int_equal(model_parameters(untied), 134515008 + 49152 * 576);
}

static void llama_configurations_that_are_wrong_are_named(void **state)
{
    (void)state;
    const struct llama_config good = {
        .layers = 1, .channels = 8, .heads = 2, .vocab = 16, .max_positions = 8};
#define WRONG(expected, ...)                                                                                 \
    {                                                                                                        \
        struct llama_config c = good;                                                                        \
        struct muster_error err = {0};                                                                       \
        __VA_ARGS__;                                                                                         \
        assert_null(llama_create(&c, &err));                                                                 \
        assert_int_equal(err.code, MUSTER_E_INVALID);                                                        \
        if (!strstr(err.text, expected))                                                                     \
            fail_msg("%s", err.text);                                                                        \
    }
    WRONG("layers is 0", c.layers = 0)
    WRONG("heads (2) must be a multiple of kv_heads (3)", c.kv_heads = 3)
    WRONG("channels (8) must be a multiple of heads (3), or head_size", c.heads = 3)
    WRONG("a head has 1 elements", c.heads = 8)
    WRONG("hidden is -1", c.hidden = -1)
    WRONG("rotary factor is 0", c.rotary.kind = ROTARY_LINEAR)
    WRONG("low 4, high 1",
          c.rotary = (struct rotary){.kind = ROTARY_LLAMA3, .factor = 8, .low = 4, .high = 1})
#undef WRONG
}

static int create_both(void *context)
{
    (void)context;
    GUARD(guard_model) struct model *gpt2 = gpt2_create(&tiny, NULL);
    GUARD(guard_model) struct model *llama = llama_create(&grouped, NULL);
    return gpt2 && llama ? 0 : -1;
}

static void creation_survives_no_memory(void **state)
{
    (void)state;
    faults_sweep(create_both, NULL);
}

/* A block keeps the same as the block written by hand, and no more: of GPT-2 15 rows of the channels
 * and the statistics. */
static void blocks_keep_and_need_what_they_must(void **state)
{
    (void)state;
    const struct gpt2_config gpt2 = {
        .layers = 1, .channels = 64, .heads = 4, .vocab = 32, .max_positions = 64};
    const struct llama_config llama = {.layers = 1,
                                       .channels = 64,
                                       .heads = 4,
                                       .kv_heads = 2,
                                       .hidden = 160,
                                       .vocab = 32,
                                       .max_positions = 64};
    const struct shape shape = {2, 32};
    const int64_t row = 64 * 8, C = 64, H = 160, KV = 32;
    for (int which = 0; which < 2; which++) {
        GUARD(guard_model)
        struct model *model = which ? llama_create(&llama, NULL) : gpt2_create(&gpt2, NULL);
        struct layer_bench b;
        assert_non_null(model);
        bench_open(&b, model, 1, shape, kernels_ref_f64(), 32, 4);
        bench_check_sizes(&b, model->name, 0);
        if (which) {
            /* norms, q, k, v, attention, the sum, gate, up, their product; 1/deviations, lse */
            assert_int_equal(b.train.saved, (2 * C + C + 2 * KV + 2 * C + 3 * H + 2 + 4) * row);
            assert_int_equal(b.train.work, (2 * H + C) * row);
        } else {
            assert_int_equal(b.train.saved, (15 * C + 4 + 4) * row);
            assert_int_equal(b.train.work, (4 * C + C) * row);
        }
        bench_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_those_of_finite_differences),
        cmocka_unit_test(training_and_evaluation_give_one_loss),
        cmocka_unit_test(a_second_backward_adds),
        cmocka_unit_test(logits_are_formed_in_chunks),
        cmocka_unit_test(rows_of_logits_may_lie_apart),
        cmocka_unit_test(logits_for_sampling_agree_with_the_loss),
        cmocka_unit_test(kept_positions_agree_with_the_whole),
        cmocka_unit_test(attention_both_ways_keeps_nothing),
        cmocka_unit_test(the_builder_names_and_sizes_as_gpt2),
        cmocka_unit_test(bad_configurations_are_named),
        cmocka_unit_test(llama_is_named_and_sized_as_its_checkpoints),
        cmocka_unit_test(llama_configurations_that_are_wrong_are_named),
        cmocka_unit_test(creation_survives_no_memory),
        cmocka_unit_test(blocks_keep_and_need_what_they_must),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
