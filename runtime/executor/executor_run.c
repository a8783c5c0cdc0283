/* executor_run.c - a run: a walk over the operations that waits, launches and records. */
#include <string.h>

#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "runtime/executor/executor_internal.h"

static void note_place(const struct op_block *b)
{
    atomic_store_explicit(&b->executor->place, (int)(b - b->executor->blocks), memory_order_relaxed);
}

static void run_block(void *argument)
{
    struct op_block *b = argument;
    note_place(b);
    b->run(argument);
    b->ran = b->executor->runs;
}

/* A layer runs as a graph: it enqueues many kernels, and no step changes their arguments. An optimizer's step
 * is no graph: it is one kernel a group, and may have to wait for a checkpoint's copy. */
static bool runs_as_graph(const struct executor *executor, const struct schedule_op *op)
{
    return executor->parts.graphs && !executor->evaluating && !executor->captures &&
           (op->kind == OP_FORWARD || op->kind == OP_BACKWARD);
}

int executor_refused(const struct device_ops *ops, struct device *device, struct muster_error *err)
{
    if (ops->poll_error(device, err))
        return -1;
    return error_set(err, MUSTER_E_STATE, "device %s refused work without giving a reason", ops->name);
}

static void mark_begin(void *argument)
{
    struct executor_mark *mark = argument;
    mark->waited_ns = mark->ops->stream_waited_ns(mark->stream);
    mark->begin_ns = clock_now(NULL).ns;
}

static void mark_end(void *argument)
{
    struct executor_mark *mark = argument;
    mark->end_ns = clock_now(NULL).ns;
}

static int mark_time(const struct executor *executor, struct executor_mark *mark, int timer)
{
    const struct device_ops *ops = executor->parts.ops;
    if (mark->timer[timer])
        return ops->record(mark->stream, mark->timer[timer]);
    return timer == MARK_BEFORE
               ? 0
               : ops->launch(mark->stream, timer == MARK_BEGIN ? mark_begin : mark_end, mark);
}

/* The mark of an operation, or of the run's end; NULL: none is wanted. */
static struct executor_mark *mark_of(const struct executor *executor, int op)
{
    return executor->marks ? &executor->marks[op] : NULL;
}

static int enqueue_waits(const struct executor *executor, const struct schedule_op *op,
                         struct muster_error *err)
{
    const struct executor_parts *parts = &executor->parts;
    struct executor_mark *mark = mark_of(executor, (int)(op - parts->plan->ops));
    if (mark && op->stream == STREAM_COMPUTE && op->wait_count && mark_time(executor, mark, MARK_BEFORE))
        return executor_refused(parts->ops, parts->device, err);
    for (int i = 0; i < op->wait_count; i++) {
        if (parts->ops->wait(parts->streams[op->stream], executor->blocks[op->wait[i]].done))
            return executor_refused(parts->ops, parts->device, err);
    }
    return 0;
}

/* An operation for other steps keeps its place: it waits, and its event is recorded. */
static bool is_for_other_steps(const struct executor *executor, const struct schedule_op *op)
{
    return op->when != WHEN_ALWAYS && (op->when == WHEN_COMPRESSED) != executor->compresses;
}

static void note_reached(void *argument)
{
    struct op_block *b = argument;
    b->ran = b->executor->runs;
}

/* The sum of the loss over all ranks comes after the reductions of all gradients and of their norm. */
static bool is_milestone(const struct executor_parts *parts, const struct schedule_op *op)
{
    return parts->ops->mend && op->kind == OP_COMM && op->to == parts->plan->loss;
}

