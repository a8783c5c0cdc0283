/* trainer_part.c - a rank's part of the training state, by parameter and elements, for checkpoints between
 * steps. */
#include <string.h>

#include "proto/base/error.h"
#include "runtime/train/trainer_state.h"

static int entry_of(const struct param_group *group, enum trainer_tensor tensor)
{
    switch (tensor) {
    case TRAINER_MOMENT1:
        return group->moment1;
    case TRAINER_MOMENT2:
        return group->moment2;
    case TRAINER_AVERAGE:
        return group->average;
    default:
        return group->master >= 0 ? group->master : group->param;
    }
}

/* whole: the buffer has the group's parameters, not this rank's shard of them. */
struct piece trainer_piece_of(const struct trainer *trainer, int param, bool whole)
{
    const struct plan *plan = &trainer->plan;
    const struct param_group *group = &plan->groups[plan->places[param].group];
    int64_t start = plan->places[param].offset, end = start + param_elements(&trainer->model->params[param]);
    int64_t from = whole ? 0 : group->shard_start, to = from + (whole ? group->padded : group->shard);
    int64_t first = start > from ? start : from, last = end < to ? end : to;
    if (last <= first)
        return (struct piece){0};
    return (struct piece){.first = first - start, .count = last - first, .at = first - from};
}

struct piece trainer_held_piece(const struct trainer *trainer, int param)
{
    return trainer_piece_of(trainer, param, trainer->plan.groups[trainer->plan.places[param].group].resident);
}

struct piece trainer_shard_piece(const struct trainer *trainer, int param)
{
    return trainer_piece_of(trainer, param, false);
}

void trainer_held(const struct trainer *trainer, int param, int64_t *first, int64_t *count)
{
    const struct param_group *group = &trainer->plan.groups[trainer->plan.places[param].group];
    const struct piece piece =
        group->local ? trainer_piece_of(trainer, param, group->resident) : (struct piece){0};
    *first = piece.first;
    *count = piece.count;
}

int trainer_check_param(struct trainer *trainer, int param, struct muster_error *err)
{
    if (trainer_usable(trainer, err))
        return -1;
    if (param < 0 || param >= trainer->model->param_count)
        return error_set(err, MUSTER_E_INVALID, "parameter %d: the model has %d parameters", param,
                         trainer->model->param_count);
    return trainer_settle(trainer, err) ? trainer_break(trainer, err, "gathering for the next step") : 0;
}

/* Whether the run has such a tensor of the group, on any stage. */
static bool has_tensor(const struct plan *plan, const struct param_group *group, enum trainer_tensor tensor)
{
    const bool stepped = plan->options.train && group->trainable && !group->statistic;
    const int moments = optimizer_moments(&plan->options.optimizer);
    switch (tensor) {
    case TRAINER_MOMENT1:
        return stepped && moments > 0;
    case TRAINER_MOMENT2:
        return stepped && moments > 1;
    case TRAINER_AVERAGE:
        return stepped && plan->options.average_decay > 0;
    default:
        return true;
    }
}

static const struct compress_piece *piece_of_param(const struct plan *plan, int param)
{
    const struct param_group *group = &plan->groups[plan->places[param].group];
    for (int i = 0; i < group->piece_count; i++)
        if (plan->pieces[group->first_piece + i].param == param)
            return &plan->pieces[group->first_piece + i];
    return NULL;
}

/* The state of the compression: feedback, which each replica has of its own, or a factor, which all ranks of
 * a stage hold whole. */
static bool find_compressed(const struct trainer *trainer, int param, enum trainer_tensor tensor,
                            struct trainer_part *part)
{
    const struct plan *plan = &trainer->plan;
    const struct plan_options *o = &plan->options;
    const struct param_group *group = &plan->groups[plan->places[param].group];
    const struct compress_piece *piece = piece_of_param(plan, param);
    const int entry = tensor == TRAINER_FACTOR ? group->factor : group->feedback;
    if (!piece || entry < 0 || (!piece->kept && !piece->rank) || (tensor == TRAINER_FACTOR && !piece->rank))
        return false;
    const struct mesh_line stages = plan_tie_line(o->mesh, group->stages, o->rank),
                           data = mesh_line(o->mesh, AXIS_DATA, o->rank);
    *part = (struct trainer_part){.dtype = o->dtype,
                                  .first = piece->first,
                                  .count = piece->count,
                                  .copies = stages.size,
                                  .copy = stages.place,
                                  .replicas = 1,
                                  .entry = entry,
                                  .at = piece->at};
    if (tensor == TRAINER_FEEDBACK) {
        part->replicas = plan_wire_shape(plan, plan->places[param].group).replicas;
        part->replica = data.place / (data.size / part->replicas);
        return true;
    }
    part->first = 0;
    part->count = piece->columns * piece->rank;
    part->at = piece->right;
    part->copies *= data.size;
    part->copy = stages.place * data.size + data.place;
    return true;
}

