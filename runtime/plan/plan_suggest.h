/* plan_suggest.h - the fastest meshes of a world for a model and a batch: sides, micro-batch, schedule,
 * strategy and recomputation are tried. Each mesh is planned stage by stage, proved and predicted. Pure. */
#ifndef MUSTER_RUNTIME_PLAN_PLAN_SUGGEST_H
#define MUSTER_RUNTIME_PLAN_PLAN_SUGGEST_H

#include "runtime/plan/plan_cost.h"

enum { SUGGESTIONS = 10 };

struct suggest_request {
    int world_size;
    int64_t global_batch;
    int64_t memory;                 /* most bytes of a rank; 0: any */
    enum plan_memory counted;       /* against it */
    const struct plan_rates *rates; /* with ranks_per_node and link of the machine */
    bool exhaustive;                /* plans every mesh, also meshes that cannot be among the fastest */
};
struct suggestion {
    struct plan_options options; /* rank 0's */
    double step_s, idle;
    int64_t bytes;     /* one rank's in the largest stage, as the request counts them */
    double node_bytes; /* received by all nodes from other nodes in a step */
};
struct suggest_result {
    struct suggestion best[SUGGESTIONS]; /* the fastest first */
    int count;
    int meshes, planned; /* listed; among them planned and proved */
    /* Both 0, or the planner is wrong: meshes that would wait for ever; that are better than was thought
     * possible. */
    int stuck, above_bound;
};

/* base: the options of every mesh, but for those that the search tries. Changes the parts of the model's
 * layers. A mesh that cannot be planned is passed over. MUSTER_E_LIMIT: no mesh fits, with the bytes of the
 * smallest. */
int plan_suggest(struct model *model, const struct plan_options *base, const struct suggest_request *request,
                 struct suggest_result *result, struct muster_error *err);

#endif
