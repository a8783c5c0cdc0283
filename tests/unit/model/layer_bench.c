/* layer_bench.c - see layer_bench.h. */
#include "tests/unit/model/layer_bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/model/rng.h"
#include "tests/support/cmocka_all.h"

enum { GUARD_BYTES = 256, GUARD_FILL = 0x5a };

double bench_random(struct layer_bench *b)
{
    return 2 * rng_uniform(9, RNG_SAMPLE, 0, b->seed++) - 1;
}

/* ---- memory ---- */

static void block_fill(struct block *block)
{
    for (int64_t i = 0; i < block->bytes; i++)
        block->base[i] = (char)0xff; /* a NaN in both float formats */
}

static struct block block_make(int64_t bytes)
{
    char *all = malloc((size_t)bytes + 2 * GUARD_BYTES);
    assert_non_null(all);
    memset(all, GUARD_FILL, (size_t)bytes + 2 * GUARD_BYTES);
    struct block block = {all + GUARD_BYTES, bytes};
    block_fill(&block);
    return block;
}

static void block_check(const struct block *block, const char *what)
{
    for (int i = 0; i < GUARD_BYTES; i++) {
        if (block->base[-1 - i] != GUARD_FILL || block->base[block->bytes + i] != GUARD_FILL)
            fail_msg("%s: wrote %s of %lld bytes", what,
                     block->base[-1 - i] != GUARD_FILL ? "before" : "behind", (long long)block->bytes);
    }
}

static void block_free(struct block *block)
{
    if (block->base)
        free(block->base - GUARD_BYTES);
    *block = (struct block){0};
}

static void block_again(struct block *block, int64_t bytes)
{
    block_free(block);
    *block = block_make(bytes);
}

static double *doubles(struct layer_bench *b, int64_t count)
{
    double *values = malloc((size_t)count * sizeof *values + 1);
    assert_non_null(values);
    for (int64_t i = 0; i < count; i++)
        values[i] = bench_random(b);
    return values;
}

/* ---- opening ---- */

/* Lengths, the first one the whole; or targets, the last of which does not count. */
static void fill_numbers(struct layer_bench *b, int input, int64_t count, int vocabulary)
{
    const struct batch_input *desc = &b->model->inputs[input];
    int32_t *numbers = (int32_t *)(void *)b->more[input];
    for (int64_t i = 0; i < count; i++)
        numbers[i] = desc->lengths
                         ? (i ? b->shape.T - 2 : b->shape.T)
                         : (int32_t)(rng_bits(3, RNG_SAMPLE, 0, (uint64_t)i) % (uint64_t)vocabulary);
    if (desc->absent && count > 1)
        numbers[count - 1] = -1;
}

void bench_open(struct layer_bench *b, const struct model *model, int layer, struct shape shape,
                const struct kernels *kernels, int vocabulary, uint64_t seed)
{
    const struct layer_desc *desc = &model->layers[layer];
    *b = (struct layer_bench){
        .model = model, .layer = desc, .shape = shape, .kernels = kernels, .seed = seed, .tolerance = 3e-8};
    assert_int_equal(kernels->value, DTYPE_F64);
    int64_t rows = (int64_t)shape.B * shape.T;
    for (int i = 0; i < desc->param_count; i++) {
        const struct param_desc *param = &model->params[desc->param[i]];
        const int64_t room = param_room(param, kernels);
        b->weights[i] = param_elements(param);
        b->weight[i] = doubles(b, room);
        b->grad[i] = block_make(room * 8);
        memset(b->weight[i] + b->weights[i], 0, (size_t)(room - b->weights[i]) * 8); /* rows of zeros */
    }
    for (int i = 0; i < desc->source_count; i++) {
        if (desc->source[i] == SOURCE_BATCH)
            continue;
        const struct layer_desc *source = &model->layers[desc->source[i]];
        struct layer_sizes sizes;
        source->ops->sizes(source->config, shape, DTYPE_F64, LAYER_TRAIN, kernels, &sizes);
        b->ins[i] = sizes.out / 8;
        b->in[i] = doubles(b, b->ins[i]);
        b->din[i] = block_make(sizes.out);
    }
    desc->ops->sizes(desc->config, shape, DTYPE_F64, LAYER_TRAIN, kernels, &b->train);
    desc->ops->sizes(desc->config, shape, DTYPE_F64, LAYER_RECOMPUTE, kernels, &b->recompute);
    desc->ops->sizes(desc->config, shape, DTYPE_F64, LAYER_EVAL, kernels, &b->eval);
    assert_int_equal(b->eval.saved, 0);
    b->outs = b->train.out / 8;
    b->out = block_make(b->train.out);
    b->dout = block_make(b->train.out);
    b->saved = block_make(b->train.saved);
    b->work = block_make(b->train.work);
    b->slope = doubles(b, b->outs);
    b->tokens = malloc((size_t)rows * 4);
    b->targets = malloc((size_t)rows * 4);
    assert_true(b->tokens && b->targets);
    for (int64_t i = 0; i < rows; i++) {
        b->tokens[i] = (int32_t)(rng_bits(2, RNG_SAMPLE, 0, (uint64_t)i) % (uint64_t)vocabulary);
        b->targets[i] = (int32_t)(rng_bits(2, RNG_SAMPLE, 1, (uint64_t)i) % (uint64_t)vocabulary);
    }
    b->targets[rows > 1] = -1; /* does not count */
    for (int i = 2; i < model->input_count; i++) {
        const int64_t count = (model->inputs[i].positions ? rows : (int64_t)shape.B) * model->inputs[i].width;
        b->more[i] = malloc((size_t)count * sizeof(float));
        assert_non_null(b->more[i]);
        if (model->inputs[i].dtype == DTYPE_I32) {
            fill_numbers(b, i, count, vocabulary);
            continue;
        }
        for (int64_t j = 0; j < count; j++)
            b->more[i][j] = (float)bench_random(b);
        if (model->inputs[i].absent)
            b->more[i][count / 2] = NAN;
    }
    b->scalars = (struct step_scalars){
        .inverse_tokens = 1.0 / (double)(rows > 1 ? rows - 1 : 1), .seed = 5, .samples = shape.B};
}

