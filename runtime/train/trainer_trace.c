/* trainer_trace.c - times of operations in chosen steps: streams write them, or record timers around them
 * (executor.h); the caller reads them between steps. Timers serve every second step: when a step begins, all
 * operations of the step before the last one are done, those for the next step too. */
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/train/trainer_state.h"

/* The marks of one step. */
struct traced_step {
    int64_t step, begin_ns, end_ns, comm_ns, exposed_ns;
    int64_t waited_begin_ns, waited_end_ns; /* total waits of the compute stream, as it counts them */
    struct executor_mark *marks;            /* [plan.op_count + 1] */
};

/* Timers of a step; NULL where streams write themselves. */
struct step_timers {
    struct device_event *origin; /* the step's begin */
    struct device_event **of;    /* [(plan.op_count + 1) * MARK_TIMERS] */
};

struct trainer_trace {
    int64_t count, taken; /* steps */
    int64_t read;         /* steps whose timers were read */
    struct traced_step *steps;
    struct executor_mark *marks;
    const struct device_ops *ops;
    struct step_timers timers[2];
    int64_t timer_count; /* timers of a step but its origin */
};

void trainer_trace_free(struct trainer_trace *trace)
{
    if (!trace)
        return;
    for (int set = 0; set < 2; set++) {
        const struct step_timers *timers = &trace->timers[set];
        for (int64_t i = 0; timers->of && i < trace->timer_count; i++)
            if (timers->of[i])
                trace->ops->event_destroy(timers->of[i]);
        if (timers->origin)
            trace->ops->event_destroy(timers->origin);
        mem_free(timers->of);
    }
    mem_free(trace->steps);
    mem_free(trace->marks);
    mem_free(trace);
}

static int make_timers(const struct trainer *trainer, struct trainer_trace *trace, struct muster_error *err)
{
    const struct device_ops *ops = trainer->ops;
    const int sets = trace->count > 1 ? 2 : 1;
    trace->timer_count = ((int64_t)trainer->plan.op_count + 1) * MARK_TIMERS;
    for (int set = 0; ops->timer_create && set < sets; set++) {
        struct step_timers *timers = &trace->timers[set];
        timers->of = mem_calloc((size_t)trace->timer_count, sizeof *timers->of);
        if (!timers->of)
            return error_set(err, MUSTER_E_NOMEM, "no memory for %lld timers", (long long)trace->timer_count);
        timers->origin = ops->timer_create(trainer->device, err);
        if (!timers->origin)
            return -1;
        for (int64_t i = 0; i < trace->timer_count; i++) {
            timers->of[i] = ops->timer_create(trainer->device, err);
            if (!timers->of[i])
                return -1;
        }
    }
    return 0;
}

static void place_marks(const struct trainer *trainer, struct trainer_trace *trace)
{
    const struct plan *plan = &trainer->plan;
    for (int64_t i = 0; i < trace->count; i++) {
        struct device_event *const *timers = trace->timers[i % 2].of;
        trace->steps[i].marks = trace->marks + i * (plan->op_count + 1);
        for (int op = 0; op <= plan->op_count; op++) {
            const enum stream_id stream = op < plan->op_count ? plan->ops[op].stream : STREAM_COMPUTE;
            struct executor_mark *mark = &trace->steps[i].marks[op];
            *mark = (struct executor_mark){.ops = trainer->ops, .stream = trainer->streams[stream]};
            for (int timer = 0; timers && timer < MARK_TIMERS; timer++)
                mark->timer[timer] = timers[op * MARK_TIMERS + timer];
        }
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
    struct trainer_trace *trace = mem_calloc(1, sizeof *trace);
    if (trace) {
        trace->count = steps;
        trace->steps = mem_calloc((size_t)steps, sizeof *trace->steps);
        trace->marks = mem_calloc((size_t)steps * ((size_t)trainer->plan.op_count + 1), sizeof *trace->marks);
        trace->ops = trainer->ops;
    }
    if (!trace || !trace->steps || !trace->marks) {
        trainer_trace_free(trace);
        return error_set(err, MUSTER_E_NOMEM, "no memory to trace %d operations of %lld steps",
                         trainer->plan.op_count, (long long)steps);
    }
    if (make_timers(trainer, trace, err) < 0) {
        trainer_trace_free(trace);
        return -1;
    }
    place_marks(trainer, trace);
    trainer->trace = trace;
    return 0;
}

/* ---- timers ---- */

/* Nanoseconds from a step's begin to a timer; below 0: it was not recorded. */
static int64_t read_timer(const struct trainer *trainer, const struct step_timers *timers,
                          struct device_event *timer, struct muster_error *err)
{
    int64_t ns = 0;
    return trainer->ops->timer_between(timers->origin, timer, &ns, err) == 0 ? ns : -1;
}

/* The times of a step that is done, by its timers. An error is the device's, which keeps it. */
static void read_timers(const struct trainer *trainer, struct traced_step *step,
                        const struct step_timers *timers)
{
    const struct plan *plan = &trainer->plan;
    struct muster_error err = {0};
    int64_t waited_ns = 0;
    for (int i = 0; i <= plan->op_count; i++) {
        struct executor_mark *mark = &step->marks[i];
        const bool end = i == plan->op_count, computes = end || plan->ops[i].stream == STREAM_COMPUTE;
        const int64_t begin = read_timer(trainer, timers, mark->timer[MARK_BEGIN], &err);
        if (begin >= 0 && computes && (end || plan->ops[i].wait_count)) {
            const int64_t before = read_timer(trainer, timers, mark->timer[MARK_BEFORE], &err);
            waited_ns += before >= 0 && begin > before ? begin - before : 0;
        }
        if (end) {
            step->waited_begin_ns = 0;
            step->waited_end_ns = waited_ns;
            return;
        }
        const int64_t until = read_timer(trainer, timers, mark->timer[MARK_END], &err);
        mark->waited_ns = waited_ns;
        if (begin >= 0 && until >= begin) {
            mark->begin_ns = step->begin_ns + begin;
            mark->end_ns = step->begin_ns + until;
        }
    }
}

/* Reads timers of steps before `end`. */
static void read_steps(const struct trainer *trainer, int64_t end)
{
    struct trainer_trace *trace = trainer->trace;
    for (; trace && trace->timers[0].origin && trace->read < end; trace->read++)
        read_timers(trainer, &trace->steps[trace->read], &trace->timers[trace->read % 2]);
}

void trainer_trace_begin(struct trainer *trainer, struct instant start)
{
    struct trainer_trace *trace = trainer->trace;
    const bool records = trace && trace->taken < trace->count;
    if (records)
        read_steps(trainer, trace->taken - 1); /* their timers are needed */
    executor_trace(trainer->executor, records ? trace->steps[trace->taken].marks : NULL);
    if (!records)
        return;
    struct traced_step *step = &trace->steps[trace->taken];
    step->begin_ns = start.ns;
    if (trace->timers[0].origin) /* the stream is idle; an error is the step's, which begins now */
        (void)trainer->ops->record(trainer->streams[STREAM_COMPUTE], trace->timers[trace->taken % 2].origin);
    else
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
    if (!trace->timers[0].origin)
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
    read_steps(trainer, trainer->trace ? trainer->trace->taken : 0);
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
    read_steps(trainer, steps);
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
