/* plan_schedule.c - walks the steps and emits one optimizer step's operations. */
#include <stddef.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/plan/plan_internal.h"

void plan_start_schedule(struct plan_builder *b)
{
    size_t micros = (size_t)b->options->micro_batches;
    size_t count = (size_t)b->model->layer_count * micros, params = (size_t)b->model->param_count;
    b->out = mem_calloc(count, sizeof *b->out);
    b->saved = mem_calloc(count, sizeof *b->saved);
    b->dout = mem_calloc(count, sizeof *b->dout);
    b->consumers_left = mem_calloc(count, sizeof *b->consumers_left);
    b->batch = mem_calloc(micros, sizeof *b->batch);
    b->written = mem_calloc(params, sizeof *b->written);
    if (!b->out || !b->saved || !b->dout || !b->consumers_left || !b->batch || !b->written) {
        b->failed = error_set(b->err, MUSTER_E_NOMEM, "no memory to plan %zu layer calls", count);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        b->out[i] = b->saved[i] = b->dout[i] = -1;
        b->consumers_left[i] = b->layers[i / micros].consumers;
    }
    for (size_t p = 0; p < params; p++)
        b->written[p] = -1;
    for (size_t m = 0; m < micros; m++)
        b->batch[m] = -1;
}

/* ---- the beginning of a step ---- */

static void emit_copy_in(struct plan_builder *b, int from, int64_t offset, int to, int micro, int64_t bytes)
{
    struct schedule_op op = plan_op(OP_COPY, STREAM_COMPUTE);
    op.micro = micro;
    op.from = from;
    op.from_offset = offset;
    op.to = to;
    op.bytes = bytes;
    plan_emit(b, &op, -1);
}

static void emit_inputs(struct plan_builder *b)
{
    struct plan *plan = b->plan;
    emit_copy_in(b, plan->staging_input, offsetof(struct plan_input, scalars), plan->scalars, -1,
                 sizeof(struct step_scalars));
    emit_copy_in(b, plan->staging_input, offsetof(struct plan_input, loss), plan->loss, -1,
                 sizeof(struct plan_loss));
    if (plan->figures >= 0)
        emit_copy_in(b, plan->staging_input, offsetof(struct plan_input, figures), plan->figures, -1,
                     sizeof(struct plan_figures));
}

/* Whether this stage reads the batch: only the first and the last do in most models. */
static bool reads_batch(const struct plan_builder *b)
{
    bool reads = b->model->parts == 1;
    for (int l = 0; l < b->model->layer_count && !reads; l++) {
        const struct layer_desc *layer = &b->model->layers[l];
        reads = b->layers[l].local &&
                (layer->inputs || (layer->source_count && layer->source[0] == SOURCE_BATCH));
    }
    return reads;
}

/* The batch's arrays are copied in when their micro-batch begins. */
static void emit_batch(struct plan_builder *b, int micro)
{
    int64_t bytes = batch_bytes(b->model, b->options->shape);
    if (b->batch[micro] >= 0 || !b->reads_batch)
        return;
    b->batch[micro] = plan_add_transient(b, PLAN_BATCH, -1, micro, bytes);
    b->plan->entries[b->batch[micro]].dtype = batch_dtype(b->model);
    emit_copy_in(b, b->plan->staging_batch, micro * bytes, b->batch[micro], micro, bytes);
}

/* ---- one call of a layer ---- */

static int gathered(const struct plan_builder *b, const struct plan_step *step, int i)
{
    int group = b->layers[step->layer].group[i];
    return step->gather[i] >= 0 ? b->gathers[step->gather[i]].slot : b->plan->groups[group].param;
}

static void widen_group(struct plan_builder *b, const struct plan_step *step, int i)
{
    int g = b->layers[step->layer].group[i];
    struct plan_group_state *state = &b->groups[g];
    struct schedule_op op = plan_op(OP_CAST, STREAM_COMPUTE);
    op.bytes = b->plan->groups[g].padded * b->value;
    state->wide = plan_add_transient(b, PLAN_WIDE, -1, step->micro, op.bytes);
    b->plan->entries[state->wide].group = g;
    op.group = g;
    op.micro = step->micro;
    op.from = gathered(b, step, i);
    op.to = state->wide;
    plan_emit(b, &op, b->stall);
}

/* Layers read parameters in the type of values: a copy lives from before the first of a run of calls that use
 * a group to the last. */
static void widen_weights(struct plan_builder *b, int index)
{
    const struct plan_step *step = &b->steps[index];
    const struct plan_layer *info = &b->layers[step->layer];
    for (int i = 0; i < info->group_count; i++) {
        struct plan_group_state *state = &b->groups[info->group[i]];
        if (!plan_opens(b, info->group[i]))
            continue;
        bool there =
            state->wide >= 0 && state->wide_step == index - 1 && state->wide_gather == step->gather[i];
        /* A forward of the first micro-batch alone has no copy of another one. */
        there = there && (step->phase != PHASE_FORWARD || step->micro >= b->plan->entries[state->wide].micro);
        if (!there)
            widen_group(b, step, i);
        state->wide_step = index;
        state->wide_gather = step->gather[i];
    }
}

