/* api_state.c - muster_trainer.h: the state of a trainer, as a struct and by the names of its members. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/text.h"
#include "runtime/api/api_saving.h"
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
    X(command_ns, t->command_ns)

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
