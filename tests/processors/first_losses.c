/* first_losses.c - a rank of the demo that prints the losses of its first steps with every digit, and what
 * they depend on: the kernels' table and BLAS's core, as the numerics fingerprint names them.
 *
 *   first_losses STEPS plain|reversed|rotated CONFIG.yaml [KEY=VALUE ...]
 *
 * Rank 0 prints one line of JSON. The order is that of a step's sequences, for a world of one: the same set,
 * another order of sums. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "proto/base/text.h"
#include "runtime/include/muster.h"
#include "runtime/model/architectures.h"
#include "runtime/train/fingerprint.h"
#include "runtime/train/lr.h"
#include "runtime/train/trainer.h"
#include "runtime/world/world.h"
#include "trainer/data/data.h"
#include "trainer/formats/formats.h"

enum { STEPS_LIMIT = 100 };

struct rank {
    struct train_config config;
    const char *order;
    int steps, micro_batches;
    struct muster_world *world;
    struct model *model;
    struct data *data;
    struct trainer *trainer;
    int32_t *tokens, *targets, *plain_tokens, *plain_targets;
    double losses[STEPS_LIMIT];
};

static int create(struct rank *r, struct muster_error *err)
{
    const struct train_config *c = &r->config;
    const struct gpt2_config shape = {.layers = (int)c->layers,
                                      .channels = (int)c->channels,
                                      .heads = (int)c->heads,
                                      .vocab = (int)c->vocabulary,
                                      .max_positions = (int)c->sequence_length};
    const struct data_options text = {
        .path = c->path, .positions = (int)c->sequence_length, .seed = (uint64_t)c->seed};
    r->world = muster_world_open(NULL, err);
    r->model = r->world ? gpt2_create(&shape, err) : NULL;
    r->data = r->model ? data_open(&text, err) : NULL;
    if (!r->data)
        return -1;
    int rank = muster_world_rank(r->world), size = muster_world_size(r->world);
    const struct train_batch batch = train_config_batch(c, rank, size);
    r->micro_batches = (int)train_batch_micro_batches(&batch);
    char address[WORLD_ADDRESS];
    if (world_address(r->world, address, err) < 0)
        return -1;
    const struct trainer_options options = {
        .plan = {.strategy = (enum strategy)c->strategy,
                 .mesh = MESH(1, 1, size),
                 .shape = {(int)c->micro_batch, (int)c->sequence_length},
                 .micro_batches = r->micro_batches,
                 .prefetch_forward = (int)c->prefetch,
                 .prefetch_backward = (int)c->prefetch,
                 .group_bytes = c->group_bytes,
                 .clip = c->clip_norm > 0,
                 .train = true},
        .rank = rank,
        .world_size = size,
        .local_rank = muster_world_local_rank(r->world),
        .local_world_size = muster_world_local_size(r->world),
        .threads = 1,
        .store = world_store(r->world),
        .address = address,
        .timeout_ns = (int64_t)(c->timeout_s * (double)NS_PER_S),
        .seed = (uint64_t)c->seed,
    };
    r->trainer = trainer_create(r->model, &options, err);
    size_t count = (size_t)r->micro_batches * (size_t)c->micro_batch * (size_t)c->sequence_length;
    r->tokens = mem_calloc(count, sizeof *r->tokens);
    r->targets = mem_calloc(count, sizeof *r->targets);
    r->plain_tokens = mem_calloc(count, sizeof *r->plain_tokens);
    r->plain_targets = mem_calloc(count, sizeof *r->plain_targets);
    if (!r->tokens || !r->targets || !r->plain_tokens || !r->plain_targets)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a batch");
    return r->trainer ? 0 : -1;
}

static int fill_batch(struct rank *r, int step, struct muster_error *err)
{
    const struct train_config *c = &r->config;
    size_t length = (size_t)c->sequence_length, rows = (size_t)r->micro_batches * (size_t)c->micro_batch;
    const struct train_batch batch =
        train_config_batch(c, muster_world_rank(r->world), muster_world_size(r->world));
    for (size_t row = 0; row < rows; row++)
        if (data_sample(r->data, (uint64_t)(step * c->global_batch + train_batch_row(&batch, (int64_t)row)),
                        r->plain_tokens + row * length, r->plain_targets + row * length, err) < 0)
            return -1;
    for (size_t row = 0; row < rows; row++) {
        size_t from = !strcmp(r->order, "reversed")  ? rows - 1 - row
                      : !strcmp(r->order, "rotated") ? (row + rows / 2 + 1) % rows
                                                     : row;
        memcpy(r->tokens + row * length, r->plain_tokens + from * length, length * sizeof *r->tokens);
        memcpy(r->targets + row * length, r->plain_targets + from * length, length * sizeof *r->targets);
    }
    return 0;
}

static int train(struct rank *r, struct muster_error *err)
{
    const struct train_config *c = &r->config;
    const struct lr_schedule schedule = {.peak = c->learning_rate,
                                         .minimum = c->min_learning_rate,
                                         .warmup_steps = c->warmup_steps,
                                         .total_steps = c->steps};
    for (int step = 0; step < r->steps; step++) {
        struct trainer_stats stats;
        const struct trainer_step_values values = {.learning_rate = lr_at(&schedule, step),
                                                   .weight_decay = c->weight_decay,
                                                   .beta1 = c->beta1,
                                                   .beta2 = c->beta2,
                                                   .epsilon = c->epsilon,
                                                   .clip_norm = c->clip_norm,
                                                   .global_tokens = c->global_batch * c->sequence_length,
                                                   .first_sample = (uint64_t)(step * c->global_batch)};
        if (fill_batch(r, step, err) < 0 ||
            trainer_step(r->trainer, &(struct batch){{r->tokens, r->targets}}, &values, &stats, err) < 0)
            return -1;
        r->losses[step] = stats.loss;
    }
    return 0;
}

static int print(const struct rank *r)
{
    struct fingerprint fingerprint;
    trainer_fingerprint(r->trainer, &fingerprint);
    printf("{\"kernels\": \"%s\", \"blas\": \"%s\", \"ranks\": %d, \"losses\": [", fingerprint.kernels,
           fingerprint.blas, fingerprint.world_size);
    for (int step = 0; step < r->steps; step++)
        printf("%s%.17g", step ? ", " : "", r->losses[step]);
    printf("]}\n");
    return fflush(stdout);
}

static void destroy(struct rank *r)
{
    trainer_destroy(r->trainer);
    data_destroy(r->data);
    model_destroy(r->model);
    muster_world_close(&r->world);
    mem_free(r->tokens);
    mem_free(r->targets);
    mem_free(r->plain_tokens);
    mem_free(r->plain_targets);
    train_config_free(&r->config);
}

int main(int argc, char **argv)
{
    struct rank r = {0};
    struct muster_error err = {0};
    int64_t steps = 0;
    if (argc < 4 || !text_int64(argv[1], &steps) || steps < 1 || steps > STEPS_LIMIT) {
        fprintf(stderr, "usage: first_losses STEPS plain|reversed|rotated CONFIG.yaml [KEY=VALUE ...]\n");
        return 2;
    }
    r.steps = (int)steps;
    r.order = argv[2];
    struct formats_settings settings;
    const struct formats_request request = {
        .paths = argv + 3, .path_count = 1, .overrides = argv + 4, .override_count = argc - 4};
    int result = formats_read(&request, &settings, &err);
    r.config = settings.config;
    settings.config = (struct train_config){0};
    formats_free(&settings);
    if (!result)
        result = create(&r, &err);
    if (!result)
        result = train(&r, &err);
    if (!result && muster_world_rank(r.world) == 0)
        result = print(&r);
    if (result)
        fprintf(stderr, "first_losses: %s\n", err.text);
    destroy(&r);
    return result ? 1 : 0;
}
