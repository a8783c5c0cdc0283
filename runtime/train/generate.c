/* generate.c - see generate.h. A prompt's positions are computed PAST_CHUNK at a time. After the end of the
 * context every position changes its number, so that kept keys and values are useless. */
#include "runtime/train/generate.h"

#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/model/logits.h"
#include "runtime/model/past.h"
#include "runtime/train/trainer_state.h"

/* Kernels read and write one arena of the device: weights, then work, logits, context and scalars. */
struct generator {
    struct trainer *trainer;
    const struct model *model;
    const struct kernels *kernels;
    struct device_arena arena;
    const void **weights; /* [param_count] full parameters */
    void *work;
    float *device_logits;
    int32_t *device_context;
    const struct step_scalars *scalars;
    float *logits, *scratch;
    int32_t *context;
    struct layer_past past; /* room 0: no keys and values are kept */
    struct past_sizes past_sizes;
    int used, room, limit;
};

static int to_device(const struct generator *g, const void *to, const void *from, int64_t bytes,
                     struct muster_error *err)
{
    const struct trainer *trainer = g->trainer;
    struct device_stream *compute = trainer->streams[STREAM_COMPUTE];
    if (trainer->ops->copy(compute, (void *)(uintptr_t)to, from, bytes))
        return executor_refused(trainer->ops, trainer->device, err);
    return trainer->ops->sync(compute, INSTANT_NEVER, err); /* `from` may change then */
}

static int64_t weight_bytes(const struct generator *g, int param)
{
    return param_elements(&g->model->params[param]) * dtype_size(g->kernels->statistic);
}

static int keep_weight(void *context, int param, const void *values, struct muster_error *err)
{
    const struct generator *g = context;
    return to_device(g, g->weights[param], values, weight_bytes(g, param), err);
}

/* Computes the positions after the kept positions. */
static void run_positions(struct generator *g, void *stream)
{
    while (g->past.at < g->used) {
        const int left = g->used - g->past.at, count = left < PAST_CHUNK ? left : PAST_CHUNK;
        model_logits_after(g->model, g->kernels, g->weights, g->device_context + g->past.at, g->scalars,
                           (struct shape){1, count}, g->work, g->device_logits, stream, &g->past);
    }
}

static void run_forward(void *argument)
{
    struct generator *g = argument;
    const struct trainer *trainer = g->trainer;
    if (g->past.room) {
        run_positions(g, trainer->ops->stream_handle(trainer->streams[STREAM_COMPUTE]));
        return;
    }
    model_logits(g->model, g->kernels, g->weights, g->device_context, g->scalars, (struct shape){1, g->used},
                 g->work, g->device_logits, trainer->ops->stream_handle(trainer->streams[STREAM_COMPUTE]));
}

static void push(struct generator *g, int32_t token)
{
    if (g->used == g->room) {
        memmove(g->context, g->context + 1, (size_t)(g->room - 1) * sizeof *g->context);
        g->used--;
        g->past.room = 0;
    }
    g->context[g->used++] = token;
}

static int generate_check(const struct generator *g, const struct generate_options *o,
                          struct muster_error *err)
{
    int64_t vocabulary = model_vocabulary(g->model);
    if (!vocabulary || g->kernels->value != DTYPE_F32)
        return error_set(err, MUSTER_E_UNSUPPORTED, "model %s cannot be sampled from", g->model->name);
    if (o->limit < 0 || o->limit > vocabulary)
        return error_set(err, MUSTER_E_INVALID,
                         "tokens below %d are to be drawn, but the vocabulary has %lld", o->limit,
                         (long long)vocabulary);
    if (o->prompt_count < 1 || o->count < 0)
        return error_set(err, MUSTER_E_INVALID,
                         "a prompt of %lld tokens and %lld to draw: there must be 1 and 0 at least",
                         (long long)o->prompt_count, (long long)o->count);
    for (int64_t i = 0; i < o->prompt_count; i++)
        if (o->prompt[i] < 0 || o->prompt[i] >= vocabulary)
            return error_set(err, MUSTER_E_INVALID,
                             "token %lld of the prompt is %d, but the vocabulary has %lld", (long long)i,
                             o->prompt[i], (long long)vocabulary);
    return 0;
}

/* Cuts a place from the arena, in the order of calls. */
static void *generate_cut(const struct generator *g, int64_t bytes, int64_t *used)
{
    enum { ALIGNED = 256 };
    void *at = g->arena.base ? (char *)g->arena.base + *used : NULL;
    *used += (bytes + ALIGNED - 1) / ALIGNED * ALIGNED;
    return at;
}

