/* plan_cut.h - which layers are a stage of a pipeline. Pure. */
#ifndef MUSTER_RUNTIME_PLAN_PLAN_CUT_H
#define MUSTER_RUNTIME_PLAN_PLAN_CUT_H

#include "runtime/plan/plan.h"

struct plan_cut {
    int stages;
    bool even; /* equal numbers of layers in the stages; else the slowest stage is as fast as possible */
    const char *const *names; /* first layers of all stages after the first, NULL at the end; NULL: chosen */
    const double *seconds;    /* [layer_count] a step's time in each layer; NULL: from products and bytes */
};

/* Sets model.stages and the stage of every layer. Errors name the setting (mesh.pipeline, mesh.cut). */
int plan_cut_model(struct model *model, const struct plan_options *options, const struct plan_cut *cut,
                   struct muster_error *err);

#endif
