/* plan_cut.h - which layers are a part of a pipeline's model. Pure. */
#ifndef MUSTER_RUNTIME_PLAN_PLAN_CUT_H
#define MUSTER_RUNTIME_PLAN_PLAN_CUT_H

#include "proto/base/buffer.h"
#include "runtime/plan/plan.h"

struct plan_cut {
    int stages, chunks; /* chunks: parts of a stage; 0: 1 */
    bool even; /* equal numbers of layers in the parts; else the slowest part is as fast as possible */
    const char *const *names; /* first layers of all parts after the first, NULL at the end; NULL: chosen */
    const double *seconds;    /* [layer_count] a step's time in each layer; NULL: from products and bytes */
};

/* The slowest part of a cut. */
struct plan_slowest {
    double now, least; /* seconds: of the model's parts as they are; of the best cut into as many */
};
/* seconds: [layer_count], as in plan_cut. -1: no memory. */
int plan_cut_compare(const struct model *model, const double *seconds, struct plan_slowest *slowest,
                     struct muster_error *err);

/* Adds the layers that begin the parts after the first, between commas: "h.3, h.6". */
int plan_cut_text(const struct model *model, struct buffer *out);

/* Sets model.parts and the part of every layer. Errors name the setting (mesh.pipeline, mesh.chunks,
 * mesh.cut). */
int plan_cut_model(struct model *model, const struct plan_options *options, const struct plan_cut *cut,
                   struct muster_error *err);

#endif
