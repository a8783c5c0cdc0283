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

/* Number of ranks that hold this rank's part of the group; *copy: this rank's number among them. First come
 * the ranks of a stage that keep equal shards, then the ranks of the next stage that shares the group. */
static int count_holders(const struct plan *plan, const struct param_group *group, int *copy)
{
    const struct plan_options *o = &plan->options;
    const struct mesh_line stages = plan_tie_line(o->mesh, group->stages, o->rank);
    const struct mesh_line equal =
        mesh_line(o->mesh, group->shard_size > 1 ? AXIS_REPLICATE : AXIS_DATA, o->rank);
    *copy = stages.place * equal.size + equal.place;
    return stages.size * equal.size;
}

bool trainer_part(const struct trainer *trainer, int param, enum trainer_tensor tensor,
                  struct trainer_part *part)
{
    const struct plan *plan = &trainer->plan;
    const struct param_group *group = &plan->groups[plan->places[param].group];
    struct piece piece = trainer_shard_piece(trainer, param);
    int entry = entry_of(group, tensor);
    if (!has_tensor(plan, group, tensor) || group->stored != STORED_PLAIN) /* its elements have no address */
        return false;
    if (!group->local) {
        *part = (struct trainer_part){.dtype = plan->options.dtype, .copies = 1, .entry = -1};
        return true;
    }
    /* If all parameters of a sharded group are resident, this rank's shard is a part of the buffer. */
    bool whole = entry == group->param && group->resident;
    int copy;
    const int copies = count_holders(plan, group, &copy);
    *part = (struct trainer_part){
        .dtype = plan->entries[entry].dtype,
        .first = piece.first,
        .count = piece.count,
        .copies = copies,
        .copy = copy,
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

void trainer_wait_for_readers(const struct trainer *trainer)
{
    for (int g = 0; trainer->guard.wait && g < trainer->plan.group_count; g++)
        trainer->guard.wait(trainer->guard.context, g);
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
    if (trainer_usable(trainer, e))
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

static int zero_moment(struct trainer *trainer, int entry, struct muster_error *err)
{
    const struct plan_entry *moment = &trainer->plan.entries[entry];
    struct device_stream *stream = trainer->streams[STREAM_COMPUTE];
    if (trainer->ops->fill(stream, executor_address(&trainer->parts, entry, 0), 0, moment->bytes))
        return executor_refused(trainer->ops, trainer->device, err);
    return trainer->ops->sync(stream, INSTANT_NEVER, err);
}

int trainer_restart(struct trainer *trainer, struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local;
    trainer_wait_for_readers(trainer);
    if (trainer_initialise_again(trainer, e))
        return -1;
    for (int g = 0; g < trainer->plan.group_count; g++) {
        const struct param_group *group = &trainer->plan.groups[g];
        if ((group->moment1 >= 0 && zero_moment(trainer, group->moment1, e)) ||
            (group->moment2 >= 0 && zero_moment(trainer, group->moment2, e)))
            return trainer_break(trainer, e, "clearing the optimizer's state");
    }
    trainer->steps = trainer->updates = 0;
    loss_scale_begin(&trainer->scale_options, &trainer->scale);
    return 0;
}
