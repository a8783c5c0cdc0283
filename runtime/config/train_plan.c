/* train_plan.c - see train_plan.h. */
#include "runtime/config/train_plan.h"

#include <limits.h>
#include <string.h>

#include "proto/base/error.h"
#include "runtime/plan/plan_cut.h"

static struct plan_options plan_of(const struct train_config *c)
{
    return (struct plan_options){
        .strategy = (enum strategy)c->strategy,
        .shape = {(int)c->micro_batch, (int)c->sequence_length},
        .dtype = DTYPE_F32,
        .param_dtype = train_config_dtype(c),
        .reduce_dtype = train_config_reduce_dtype(c),
        .prefetch_forward = (int)c->prefetch,
        .prefetch_backward = (int)c->prefetch,
        .group_bytes = c->group_bytes,
        .keep_whole_bytes = c->keep_whole_below,
        .embedding_gradient = (enum embedding_gradient)c->embedding_gradient,
        .recompute = {(enum recompute)c->recompute,
                      c->recompute == RECOMPUTE_EVERY ? (int)c->recompute_every : 0},
        .schedule = (enum pipe_schedule)c->mesh_schedule,
        .optimizer_memory = c->optimizer_memory ? MEMORY_HOST : MEMORY_DEVICE,
        .average_decay = c->ema_decay,
        .clip = c->clip_norm > 0,
        .check = train_config_checks(c),
        .train = true,
        .optimizer = {.kind = (enum optimizer)c->optimizer,
                      .momentum = c->momentum,
                      .dampening = c->dampening,
                      .nesterov = c->nesterov},
        .kernels = kernels_cpu((unsigned)-1),
    };
}

static bool is_word(char *const *list, const char *word)
{
    return list && list[0] && !list[1] && !strcmp(list[0], word);
}

static int cut_model(const struct train_config *c, struct model *model, const struct plan_options *options,
                     struct muster_error *err)
{
    const bool even = is_word(c->mesh_cut, "even"), chosen = even || is_word(c->mesh_cut, "auto");
    const struct plan_cut cut = {.stages = (int)c->mesh_pipeline,
                                 .even = even,
                                 .names = chosen ? NULL : (const char *const *)c->mesh_cut};
    return plan_cut_model(model, options, &cut, err);
}

int train_plan_options(const struct train_config *c, const struct train_place *place, struct model *model,
                       struct plan_options *plan, struct muster_error *err)
{
    struct plan_options options = plan_of(c);
    options.rank = place->rank;
    options.world_size = place->world_size;
    if (model->max_positions && c->sequence_length > model->max_positions)
        return error_set(err, MUSTER_E_INVALID,
                         "training.sequence_length %lld is above the %d positions of model %s",
                         (long long)c->sequence_length, model->max_positions, model->name);
    if (param_patterns_freeze(model, c->frozen, err) < 0)
        return error_wrap(err, "training.frozen");
    if (param_patterns_decay(model, (enum param_decay)c->decay, c->no_decay, err) < 0)
        return error_wrap(err, "training.no_decay");
    const struct mesh_wish wish = {options.strategy, c->mesh_pipeline, c->replicas, place->world_size,
                                   place->local_size};
    if (cut_model(c, model, &options, err) < 0 || mesh_choose(&wish, &options.mesh, err) < 0)
        return -1;
    const struct train_batch batch = train_config_batch(c, place->rank, place->world_size);
    const int64_t micro_batches = train_batch_micro_batches(&batch);
    options.micro_batches = micro_batches > INT_MAX ? INT_MAX : (int)micro_batches; /* refused by the plan */
    options.chunk_bytes = c->head_chunk;
    *plan = options;
    return 0;
}