void bench_chunks(struct layer_bench *b, int64_t chunk_bytes)
{
    const struct layer_desc *layer = b->layer;
    b->chunk_bytes = chunk_bytes;
    layer->ops->chunked_sizes(layer->config, b->shape, DTYPE_F64, LAYER_TRAIN, b->kernels, chunk_bytes,
                              &b->train);
    layer->ops->chunked_sizes(layer->config, b->shape, DTYPE_F64, LAYER_RECOMPUTE, b->kernels, chunk_bytes,
                              &b->recompute);
    layer->ops->chunked_sizes(layer->config, b->shape, DTYPE_F64, LAYER_EVAL, b->kernels, chunk_bytes,
                              &b->eval);
}

void bench_close(struct layer_bench *b)
{
    for (int i = 0; i < LAYER_PARAMS; i++) {
        free(b->weight[i]);
        block_free(&b->grad[i]);
    }
    for (int i = 0; i < LAYER_SOURCES; i++) {
        free(b->in[i]);
        block_free(&b->din[i]);
    }
    block_free(&b->out);
    block_free(&b->dout);
    block_free(&b->saved);
    block_free(&b->work);
    free(b->slope);
    free(b->tokens);
    free(b->targets);
    for (int i = 2; i < BATCH_INPUTS; i++)
        free(b->more[i]);
}

/* ---- calls ---- */

struct call {
    const void *weight[LAYER_PARAMS], *in[LAYER_SOURCES];
    void *grad[LAYER_PARAMS], *din[LAYER_SOURCES];
    struct batch batch;
    struct layer_context x;
};

static void call_make(struct layer_bench *b, enum layer_mode mode, struct call *c)
{
    *c = (struct call){.batch = {{b->tokens, b->targets}}};
    for (int i = 2; i < b->model->input_count; i++)
        c->batch.input[i] = b->more[i];
    for (int i = 0; i < b->layer->param_count; i++) {
        c->weight[i] = b->weight[i];
        c->grad[i] = b->no_grad[i] ? NULL : b->grad[i].base;
    }
    for (int i = 0; i < b->layer->source_count; i++) {
        c->in[i] = b->in[i];
        c->din[i] = b->no_din[i] ? NULL : b->din[i].base;
    }
    c->x = (struct layer_context){
        .kernels = b->kernels,
        .mode = mode,
        .shape = b->shape,
        .weight = c->weight,
        .grad = c->grad,
        .grad_beta = b->grad_beta,
        .in = c->in,
        .out = b->outs ? b->out.base : NULL,
        .dout = b->outs ? b->dout.base : NULL,
        .din = c->din,
        .din_beta = b->din_beta,
        .saved = mode != LAYER_EVAL && b->saved.bytes ? b->saved.base : NULL,
        .work = b->work.bytes ? b->work.base : NULL,
        .batch = &c->batch,
        .scalars = &b->scalars,
        .loss_total = &b->loss,
        .loss_count = &b->counted,
        .chunk_bytes = b->chunk_bytes,
    };
}

