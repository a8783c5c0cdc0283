/* plan_cost.h - what a plan's step takes, predicted: the schedule is run with a time for each operation. */
#ifndef MUSTER_RUNTIME_PLAN_PLAN_COST_H
#define MUSTER_RUNTIME_PLAN_PLAN_COST_H

#include "runtime/plan/plan.h"

/* What a rank can do in a second. */
struct plan_rates {
    double flops;     /* of matrix products */
    double memory;    /* bytes read or written by all else that computes */
    double comm;      /* bytes that a collective receives */
    double latency_s; /* of a collective */
};
/* An ordinary core's, for comparing plans with each other: not this machine's. */
struct plan_rates plan_rates_nominal(int threads);

struct plan_cost {
    double step_s, compute_s, comm_s;
    double exposed_s; /* in which the compute stream waits */
};

/* Of a step in the middle of a run: it begins with what the step before has gathered. */
int plan_predict(const struct model *model, const struct plan *plan, const struct plan_rates *rates,
                 struct plan_cost *cost, struct muster_error *err);

#endif
