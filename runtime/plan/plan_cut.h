/* plan_cut.h - which layers are a stage of a pipeline. Pure. */
#ifndef MUSTER_RUNTIME_PLAN_PLAN_CUT_H
#define MUSTER_RUNTIME_PLAN_PLAN_CUT_H

#include "runtime/plan/plan.h"

struct plan_cut {
    int stages;
    bool even;                /* as many layers in each, else so that the slowest is as fast as can be */
    const char *const *names; /* the layers that begin the second stage and those after it, NULL at the end;
                               * NULL: they are chosen */
    const double
        *seconds; /* [layer_count] that a step takes in a layer; NULL: as its products and bytes say */
};

/* Sets model.stages and the stage of every layer. Errors name the setting (mesh.pipeline, mesh.cut). */
int plan_cut_model(struct model *model, const struct plan_options *options, const struct plan_cut *cut,
                   struct muster_error *err);

#endif