static void use_weights(const struct plan_builder *b, const struct plan_step *step, struct schedule_op *op)
{
    const struct plan_layer *info = &b->layers[step->layer];
    op->group_count = info->group_count;
    for (int i = 0; i < info->group_count; i++) {
        op->used_group[i] = info->group[i];
        op->weight[i] = plan_opens(b, info->group[i]) ? b->groups[info->group[i]].wide : gathered(b, step, i);
    }
}

static void use_gradients(struct plan_builder *b, const struct plan_step *step, struct schedule_op *op)
{
    const struct layer_desc *layer = &b->model->layers[step->layer];
    for (int i = 0; i < op->group_count; i++)
        if (b->plan->groups[op->used_group[i]].trainable)
            op->grad[i] = b->groups[op->used_group[i]].grad;
    for (int i = 0; i < layer->param_count; i++) {
        int param = layer->param[i];
        if (!b->model->params[param].trainable)
            continue;
        /* A slot starts fresh in every micro-batch; a resident gradient accumulates. */
        op->grad_beta[i] = plan_reshards(b, b->plan->places[param].group) ? b->written[param] == step->call
                                                                          : b->written[param] >= 0;
        b->written[param] = step->call;
    }
}

static void want_input_gradients(struct plan_builder *b, const struct plan_step *step, struct schedule_op *op)
{
    const struct layer_desc *layer = &b->model->layers[step->layer];
    for (int i = 0; i < layer->source_count; i++) {
        int source = layer->source[i];
        if (source == SOURCE_BATCH || !b->layers[source].needs_grad)
            continue;
        int at = source * b->options->micro_batches + step->micro;
        op->parts |= LAYER_INPUT;
        op->din_beta[i] = b->dout[at] >= 0;
        if (b->dout[at] < 0 && !b->layers[source].local)
            b->dout[at] = plan_take_edge(b, &b->edges[source].grad_out, source);
        else if (b->dout[at] < 0)
            b->dout[at] = plan_add_transient(b, PLAN_DOUT, source, step->micro, b->layers[source].sizes.out);
        op->din[i] = b->dout[at];
    }
}

static struct schedule_op start_call(const struct plan_builder *b, const struct plan_step *step,
                                     enum op_kind kind)
{
    const struct layer_desc *layer = &b->model->layers[step->layer];
    struct schedule_op op = plan_op(kind, STREAM_COMPUTE);
    op.layer = step->layer;
    op.micro = step->micro;
    op.batch = b->batch[step->micro];
    op.from = b->plan->scalars;
    op.to = b->layers[step->layer].loss ? b->plan->loss : -1;
    op.mode = b->options->train ? LAYER_TRAIN : LAYER_EVAL;
    use_weights(b, step, &op);
    for (int i = 0; i < layer->source_count; i++)
        if (layer->source[i] != SOURCE_BATCH)
            op.in[i] = b->out[layer->source[i] * b->options->micro_batches + step->micro];
    return op;
}

/* Forward or its recomputation before backward: the latter writes the same output again and keeps the
 * saved memory that the former discarded. */
static void emit_forward(struct plan_builder *b, struct plan_step *step)
{
    const struct plan_layer *info = &b->layers[step->layer];
    struct schedule_op op = start_call(b, step, OP_FORWARD);
    int at = step->layer * b->options->micro_batches + step->micro;
    int64_t work = info->forward_work;
    if (step->phase == PHASE_FORWARD)
        op.forward_micro = step->micro;
    if (step->phase == PHASE_RECOMPUTE) {
        op.mode = LAYER_RECOMPUTE;
        work = info->recompute_work;
    } else if (step->micro < b->plan->forward_micros && info->loss && info->evaluation_work > work) {
        work = info->evaluation_work;
    }
    if (b->out[at] < 0 && b->edges[step->layer].out.count > 0)
        b->out[at] = plan_take_edge(b, &b->edges[step->layer].out, step->layer);
    else if (b->out[at] < 0)
        b->out[at] = plan_add_transient(b, PLAN_OUT, step->layer, step->micro, info->sizes.out);
    b->saved[at] = plan_add_transient(b, PLAN_SAVED, step->layer, step->micro, info->sizes.saved);
    op.work = plan_add_transient(b, PLAN_WORK, step->layer, step->micro, work);
    op.out = b->out[at];
    op.saved = b->saved[at];
    step->op = plan_emit(b, &op, b->stall);
}

