/* layer_moments.h - what the products of a model read over a calibration set, layer by layer: for a
 * quantisation that looks at it.
 *
 * All samples go through a layer before the next one begins, so that what a visit makes of a layer's weights
 * is what the layers after it read. */
#ifndef MUSTER_RUNTIME_TRAIN_LAYER_MOMENTS_H
#define MUSTER_RUNTIME_TRAIN_LAYER_MOMENTS_H

#include "runtime/train/trainer.h"

enum { MOMENTS_PARAMS = 16 }; /* weights of one layer that read the same value */

/* One value of a layer, and the weights (out, columns) of the products that read it. */
struct layer_moments {
    int layer;
    int param[MOMENTS_PARAMS], param_count;
    int64_t columns;
    const float *moments; /* (columns, columns): the sum of x x^T over all rows */
};
/* May set the parameters that it is about (trainer_set_param), and no others. */
typedef int layer_moments_visit(void *context, const struct layer_moments *moments, struct muster_error *err);

/* arrays: as a step's, of `rows` samples, in the order of model.inputs. In a world of one, on a device whose
 * memory is the host's, computing in float: else MUSTER_E_UNSUPPORTED. Holds the results of the layers that
 * later ones read, of all samples. */
int trainer_visit_moments(struct trainer *trainer, const void *const *arrays, int64_t rows,
                          layer_moments_visit *visit, void *context, struct muster_error *err);

#endif
