/* train_harness.c - see train_harness.h. */
#include "tests/unit/train/train_harness.h"

#include <math.h>
#include <stdio.h>

#include "proto/base/guard.h"
#include "rendezvous/store/kv_memory.h"
#include "runtime/model/rng.h"
#include "runtime/plan/plan_cut.h"
#include "tests/support/rank_threads.h"

GUARD_DEFINE(trainer, struct trainer *, trainer_destroy);

struct training training_small(void)
{
    return (struct training){
        .gpt = {.layers = 2, .channels = 32, .heads = 4, .vocab = 48, .max_positions = 20},
        .strategy = STRATEGY_NO_SHARD,
        .mesh = MESH(1, 1, 1),
        .samples = 8,
        .micro_batches = 1,
        .positions = 16,
        .steps = 100,
        .prefetch = 2,
        .threads = 1,
        .group_bytes = 16 << 10,
        .learning_rate = 1e-3,
        .clip_norm = 1.0,
    };
}

static int rows_of(const struct training *run)
{
    return run->samples / (run->micro_batches * mesh_line(run->mesh, AXIS_DATA, 0).size);
}

/* Sample g: a walk in which four of five tokens are a fixed function of their predecessor. */
static void sample_tokens(const struct training *run, uint64_t g, int32_t *tokens, int32_t *targets)
{
    uint64_t vocab = (uint64_t)run->gpt.vocab;
    uint64_t token = rng_bits(3, RNG_SAMPLE, 0, g * 1000) % vocab;
    for (int t = 0; t < run->positions; t++) {
        tokens[t] = (int32_t)token;
        uint64_t draw = rng_bits(3, RNG_SAMPLE, 0, g * 1000 + (uint64_t)t + 1);
        token = draw % 5 ? (token * 7 + 3) % vocab : (draw >> 8) % vocab;
        targets[t] = (int32_t)token;
    }
}

void training_batch(const struct training *run, int rank, int step, int32_t *tokens, int32_t *targets)
{
    const struct mesh_line data = mesh_line(run->mesh, AXIS_DATA, rank); /* stages have the same samples */
    int rows = rows_of(run), row = 0;
    for (int micro = 0; micro < run->micro_batches; micro++) {
        for (int b = 0; b < rows; b++, row++) {
            int i = (micro * data.size + data.place) * rows + b;
            int at = run->order == ORDER_REVERSED  ? run->samples - 1 - i
                     : run->order == ORDER_ROTATED ? (i + run->samples / 2 + 1) % run->samples
                                                   : i;
            sample_tokens(run, (uint64_t)step * (uint64_t)run->samples + (uint64_t)at,
                          tokens + (size_t)row * (size_t)run->positions,
                          targets + (size_t)row * (size_t)run->positions);
        }
    }
}

struct trainer_options training_options(const struct training *run, int rank)
{
    return (struct trainer_options){
        .plan = {.strategy = run->strategy,
                 .mesh = run->mesh,
                 .shape = {rows_of(run), run->positions},
                 .micro_batches = run->micro_batches,
                 .prefetch_forward = run->prefetch,
                 .prefetch_backward = run->prefetch,
                 .group_bytes = run->group_bytes,
                 .keep_whole_bytes = run->keep_whole_bytes,
                 .embedding_gradient = run->embedding_gradient,
                 .chunk_bytes = run->head_chunk,
                 .clip = run->clip_norm > 0,
                 .check = run->check,
                 .param_dtype = run->param_dtype,
                 .reduce_dtype = run->reduce_dtype,
                 .recompute = run->policy,
                 .schedule = run->schedule,
                 .chunks = run->chunks,
                 .table = run->table,
                 .compression = run->compression,
                 .optimizer_memory = run->optimizer_memory,
                 .average_decay = run->average_decay,
                 .state_copies = run->state_copies,
                 .train = true},
        .rank = rank,
        .world_size = mesh_size(run->mesh),
        .local_rank = rank,
        .local_world_size = mesh_size(run->mesh),
        .threads = run->threads,
        .kernels = run->kernels,
        .comm = run->comm,
        .device = run->device,
        .timeout_ns = 60 * NS_PER_S,
        .seed = 42,
        .loss_scale = run->loss_scale,
        .stop_on_nonfinite = run->stop_on_nonfinite,
        .draws_late = run->draws_late,
    };
}

