/* plan_cost.h - predicts the time of a plan's step: the schedule is run with a time for each operation. */
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
    double again_s; /* a forward in mode LAYER_RECOMPUTE, without values that backward does not need */
};

enum { PLAN_RATES_OF = 160 };
/* Rates of a rank. */
struct plan_rates {
    double flops;  /* operations of matrix products in a second */
    double memory; /* bytes read or written in a second */
    /* Operations that are neither calls of layers nor collectives, by bytes of the elements in the layers'
     * dtype. cast_narrow is for casts with a result of 16 bits, op[OP_CAST] for other casts. */
    struct plan_line op[OP_KIND_COUNT], cast_narrow;
    struct plan_line comm[COMM_KIND_COUNT]; /* bytes that a rank receives */
    double launch_s;                        /* added to every operation, seconds */
    /* [model.layer_count]; NULL: times from products over flops, and from outputs and saved memory over
     * memory */
    const struct plan_layer_times *layers;
    bool cores_shared; /* collectives take the cores of compute: nothing overlaps */
    /* With several nodes: ranks of each, and a node's line to the others, which its ranks share; 0: one node.
     * Bytes between nodes take the time of this line, then the time of a
     * collective within nodes. */
    int ranks_per_node;
    struct plan_line link;
    char of[PLAN_RATES_OF]; /* the GPU with these peaks; "": ordinary cores */
};
/* line: bytes that a rank receives in a second. */
struct plan_rates plan_rates_of(double flops, double memory, double line);
/* Rates of ordinary cores, to compare plans with each other; this machine's rates differ. */
struct plan_rates plan_rates_nominal(int threads);
/* "by the times of ordinary cores"; "by arithmetic, at the peaks of ..." */
void plan_rates_text(const struct plan_rates *rates, struct buffer *out);

struct plan_cost {
    double step_s, compute_s, comm_s;
    double exposed_s; /* seconds in which the compute stream waits */
};

/* Fills seconds[layer_count]: a step's time in each layer at plan_rates_nominal, to compare layers with each
 * other. */
int plan_layer_seconds(const struct model *model, const struct plan_options *options, double *seconds,
                       struct muster_error *err);

/* Fills seconds[layer_count]: the calls of each layer in a step of a plan that has all of them. */
int plan_layer_sums(const struct model *model, const struct plan *plan, const struct plan_rates *rates,
                    double *seconds, struct muster_error *err);

/* Fills seconds[op_count]: the time of each operation alone. */
int plan_op_seconds(const struct model *model, const struct plan *plan, const struct plan_rates *rates,
                    double *seconds, struct muster_error *err);

/* Predicts a step in the middle of a run, which begins with the gathers of the step before. */
int plan_predict(const struct model *model, const struct plan *plan, const struct plan_rates *rates,
                 struct plan_cost *cost, struct muster_error *err);

/* Bytes that all nodes receive from other nodes in a step, for the ranks of this plan's stage. */
double plan_node_bytes(const struct plan *plan, const struct plan_rates *rates);

/* Least work of a step: its matrix products, and the bytes that operations outside of layers read and write
 * (optimizer, norms, casts, copies). Other bytes of layers can be in caches, and collectives overlap the
 * layers: neither counts. */
struct plan_work {
    double flops, bytes;
    double model_flops; /* flops without recomputation, as MFU counts them */
};
int plan_count_work(const struct model *model, const struct plan *plan, struct plan_work *work,
                    struct muster_error *err);
/* Lower limit of a step's time: its products, then its bytes. */
static inline double plan_limit_s(const struct plan_work *work, double flops, double memory)
{
    return work->flops / flops + work->bytes / memory;
}

#endif
