/* train_plan.h - the plan that settings ask for. */
#ifndef MUSTER_RUNTIME_CONFIG_TRAIN_PLAN_H
#define MUSTER_RUNTIME_CONFIG_TRAIN_PLAN_H

#include "runtime/config/train_config.h"
#include "runtime/plan/plan.h"

enum {
    TRAIN_STATE_COPIES = 4
}; /* training.memory_copies keeps two of a rank's own state and two of a neighbour's */

/* A rank among the ranks that share a plan. */
struct train_place {
    int rank, world_size, local_size; /* local_size: ranks of this node */
};

/* Where stages begin, with mesh.cut: auto. The first of these that is there counts. */
enum train_cut_by {
    TRAIN_CUT_SET,      /* mesh.cut names the layers, or is even; or there is one stage */
    TRAIN_CUT_KEPT,     /* kept, if it makes as many parts */
    TRAIN_CUT_MEASURED, /* seconds */
    TRAIN_CUT_COUNTED   /* products and bytes of the layers */
};
struct train_cut {
    const char *const *kept; /* layers that begin the parts after the first, NULL at the end; NULL: none */
    const double *seconds;   /* [layer_count] a step's time in each layer; NULL: not measured */
    enum train_cut_by by;    /* filled */
};

/* Sets the parts of the model: after train_plan_options, again by other values of *cut. */
int train_plan_cut(const struct train_config *config, const struct plan_options *plan, struct train_cut *cut,
                   struct model *model, struct muster_error *err);

/* Marks the model's frozen and decaying parameters, chooses the mesh and the micro-batches, and fills all
 * options of the plan (kernels: the processor's). Errors name the setting. Reads the file of mesh.schedule,
 * if it is one, into *table, which is zeroed and outlives the plan; the caller frees it, on failure too. Pure
 * otherwise. */
int train_plan_options(const struct train_config *config, const struct train_place *place,
                       struct train_cut *cut, struct model *model, struct plan_options *plan,
                       struct pipe_table *table, struct muster_error *err);

/* Proves the file of calls at path, without a model; text: its figures, in a line. Errors name rank and call.
 */
int train_plan_prove_schedule(const char *path, char *text, size_t size, struct muster_error *err);

#endif
