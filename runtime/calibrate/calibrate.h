/* calibrate.h - measures this machine's rates for the operations of a plan, which plan_predict takes.
 *
 * Ranks are threads of this process that measure at the same time, so that they share cores, caches and
 * memory as ranks of one machine do. Each kind of layer is called alone on synthetic values, in the plan's
 * shapes, then the optimizer, norms, casts and copies on arrays of the plan's size, then collectives of two
 * sizes. Memory has the same classes as in a plan, and caches are as cold as in a step
 * (calibrate_cold.c). It takes about as long as three or four steps, and as much memory as the largest layer
 * needs and its machine's largest cache holds. */
#ifndef MUSTER_RUNTIME_CALIBRATE_CALIBRATE_H
#define MUSTER_RUNTIME_CALIBRATE_CALIBRATE_H

#include "runtime/device/device.h"
#include "runtime/plan/plan_cost.h"

struct calibrate_options {
    const struct model *model;
    const struct plan *plan;   /* a plan that trains */
    const struct batch *batch; /* a micro-batch whose numbers the model takes; only read */
    int ranks, threads;        /* ranks that measure at once; threads of each rank */
};

struct calibration {
    struct plan_rates rates;         /* layers: below */
    struct plan_layer_times *layers; /* [model.layer_count]; owned */
    int kinds;                       /* kinds of layers that were measured */
    int64_t taken_ns;
};

int calibrate(const struct calibrate_options *options, struct calibration *out, struct muster_error *err);
void calibration_free(struct calibration *calibration); /* accepts a zeroed one */

/* The rates of plan_limit_s, measured by a function for a compute stream: products of the largest matrices
 * of the model's layers, and reading memory that the caller lends. It takes about 0.2 s. */
struct calibrate_limit {
    const struct model *model;
    const struct plan *plan;
    const struct kernels *kernels;
    void *scratch; /* calibrate_limit_bytes(), written; */
    const void *read;
    int64_t read_bytes;   /* only read */
    double flops, memory; /* filled: in a second; flops 0 where no layer has a product */
};
int64_t calibrate_limit_bytes(const struct model *model, const struct plan *plan);
/* Multiplications of the largest product that it will measure. */
double calibrate_limit_largest(const struct model *model, const struct plan_options *options);
void calibrate_limit_run(void *limit);

#endif
