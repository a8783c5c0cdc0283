/* plan_check.h - proves plans, taking nothing from the builder but the memory that an operation touches. */
#ifndef MUSTER_TESTS_SUPPORT_PLAN_CHECK_H
#define MUSTER_TESTS_SUPPORT_PLAN_CHECK_H

#include "runtime/plan/plan.h"

/* Nothing that is alive overlaps in memory; every buffer an op uses is alive; every pair of conflicting
 * accesses on different streams is ordered by streams and waits; gather slots hold the right group when used;
 * gradients are complete when reduced and reduced once a step or micro-batch; no more gathers are ahead than
 * asked for. Fails with MUSTER_E_STATE naming the first op or entry that is wrong. */
int plan_check(const struct model *model, const struct plan *plan, struct muster_error *err);
/* The plans of all ranks together (plans[rank]): runs the streams of all ranks with blocking sends, receives
 * and collectives and fails where a signature differs or a rank waits for ever. */
int plan_check_world(const struct plan *const *plans, int count, struct muster_error *err);

/* The part of plan_check that follows what every buffer holds through the schedule (plan_check_content.c). */
int plan_check_content(const struct model *model, const struct plan *plan, struct muster_error *err);

#endif
