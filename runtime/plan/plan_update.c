/* plan_update.c - the end of a step: norm, clip, optimizer, loss and the results copied to the host.
 *
 * Norms come in the order in which the gradients are complete, so that each norm overlaps the reductions that
 * are still to come. With clipping, or with a check for gradients that are not finite, all groups are stepped
 * after the whole norm. Groups that the next step uses first are stepped first: their gathers for the next
 * step then overlap the other groups' steps. Without either, a group is stepped as soon as its own gradient
 * is reduced. */
#include <stddef.h>
#include <stdlib.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/plan/plan_internal.h"

/* Whether this rank steps the group: it has its gradient here. */
static bool stepped(const struct plan_builder *b, int g)
{
    return b->plan->groups[g].local && b->plan->groups[g].trainable;
}

static void emit_sum(struct plan_builder *b, enum mesh_axis axis, int entry, int64_t offset, int64_t count)
{
    struct schedule_op op = plan_op(OP_COMM, STREAM_REDUCE);
    op.axis = axis;
    op.from = op.to = entry;
    op.from_offset = op.to_offset = offset;
    plan_emit_comm(b, &op, COMM_ALL_REDUCE, DTYPE_F64, count);
}

/* ---- order ---- */

/* A group and its key in the order by reduction or by use. */
struct turn {
    int key, group;
};

static int by_key(const void *left, const void *right)
{
    const struct turn *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->group < b->group ? -1 : a->group > b->group;
}

static void order_by_reduction(const struct plan_builder *b, struct turn *turns)
{
    for (int g = 0; g < b->plan->group_count; g++)
        turns[g] = (struct turn){b->groups[g].reduced, g};
    qsort(turns, (size_t)b->plan->group_count, sizeof *turns, by_key);
}

/* Groups whose gathers are carried come first, in the order of these; then the others as they are used. */
static void order_by_use(const struct plan_builder *b, struct turn *turns)
{
    for (int g = 0; g < b->plan->group_count; g++)
        turns[g] = (struct turn){b->gathers_carried, g};
    for (int i = b->gathers_carried - 1; i >= 0; i--)
        turns[b->gathers[i].group].key = i;
    qsort(turns, (size_t)b->plan->group_count, sizeof *turns, by_key);
}

/* ---- norm ---- */

/* Squares of all gradients, which statistics have none of: over this rank's shards, then over the ranks with
 * other shards and other stages. A tied group counts on its first stage; of a group that all of them keep
 * whole each rank counts its part. */
static bool norm_groups(struct plan_builder *b, const struct turn *turns, bool started,
                        bool (*chosen)(const struct plan_builder *b, int group))
{
    struct plan *plan = b->plan;
    for (int i = 0; i < plan->group_count; i++) {
        const int g = turns[i].group;
        if (!stepped(b, g) || plan->groups[g].statistic || !chosen(b, g) ||
            plan_first_stage(&plan->groups[g]) != b->place.at[SIDE_PIPELINE])
            continue;
        plan_finish_gradient(b, g);
        struct schedule_op op = plan_op(OP_NORM, STREAM_COMPUTE);
        op.group = g;
        op.from = plan->groups[g].grad;
        op.to = plan->scalars;
        op.bytes = plan->groups[g].shard * b->real;
        if (plan->groups[g].whole) {
            op.bytes /= b->shard_ranks;
            op.from_offset = op.bytes * b->place.at[SIDE_SHARD];
        }
        op.beta = started;
        started = true;
        plan_emit(b, &op, -1);
    }
    return started;
}

static bool any_group(const struct plan_builder *b, int g)
{
    (void)b;
    (void)g;
    return true;
}

static bool is_compressed_group(const struct plan_builder *b, int g)
{
    return plan_compresses(b, g);
}

static bool is_dense_group(const struct plan_builder *b, int g)
{
    return !plan_compresses(b, g);
}

/* The squares of gradients that replicas are still to exchange are summed over the replicas: they are those
 * of the sum if the replicas' gradients are at right angles to each other. */