static void forward(struct layer_bench *b, enum layer_mode mode)
{
    struct call c;
    const struct layer_sizes *sizes = mode == LAYER_EVAL        ? &b->eval
                                      : mode == LAYER_RECOMPUTE ? &b->recompute
                                                                : &b->train;
    block_again(&b->work, sizes->work);
    if (mode != LAYER_EVAL)
        block_again(&b->saved, sizes->saved);
    if (mode != LAYER_RECOMPUTE)
        block_again(&b->out, b->train.out);
    b->loss = 0;
    b->counted = 0;
    call_make(b, mode, &c);
    b->layer->ops->forward(b->layer->config, &c.x);
    block_check(&b->work, "work memory of forward");
    block_check(&b->saved, "saved memory of forward");
    block_check(&b->out, "output");
}

static void backward(struct layer_bench *b)
{
    struct call c;
    block_again(&b->work, b->train.work); /* nothing of forward is left in it */
    block_again(&b->dout, b->train.out);
    if (b->outs)
        memcpy(b->dout.base, b->slope, (size_t)b->outs * 8);
    call_make(b, LAYER_TRAIN, &c);
    b->layer->ops->backward(b->layer->config, &c.x, LAYER_INPUT | LAYER_WEIGHT);
    block_check(&b->work, "work memory of backward");
    block_check(&b->saved, "saved memory of backward");
    block_check(&b->out, "output after backward");
    block_check(&b->dout, "gradient of the output");
    for (int i = 0; i < b->layer->param_count; i++)
        block_check(&b->grad[i], "gradient of a parameter");
    for (int i = 0; i < b->layer->source_count; i++) {
        if (b->din[i].base)
            block_check(&b->din[i], "gradient of an input");
    }
}

double bench_loss(struct layer_bench *b, enum layer_mode mode)
{
    forward(b, mode);
    if (!b->outs && mode == LAYER_TRAIN) {
        bool no_grad[LAYER_PARAMS], no_din[LAYER_SOURCES];
        memcpy(no_grad, b->no_grad, sizeof no_grad);
        memcpy(no_din, b->no_din, sizeof no_din);
        memset(b->no_grad, 1, sizeof b->no_grad);
        memset(b->no_din, 1, sizeof b->no_din);
        backward(b);
        memcpy(b->no_grad, no_grad, sizeof no_grad);
        memcpy(b->no_din, no_din, sizeof no_din);
    }
    if (!b->outs)
        return b->loss * b->scalars.inverse_tokens;
    double sum = 0;
    for (int64_t i = 0; i < b->outs; i++)
        sum += ((double *)b->out.base)[i] * b->slope[i];
    return sum;
}

void bench_train(struct layer_bench *b, bool recompute)
{
    forward(b, LAYER_TRAIN);
    if (recompute)
        forward(b, LAYER_RECOMPUTE);
    backward(b);
}

/* ---- gradients ---- */

/* Central differences in double: the error is about h^2 f''' + eps/h, best near h = 1e-5. */
static void check_differences(struct layer_bench *b, double *values, const double *gradient, int64_t count,
                              const char *what, const char *of, int index)
{
    for (int64_t i = 0; i < count; i += 1 + count / 29) {
        const double h = 1e-5, kept = values[i];
        values[i] = kept + h;
        double up = bench_loss(b, LAYER_TRAIN);
        values[i] = kept - h;
        double down = bench_loss(b, LAYER_TRAIN);
        values[i] = kept;
        double difference = (up - down) / (2 * h);
        if (!(fabs(gradient[i] - difference) <= b->tolerance * (1 + fabs(difference))))
            fail_msg("%s: gradient of %s %d [%lld] is %.12g, finite difference %.12g", what, of, index,
                     (long long)i, gradient[i], difference);
    }
}

struct gradient {
    double *plain, *before;
    int64_t count;
};

/* The contents before a run: NaN where a value will be overwritten. */
static void gradient_prepare(struct layer_bench *b, struct gradient *g, struct block *block, bool add)
{
    block_fill(block);
    for (int64_t i = 0; add && i < g->count; i++)
        ((double *)block->base)[i] = g->before[i] = bench_random(b);
}

static void gradient_check(const struct gradient *g, const struct block *block, bool add, const char *what,
                           const char *of, int index)
{
    for (int64_t i = 0; i < g->count; i++) {
        double found = ((double *)block->base)[i], expected = g->plain[i] + (add ? g->before[i] : 0);
        if (!(fabs(found - expected) <= 1e-12 * (1 + fabs(expected))))
            fail_msg("%s: gradient of %s %d [%lld], %s, is %.17g instead of %.17g", what, of, index,
                     (long long)i, add ? "added" : "written", found, expected);
    }
}