static int enqueue(const struct executor *executor, struct op_block *b, struct muster_error *err)
{
    const struct executor_parts *parts = &executor->parts;
    const struct schedule_op *op = b->op;
    struct device_stream *stream = parts->streams[op->stream];
    struct executor_mark *mark = mark_of(executor, (int)(b - executor->blocks));
    int failed = 0;
    if (parts->ops->mark && parts->ops->mark(stream, b - executor->blocks + 1))
        return executor_refused(parts->ops, parts->device, err);
    if (mark && mark_time(executor, mark, MARK_BEGIN))
        return executor_refused(parts->ops, parts->device, err);
    if (is_for_other_steps(executor, op)) { /* nothing */
    } else if (op->kind == OP_COMM) {
        if (is_milestone(parts, op) && parts->ops->launch(stream, note_reached, b))
            return executor_refused(parts->ops, parts->device, err);
        if (parts->comms->ops->issue(b->comm, &op->comm, b->from, b->to, stream, err))
            return -1;
    } else if (op->kind == OP_COPY) {
        failed = (op->votes && parts->ops->launch(stream, executor_run_vote, b)) ||
                 parts->ops->copy(stream, b->to, b->from, op->bytes);
    } else if (op->kind == OP_FILL) {
        failed = parts->ops->fill(stream, b->to, 0, op->bytes);
    } else if (runs_as_graph(executor, op)) {
        note_place(b);
        failed = parts->ops->launch_graph(stream, &b->graph, b->name, run_block, b);
    } else {
        failed = parts->ops->launch(stream, run_block, b);
    }
    if (!failed && mark)
        failed = mark_time(executor, mark, MARK_END);
    if (!failed && b->done)
        failed = parts->ops->record(stream, b->done);
    return failed ? executor_refused(parts->ops, parts->device, err) : 0;
}

/* Makes the gathers that the end of a step would have made. Their input does not change: the compute stream
 * is idle, and the gather stream keeps the order. */
static int gather_first(struct executor *executor, struct muster_error *err)
{
    const struct plan *plan = executor->parts.plan;
    for (int i = 0; i < plan->op_count; i++) {
        const struct schedule_op *op = &plan->ops[i];
        bool into_slot = op->carried && plan->entries[op->to].kind == PLAN_GATHER_SLOT;
        if (into_slot && enqueue(executor, &executor->blocks[i], err))
            return -1;
    }
    return 0;
}

int executor_share(struct executor *executor, struct muster_error *err)
{
    const struct plan *plan = executor->parts.plan;
    for (int i = 0; i < plan->op_count; i++) {
        const struct schedule_op *op = &plan->ops[i];
        if (op->kind == OP_COMM && op->from == op->to && plan->entries[op->to].kind == PLAN_PARAM_SHARD &&
            enqueue(executor, &executor->blocks[i], err))
            return -1;
    }
    return 0;
}

/* Makes the compute stream wait for all work that another stream has received so far. */
static int record_join(struct executor *executor, enum stream_id stream, struct muster_error *err)
{
    const struct executor_parts *parts = &executor->parts;
    return executor->joined[stream] && parts->ops->record(parts->streams[stream], executor->joined[stream])
               ? executor_refused(parts->ops, parts->device, err)
               : 0;
}

/* gathered: the gather stream was recorded already, before the carried gathers. */
static int join_compute(struct executor *executor, bool gathered, struct muster_error *err)
{
    const struct executor_parts *parts = &executor->parts;
    struct executor_mark *end = mark_of(executor, parts->plan->op_count);
    const bool timed = end && end->timer[MARK_BEFORE];
    if (timed && mark_time(executor, end, MARK_BEFORE))
        return executor_refused(parts->ops, parts->device, err);
    for (int i = 0; i < STREAM_COUNT; i++) {
        if (i == STREAM_COMPUTE || !executor->joined[i])
            continue;
        if (!(i == STREAM_GATHER && gathered) && record_join(executor, (enum stream_id)i, err))
            return -1;
        if (parts->ops->wait(parts->streams[STREAM_COMPUTE], executor->joined[i]))
            return executor_refused(parts->ops, parts->device, err);
    }
    return timed && mark_time(executor, end, MARK_BEGIN) ? executor_refused(parts->ops, parts->device, err)
                                                         : 0;
}

/* micros: of a run of forwards alone; 0: a step. Operations that forwards do not need are left out, but the
 * order that their waits give to the others stays. So buffers are used in the order of a step. */
static bool is_left_out(const struct schedule_op *op, int micros)
{
    return micros > 0 && (op->forward_micro < 0 || op->forward_micro >= micros);
}

static int pass_over(const struct executor *executor, const struct op_block *b, struct muster_error *err)
{
    const struct executor_parts *parts = &executor->parts;
    if (enqueue_waits(executor, b->op, err))
        return -1;
    return b->done && parts->ops->record(parts->streams[b->op->stream], b->done)
               ? executor_refused(parts->ops, parts->device, err)
               : 0;
}

