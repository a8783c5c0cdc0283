/* api_trace.c - muster_trainer.h: what a trainer has recorded of its steps, with names; and where it is now.
 */
#include <stdio.h>

#include "proto/base/error.h"
#include "runtime/api/api_trainer.h"

enum { TEXT_SIZE = 2 * TRAINER_OP_NAME };

struct reader {
    struct muster_trainer *trainer;
    int (*visit)(void *context, const struct muster_trace_event *event);
    void *context;
};

static const char *group_name(const struct plan *plan, int group)
{
    return group < 0 ? "" : plan->groups[group].name;
}

/* The operations of other streams that one waits for. */
static void name_wait(const struct reader *reader, int op, char *text)
{
    char name[TRAINER_OP_NAME];
    if (op < 0) {
        (void)snprintf(text, TEXT_SIZE, "wait for the end of the other streams");
        return;
    }
    const struct schedule_op *o = &trainer_plan(reader->trainer->trainer)->ops[op];
    int length = snprintf(text, TEXT_SIZE, "wait for ");
    for (int i = 0; i < o->wait_count && length < TEXT_SIZE; i++) {
        trainer_op_name(reader->trainer->trainer, o->wait[i], name);
        length += snprintf(text + length, (size_t)(TEXT_SIZE - length), "%s%s", i ? ", " : "", name);
    }
}

static int read_event(void *context, const struct trainer_trace_event *event, struct muster_error *err)
{
    const struct reader *reader = context;
    const struct plan *plan = trainer_plan(reader->trainer->trainer);
    const struct schedule_op *op = event->op < 0 ? NULL : &plan->ops[event->op];
    char name[TEXT_SIZE];
    if (event->kind == TRAINER_TRACE_WAIT)
        name_wait(reader, event->op, name);
    else if (op)
        trainer_op_name(reader->trainer->trainer, event->op, name);
    else
        (void)snprintf(name, sizeof name, "step %lld", (long long)event->step);
    const bool runs = op && event->kind == TRAINER_TRACE_OP;
    const struct muster_trace_event out = {.size = sizeof out,
                                           .kind = event->kind == TRAINER_TRACE_STEP   ? MUSTER_TRACE_STEP
                                                   : event->kind == TRAINER_TRACE_WAIT ? MUSTER_TRACE_WAIT
                                                   : op->kind == OP_COMM ? MUSTER_TRACE_COLLECTIVE
                                                                         : MUSTER_TRACE_OPERATION,
                                           .stream = runs ? (int32_t)op->stream : STREAM_COMPUTE,
                                           .micro_batch = op ? op->micro : -1,
                                           .step = event->step,
                                           .begin_ns = event->begin_ns,
                                           .end_ns = event->end_ns,
                                           .bytes = event->bytes,
                                           .comm_ns = event->comm_ns,
                                           .exposed_ns = event->exposed_ns,
                                           .name = name,
                                           .group = runs ? group_name(plan, op->group) : "",
                                           .axis = runs && op->kind == OP_COMM ? axis_name(op->axis) : ""};
    if (reader->visit(reader->context, &out) < 0)
        return error_set(err, MUSTER_E_CANCELLED, "the caller's function has ended the trace's reading");
    return 0;
}

int muster_trainer_trace(struct muster_trainer *t, int64_t steps, struct muster_error *err)
{
    return trainer_trace(t->trainer, steps, err);
}

int muster_trainer_traced(struct muster_trainer *t,
                          int (*visit)(void *context, const struct muster_trace_event *event), void *context,
                          struct muster_error *err)
{
    struct reader reader = {.trainer = t, .visit = visit, .context = context};
    return trainer_traced(t->trainer, read_event, &reader, err);
}

int64_t muster_trainer_place(const struct muster_trainer *t, char *text, int64_t size)
{
    scope_buffer out = {0};
    if (trainer_place(t->trainer, &out) < 0)
        return -1;
    if (size > 0)
        (void)snprintf(text, (size_t)size, "%s", out.data); /* cut if too long */
    return (int64_t)out.length;
}

int muster_trainer_compare_replicas(struct muster_trainer *t, int32_t *parameter, int32_t *rank,
                                    int32_t *other, struct muster_error *err)
{
    struct trainer_difference found;
    if (trainer_compare_replicas(t->trainer, &found, err) < 0)
        return -1;
    *parameter = found.param;
    *rank = found.rank;
    *other = found.other;
    return found.param >= 0;
}
