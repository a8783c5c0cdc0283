/* order.h - the order that an executor gives to a plan's operations: in steps, in evaluations, and from one
 * to the next, each operation has to come after all that the plan says it comes after, on the plan's stream.
 * Before an operation changes state that a checkpoint may still read, it has to ask the guard. Each fails
 * with cmocka. */
#ifndef MUSTER_TESTS_EXECUTOR_ORDER_H
#define MUSTER_TESTS_EXECUTOR_ORDER_H

#include "tests/support/plan_models.h"

struct plan;
struct plan_options;

void order_check_plan(const char *name, const struct model *model, const struct plan *plan);
/* The plans of the first rank and of the last one. */
void order_check(const char *name, struct plan_model *model, const struct plan_options *options);

#endif