/* Transfers that begin and end together: all wait before the first one, and signal after the last one. */
static int run_group(struct executor *executor, int first, int last, int micros, struct muster_error *err)
{
    const struct executor_parts *parts = &executor->parts;
    struct comm_transfer transfers[COMM_TRANSFERS];
    const struct op_block *begin = &executor->blocks[first];
    struct device_stream *stream = parts->streams[begin->op->stream];
    int count = 0;
    if (last - first > COMM_TRANSFERS)
        return error_set(err, MUSTER_E_LIMIT, "%d transfers between stages at once; at most %d", last - first,
                         COMM_TRANSFERS);
    for (int i = first; i < last; i++) {
        const struct op_block *b = &executor->blocks[i];
        if (enqueue_waits(executor, b->op, err))
            return -1;
        if (!is_left_out(b->op, micros))
            transfers[count++] = (struct comm_transfer){.op = b->op->comm, .send = b->from, .recv = b->to};
    }
    if (parts->ops->mark && parts->ops->mark(stream, first + 1))
        return executor_refused(parts->ops, parts->device, err);
    struct executor_mark *mark = count ? mark_of(executor, first) : NULL;
    if (mark && mark_time(executor, mark, MARK_BEGIN))
        return executor_refused(parts->ops, parts->device, err);
    if (count && parts->comms->ops->exchange(begin->comm, transfers, count, stream, err))
        return -1;
    if (mark && mark_time(executor, mark, MARK_END))
        return executor_refused(parts->ops, parts->device, err);
    for (int i = first; i < last; i++)
        if (executor->blocks[i].done && parts->ops->record(stream, executor->blocks[i].done))
            return executor_refused(parts->ops, parts->device, err);
    return 0;
}

/* The loss of a micro-batch goes to the host; the next one begins at 0. */
static int take_loss(const struct executor *executor, struct plan_loss *loss, struct muster_error *err)
{
    const struct executor_parts *parts = &executor->parts;
    void *sum = executor_address(parts, parts->plan->loss, 0);
    return parts->ops->copy(parts->streams[STREAM_COMPUTE], loss, sum, sizeof *loss) ||
                   parts->ops->fill(parts->streams[STREAM_COMPUTE], sum, 0, sizeof *loss)
               ? executor_refused(parts->ops, parts->device, err)
               : 0;
}

/* Operations [0, end). losses: NULL in a step. */
static int run(struct executor *executor, int end, int micros, struct plan_loss *losses,
               struct muster_error *err)
{
    executor->evaluating = micros > 0;
    executor->runs++;
    if (!executor->carried && gather_first(executor, err))
        return -1;
    for (int i = 0; i < end; i++) {
        struct op_block *b = &executor->blocks[i];
        if (b->op->stream == STREAM_TRANSFERS) {
            int last = i + 1;
            while (last < executor->parts.plan->op_count && executor->parts.plan->ops[last].joins)
                last++;
            if (run_group(executor, i, last, micros, err))
                return -1;
            i = last - 1;
            continue;
        }
        if (is_left_out(b->op, micros)) {
            if (pass_over(executor, b, err))
                return -1;
            continue;
        }
        if ((i == executor->first_carried && record_join(executor, STREAM_GATHER, err)) ||
            enqueue_waits(executor, b->op, err) || enqueue(executor, b, err) ||
            (micros > 0 && b->loss && take_loss(executor, &losses[b->op->micro], err)))
            return -1;
    }
    executor->carried = end > executor->first_carried;
    return join_compute(executor, executor->carried, err);
}

int executor_run(struct executor *executor, struct muster_error *err)
{
    return run(executor, executor->parts.plan->op_count, 0, NULL, err);
}

int executor_repeat(struct executor *executor, int op)
{
    return executor->parts.ops->launch(executor->parts.streams[STREAM_COMPUTE], run_block,
                                       executor->blocks + op);
}

int executor_evaluate(struct executor *executor, int micros, struct plan_loss *losses,
                      struct muster_error *err)
{
    int end = executor->parts.plan->op_count;
    memset(losses, 0, (size_t)micros * sizeof *losses);
    while (end > 0 && is_left_out(&executor->parts.plan->ops[end - 1], micros))
        end--;
    return run(executor, end, micros, losses, err);
}
