/* plan_update.c - the end of a step: norm, clip, optimizer, loss and the results copied to the host. */
#include <stddef.h>

#include "runtime/plan/plan_internal.h"

/* Whether this rank steps the group: it has its gradient here. */
static bool stepped(const struct plan_builder *b, int g)
{
    return b->plan->groups[g].local && b->plan->groups[g].trainable;
}

static int emit_sum(struct plan_builder *b, enum mesh_axis axis, int entry, int64_t offset, int64_t count)
{
    struct schedule_op op = plan_op(OP_COMM, STREAM_REDUCE);
    op.axis = axis;
    op.from = op.to = entry;
    op.from_offset = op.to_offset = offset;
    return plan_emit_comm(b, &op, COMM_ALL_REDUCE, DTYPE_F64, count);
}

/* Squares of all gradients: over this rank's shards, then over the ranks with other shards and other
 * stages. A tied group counts on its first stage. */
static int emit_norm(struct plan_builder *b)
{
    struct plan *plan = b->plan;
    bool started = false;
    for (int g = 0; g < plan->group_count; g++) {
        if (!stepped(b, g) || plan->groups[g].stage != b->place.stage)
            continue;
        struct schedule_op op = plan_op(OP_NORM, STREAM_COMPUTE);
        op.group = g;
        op.from = plan->groups[g].grad;
        op.to = plan->scalars;
        op.bytes = plan->groups[g].shard * b->element;
        op.beta = started;
        started = true;
        if (plan_emit(b, &op, -1) < 0)
            return -1;
    }
    int64_t at = offsetof(struct step_scalars, norm_squared);
    if (b->shard_ranks > 1 && emit_sum(b, AXIS_SHARD, plan->scalars, at, 1) < 0)
        return -1;
    return b->options->mesh.pipeline > 1 && emit_sum(b, AXIS_PIPELINE, plan->scalars, at, 1) < 0 ? -1 : 0;
}

static int emit_clip(struct plan_builder *b)
{
    struct schedule_op op = plan_op(OP_CLIP, STREAM_COMPUTE);
    op.to = b->plan->scalars;
    return plan_emit(b, &op, -1) < 0 ? -1 : 0;
}

static int emit_steps(struct plan_builder *b)
{
    for (int g = 0; g < b->plan->group_count; g++) {
        const struct param_group *group = &b->plan->groups[g];
        if (!stepped(b, g))
            continue;
        struct schedule_op op = plan_op(OP_STEP, STREAM_COMPUTE);
        op.group = g;
        op.from = group->grad;
        op.to = group->param;
        op.to_offset = group->resident ? group->shard_start * b->element : 0;
        op.bytes = group->shard * b->element;
        if (plan_emit(b, &op, -1) < 0)
            return -1;
        if (!group->resident || group->shard_size == 1)
            continue;
        struct schedule_op gather = plan_op(OP_COMM, STREAM_GATHER);
        gather.axis = AXIS_SHARD;
        gather.group = g;
        gather.from = gather.to = group->param;
        gather.from_offset = op.to_offset;
        if (plan_emit_comm(b, &gather, COMM_ALL_GATHER, b->options->dtype, group->shard) < 0)
            return -1;
    }
    return 0;
}

static int emit_result(struct plan_builder *b, int from, int64_t offset, int64_t bytes)
{
    struct schedule_op op = plan_op(OP_COPY, STREAM_COMPUTE);
    op.from = from;
    op.to = b->plan->staging_result;
    op.to_offset = offset;
    op.bytes = bytes;
    return plan_emit(b, &op, -1) < 0 ? -1 : 0;
}

_Static_assert(offsetof(struct plan_loss, stops) == offsetof(struct plan_loss, total) + sizeof(double),
               "total and stops are summed as one");

int plan_emit_update(struct plan_builder *b)
{
    struct plan *plan = b->plan;
    if (b->options->train && b->options->clip && emit_norm(b) < 0)
        return -1;
    if (mesh_size(b->options->mesh) > 1 &&
        emit_sum(b, AXIS_WORLD, plan->loss, offsetof(struct plan_loss, total), 2) < 0) /* and the stops */
        return -1;
    if (b->options->train && (emit_clip(b) < 0 || emit_steps(b) < 0))
        return -1;
    if (emit_result(b, plan->scalars, offsetof(struct plan_result, scalars), sizeof(struct step_scalars)) < 0)
        return -1;
    return emit_result(b, plan->loss, offsetof(struct plan_result, loss), sizeof(struct plan_loss));
}
