/* simple_cnn.h - a small classifier of pictures: three convolutions and a product. Its parameters have the
 * names that torch.nn.Sequential gives to
 *
 *     Conv2d(3, 32, 3, padding=1), ReLU, MaxPool2d(2), Conv2d(32, 64, 3, padding=1), ReLU, MaxPool2d(2),
 *     Conv2d(64, 128, 3, padding=1), ReLU, AdaptiveAvgPool2d((1, 1)), Flatten, Linear(128, 10)
 *
 * and are drawn from the same distributions. */
#ifndef MUSTER_RUNTIME_MODEL_SIMPLE_CNN_H
#define MUSTER_RUNTIME_MODEL_SIMPLE_CNN_H

#include "runtime/plan/model.h"

struct simple_cnn_config {
    int channels, height, width; /* size of a picture: 1 to 64, 4 to 4096 */
    int classes;                 /* 2 to 65536 */
};

/* Inputs: pictures (f32, a row is its planes) and labels (i32). The caller owns the model (model_destroy).
 * NULL (MUSTER_E_INVALID) names a value and its bounds. */
struct model *simple_cnn_create(const struct simple_cnn_config *config, struct muster_error *err);

#endif