static void emit_backward(struct plan_builder *b, struct plan_step *step)
{
    const struct plan_layer *info = &b->layers[step->layer];
    struct schedule_op op = start_call(b, step, OP_BACKWARD);
    int at = step->layer * b->options->micro_batches + step->micro;
    if (info->trainable) {
        op.parts |= LAYER_WEIGHT;
        use_gradients(b, step, &op);
    }
    want_input_gradients(b, step, &op);
    op.work = plan_add_transient(b, PLAN_WORK, step->layer, step->micro, info->sizes.work);
    op.out = b->out[at];
    op.dout = b->dout[at];
    op.saved = b->saved[at];
    step->op = plan_emit(b, &op, b->stall);
}

static void emit_step(struct plan_builder *b, int index)
{
    struct plan_step *step = &b->steps[index];
    bool backward = step->phase == PHASE_BACKWARD;
    if (step->phase == PHASE_FORWARD && step->micro == 0)
        b->plan->first_backward = -1; /* comes after */
    else if (step->phase != PHASE_FORWARD && b->plan->first_backward < 0)
        b->plan->first_backward = b->plan->op_count;
    emit_batch(b, step->micro);
    plan_issue_gathers(b, index);
    if (index == b->call_step[step->call] && b->options->grouped)
        plan_rounds_before(b, step->call);
    else if (index == b->call_step[step->call])
        plan_receive(b, step->call);
    if (backward && plan_sends_rows(b, step->layer, step->micro)) {
        plan_exchange_rows(b, index);
        return;
    }
    widen_weights(b, index);
    if (backward) {
        plan_open_gradients(b, index);
        emit_backward(b, step);
    } else {
        emit_forward(b, step);
    }
    b->stall = -1;
    if (backward)
        plan_close_gradients(b, index);
    if (!b->options->grouped)
        plan_send(b, index);
}

void plan_emit_calls(struct plan_builder *b)
{
    b->plan->first_backward = -1;
    b->plan->forward_micros = b->model->parts > 1 ? b->options->micro_batches : 1;
    b->reads_batch = reads_batch(b);
    emit_inputs(b);
    plan_choose_carried(b);
    const int calls = plan_call_count(b, b->place.at[SIDE_PIPELINE]);
    for (int call = 0; call < calls; call++) {
        for (int t = b->call_step[call]; t < b->call_step[call + 1]; t++)
            emit_step(b, t);
        if (b->options->grouped)
            plan_rounds_after(b, call);
        plan_leave_call(b, call);
    }
    if (b->options->grouped)
        plan_last_rounds(b);
    if (b->plan->first_backward < 0 && b->options->train) /* a stage with nothing to train */
        b->plan->first_backward = b->plan->op_count;
}

/* ---- forwards alone ---- */

static void want(int *wanted, int entry, int micro)
{
    if (entry >= 0 && (wanted[entry] < 0 || wanted[entry] > micro))
        wanted[entry] = micro;
}

/* An operation that forwards need: their results are wanted from the operations before it. */
static void want_sources(const struct schedule_op *op, int *wanted)
{
    for (int i = 0; i < op->group_count; i++)
        want(wanted, op->weight[i], op->forward_micro);
    for (int i = 0; i < LAYER_SOURCES; i++)
        want(wanted, op->in[i], op->forward_micro);
    want(wanted, op->batch, op->forward_micro);
    want(wanted, op->from, op->forward_micro);
    want(wanted, op->kind == OP_FORWARD ? op->to : -1, op->forward_micro); /* the loss is added to */
}

/* Goes back from forwards and their transfers to the operations that write what they read: copies, gathers,
 * receives, wider parameters. */
static void find_forwards(struct plan_builder *b)
{
    struct plan *plan = b->plan;
    scope_free int *wanted = mem_calloc((size_t)plan->entry_count, sizeof *wanted);
    if (!wanted) {
        b->failed =
            error_set(b->err, MUSTER_E_NOMEM, "no memory for the uses of %d buffers", plan->entry_count);
        return;
    }
    for (int e = 0; e < plan->entry_count; e++)
        wanted[e] = -1;
    for (int i = plan->op_count - 1; i >= 0; i--) {
        struct schedule_op *op = &plan->ops[i];
        const bool writes = op->kind == OP_COPY || op->kind == OP_CAST || op->kind == OP_COMM;
        if (op->forward_micro < 0 && writes && op->to >= 0)
            op->forward_micro = wanted[op->to];
        if (op->kind == OP_COPY && op->from == plan->staging_input && !op->votes)
            op->forward_micro = 0; /* every stage starts with a loss of 0 */
        if (op->forward_micro < 0)
            continue;
        if (writes && op->to >= 0)
            wanted[op->to] = -1;
        want_sources(op, wanted);
    }
}

void plan_finish_schedule(struct plan_builder *b)
{
    find_forwards(b);
    if (b->plan->first_backward < 0) /* evaluation */
        b->plan->first_backward = b->plan->op_count;
    plan_count_in_flight(b);
}
