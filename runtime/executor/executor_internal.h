/* executor_internal.h - an executor's own memory, for the parts of executor.h: executor.c makes it,
 * executor_run.c walks over it, executor_compute.c has the functions that the compute stream calls. */
#ifndef MUSTER_RUNTIME_EXECUTOR_INTERNAL_H
#define MUSTER_RUNTIME_EXECUTOR_INTERNAL_H

#include <stdatomic.h>

#include "runtime/executor/executor.h"

/* Input of an operation's function. */
struct op_block {
    struct executor *executor;
    const struct schedule_op *op;
    void (*run)(void *block); /* NULL: a device or comm call, which is not launched */
    void *from, *to;
    int ranks;      /* number of ranks with their own samples */
    int replicas;   /* OP_DECODE: that have sent */
    int64_t stride; /* bytes that each of them has sent under top-k */
    struct comm *comm;
    struct device_event *done;      /* NULL if no operation waits for it */
    struct device_graph *graph;     /* NULL: not launched as a graph yet */
    uint64_t ran;                   /* number of the run in which its function was called last */
    char name[48];                  /* name of a layer's operation: "forward h.0", cut if longer */
    const struct layer_desc *layer; /* from here: of forward and backward */
    bool loss;
    struct layer_context context;
    struct batch batch;
    const void *weight[LAYER_PARAMS];
    void *grad[LAYER_PARAMS];
    const void *in[LAYER_SOURCES];
    void *din[LAYER_SOURCES];
};

struct executor {
    struct executor_parts parts;
    struct op_block *blocks;                   /* [plan.op_count] */
    struct device_event *joined[STREAM_COUNT]; /* the end of a run on each stream */
    struct step_scalars *scalars;
    bool evaluating;                      /* changed only while the compute stream is idle */
    int first_carried;                    /* op; op_count: none */
    bool carried;                         /* the previous run has made this run's first gathers */
    const struct layer_capture *captures; /* by micro-batch; NULL: nothing is copied out; changed only while
                                             idle */
    int *positions;                       /* [micro_batches] T of a run; changed only while idle */
    uint64_t runs;                        /* so far; changed only while idle */
    bool compresses; /* else replicas exchange dense gradients; changed only while idle */
    bool may_be_shorter;
    struct executor_mark *marks; /* marks that the next run writes; NULL: none */
    _Atomic(int) place;          /* op that the compute stream has begun last; -1: none */
};

/* What the compute stream calls with an operation's block; NULL: a device or comm call. */
extern void (*const executor_functions[OP_KIND_COUNT])(void *block);
/* Collects votes right before they are copied to the memory that the ranks sum. block: of an OP_COPY. */
void executor_run_vote(void *block);

#endif