/* Places all buffers, if there is an arena, and returns the bytes that the arena needs. */
static int64_t place(struct generator *g)
{
    int64_t used = 0;
    for (int i = 0; i < g->model->param_count; i++)
        g->weights[i] = generate_cut(g, weight_bytes(g, i), &used);
    g->work = generate_cut(g, model_logits_work(g->model, g->kernels, (struct shape){1, g->room}), &used);
    g->device_logits = generate_cut(g, model_vocabulary(g->model) * (int64_t)sizeof *g->logits, &used);
    g->device_context = generate_cut(g, g->room * (int64_t)sizeof *g->context, &used);
    g->scalars = generate_cut(g, sizeof *g->scalars, &used);
    if (g->past.room) {
        g->past.work = generate_cut(g, g->past_sizes.work, &used);
        g->past.cache = generate_cut(g, g->past_sizes.cache, &used);
    }
    return used;
}

static int open_generator(struct generator *g, const struct generate_options *o, struct muster_error *err)
{
    if (generate_check(g, o, err) < 0)
        return -1;
    int64_t vocabulary = model_vocabulary(g->model);
    g->limit = o->limit ? o->limit : (int)vocabulary;
    g->room = g->model->max_positions ? g->model->max_positions : GENERATE_CONTEXT;
    g->weights = mem_calloc((size_t)g->model->param_count, sizeof *g->weights);
    g->logits = mem_calloc((size_t)vocabulary, sizeof *g->logits);
    g->scratch = mem_calloc((size_t)g->limit * 2, sizeof *g->scratch);
    g->context = mem_calloc((size_t)g->room, sizeof *g->context);
    if (model_past_sizes(g->model, g->kernels, g->room, &g->past_sizes))
        g->past.room = g->room;
    if (!g->weights || !g->logits || !g->scratch || !g->context)
        return error_set(err, MUSTER_E_NOMEM, "no memory to sample from the model");
    if (g->trainer->ops->arena_create(g->trainer->device, MEMORY_DEVICE, place(g), &g->arena, err))
        return error_wrap(err, "sampling from the model");
    (void)place(g); /* into the arena */
    return 0;
}

static void close_generator(struct generator *g)
{
    if (g->arena.base)
        g->trainer->ops->arena_destroy(g->trainer->device, &g->arena);
    mem_free(g->weights);
    mem_free(g->logits);
    mem_free(g->scratch);
    mem_free(g->context);
}

static int draw_token(struct generator *g, struct muster_error *err)
{
    const struct trainer *trainer = g->trainer;
    struct device_stream *compute = trainer->streams[STREAM_COMPUTE];
    const int64_t bytes = model_vocabulary(g->model) * (int64_t)sizeof *g->logits;
    if (to_device(g, g->device_context, g->context, g->used * (int64_t)sizeof *g->context, err) ||
        trainer_run(g->trainer, run_forward, g, err))
        return -1;
    if (trainer->ops->copy(compute, g->logits, g->device_logits, bytes))
        return executor_refused(trainer->ops, trainer->device, err);
    return trainer->ops->sync(compute, INSTANT_NEVER, err);
}

static int draw(struct generator *g, struct generate_options *o, int32_t *tokens, struct muster_error *err)
{
    for (int64_t i = 0; i < o->prompt_count; i++)
        push(g, o->prompt[i]);
    for (int64_t i = 0; i < o->count; i++) {
        if (draw_token(g, err))
            return -1;
        tokens[i] = sample_token(&o->sample, g->logits, g->limit, (uint64_t)i, g->scratch);
        o->drawn++;
        if (tokens[i] == o->end)
            break;
        push(g, tokens[i]);
    }
    return 0;
}

int trainer_generate(struct trainer *trainer, struct generate_options *options, int32_t *tokens,
                     struct muster_error *err)
{
    options->drawn = 0;
    struct generator g = {.trainer = trainer, .model = trainer->model, .kernels = trainer->kernels};
    if (g.kernels->value != g.kernels->statistic) /* whole parameters come in fp32 */
        g.kernels = trainer->ops->kernels_f32(trainer->device);
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local;
    bool draws = trainer->rank == 0;
    int failed = draws ? open_generator(&g, options, e) : 0;
    /* A rank 0 that cannot go on still takes part in every gather; otherwise the others would wait for it. */
    failed |= trainer_each_param(trainer, draws && !failed ? keep_weight : NULL, &g, failed ? NULL : e);
    if (!failed && draws)
        failed = draw(&g, options, tokens, e);
    close_generator(&g);
    return failed ? -1 : 0;
}