struct trainer_step_values training_values(const struct training *run, int step)
{
    return (struct trainer_step_values){
        .learning_rate = run->learning_rate * (step < 10 ? (step + 1) / 10.0 : 1.0), /* a warm-up */
        .weight_decay = 0.1,
        .beta1 = 0.9,
        .beta2 = 0.95,
        .epsilon = 1e-8,
        .clip_norm = run->clip_norm,
        .global_tokens = (int64_t)run->samples * run->positions,
        .first_sample = (uint64_t)step * (uint64_t)run->samples,
    };
}

static int take_params(const struct training *run, struct trainer *trainer, const struct model *model,
                       int rank, struct muster_error *err)
{
    char *at = rank == 0 ? run->params : NULL;
    for (int i = 0; i < model->param_count; i++) {
        if (trainer_get_param(trainer, i, at, err))
            return -1;
        if (at)
            at += param_elements(&model->params[i]) * dtype_size(trainer_kernels(trainer)->statistic);
    }
    return 0;
}

static int train_steps(const struct training *run, struct trainer *trainer, int rank,
                       struct muster_error *err)
{
    size_t count = (size_t)run->micro_batches * (size_t)rows_of(run) * (size_t)run->positions;
    scope_free int32_t *tokens = mem_calloc(count, sizeof *tokens),
                       *targets = mem_calloc(count, sizeof *targets);
    if (!tokens || !targets)
        return -1;
    bool stop = false;
    struct trainer_counts counts; /* visit may have loaded a checkpoint */
    trainer_get_counts(trainer, &counts);
    int updates = (int)counts.updates; /* a skipped step does not advance the schedule */
    for (int step = 0; step < run->steps && !stop; step++) {
        struct trainer_stats stats;
        struct trainer_step_values values = training_values(run, updates);
        values.first_sample = (uint64_t)(run->first_step + step) * (uint64_t)run->samples;
        values.stop = run->told_at && step >= run->told_at[rank];
        training_batch(run, rank, run->first_step + step, tokens, targets);
        if (trainer_step(trainer, &(struct batch){{tokens, targets}}, &values, &stats, err))
            return -1;
        updates += !stats.skipped;
        stop = stats.stop;
        if (run->last)
            run->last[rank] = step;
        if (rank == 0 && run->losses)
            run->losses[step] = stats.loss;
        if (rank == 0 && run->stats)
            run->stats[step] = stats;
        if (rank == 0 && run->norms)
            run->norms[step] = stats.grad_norm;
        if (run->visit && run->visit(run, trainer, rank, step + 1))
            return -1;
    }
    return 0;
}

struct world {
    struct training *run;
    struct kv_store store;
};

static int rank_body(int rank, int world_size, void *context)
{
    const struct world *world = context;
    const struct training *run = world->run;
    struct muster_error err = {0};
    GUARD(guard_model)
    struct model *model = run->create ? run->create(run, &err) : gpt2_create(&run->gpt, &err);
    struct trainer_options options = training_options(run, rank);
    options.store = world_size > 1 ? &world->store : NULL;
    for (int i = 0; model && i < model->layer_count - 1; i++)
        model->layers[i].recompute = run->recompute && i > 0;
    const struct plan_cut cut = {
        .stages = run->mesh.side[SIDE_PIPELINE], .chunks = run->chunks, .even = true};
    if (model && plan_cut_model(model, &options.plan, &cut, &err) < 0) {
        fprintf(stderr, "rank %d: %s\n", rank, err.text);
        return -1;
    }
    GUARD(guard_trainer) struct trainer *trainer = model ? trainer_create(model, &options, &err) : NULL;
    if (!trainer || (run->visit && run->visit(run, trainer, rank, 0)) ||
        train_steps(run, trainer, rank, &err) ||
        (run->params && take_params(run, trainer, model, rank, &err))) {
        fprintf(stderr, "rank %d: %s\n", rank, err.code ? err.text : "stopped by the test");
        return -1;
    }
    return 0;
}

int training_run(struct training *run)
{
    struct kv_memory *memory = kv_memory_create(NULL);
    if (!memory)
        return -1;
    struct world world = {run, kv_memory_store(memory)};
    int result = rank_threads_run(mesh_size(run->mesh), rank_body, &world);
    kv_memory_destroy(memory);
    return result;
}

double training_deviation(const double *a, const double *b, int count)
{
    double most = 0;
    for (int i = 0; i < count; i++) {
        double deviation = fabs(a[i] - b[i]) / fabs(b[i]);
        if (!(deviation <= most))
            most = deviation;
    }
    return most;
}
