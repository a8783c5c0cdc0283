/* plan_reduce.c - gradients from the first backward that writes them to the optimizer's step.
 *
 * A sharded group's gradient is formed in a full-sized slot and reduce-scattered after its last backward of
 * each micro-batch, adding into the shard. Full gradients of other groups, and of groups that are kept whole,
 * stay where they are, add up over micro-batches and are reduced in the last one.
 *
 * Where reductions move 16 bits (plan_narrow.c) a gradient is formed in memory that only the compute stream
 * touches. */
#include <assert.h>

#include "runtime/plan/plan_internal.h"

/* ---- buffers ---- */

static int add_group_buffer(struct plan_builder *b, int group, enum plan_kind kind, enum memory_class memory,
                            int64_t elements)
{
    int entry = plan_add_buffer(b, kind, memory, elements * b->real);
    b->plan->entries[entry].group = group;
    return entry;
}

/* The most gradients of a class that are being formed at one time in a micro-batch. */
static int most_open(const struct plan_builder *b, int class, int micro)
{
    int open = 0, most = 0;
    for (int l = b->model->layer_count - 1; l >= 0; l--) {
        const struct plan_layer *layer = &b->layers[l];
        if (!layer->local || plan_sends_rows(b, l, micro))
            continue;
        for (int i = 0; i < layer->group_count; i++) {
            struct plan_group_state *state = &b->groups[layer->group[i]];
            bool counts = state->slot_class == class && state->backward_steps > 0;
            open += counts && state->backward_left == 0;
            if (counts && state->backward_left++ == 0)
                most = open > most ? open : most;
        }
        for (int i = 0; i < layer->group_count; i++) {
            struct plan_group_state *state = &b->groups[layer->group[i]];
            if (state->slot_class != class || state->backward_left == 0 ||
                state->backward_left < plan_writers(b, layer->group[i], b->model->layers[l].part, micro))
                continue;
            state->backward_left = 0;
            open--;
        }
    }
    return most;
}

static void make_slots(struct plan_builder *b)
{
    int number = 0;
    for (int c = 0; c < b->class_count; c++) {
        struct slot_class *class = &b->classes[c];
        const int first = most_open(b, c, 0), last = most_open(b, c, b->options->micro_batches - 1);
        int count = (first > last ? first : last) + (b->options->prefetch_backward > 0);
        if (count > class->reduced_groups)
            count = class->reduced_groups;
        for (int i = 0; i < count && !class->whole; i++) {
            int entry = plan_add_buffer(b, PLAN_GRAD_FULL, MEMORY_COMM, class->elements * b->real);
            b->plan->entries[entry].slot = number++;
            if (class->grad_count++ == 0)
                class->grad_first = entry;
        }
    }
}

static void group_buffers(struct plan_builder *b, int g)
{
    struct param_group *group = &b->plan->groups[g];
    struct plan_group_state *state = &b->groups[g];
    if (!plan_reshards(b, g) && (group->shard_size == 1 || plan_has_full_gradient(b, g)))
        state->grad = add_group_buffer(b, g, PLAN_GRAD_FULL, MEMORY_COMM, group->padded);
    group->grad = state->grad;
    if (group->shard_size > 1)
        group->grad = add_group_buffer(b, g, PLAN_GRAD_SHARD, MEMORY_COMM, group->shard);
    plan_add_feedback(b, g);
}

void plan_make_grad_buffers(struct plan_builder *b)
{
    for (int g = 0; g < b->plan->group_count; g++) {
        struct plan_group_state *state = &b->groups[g];
        state->grad = state->wide = state->rounded.entry = state->turn = -1;
        state->encoded = state->dense = state->right = -1;
    }
    if (!b->options->train)
        return;
    for (int g = 0; g < b->plan->group_count; g++)
        if (b->plan->groups[g].local && b->plan->groups[g].trainable)
            group_buffers(b, g);
    if (plan_narrow_gradients(b))
        plan_make_reduce_slots(b);
    else if (b->reshard)
        make_slots(b);
}

/* ---- backward ---- */

static void fill_gap(struct plan_builder *b, int group, int64_t offset, int64_t count)
{
    struct schedule_op op = plan_op(OP_FILL, STREAM_COMPUTE);
    op.group = group;
    op.to = b->groups[group].grad;
    op.to_offset = offset * b->real;
    op.bytes = count * b->real;
    plan_emit(b, &op, -1);
}

/* Takes the class's free slot that was released first. There is one: most_open counted them. */
static int take_slot(struct plan_builder *b, int g)
{
    const struct slot_class *class = &b->classes[b->groups[g].slot_class];
    int best = -1;
    for (int i = class->grad_first; i < class->grad_first + class->grad_count; i++)
        if (!b->entry_states[i].busy &&
            (best < 0 || b->entry_states[i].released < b->entry_states[best].released))
            best = i;
    assert(best >= 0);
    b->entry_states[best].busy = true;
    return best;
}

