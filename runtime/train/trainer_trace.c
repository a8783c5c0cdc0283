/* trainer_trace.c - times of operations in chosen steps: streams write them, the caller reads them between
 * steps. */
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/train/trainer_state.h"

/* The marks of one step. */
struct traced_step {
    int64_t step, begin_ns, end_ns, comm_ns, exposed_ns;
    int64_t waited_begin_ns, waited_end_ns; /* total waits of the compute stream, as it counts them */
    struct executor_mark *marks;            /* [plan.op_count] */
};

struct trainer_trace {
    int64_t count, taken; /* steps */
    struct traced_step *steps;
    struct executor_mark *marks;
};

void trainer_trace_free(struct trainer_trace *trace)
{
    if (!trace)
        return;
    mem_free(trace->steps);
    mem_free(trace->marks);
    mem_free(trace);
}

static void place_marks(const struct trainer *trainer, struct trainer_trace *trace)
{
    const struct plan *plan = &trainer->plan;
    for (int64_t i = 0; i < trace->count; i++) {
        trace->steps[i].marks = trace->marks + i * plan->op_count;
        for (int op = 0; op < plan->op_count; op++)
            trace->steps[i].marks[op] =
                (struct executor_mark){.ops = trainer->ops, .stream = trainer->streams[plan->ops[op].stream]};
    }
}

int trainer_trace(struct trainer *trainer, int64_t steps, struct muster_error *err)
{
    if (trainer_usable(trainer, err) || trainer_settle(trainer, err)) /* marks may still be written */
        return -1;
    trainer_trace_free(trainer->trace);
    trainer->trace = NULL;
    if (steps < 1)
        return 0;
    if (!trainer->ops->host_streams)
        return error_set(
            err, MUSTER_E_UNSUPPORTED,
            "device %s does not note when its operations run: leave logging.trace out, and use its own "
            "tools (nsys)",
            trainer->ops->name);
    struct trainer_trace *trace = mem_calloc(1, sizeof *trace);
    if (trace) {
        trace->count = steps;
        trace->steps = mem_calloc((size_t)steps, sizeof *trace->steps);
        trace->marks = mem_calloc((size_t)steps * (size_t)trainer->plan.op_count, sizeof *trace->marks);
    }
    if (!trace || !trace->steps || !trace->marks) {
        trainer_trace_free(trace);
        return error_set(err, MUSTER_E_NOMEM, "no memory to trace %d operations of %lld steps",
                         trainer->plan.op_count, (long long)steps);
    }
    place_marks(trainer, trace);
    trainer->trace = trace;
    return 0;
}

void trainer_trace_begin(struct trainer *trainer, struct instant start)
{
    struct trainer_trace *trace = trainer->trace;
    const bool records = trace && trace->taken < trace->count;
    executor_trace(trainer->executor, records ? trace->steps[trace->taken].marks : NULL);
    if (!records)
        return;
    struct traced_step *step = &trace->steps[trace->taken];
    step->begin_ns = start.ns;
    step->waited_begin_ns = trainer->ops->stream_waited_ns(trainer->streams[STREAM_COMPUTE]);
}

void trainer_trace_end(struct trainer *trainer, const struct trainer_stats *stats)
{
    struct trainer_trace *trace = trainer->trace;
    executor_trace(trainer->executor, NULL); /* forward passes between steps are not recorded */
    if (!trace || trace->taken == trace->count)
        return;
    struct traced_step *step = &trace->steps[trace->taken++];
    step->step = trainer->steps;
    step->end_ns = step->begin_ns + stats->step_ns;
    step->comm_ns = stats->comm_ns;
    step->exposed_ns = stats->exposed_ns;
    step->waited_end_ns = trainer->ops->stream_waited_ns(trainer->streams[STREAM_COMPUTE]);
}

/* ---- reading ---- */

/* Number of bytes that an operation sends and receives, moves or works on. */
static int64_t bytes_of(const struct trainer *trainer, const struct schedule_op *op)
{
    if (op->kind != OP_COMM)
        return op->bytes;
    const int64_t part = op->comm.count * dtype_size(op->comm.dtype);
    const bool cut = op->comm.kind == COMM_ALL_GATHER || op->comm.kind == COMM_REDUCE_SCATTER;
    return cut ? part * trainer->plan.groups[op->group < 0 ? 0 : op->group].shard_size : part;
}