static void emit_norm(struct plan_builder *b, const struct turn *turns)
{
    const struct plan *plan = b->plan;
    const int64_t at = offsetof(struct step_scalars, norm_squared);
    if (b->when == WHEN_COMPRESSED || (plan->pieces && !b->options->compression.start)) {
        const bool started = norm_groups(b, turns, false, is_compressed_group);
        if (started && b->replicas > 1)
            emit_sum(b, b->replica_axis, plan->scalars, at, 1);
        (void)norm_groups(b, turns, started, is_dense_group);
    } else {
        (void)norm_groups(b, turns, false, any_group);
    }
    if (b->shard_ranks > 1)
        emit_sum(b, AXIS_SHARD, plan->scalars, at, 1);
    if (b->options->mesh.side[SIDE_PIPELINE] > 1)
        emit_sum(b, AXIS_PIPELINE, plan->scalars, at, 1);
}

/* after: an operation that it waits for; -1: none */
static void emit_clip(struct plan_builder *b, int after)
{
    struct schedule_op op = plan_op(OP_CLIP, STREAM_COMPUTE);
    op.to = b->plan->scalars;
    plan_emit(b, &op, after);
}

/* ---- step ---- */

/* Gathers, for a group that every rank keeps whole, the parts that the other ranks have stepped. */
static void gather_again(struct plan_builder *b, const struct schedule_op *step)
{
    const struct param_group *group = &b->plan->groups[step->group];
    struct schedule_op gather = plan_op(OP_COMM, STREAM_GATHER);
    gather.axis = AXIS_SHARD;
    gather.group = step->group;
    gather.from = gather.to = group->param;
    gather.from_offset = step->to_offset;
    gather.carried = b->options->prefetch_forward > 0;
    plan_emit_comm(b, &gather, COMM_ALL_GATHER, b->options->param_dtype, group->shard);
}

/* Runs before the group is gathered: a gather of a group kept whole overwrites the parameters read here. */
static void emit_average(struct plan_builder *b, const struct schedule_op *step)
{
    const struct param_group *group = &b->plan->groups[step->group];
    struct schedule_op op = plan_op(OP_AVERAGE, STREAM_COMPUTE);
    op.group = step->group;
    op.from = group->master >= 0 ? group->master : group->param;
    op.from_offset = group->master >= 0 ? 0 : step->to_offset;
    op.to = group->average;
    op.bytes = group->shard * b->real;
    plan_emit(b, &op, -1);
}

static void emit_step(struct plan_builder *b, int g)
{
    const struct param_group *group = &b->plan->groups[g];
    struct schedule_op op = plan_op(OP_STEP, STREAM_COMPUTE);
    plan_finish_gradient(b, g);
    op.group = g;
    op.from = group->grad;
    op.to = group->param;
    op.to_offset = group->resident ? group->shard_start * b->param : 0;
    op.bytes = group->shard * b->param;
    plan_emit(b, &op, -1);
    if (group->average >= 0)
        emit_average(b, &op);
    if (group->resident && group->shard_size > 1)
        gather_again(b, &op);
}

static void emit_steps(struct plan_builder *b, const struct turn *turns)
{
    for (int i = 0; i < b->plan->group_count; i++) {
        const int g = turns[i].group;
        if (stepped(b, g))
            emit_step(b, g);
        plan_carry(b, g);
    }
}

static void emit_result(struct plan_builder *b, int from, int64_t offset, int64_t bytes)
{
    struct schedule_op op = plan_op(OP_COPY, STREAM_COMPUTE);
    op.from = from;
    op.to = b->plan->staging_result;
    op.to_offset = offset;
    op.bytes = bytes;
    plan_emit(b, &op, -1);
}

_Static_assert(
    offsetof(struct plan_loss, stops) == offsetof(struct plan_loss, total) + sizeof(double) &&
        offsetof(struct plan_loss, next_targets) == offsetof(struct plan_loss, total) + 2 * sizeof(double) &&
        offsetof(struct plan_loss, correct) == offsetof(struct plan_loss, total) + 3 * sizeof(double) &&
        offsetof(struct plan_loss, votes) == offsetof(struct plan_loss, total) + 4 * sizeof(double),
    "total, stops, next_targets, correct and votes are summed as one");

