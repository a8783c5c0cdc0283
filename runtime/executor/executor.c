/* executor.c - see executor.h: creation, and what is set or asked between runs. */
#include "runtime/executor/executor_internal.h"

#include <assert.h>
#include <stdio.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/model/program.h"

void *executor_address(const struct executor_parts *parts, int entry, int64_t offset)
{
    if (entry < 0)
        return NULL;
    assert(entry < parts->plan->entry_count);
    const struct plan_entry *e = &parts->plan->entries[entry];
    assert(offset >= 0 && offset <= e->bytes && e->offset + e->bytes <= parts->arenas[e->memory].bytes);
    return (char *)parts->arenas[e->memory].base + e->offset + offset;
}

/* ---- creation ---- */

/* The index of a parameter's group among the groups that an operation names. */
static int used_index(const struct schedule_op *op, int group)
{
    for (int i = 0; i < op->group_count; i++) {
        if (op->used_group[i] == group)
            return i;
    }
    return -1;
}

static int resolve_params(const struct executor_parts *parts, struct op_block *b, struct muster_error *err)
{
    const struct plan *plan = parts->plan;
    const int weight = dtype_size(plan->options.value_dtype), gradient = dtype_size(plan->options.dtype);
    for (int i = 0; i < b->layer->param_count; i++) {
        int param = b->layer->param[i];
        const struct param_place *place = &plan->places[param];
        int used = used_index(b->op, place->group);
        if (used < 0)
            return error_set(err, MUSTER_E_STATE,
                             "the plan's operation for layer %s does not name the group of %s",
                             b->layer->name, parts->model->params[param].name);
        b->weight[i] = executor_address(parts, b->op->weight[used], place->offset * weight);
        if (b->op->kind == OP_BACKWARD && parts->model->params[param].trainable)
            b->grad[i] = executor_address(parts, b->op->grad[used], place->offset * gradient);
    }
    return 0;
}

static int resolve_layer(const struct executor *executor, struct op_block *b, struct muster_error *err)
{
    const struct executor_parts *parts = &executor->parts;
    const struct schedule_op *op = b->op;
    const struct mesh_line data = mesh_line(parts->plan->options.mesh, AXIS_DATA, parts->plan->options.rank);
    b->layer = &parts->model->layers[op->layer];
    (void)snprintf(b->name, sizeof b->name, "%s %.32s", op_kind_name(op->kind), b->layer->name);
    if (resolve_params(parts, b, err))
        return -1;
    for (int i = 0; i < b->layer->source_count; i++) {
        b->in[i] = executor_address(parts, op->in[i], 0);
        b->din[i] = op->kind == OP_BACKWARD ? executor_address(parts, op->din[i], 0) : NULL;
    }
    if (op->batch >= 0) {
        const char *batch = executor_address(parts, op->batch, 0);
        for (int i = 0; i < parts->model->input_count; i++)
            b->batch.input[i] = batch + batch_offset(parts->model, parts->plan->options.shape, i);
    }
    b->loss = op->layer == parts->model->layer_count - 1;
    struct plan_loss *loss = b->loss ? executor_address(parts, parts->plan->loss, 0) : NULL;
    b->context = (struct layer_context){
        .kernels = parts->kernels,
        .mode = op->mode,
        .shape = parts->plan->options.shape,
        .weight = b->weight,
        .grad = b->grad,
        .grad_beta = op->grad_beta,
        .in = b->in,
        .out = executor_address(parts, op->out, 0),
        .dout = executor_address(parts, op->dout, 0),
        .din = b->din,
        .din_beta = op->din_beta,
        .saved = executor_address(parts, op->saved, 0),
        .work = executor_address(parts, op->work, 0),
        .batch = &b->batch,
        .scalars = executor->scalars,
        /* first row of the micro-batch in the step's global batch, as config/train_batch.h assigns rows */
        .sample = ((int64_t)op->micro * data.size + data.place) * parts->plan->options.shape.B,
        .own_sample = (int64_t)op->micro * parts->plan->options.shape.B,
        .ranks = data.size,
        .rank = data.place,
        .loss_total = loss ? &loss->total : NULL,
        .loss_count = loss ? &loss->count : NULL,
        .correct_total = loss ? &loss->correct : NULL,
        .chunk_bytes = parts->plan->options.chunk_bytes,
    };
    return 0;
}