static int visit_step(const struct trainer *trainer, const struct traced_step *step,
                      trainer_trace_visit *visit, void *context, struct muster_error *err)
{
    const struct plan *plan = &trainer->plan;
    int64_t waited_ns = step->waited_begin_ns, last_ns = step->end_ns;
    struct trainer_trace_event event = {.kind = TRAINER_TRACE_STEP,
                                        .op = -1,
                                        .step = step->step,
                                        .begin_ns = step->begin_ns,
                                        .end_ns = step->end_ns,
                                        .comm_ns = step->comm_ns,
                                        .exposed_ns = step->exposed_ns};
    if (visit(context, &event, err) < 0)
        return -1;
    for (int i = 0; i <= plan->op_count; i++) {
        const bool end = i == plan->op_count;
        const struct executor_mark *mark = end ? NULL : &step->marks[i];
        const bool computes = end || plan->ops[i].stream == STREAM_COMPUTE;
        if (mark && !mark->end_ns)
            continue; /* the step ended before it */
        const int64_t until = end ? step->waited_end_ns : mark->waited_ns;
        event =
            (struct trainer_trace_event){.kind = TRAINER_TRACE_WAIT, .op = end ? -1 : i, .step = step->step};
        event.end_ns = end ? last_ns : mark->begin_ns;
        event.begin_ns = event.end_ns - (until - waited_ns);
        if (computes && until > waited_ns && visit(context, &event, err) < 0)
            return -1;
        if (computes)
            waited_ns = until;
        if (end)
            return 0;
        event = (struct trainer_trace_event){.kind = TRAINER_TRACE_OP,
                                             .op = i,
                                             .step = step->step,
                                             .begin_ns = mark->begin_ns,
                                             .end_ns = mark->end_ns,
                                             .bytes = bytes_of(trainer, &plan->ops[i])};
        if (visit(context, &event, err) < 0)
            return -1;
    }
    return 0;
}

int trainer_traced(struct trainer *trainer, trainer_trace_visit *visit, void *context,
                   struct muster_error *err)
{
    if (trainer_settle(trainer, err)) /* gathers for the next step belong to the last traced step */
        return -1;
    for (int64_t i = 0; trainer->trace && i < trainer->trace->taken; i++)
        if (visit_step(trainer, &trainer->trace->steps[i], visit, context, err) < 0)
            return -1;
    return 0;
}

/* Calls of a layer that do the same. */
enum { CALL_FORWARD, CALL_AGAIN, CALL_BACKWARD, CALLS };
struct layer_calls {
    double least; /* seconds */
    int count;    /* in a step */
};

static struct layer_calls *calls_of(struct layer_calls *calls, const struct schedule_op *op)
{
    const int kind = op->kind == OP_BACKWARD       ? CALL_BACKWARD
                     : op->mode == LAYER_RECOMPUTE ? CALL_AGAIN
                                                   : CALL_FORWARD;
    return op->kind == OP_FORWARD || op->kind == OP_BACKWARD ? &calls[op->layer * CALLS + kind] : NULL;
}

int trainer_layer_seconds(struct trainer *trainer, double *seconds, struct muster_error *err)
{
    const struct plan *plan = &trainer->plan;
    const int layers = trainer->model->layer_count;
    const int64_t steps = trainer->trace ? trainer->trace->taken : 0;
    scope_free struct layer_calls *calls = mem_calloc((size_t)layers * CALLS, sizeof *calls);
    if (!calls)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the times of %d layers", layers);
    if (trainer_settle(trainer, err))
        return -1;
    for (int64_t i = 0; i < steps; i++)
        for (int op = 0; op < plan->op_count; op++) {
            const struct executor_mark *mark = &trainer->trace->steps[i].marks[op];
            const double taken = (double)(mark->end_ns - mark->begin_ns) / (double)NS_PER_S;
            struct layer_calls *mine = calls_of(calls, &plan->ops[op]);
            if (!mine)
                continue;
            mine->least = !mine->count || taken < mine->least ? taken : mine->least;
            mine->count += !i;
        }
    for (int l = 0; l < layers; l++) {
        seconds[l] = 0;
        for (int k = 0; k < CALLS; k++)
            seconds[l] += calls[l * CALLS + k].least * calls[l * CALLS + k].count;
    }
    return 0;
}
