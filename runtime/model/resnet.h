/* resnet.h - residual networks for small pictures (He, Zhang, Ren, Sun 2015, arXiv 1512.03385, section 4.2):
 * a convolution of 3 x 3, stages of basic blocks, whose number of filters doubles and whose planes are halved
 * from stage to stage, the mean over the planes, and a product. A shortcut that changes its shape is a
 * convolution of 1 x 1 and batch normalisation. 3 stages of 3 blocks with 16 filters are ResNet-20; 4 stages
 * of 2 blocks with 64 filters are ResNet-18 without its pooling and with a first convolution of 3 x 3.
 *
 * Parameters have torchvision's names, conv1.weight, bn1.running_mean, layer2.0.downsample.1.weight,
 * fc.weight, and are drawn as there. */
#ifndef MUSTER_RUNTIME_MODEL_RESNET_H
#define MUSTER_RUNTIME_MODEL_RESNET_H

#include "runtime/plan/model.h"

struct resnet_config {
    int channels, height, width; /* size of a picture: 1 to 64, 4 to 4096 */
    int classes;                 /* 2 to 65536 */
    int stages, blocks, filters; /* 1 to 6; in a stage, 1 to 64; of the first stage, 1 to 1024 */
};

/* Inputs: pictures (f32, a row is its planes) and labels (i32). The caller owns the model (model_destroy).
 * NULL (MUSTER_E_INVALID) names a value and its bounds. */
struct model *resnet_create(const struct resnet_config *config, struct muster_error *err);

#endif
