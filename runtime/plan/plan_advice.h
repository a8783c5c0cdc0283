/* plan_advice.h - whether a plan fits into memory, and the changes of settings that would make it fit. */
#ifndef MUSTER_RUNTIME_PLAN_PLAN_ADVICE_H
#define MUSTER_RUNTIME_PLAN_PLAN_ADVICE_H

#include "runtime/plan/plan.h"

int64_t plan_bytes(const struct plan *plan); /* bytes that a rank allocates in all memory classes */

/* 0 if the plan needs at most `limit` bytes, else MUSTER_E_LIMIT with both sizes, `limit_is` ("is the memory
 * limit") and three changes of settings. Each change was planned and makes the plan fit; the three cost the
 * least time, by prediction. */
int plan_fits(const struct model *model, const struct plan *plan, int64_t limit, const char *limit_is,
              struct muster_error *err);

#endif
