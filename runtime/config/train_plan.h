/* train_plan.h - the plan that settings ask for. */
#ifndef MUSTER_RUNTIME_CONFIG_TRAIN_PLAN_H
#define MUSTER_RUNTIME_CONFIG_TRAIN_PLAN_H

#include "runtime/config/train_config.h"
#include "runtime/plan/plan.h"

/* A rank among the ranks that share a plan. */
struct train_place {
    int rank, world_size, local_size; /* local_size: ranks of this node */
};

/* Marks the model's frozen and decaying parameters, chooses the mesh and the micro-batches, and fills all
 * options of the plan (kernels: the processor's). Errors name the setting. Reads the file of mesh.schedule,
 * if it is one, into *table, which is zeroed and outlives the plan; the caller frees it, on failure too. Pure
 * otherwise. */
int train_plan_options(const struct train_config *config, const struct train_place *place,
                       struct model *model, struct plan_options *plan, struct pipe_table *table,
                       struct muster_error *err);

/* Proves the file of calls at path, without a model; text: its figures, in a line. Errors name rank and call.
 */
int train_plan_prove_schedule(const char *path, char *text, size_t size, struct muster_error *err);

#endif