static int resolve(struct executor *executor, int index, struct muster_error *err)
{
    const struct executor_parts *parts = &executor->parts;
    struct op_block *b = &executor->blocks[index];
    const struct schedule_op *op = &parts->plan->ops[index];
    b->executor = executor;
    b->op = op;
    b->run = executor_functions[op->kind];
    b->ranks = mesh_line(parts->plan->options.mesh, AXIS_DATA, parts->plan->options.rank).size;
    if (op->kind == OP_DECODE) {
        const struct plan_wire_shape shape = plan_wire_shape(parts->plan, op->group);
        b->replicas = shape.replicas;
        b->stride = shape.stride;
    }
    b->from = executor_address(parts, op->from, op->from_offset);
    b->to = executor_address(parts, op->to, op->to_offset);
    if ((op->kind == OP_FORWARD || op->kind == OP_BACKWARD) && resolve_layer(executor, b, err))
        return -1;
    b->context.stream = parts->ops->stream_handle(parts->streams[op->stream]);
    if (op->kind == OP_COMM)
        b->comm = op->axis == AXIS_TIED
                      ? parts->comms->tied[plan_tie(parts->plan, &parts->plan->groups[op->group])]
                      : parts->comms->comm[op->axis][op->stream];
    if (op->kind == OP_COMM && !b->comm)
        return error_set(err, MUSTER_E_STATE, "operation %d has no comm for axis %s on stream %s", index,
                         axis_name(op->axis), stream_name(op->stream));
    if (op->signal && !(b->done = parts->ops->event_create(parts->device, err)))
        return -1;
    return 0;
}

/* A wait for a later operation means the previous step's operation, which must be carried. */
static int check_waits(const struct executor *executor, int index, struct muster_error *err)
{
    const struct plan *plan = executor->parts.plan;
    const struct schedule_op *op = &plan->ops[index];
    for (int i = 0; i < op->wait_count; i++) {
        const int wait = op->wait[i];
        if (wait < 0 || wait >= plan->op_count || !executor->blocks[wait].done ||
            (wait >= index && !plan->ops[wait].carried))
            return error_set(err, MUSTER_E_STATE,
                             "operation %d waits for operation %d, which does not signal", index, wait);
    }
    return 0;
}

GUARD_DEFINE(executor, struct executor *, executor_destroy);

struct executor *executor_create(const struct executor_parts *parts, struct muster_error *err)
{
    GUARD(guard_executor) struct executor *executor = mem_calloc(1, sizeof *executor);
    if (executor) {
        executor->parts = *parts;
        executor->place = -1;
        executor->blocks = mem_calloc((size_t)parts->plan->op_count, sizeof *executor->blocks);
        executor->positions =
            mem_calloc((size_t)parts->plan->options.micro_batches, sizeof *executor->positions);
    }
    if (!executor || !executor->blocks || !executor->positions) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a schedule of %d operations",
                        parts->plan->op_count);
        return NULL;
    }
    executor->scalars = executor_address(parts, parts->plan->scalars, 0);
    for (int i = 0; i < parts->plan->options.micro_batches; i++)
        executor->positions[i] = parts->plan->options.shape.T;
    for (int i = 0; i < STREAM_COUNT; i++) {
        if (parts->streams[i] && !(executor->joined[i] = parts->ops->event_create(parts->device, err)))
            return NULL;
    }
    bool rows = false;
    for (int i = 0; i < parts->plan->op_count; i++) {
        if (resolve(executor, i, err))
            return NULL;
        rows |= parts->plan->ops[i].kind == OP_ROWS;
    }
    executor->may_be_shorter = !parts->graphs && !rows && program_ends_with_lengths(parts->model);
    for (int i = 0; i < parts->plan->op_count; i++) {
        if (check_waits(executor, i, err))
            return NULL;
    }
    while (executor->first_carried < parts->plan->op_count &&
           !parts->plan->ops[executor->first_carried].carried)
        executor->first_carried++;
    return take_pointer(&executor);
}

void executor_destroy(struct executor *executor)
{
    if (!executor)
        return;
    const struct device_ops *ops = executor->parts.ops;
    for (int i = 0; executor->blocks && i < executor->parts.plan->op_count; i++) {
        if (executor->blocks[i].done)
            ops->event_destroy(executor->blocks[i].done);
        if (executor->blocks[i].graph)
            ops->graph_destroy(executor->blocks[i].graph);
    }
    for (int i = 0; i < STREAM_COUNT; i++) {
        if (executor->joined[i])
            ops->event_destroy(executor->joined[i]);
    }
    mem_free(executor->blocks);
    mem_free(executor->positions);
    mem_free(executor);
}

/* ---- between runs ---- */

int executor_marked(const struct executor *executor, enum stream_id stream)
{
    const struct executor_parts *parts = &executor->parts;
    return parts->ops->marked && parts->streams[stream] ? (int)parts->ops->marked(parts->streams[stream]) - 1
                                                        : -1;
}

int executor_place(const struct executor *executor)
{
    if (executor->parts.ops->marked)
        return executor_marked(executor, STREAM_COMPUTE);
    return atomic_load_explicit(&executor->place, memory_order_relaxed);
}

bool executor_may_be_shorter(const struct executor *executor)
{
    return executor->may_be_shorter;
}

void executor_positions(struct executor *executor, int micro, int positions)
{
    executor->positions[micro] = positions;
}

void executor_trace(struct executor *executor, struct executor_mark *marks)
{
    executor->marks = marks;
}

void executor_compress(struct executor *executor, bool on)
{
    executor->compresses = on;
}

void executor_capture(struct executor *executor, const struct layer_capture *captures)
{
    executor->captures = captures;
}

void executor_forget(struct executor *executor)
{
    executor->carried = false;
}

bool executor_ran(const struct executor *executor, int op)
{
    return executor->blocks[op].ran == executor->runs;
}