/* Copies the votes as late as the sum allows, since the work that they report continues during the step. */
static void emit_votes(struct plan_builder *b)
{
    struct schedule_op op = plan_op(OP_COPY, STREAM_COMPUTE);
    op.from = b->plan->staging_input;
    op.from_offset = offsetof(struct plan_input, votes);
    op.to = b->plan->loss;
    op.to_offset = offsetof(struct plan_loss, votes);
    op.bytes = sizeof(double) * PLAN_VOTES;
    op.votes = true;
    plan_emit(b, &op, -1);
}

/* Norm, clip and the exchange of compressed gradients, in the steps that compress. */
static void emit_exchange(struct plan_builder *b, const struct turn *turns, bool gated)
{
    const struct plan *plan = b->plan;
    const bool starts = b->options->compression.start > 0;
    scope_free int *order = mem_calloc((size_t)plan->group_count, sizeof *order);
    int count = 0;
    if (!order) {
        b->failed = error_set(b->err, MUSTER_E_NOMEM, "no memory to order %d groups", plan->group_count);
        return;
    }
    for (int i = 0; i < plan->group_count; i++)
        if (plan_compresses(b, turns[i].group))
            order[count++] = turns[i].group;
    if (gated && starts) {
        b->when = WHEN_DENSE;
        emit_norm(b, turns);
    }
    b->when = starts ? WHEN_COMPRESSED : WHEN_ALWAYS;
    if (gated)
        emit_norm(b, turns);
    b->when = WHEN_ALWAYS;
    if (gated)
        emit_clip(b, -1);
    b->when = starts ? WHEN_COMPRESSED : WHEN_ALWAYS;
    for (int i = 0; i < count; i++)
        plan_finish_gradient(b, order[i]);
    plan_exchange(b, order, count);
    b->when = WHEN_ALWAYS;
}

/* Whether a replica is several ranks. A rank may step only when all ranks have the norm: a peer of its
 * replica could be lost before the peer's other replicas have come so far. The sum over all ranks proves it.
 */
static bool shares_with_replicas(const struct plan_builder *b)
{
    return b->replicas > 1 && (b->shard_ranks > 1 || b->options->mesh.side[SIDE_PIPELINE] > 1);
}

void plan_emit_update(struct plan_builder *b)
{
    struct plan *plan = b->plan;
    const bool train = b->options->train, gated = train && (b->options->clip || b->options->check);
    const bool compresses = train && b->options->compression.kind != COMPRESSION_NONE;
    scope_free struct turn *turns = mem_calloc((size_t)plan->group_count, sizeof *turns);
    if (!turns) {
        b->failed = error_set(b->err, MUSTER_E_NOMEM, "no memory to order %d groups", plan->group_count);
        return;
    }
    order_by_reduction(b, turns);
    if (compresses)
        emit_exchange(b, turns, gated);
    else if (gated)
        emit_norm(b, turns);
    if (train)
        emit_votes(b);
    const int sum = plan->op_count;
    if (mesh_size(b->options->mesh) > 1) /* sums the loss and the values next to it */
        emit_sum(b, AXIS_WORLD, plan->loss, offsetof(struct plan_loss, total), 4 + PLAN_VOTES);
    if (compresses && mesh_size(b->options->mesh) > 1)
        emit_sum(b, AXIS_WORLD, plan->figures, 0, 2);
    if (gated)
        order_by_use(b, turns);
    if (gated && !compresses)
        emit_clip(b, shares_with_replicas(b) ? sum : -1);
    if (train)
        emit_steps(b, turns);
    emit_result(b, plan->scalars, offsetof(struct plan_result, scalars), sizeof(struct step_scalars));
    emit_result(b, plan->loss, offsetof(struct plan_result, loss), sizeof(struct plan_loss));
    if (compresses)
        emit_result(b, plan->figures, offsetof(struct plan_result, figures), sizeof(struct plan_figures));
}