/* Memory for the full gradient of a group. The parts that no backward will write are zeroed, since it held
 * something else before. */
static void open_gradient(struct plan_builder *b, int g, int micro)
{
    int *grad = &b->groups[g].grad;
    if (plan_narrow_gradients(b)) {
        *grad = plan_add_transient(b, PLAN_GRAD_FULL, -1, micro, b->plan->groups[g].padded * b->real);
        b->plan->entries[*grad].group = g;
    } else {
        *grad = take_slot(b, g);
    }
    plan_group_gaps(b, g, fill_gap);
}

void plan_open_gradients(struct plan_builder *b, int step)
{
    const struct plan_layer *layer = &b->layers[b->steps[step].layer];
    const int part = b->model->layers[b->steps[step].layer].part, micro = b->steps[step].micro;
    for (int i = 0; i < layer->group_count; i++) {
        int g = layer->group[i];
        struct plan_group_state *state = &b->groups[g];
        if (!b->plan->groups[g].trainable)
            continue;
        if (plan_reshards(b, g) && state->grad < 0)
            open_gradient(b, g, micro);
        if (state->backward_left > 0)
            continue;
        plan_fill_rows(b, g, micro);
        state->backward_left = plan_writers(b, g, part, micro);
        state->turn++;
        state->micro = micro;
    }
}

/* An operation on a group's gradient in the reduce stream. */
static void emit_reduction(struct plan_builder *b, enum comm_kind kind, enum mesh_axis axis, int g, int micro,
                           int from, int to, bool accumulate)
{
    const struct param_group *group = &b->plan->groups[g];
    struct schedule_op op = plan_op(OP_COMM, STREAM_REDUCE);
    op.axis = axis;
    op.group = g;
    op.micro = micro;
    op.from = from;
    op.to = to;
    op.comm.accumulate = accumulate;
    plan_emit_comm(b, &op, kind, b->options->dtype, group->shard);
}

static void sum_replicas(struct plan_builder *b, int g, int micro)
{
    const struct param_group *group = &b->plan->groups[g];
    if (!plan_goes_dense(b, g)) {
        plan_begin_early(b, g);
        return;
    }
    b->when = plan_compresses(b, g) ? WHEN_DENSE : WHEN_ALWAYS;
    if (b->replicas > 1)
        emit_reduction(b, COMM_ALL_REDUCE, b->replica_axis, g, micro, group->grad, group->grad, false);
    b->when = WHEN_ALWAYS;
}

/* Emits the operations on a group's gradient once a micro-batch has completed it. */
static void reduce_group(struct plan_builder *b, int g, int micro)
{
    const struct param_group *group = &b->plan->groups[g];
    const int full = b->groups[g].grad;
    if (plan_narrow_gradients(b)) {
        plan_reduce_narrow(b, g, micro);
        return;
    }
    if (plan_reshards(b, g) || (group->shard_size > 1 && plan_is_last_turn(b, g)))
        emit_reduction(b, COMM_REDUCE_SCATTER, AXIS_SHARD, g, micro, full, group->grad,
                       plan_reshards(b, g) && b->groups[g].turn > 0);
    else if (group->whole && plan_is_last_turn(b, g))
        emit_reduction(b, COMM_ALL_REDUCE, AXIS_SHARD, g, micro, group->grad, group->grad, false);
    if (plan_is_last_turn(b, g))
        sum_replicas(b, g, micro);
}

/* Sums the parts that stages have formed of the gradient of a parameter that they share. Only after all
 * micro-batches, since a late stage has its part long before an early one; in one order on all stages. */
void plan_reduce_tied(struct plan_builder *b)
{
    for (int g = 0; b->options->train && g < b->plan->group_count; g++) {
        const struct param_group *group = &b->plan->groups[g];
        if (!group->local || !group->trainable || !plan_is_tied(group))
            continue;
        plan_finish_gradient(b, g);
        emit_reduction(b, COMM_ALL_REDUCE, AXIS_TIED, g, -1, group->grad, group->grad, false);
        b->groups[g].reduced = b->plan->op_count;
    }
}

void plan_close_gradients(struct plan_builder *b, int step)
{
    const struct plan_layer *layer = &b->layers[b->steps[step].layer];
    for (int i = 0; i < layer->group_count; i++) {
        int g = layer->group[i];
        struct plan_group_state *state = &b->groups[g];
        if (!b->plan->groups[g].trainable || --state->backward_left > 0)
            continue;
        reduce_group(b, g, b->steps[step].micro);
        state->reduced = b->plan->op_count;
        if (b->options->prefetch_backward == 0)
            b->stall = state->reduced - 1; /* the call itself, if nothing is reduced yet */
        if (plan_reshards(b, g)) {
            b->entry_states[state->grad].busy = false;
            b->entry_states[state->grad].released = b->plan->op_count;
            state->grad = -1;
        }
    }
}
