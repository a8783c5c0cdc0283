/* api_trainer.c - the training part of muster.h: validates the caller's arguments and passes them to the
 * trainer. */
#include <math.h>
#include <stddef.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/processor/processor.h"
#include "runtime/device/host_threads.h"
#include "runtime/files/files.h"
#include "runtime/include/muster.h"
#include "runtime/model/gpt2.h"
#include "runtime/train/trainer.h"
#include "runtime/world/world.h"

struct muster_trainer {
    struct model *model;
    int vocabulary;
    struct trainer *trainer;
    struct muster_training training;
    int rank, world_size;
};

GUARD_DEFINE(muster_trainer, struct muster_trainer *, muster_trainer_destroy);

/* The two enumerations have the same order. */
_Static_assert((int)MUSTER_NO_SHARD == (int)STRATEGY_NO_SHARD &&
                   (int)MUSTER_HYBRID_SHARD == (int)STRATEGY_HYBRID_SHARD &&
                   (int)MUSTER_HYBRID_SHARD + 1 == (int)STRATEGY_COUNT,
               "muster.h and plan.h number the strategies alike");

void muster_training_defaults(struct muster_training *training, const struct muster_gpt *model)
{
    *training = (struct muster_training){
        .size = sizeof *training,
        .strategy = MUSTER_FULL_SHARD,
        .sequences = 1,
        .positions = model->positions,
        .micro_batches = 1,
        .prefetch = 2,
        .clip = 1,
        .timeout_ms = 600 * 1000,
    };
}

void muster_step_defaults(struct muster_step *step)
{
    *step = (struct muster_step){
        .size = sizeof *step,
        .learning_rate = 3e-4,
        .weight_decay = 0.1,
        .beta1 = 0.9,
        .beta2 = 0.95,
        .epsilon = 1e-8,
        .clip_norm = 1.0,
    };
}

/* ---- creation ---- */

/* A struct from a program that was built against another muster.h. */
static int check_size(const char *name, uint32_t size, size_t ours, struct muster_error *err)
{
    if (size == ours)
        return 0;
    return error_set(err, MUSTER_E_INVALID,
                     "struct %s has the size %u, but this library's is %zu: set its size, and build against "
                     "this library's muster.h",
                     name, size, ours);
}

static int check_training(const struct muster_gpt *model, const struct muster_training *t,
                          struct muster_error *err)
{
    if (check_size("muster_gpt", model->size, sizeof *model, err) ||
        check_size("muster_training", t->size, sizeof *t, err))
        return -1;
    if (t->strategy < 0 || t->strategy >= (int)STRATEGY_COUNT)
        return error_set(err, MUSTER_E_INVALID, "strategy %d: it is 0 to %d", t->strategy,
                         (int)STRATEGY_COUNT - 1);
    if (t->positions > model->positions)
        return error_set(err, MUSTER_E_INVALID,
                         "a batch of %d positions is longer than the model's %d positions", t->positions,
                         model->positions);
    if (t->timeout_ms < 1 || t->timeout_ms > INT64_MAX / NS_PER_MS)
        return error_set(err, MUSTER_E_INVALID, "timeout_ms is %lld, but must be from 1 to %lld",
                         (long long)t->timeout_ms, (long long)(INT64_MAX / NS_PER_MS));
    return 0;
}

/* All but the mesh. */
static struct trainer_options options_of(struct muster_world *world, const struct muster_training *t)
{
    int world_size = world ? muster_world_size(world) : 1,
        local_size = world ? muster_world_local_size(world) : 1;
    return (struct trainer_options){
        .plan = {.strategy = (enum strategy)t->strategy,
                 .shape = {t->sequences, t->positions},
                 .micro_batches = t->micro_batches,
                 .prefetch_forward = t->prefetch,
                 .prefetch_backward = t->prefetch,
                 .group_bytes = t->group_bytes,
                 .clip = t->clip != 0,
                 .train = true},
        .rank = world ? muster_world_rank(world) : 0,
        .world_size = world_size,
        .local_rank = world ? muster_world_local_rank(world) : 0,
        .local_world_size = local_size,
        .threads = t->threads > 0 ? t->threads : host_threads(local_size),
        .store = world ? world_store(world) : NULL,
        .timeout_ns = t->timeout_ms * NS_PER_MS,
        .memory_limit = t->memory_limit,
        .seed = t->seed,
    };
}

struct muster_trainer *muster_trainer_create(struct muster_world *world, const struct muster_gpt *model,
                                             const struct muster_training *training, struct muster_error *err)
{
    if (processor_check(err))
        return NULL;
    if (check_training(model, training, err))
        return NULL;
    const struct gpt2_config config = {.layers = model->layers,
                                       .channels = model->channels,
                                       .heads = model->heads,
                                       .vocab = model->vocabulary,
                                       .max_positions = model->positions};
    GUARD(guard_muster_trainer) struct muster_trainer *trainer = mem_calloc(1, sizeof *trainer);
    if (!trainer) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a trainer");
        return NULL;
    }
    struct trainer_options options = options_of(world, training);
    if (mesh_choose(options.plan.strategy, training->replicas, options.world_size, options.local_world_size,
                    &options.plan.mesh, err))
        return NULL;
    char address[WORLD_ADDRESS];
    if (world && world_address(world, address, err))
        return NULL;
    options.address = world ? address : NULL;
    trainer->training = *training;
    trainer->rank = options.rank;
    trainer->world_size = options.world_size;
    trainer->vocabulary = config.vocab;
    trainer->model = gpt2_create(&config, err);
    trainer->trainer = trainer->model ? trainer_create(trainer->model, &options, err) : NULL;
    return trainer->trainer ? take_pointer(&trainer) : NULL;
}

