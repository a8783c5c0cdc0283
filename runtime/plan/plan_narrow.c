/* plan_narrow.c - reductions in 16 bits. A gradient is rounded into a slot and reduced there in place. The
 * result is widened into the group's gradient, where micro-batches add up. FSDP2 has the same order:
 * reduce_dtype in transit, the masters' dtype at rest.
 *
 * Rounding is the same with and without other ranks. A result is widened as late as possible, when its slot
 * is needed again or the gradient is used. Earlier widening would make the compute stream wait for the
 * reduction. Replicas of a group that has added up several micro-batches exchange their sums, rounded again,
 * after the last. Compressed gradients go to replicas as plan_compress.c has it; before compression.start
 * they are reduced here. */
#include "runtime/plan/plan_internal.h"

void plan_make_reduce_slots(struct plan_builder *b)
{
    int number = 0;
    for (int c = 0; c < b->class_count; c++) {
        struct slot_class *class = &b->classes[c];
        int count = 1 + (b->options->prefetch_backward > 0);
        if (count > class->reduced_groups)
            count = class->reduced_groups;
        for (int i = 0; i < count; i++) {
            int entry = plan_add_buffer(b, PLAN_REDUCE, MEMORY_COMM, class->elements * b->reduce);
            b->plan->entries[entry].dtype = b->options->reduce_dtype;
            b->plan->entries[entry].slot = number++;
            if (class->reduce_count++ == 0)
                class->reduce_first = entry;
        }
    }
}

static void emit_cast(struct plan_builder *b, int g, int micro, int from, int64_t from_offset, int to,
                      int64_t bytes, bool adds)
{
    struct schedule_op op = plan_op(OP_CAST, STREAM_COMPUTE);
    op.group = g;
    op.micro = micro;
    op.from = from;
    op.from_offset = from_offset;
    op.to = to;
    op.bytes = bytes;
    op.beta = adds;
    plan_emit(b, &op, -1);
}

/* Reduces a group's slot in place. */
static void emit_reduction(struct plan_builder *b, enum comm_kind kind, enum mesh_axis axis, int g, int micro,
                           int entry, int64_t from, int64_t to)
{
    struct schedule_op op = plan_op(OP_COMM, STREAM_REDUCE);
    op.axis = axis;
    op.group = g;
    op.micro = micro;
    op.from = op.to = entry;
    op.from_offset = from;
    op.to_offset = to;
    plan_emit_comm(b, &op, kind, b->options->reduce_dtype, b->plan->groups[g].shard);
}

/* When replicas exchange 16 bits of the group. */
static enum op_when between_replicas(const struct plan_builder *b, int g)
{
    return plan_compresses(b, g) ? WHEN_DENSE : WHEN_ALWAYS;
}

/* Rounds the group's sum over micro-batches and sums it over its replicas. */
static void exchange(struct plan_builder *b, int g)
{
    const struct param_group *group = &b->plan->groups[g];
    int entry = plan_add_buffer(b, PLAN_REDUCE, MEMORY_COMM, group->shard * b->reduce);
    b->plan->entries[entry].dtype = b->options->reduce_dtype;
    b->plan->entries[entry].group = g;
    const int last = b->groups[g].micro;
    emit_cast(b, g, last, group->grad, 0, entry, group->shard * b->reduce, false);
    emit_reduction(b, COMM_ALL_REDUCE, b->replica_axis, g, last, entry, 0, 0);
    b->groups[g].rounded = (struct plan_reduced){.entry = entry, .when = b->when};
}

/* Widens the result in a group's slot into its gradient, and begins the operations that follow. */
static void take_result(struct plan_builder *b, int g)
{
    const struct plan_reduced rounded = b->groups[g].rounded;
    const struct param_group *group = &b->plan->groups[g];
    const enum op_when now = b->when;
    b->when = rounded.when;
    emit_cast(b, g, -1, rounded.entry, rounded.offset, group->grad, group->shard * b->real, rounded.adds);
    b->entry_states[rounded.entry].holder = -1;
    b->groups[g].rounded.entry = -1;
    b->when = between_replicas(b, g);
    if (rounded.exchanges)
        exchange(b, g);
    b->when = now;
}

/* Returns the class's slot that was taken first. */
static int take_slot(struct plan_builder *b, int g)
{
    const struct slot_class *class = &b->classes[b->groups[g].slot_class];
    int best = class->reduce_first;
    for (int i = best + 1; i < class->reduce_first + class->reduce_count; i++)
        if (b->entry_states[i].released < b->entry_states[best].released)
            best = i;
    if (b->entry_states[best].holder >= 0)
        take_result(b, b->entry_states[best].holder);
    b->entry_states[best].released = b->plan->op_count;
    b->entry_states[best].holder = g;
    return best;
}

void plan_reduce_narrow(struct plan_builder *b, int g, int micro)
{
    const struct param_group *group = &b->plan->groups[g];
    bool last_micro = plan_is_last_turn(b, g), sums = plan_reshards(b, g) && b->groups[g].turns > 1;
    const bool exchanges = b->replicas > 1 && last_micro && plan_goes_dense(b, g);
    if (!plan_reshards(b, g) && !last_micro)
        return;
    if (!plan_rounds(b, g)) {
        plan_begin_early(b, g);
        return;
    }
    plan_finish_gradient(b, g); /* finishes the gradient of the micro-batch before */
    int slot = take_slot(b, g);
    int64_t own = group->shard_size > 1 ? group->shard_start * b->reduce : 0;
    const enum op_when dense = between_replicas(b, g), formed = group->shard_size > 1 ? WHEN_ALWAYS : dense;
    b->when = formed;
    emit_cast(b, g, micro, b->groups[g].grad, 0, slot, group->padded * b->reduce, false);
    if (group->shard_size > 1)
        emit_reduction(b, COMM_REDUCE_SCATTER, AXIS_SHARD, g, micro, slot, 0, own);
    else if (group->whole)
        emit_reduction(b, COMM_ALL_REDUCE, AXIS_SHARD, g, micro, slot, own, own);
    b->when = dense;
    if (exchanges && !sums)
        emit_reduction(b, COMM_ALL_REDUCE, b->replica_axis, g, micro, slot, own, own);
    b->when = WHEN_ALWAYS;
    b->groups[g].rounded = (struct plan_reduced){.entry = slot,
                                                 .offset = own,
                                                 .adds = sums && b->groups[g].turn > 0,
                                                 .exchanges = sums && exchanges,
                                                 .when = formed};
}

void plan_flush_gradients(struct plan_builder *b)
{
    for (int g = 0; g < b->plan->group_count; g++)
        if (b->groups[g].rounded.entry >= 0 && b->groups[g].rounded.exchanges)
            take_result(b, g);
}

void plan_finish_gradient(struct plan_builder *b, int g)
{
    while (b->groups[g].rounded.entry >= 0)
        take_result(b, g);
}
