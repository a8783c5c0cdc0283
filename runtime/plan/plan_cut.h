/* plan_cut.h - which layers are a part of a pipeline's model. Pure. */
#ifndef MUSTER_RUNTIME_PLAN_PLAN_CUT_H
#define MUSTER_RUNTIME_PLAN_PLAN_CUT_H

#include "runtime/plan/plan.h"

struct plan_cut {
    int stages, chunks; /* chunks: parts of a stage; 0: 1 */
    bool even; /* equal numbers of layers in the parts; else the slowest part is as fast as possible */
    const char *const *names; /* first layers of all parts after the first, NULL at the end; NULL: chosen */
    const double *seconds;    /* [layer_count] a step's time in each layer; NULL: from products and bytes */
};

/* Sets model.parts and the part of every layer. Errors name the setting (mesh.pipeline, mesh.chunks,
 * mesh.cut). */
int plan_cut_model(struct model *model, const struct plan_options *options, const struct plan_cut *cut,
                   struct muster_error *err);

#endif