void muster_trainer_destroy(struct muster_trainer *trainer)
{
    if (!trainer)
        return;
    trainer_destroy(trainer->trainer);
    model_destroy(trainer->model);
    mem_free(trainer);
}

/* ---- steps ---- */

static int check_tokens(const struct muster_trainer *trainer, const int32_t *tokens, const int32_t *targets,
                        int64_t count, struct muster_error *err)
{
    int vocabulary = trainer->vocabulary;
    for (int64_t i = 0; i < count; i++) {
        if (tokens[i] < 0 || tokens[i] >= vocabulary)
            return error_set(err, MUSTER_E_INVALID, "token %lld is %d, but the vocabulary has %d",
                             (long long)i, tokens[i], vocabulary);
        if (targets[i] < -1 || targets[i] >= vocabulary)
            return error_set(err, MUSTER_E_INVALID, "target %lld is %d, but the vocabulary has %d",
                             (long long)i, targets[i], vocabulary);
    }
    return 0;
}

static int64_t rank_tokens(const struct muster_trainer *trainer)
{
    const struct muster_training *t = &trainer->training;
    return (int64_t)t->sequences * t->positions * t->micro_batches;
}

int muster_trainer_step(struct muster_trainer *trainer, const int32_t *tokens, const int32_t *targets,
                        const struct muster_step *step, struct muster_step_result *result,
                        struct muster_error *err)
{
    if (check_size("muster_step", step->size, sizeof *step, err) ||
        (result && check_size("muster_step_result", result->size, sizeof *result, err)))
        return -1;
    if (check_tokens(trainer, tokens, targets, rank_tokens(trainer), err))
        return -1;
    const struct trainer_step_values values = {
        .learning_rate = step->learning_rate,
        .weight_decay = step->weight_decay,
        .beta1 = step->beta1,
        .beta2 = step->beta2,
        .epsilon = step->epsilon,
        .clip_norm = trainer->training.clip ? step->clip_norm : 0,
        .global_tokens =
            step->global_tokens ? step->global_tokens : rank_tokens(trainer) * trainer->world_size,
        .stop = step->stop != 0,
    };
    struct trainer_stats stats;
    if (trainer_step(trainer->trainer, &(struct batch){{tokens, targets}}, &values, &stats, err))
        return -1;
    if (result)
        *result = (struct muster_step_result){.size = sizeof *result,
                                              .loss = stats.loss,
                                              .grad_norm = stats.grad_norm,
                                              .skipped = stats.skipped,
                                              .stop = stats.stop,
                                              .step_ns = stats.step_ns,
                                              .comm_ns = stats.comm_ns,
                                              .exposed_ns = stats.exposed_ns};
    return 0;
}

int muster_trainer_evaluate(struct muster_trainer *trainer, const int32_t *tokens, const int32_t *targets,
                            double *loss, struct muster_error *err)
{
    int64_t count = (int64_t)trainer->training.sequences * trainer->training.positions;
    if (check_tokens(trainer, tokens, targets, count, err))
        return -1;
    return trainer_evaluate(trainer->trainer, &(struct batch){{tokens, targets}}, loss, err);
}

/* ---- parameters ---- */

static const struct param_desc *param_at(const struct muster_trainer *trainer, int parameter)
{
    const struct model *model = trainer->model;
    return parameter >= 0 && parameter < model->param_count ? &model->params[parameter] : NULL;
}

int muster_trainer_parameters(const struct muster_trainer *trainer)
{
    return trainer->model->param_count;
}

const char *muster_trainer_parameter_name(const struct muster_trainer *trainer, int parameter)
{
    const struct param_desc *param = param_at(trainer, parameter);
    return param ? param->name : NULL;
}

int64_t muster_trainer_parameter_elements(const struct muster_trainer *trainer, int parameter)
{
    const struct param_desc *param = param_at(trainer, parameter);
    return param ? param_elements(param) : 0;
}

int muster_trainer_parameter_shape(const struct muster_trainer *trainer, int parameter, int64_t shape[2])
{
    const struct param_desc *param = param_at(trainer, parameter);
    if (!param)
        return -1;
    shape[0] = param->dim[0];
    shape[1] = param->ndim > 1 ? param->dim[1] : 1;
    return param->ndim;
}

int muster_trainer_get_parameter(struct muster_trainer *trainer, int parameter, float *values,
                                 struct muster_error *err)
{
    return trainer_get_param(trainer->trainer, parameter, values, err);
}

int muster_trainer_set_parameter(struct muster_trainer *trainer, int parameter, const float *values,
                                 struct muster_error *err)
{
    return trainer_set_param(trainer->trainer, parameter, values, err);
}

/* ---- saving ---- */

int muster_trainer_save(struct muster_trainer *trainer, const char *path, struct muster_error *err)
{
    return files_save(trainer->trainer, path, err);
}

int64_t muster_trainer_planned_bytes(const struct muster_trainer *trainer)
{
    int64_t bytes = 0;
    for (int i = 0; i < MEMORY_CLASS_COUNT; i++)
        bytes += trainer_plan(trainer->trainer)->arena_bytes[i];
    return bytes;
}
