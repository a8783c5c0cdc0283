/* plan_cost.h - what a plan's step takes, predicted: the schedule is run with a time for each operation. */
#ifndef MUSTER_RUNTIME_PLAN_PLAN_COST_H
#define MUSTER_RUNTIME_PLAN_PLAN_COST_H

#include "runtime/plan/plan.h"

/* Seconds of an operation on a number of bytes. */
struct plan_line {
    double begin_s, byte_s;
};
/* Seconds of the calls of a layer, of one micro-batch. */
struct plan_layer_times {
    double forward_s, backward_s;
    double again_s; /* of a forward in mode LAYER_RECOMPUTE, which leaves out what backward does not need */
};

/* What a rank can do. */
struct plan_rates {
    double flops;  /* of matrix products, in a second */
    double memory; /* bytes read or written in a second */
    /* Operations that are neither calls of layers nor collectives. Bytes of the elements in the layers'
     * dtype; a cast is a narrow one where its result has 16 bits, else a wide one. */
    struct plan_line op[OP_KIND_COUNT], cast_narrow;
    struct plan_line comm[COMM_KIND_COUNT]; /* bytes that a rank receives */
    double launch_s;                        /* of every operation besides */
    /* [model.layer_count]; NULL: products over flops, outputs and saved memory over memory */
    const struct plan_layer_times *layers;
    bool cores_shared; /* collectives take the cores of compute: nothing overlaps */
};
/* An ordinary core's, for comparing plans with each other: not this machine's. */
struct plan_rates plan_rates_nominal(int threads);

struct plan_cost {
    double step_s, compute_s, comm_s;
    double exposed_s; /* in which the compute stream waits */
};

/* [layer_count] that a step takes in each layer, as plan_rates_nominal has it: to hold layers against each
 * other. */
int plan_layer_seconds(const struct model *model, const struct plan_options *options, double *seconds,
                       struct muster_error *err);

/* [op_count] that each operation takes, alone. */
int plan_op_seconds(const struct model *model, const struct plan *plan, const struct plan_rates *rates,
                    double *seconds, struct muster_error *err);

/* Of a step in the middle of a run: it begins with what the step before has gathered. */
int plan_predict(const struct model *model, const struct plan *plan, const struct plan_rates *rates,
                 struct plan_cost *cost, struct muster_error *err);

/* What a step does at the least: its matrix products, and the bytes that operations outside of layers read
 * and write (optimizer, norms, casts, copies). What layers move besides can be in caches, and collectives
 * run beside them: neither counts. */
struct plan_work {
    double flops, bytes;
    double model_flops; /* without what is computed again: of MFU */
};
int plan_count_work(const struct model *model, const struct plan *plan, struct plan_work *work,
                    struct muster_error *err);
/* The step's own limit: its products, then its bytes. */
static inline double plan_limit_s(const struct plan_work *work, double flops, double memory)
{
    return work->flops / flops + work->bytes / memory;
}

#endif
