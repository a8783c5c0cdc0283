/* api_state.c - muster_trainer.h: the state of a trainer, as a struct and by the names of its members; traces
 * of its steps, and its place in the schedule. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/text.h"
#include "runtime/api/api_trainer.h"
#include "runtime/checkpoint/hook.h"
#include "runtime/world/sized.h"

static int64_t planned_bytes(const struct plan *plan)
{
    int64_t bytes = 0;
    for (int i = 0; i < MEMORY_CLASS_COUNT; i++)
        bytes += plan->arena_bytes[i];
    return bytes;
}

static bool stops_early(const struct muster_trainer *t)
{
    const struct evaluation_rule rule = train_config_evaluation(&t->config);
    return evaluation_stops(&rule, &t->evaluation);
}

/* Every member but the size, in the order of the struct, and its value. t: the trainer, plan: its plan, last:
 * the result of its last step. */
#define STATE_MEMBERS(X)                                                                                     \
    X(threads, t->threads)                                                                                   \
    X(parameters, model_parameters(&t->model))                                                               \
    X(planned_bytes, planned_bytes(plan))                                                                    \
    X(samples, api_samples(t))                                                                               \
    X(micro_batch, t->plan.shape.B)                                                                          \
    X(micro_batches, t->plan.micro_batches)                                                                  \
    X(positions, t->plan.shape.T)                                                                            \
    X(most_positions, t->model.max_positions)                                                                \
    X(replicas, t->plan.mesh.side[SIDE_REPLICATE])                                                           \
    X(groups, plan->group_count)                                                                             \
    X(gathers_in_flight, plan->gathers_in_flight)                                                            \
    X(dropout, t->dropout)                                                                                   \
    X(step_flops, t->limit.step_flops)                                                                       \
    X(peak_flops, t->limit.peak_flops)                                                                       \
    X(cuts_batches, trainer_cuts_batches(t->trainer))                                                        \
    X(skipped, last->skipped)                                                                                \
    X(stop, last->stop)                                                                                      \
    X(checkpoint, last->checkpoint)                                                                          \
    X(loss, last->loss)                                                                                      \
    X(grad_norm, last->grad_norm)                                                                            \
    X(learning_rate, last->learning_rate)                                                                    \
    X(loss_scale, last->loss_scale)                                                                          \
    X(correct, last->correct)                                                                                \
    X(targets, last->targets)                                                                                \
    X(step_ns, last->step_ns)                                                                                \
    X(comm_ns, last->comm_ns)                                                                                \
    X(exposed_ns, last->exposed_ns)                                                                          \
    X(steps, t->steps)                                                                                       \
    X(taken, t->taken)                                                                                       \
    X(stage_first_step, t->stage.first_step)                                                                 \
    X(stage_found, t->stage.found)                                                                           \
    X(stops_early, stops_early(t))                                                                           \
    X(evaluations, t->evaluation.count)                                                                      \
    X(evaluated_step, t->evaluation.last_step)                                                               \
    X(best_step, t->evaluation.best_step)                                                                    \
    X(evaluations_without_gain, t->evaluation.waits)                                                         \
    X(best_loss, t->evaluation.best_step < 0 ? NAN : t->evaluation.best_loss)                                \
    X(evaluated_correct, t->evaluated_correct)                                                               \
    X(plateau_rate, t->plateau.rate)                                                                         \
    X(checkpoint_step, t->saved_step)                                                                        \
    X(checkpoint_ns, t->checkpoint_ns)                                                                       \
    X(checkpoint_stall_ns, t->checkpoint_stall_ns)                                                           \
    X(checkpoint_bytes, t->checkpoint_bytes)                                                                 \
    X(checkpoint_oldest, t->saving_count ? t->saving[0].step : -1)                                           \
    X(checkpoint_given_up, t->checkpoint_given_up)                                                           \
    X(checkpoint_writing, t->saving_count)                                                                   \
    X(checkpoint_busy, api_saving_busy(t))                                                                   \
    X(checkpoint_again, t->checkpoint_again)                                                                 \
    X(command_busy, t->hook ? hook_is_busy(t->hook) : 0)                                                     \
    X(command_step, t->hook ? hook_last(t->hook) : -1)                                                       \
    X(command_ns, t->command_ns)                                                                             \
    X(copies_ns, t->copies_ns)                                                                               \
    X(recovered_ns, t->recovered_ns)                                                                         \
    X(recovered_bytes, t->recovered_bytes)

#define MEMBER_VALUE(member, value) .member = value,

static struct muster_trainer_state state_of(const struct muster_trainer *t)
{
    const struct plan *plan = trainer_plan(t->trainer);
    const struct muster_result *last = &t->last;
    return (struct muster_trainer_state){STATE_MEMBERS(MEMBER_VALUE)};
}

int muster_trainer_state_get(const struct muster_trainer *t, struct muster_trainer_state *state,
                             struct muster_error *err)
{
    const struct muster_trainer_state now = state_of(t);
    const size_t first_version = offsetof(struct muster_trainer_state, command_ns) + sizeof now.command_ns;
    return sized_out("muster_trainer_state", state, state->size, &now, sizeof now, first_version, err);
}

/* ---- by names ---- */

enum member_type { MEMBER_REAL, MEMBER_INT64, MEMBER_INT32 };

#define MEMBER_NAME(member, value)   #member,
#define MEMBER_OFFSET(member, value) offsetof(struct muster_trainer_state, member),
#define MEMBER_TYPE(member, value)                                                                           \
    _Generic(((struct muster_trainer_state *)0)->member, double                                              \
             : MEMBER_REAL, int64_t                                                                          \
             : MEMBER_INT64, int32_t                                                                         \
             : MEMBER_INT32),
#define MEMBER_SIZE(member, value) +sizeof(((struct muster_trainer_state *)0)->member)

static const char *const names[] = {STATE_MEMBERS(MEMBER_NAME)};
static const size_t offsets[] = {STATE_MEMBERS(MEMBER_OFFSET)};
static const enum member_type types[] = {STATE_MEMBERS(MEMBER_TYPE)};
_Static_assert(sizeof(struct muster_trainer_state) == sizeof(uint32_t) STATE_MEMBERS(MEMBER_SIZE),
               "every member has a name, and none is padded");

int muster_trainer_figure(const struct muster_trainer *t, const char *name, double *value,
                          struct muster_error *err)
{
    enum { COUNT = sizeof names / sizeof *names };
    int found = 0;
    while (found < COUNT && strcmp(names[found], name) != 0)
        found++;
    if (found == COUNT) {
        const char *nearest = text_nearest(name, names, COUNT);
        return error_set(err, MUSTER_E_INVALID,
                         "a trainer has no figure '%s'%s%s%s (struct muster_trainer_state lists all)", name,
                         nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
    }
    const struct muster_trainer_state state = state_of(t);
    const void *member = (const char *)&state + offsets[found];
    *value = types[found] == MEMBER_REAL    ? *(const double *)member
             : types[found] == MEMBER_INT64 ? (double)*(const int64_t *)member
                                            : (double)*(const int32_t *)member;
    return 0;
}

/* ---- traces, and the place of a rank ---- */

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
    t->cut.traced = true;
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
