/* plan_stages.h - the plans of all stages of a pipeline together: proves that no stage waits for ever, and
 * predicts a step's time.
 *
 * Ranks of a stage have equal schedules (plan.hash), so all of them reach a collective among them, or none.
 * One rank stands for its stage: the cost does not depend on the number of ranks. Pure. */
#ifndef MUSTER_RUNTIME_PLAN_PLAN_STAGES_H
#define MUSTER_RUNTIME_PLAN_PLAN_STAGES_H

#include "runtime/plan/plan_cost.h"

struct plan_stages {
    int count;
    struct plan *plans; /* each for the first rank of its stage */
};
/* options: of any rank of the run; the plan of its stage is built again. */
int plan_stages_build(const struct model *model, const struct plan_options *options,
                      struct plan_stages *stages, struct muster_error *err);
void plan_stages_free(struct plan_stages *stages); /* accepts a zeroed struct */

struct plan_stage_cost {
    double busy_s, idle; /* compute stream: busy seconds; share of the step in which it waits */
    double comm_s;       /* seconds of collectives and transfers */
    int64_t bytes;       /* allocated by a rank */
};
struct plan_stages_cost {
    double step_s, idle; /* the mean of the stages */
    struct plan_stage_cost stage[PLAN_STAGES];
};
/* Runs one step of all stages. MUSTER_E_STATE names the stage and the operation that would wait for ever,
 * with the operation that it waits for, or two ends of a transfer that differ. rates NULL:
 * plan_rates_nominal; cost NULL: the proof alone. */
int plan_stages_run(const struct model *model, const struct plan_stages *stages,
                    const struct plan_rates *rates, struct plan_stages_cost *cost, struct muster_error *err);

/* For the text and the JSON of a plan with several stages. */
int plan_stages_text(const struct model *model, const struct plan *plan, struct buffer *out);
int plan_stages_json(const struct model *model, const struct plan *plan, struct buffer *out);

#endif
