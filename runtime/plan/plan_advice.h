/* plan_advice.h - whether a plan fits into memory, and what would make it fit. */
#ifndef MUSTER_RUNTIME_PLAN_PLAN_ADVICE_H
#define MUSTER_RUNTIME_PLAN_PLAN_ADVICE_H

#include "runtime/plan/plan.h"

int64_t plan_bytes(const struct plan *plan); /* of all memory classes: what a rank allocates */

/* 0 if the plan needs at most `limit` bytes, else MUSTER_E_LIMIT with both sizes, `limit_is` ("is the memory
 * limit") and the three changes of settings that cost the least time, by prediction, of those that make it
 * fit: each was planned. */
int plan_fits(const struct model *model, const struct plan *plan, int64_t limit, const char *limit_is,
              struct muster_error *err);

#endif