bool trainer_part(const struct trainer *trainer, int param, enum trainer_tensor tensor,
                  struct trainer_part *part)
{
    if (tensor == TRAINER_FEEDBACK || tensor == TRAINER_FACTOR)
        return find_compressed(trainer, param, tensor, part);
    const struct plan *plan = &trainer->plan;
    const struct param_group *group = &plan->groups[plan->places[param].group];
    struct piece piece = trainer_shard_piece(trainer, param);
    int entry = entry_of(group, tensor);
    if (!has_tensor(plan, group, tensor) || group->stored != STORED_PLAIN) /* its elements have no address */
        return false;
    if (!group->local) {
        *part = (struct trainer_part){.dtype = plan->options.dtype, .copies = 1, .replicas = 1, .entry = -1};
        return true;
    }
    /* If all parameters of a sharded group are resident, this rank's shard is a part of the buffer. */
    bool whole = entry == group->param && group->resident;
    int copy;
    const int copies = plan_holders(plan, group, &copy);
    *part = (struct trainer_part){
        .dtype = plan->entries[entry].dtype,
        .first = piece.first,
        .count = piece.count,
        .copies = copies,
        .copy = copy,
        .replicas = 1,
        .entry = entry,
        .at = piece.at + (whole ? group->shard_start : 0),
    };
    return true;
}

bool trainer_host_reads(const struct trainer *trainer)
{
    return trainer->ops->host_memory;
}

const void *trainer_part_address(const struct trainer *trainer, const struct trainer_part *part,
                                 int64_t first)
{
    if (!trainer->ops->host_memory)
        return NULL;
    return executor_address(&trainer->parts, part->entry,
                            (part->at + first - part->first) * dtype_size(part->dtype));
}

void trainer_set_guard(struct trainer *trainer, void (*wait)(void *context, int group), void *context)
{
    trainer->guard.wait = wait;
    trainer->guard.context = context;
}

void trainer_set_vote(struct trainer *trainer, void (*vote)(void *context, double *votes), void *context)
{
    trainer->guard.vote = vote;
    trainer->guard.voter = context;
    trainer->voted = false;
}

bool trainer_take_votes(struct trainer *trainer, double votes[TRAINER_VOTES])
{
    if (!trainer->voted)
        return false;
    memcpy(votes, trainer->votes, sizeof trainer->votes);
    trainer->voted = false;
    return true;
}

/* Copies between host memory and a part's elements. */
static int move_part(struct trainer *trainer, const struct trainer_part *part, int64_t first, int64_t count,
                     void *out, const void *in, struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local;
    struct device_stream *stream = trainer->streams[STREAM_COMPUTE];
    int64_t size = dtype_size(part->dtype);
    char *at = executor_address(&trainer->parts, part->entry, (part->at + first - part->first) * size);
    if (trainer_usable(trainer, e) || (out && trainer_draw(trainer, e)))
        return -1;
    if (trainer_settle(trainer, e))
        return trainer_break(trainer, e, "gathering for the next step");
    int failed = trainer->ops->copy(stream, out ? out : at, out ? at : in, count * size)
                     ? executor_refused(trainer->ops, trainer->device, e)
                     : trainer->ops->sync(stream, INSTANT_NEVER, e);
    return failed
               ? trainer_break(trainer, e, out ? "reading the training state" : "writing the training state")
               : 0;
}

int trainer_pin(struct trainer *trainer, int64_t bytes, struct device_arena *arena, struct muster_error *err)
{
    return trainer->ops->arena_create(trainer->device, MEMORY_PINNED, bytes, arena, err);
}

void trainer_unpin(struct trainer *trainer, struct device_arena *arena)
{
    if (arena->base)
        trainer->ops->arena_destroy(trainer->device, arena);
}

int trainer_fetch(struct trainer *trainer, const struct trainer_part *part, int64_t first, int64_t count,
                  void *pinned, struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local;
    const int64_t size = dtype_size(part->dtype);
    const char *at = executor_address(&trainer->parts, part->entry, (part->at + first - part->first) * size);
    if (trainer_usable(trainer, e) || trainer_draw(trainer, e))
        return -1;
    if (!trainer->ops->copy(trainer->streams[STREAM_COMPUTE], pinned, at, count * size))
        return 0;
    (void)executor_refused(trainer->ops, trainer->device, e); /* -1, as trainer_break */
    return trainer_break(trainer, e, "copying the training state");
}

int trainer_fetched(struct trainer *trainer, struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local;
    return trainer->ops->sync(trainer->streams[STREAM_COMPUTE], INSTANT_NEVER, e)
               ? trainer_break(trainer, e, "copying the training state")
               : 0;
}

int trainer_read_part(struct trainer *trainer, const struct trainer_part *part, int64_t first, int64_t count,
                      void *out, struct muster_error *err)
{
    return move_part(trainer, part, first, count, out, NULL, err);
}

int trainer_write_part(struct trainer *trainer, const struct trainer_part *part, int64_t first, int64_t count,
                       const void *values, struct muster_error *err)
{
    trainer_wait_for_readers(trainer);
    return move_part(trainer, part, first, count, NULL, values, err);
}

void trainer_get_counts(const struct trainer *trainer, struct trainer_counts *counts)
{
    *counts = (struct trainer_counts){.steps = trainer->steps, .updates = trainer->updates};
    if (trainer->scales)
        counts->scale = trainer->scale;
}

void trainer_set_counts(struct trainer *trainer, const struct trainer_counts *counts)
{
    trainer->steps = counts->steps;
    trainer->updates = counts->updates;
    if (trainer->scales && counts->scale.scale > 0 && !(trainer->scale_options.fixed > 0))
        trainer->scale = counts->scale;
    trainer->stepped_scale = 0;
}