static struct gradient gradient_keep(const struct block *block, int64_t count)
{
    struct gradient g = {malloc((size_t)count * 8 + 1), malloc((size_t)count * 8 + 1), count};
    assert_true(g.plain && g.before);
    if (count)
        memcpy(g.plain, block->base, (size_t)count * 8);
    return g;
}

/* Random choices: wanted gradients, written or added, and recomputed values. */
static void check_combinations(struct layer_bench *b, struct gradient *grad, struct gradient *din,
                               const char *what)
{
    const struct layer_desc *layer = b->layer;
    for (int round = 0; round < 24; round++) {
        for (int i = 0; i < layer->param_count; i++) {
            b->no_grad[i] = bench_random(b) > 0.4;
            b->grad_beta[i] = bench_random(b) > 0;
            gradient_prepare(b, &grad[i], &b->grad[i], b->grad_beta[i]);
        }
        for (int i = 0; i < layer->source_count; i++) {
            b->no_din[i] = !b->din[i].base || bench_random(b) > 0.4;
            b->din_beta[i] = bench_random(b) > 0;
            if (b->din[i].base)
                gradient_prepare(b, &din[i], &b->din[i], b->din_beta[i]);
        }
        bench_train(b, b->outs && round % 2);
        for (int i = 0; i < layer->param_count; i++) {
            if (!b->no_grad[i])
                gradient_check(&grad[i], &b->grad[i], b->grad_beta[i], what, "parameter", i);
        }
        for (int i = 0; i < layer->source_count; i++) {
            if (!b->no_din[i])
                gradient_check(&din[i], &b->din[i], b->din_beta[i], what, "input", i);
        }
    }
}

void bench_check_gradients(struct layer_bench *b, const char *what)
{
    const struct layer_desc *layer = b->layer;
    struct gradient grad[LAYER_PARAMS], din[LAYER_SOURCES];
    bench_train(b, false);
    for (int i = 0; i < layer->param_count; i++)
        grad[i] = gradient_keep(&b->grad[i], b->weights[i]);
    for (int i = 0; i < layer->source_count; i++)
        din[i] = gradient_keep(&b->din[i], b->ins[i]);
    for (int i = 0; i < layer->param_count; i++)
        if (!b->model->params[layer->param[i]].statistic) /* whose change is no derivative */
            check_differences(b, b->weight[i], grad[i].plain, b->weights[i], what, "parameter", i);
    for (int i = 0; i < layer->source_count; i++)
        check_differences(b, b->in[i], din[i].plain, b->ins[i], what, "input", i);
    check_combinations(b, grad, din, what);
    for (int i = 0; i < layer->param_count; i++) {
        free(grad[i].plain);
        free(grad[i].before);
    }
    for (int i = 0; i < layer->source_count; i++) {
        free(din[i].plain);
        free(din[i].before);
    }
    memset(b->no_grad, 0, sizeof b->no_grad);
    memset(b->no_din, 0, sizeof b->no_din);
    memset(b->grad_beta, 0, sizeof b->grad_beta);
    memset(b->din_beta, 0, sizeof b->din_beta);
}

/* ---- sizes ---- */

/* Bytes up to the last written byte. */
static int64_t high_water(const struct block *block)
{
    int64_t bytes = block->bytes;
    while (bytes > 0 && block->base[bytes - 1] == (char)0xff)
        bytes--;
    return bytes;
}

static void check_reached(const char *what, const char *memory, int64_t planned, int64_t reached,
                          int64_t slack)
{
    if (reached > planned || reached + 64 + slack < planned)
        fail_msg("%s: %lld bytes of %s are planned and %lld were reached", what, (long long)planned, memory,
                 (long long)reached);
}

void bench_check_sizes(struct layer_bench *b, const char *what, int64_t slack)
{
    forward(b, LAYER_EVAL);
    check_reached(what, "work for evaluation", b->eval.work, high_water(&b->work), slack);
    forward(b, LAYER_TRAIN);
    int64_t work = high_water(&b->work);
    check_reached(what, "saved memory", b->train.saved, high_water(&b->saved), 0);
    if (b->outs) {
        forward(b, LAYER_RECOMPUTE);
        check_reached(what, "work to recompute", b->recompute.work, high_water(&b->work), b->recompute.work);
        check_reached(what, "saved memory, recomputed", b->recompute.saved, high_water(&b->saved), 0);
    }
    backward(b);
    int64_t back = high_water(&b->work);
    check_reached(what, "work to train", b->train.work, work > back ? work : back, slack);
}
