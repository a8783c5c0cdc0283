/* layer_moments.h - second moments of the inputs of a model's products over a calibration set, layer by
 * layer, for quantisation.
 *
 * All samples go through a layer before the next layer begins. So later layers read the results of the
 * weights that a visit has set. */
#ifndef MUSTER_RUNTIME_TRAIN_LAYER_MOMENTS_H
#define MUSTER_RUNTIME_TRAIN_LAYER_MOMENTS_H

#include "runtime/train/trainer.h"

enum { MOMENTS_PARAMS = 16 }; /* weights of one layer that read the same value */

/* A value of a layer, and the weights (out, columns) of the products that read it. */
struct layer_moments {
    int layer;
    int param[MOMENTS_PARAMS], param_count;
    int64_t columns;
    const float *moments; /* (columns, columns): the sum of x x^T over all rows */
};
/* May set the parameters in `moments` (trainer_set_param), and no others. */
typedef int layer_moments_visit(void *context, const struct layer_moments *moments, struct muster_error *err);

/* arrays: as in a step, with `rows` samples, in the order of model.inputs. Needs a world of one rank
 * and statistics in float: else MUSTER_E_UNSUPPORTED. On a GPU the host's kernels compute, on the calling
 * thread. Memory, the host's: for all samples, the results of layers that later layers read. */
int trainer_visit_moments(struct trainer *trainer, const void *const *arrays, int64_t rows,
                          layer_moments_visit *visit, void *context, struct muster_error *err);

#endif
