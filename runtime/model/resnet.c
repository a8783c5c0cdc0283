/* resnet.c - residual networks for small pictures as a page. */
#include "runtime/model/architectures.h"

#include <math.h>
#include <stdio.h>

#include "proto/base/error.h"
#include "runtime/model/program.h"

static const double norm_epsilon = 1e-5, norm_momentum = 0.1; /* defaults of torch.nn.BatchNorm2d */

static int check_resnet(const struct resnet_config *c, struct muster_error *err)
{
    const struct size_limit limits[] = {{"input_channels", c->channels, 1, 64},
                                        {"input_height", c->height, 4, 4096},
                                        {"input_width", c->width, 4, 4096},
                                        {"num_classes", c->classes, 2, 65536},
                                        {"stages", c->stages, 1, 6},
                                        {"blocks", c->blocks, 1, 64},
                                        {"filters", c->filters, 1, 1024}};
    return writer_check_sizes(limits, sizeof limits / sizeof *limits, err);
}

/* A convolution without a bias, and batch normalisation. "conv1" and "bn1". */
static int convolve(struct writer *w, int in, struct planes *shape, int filters, int kernel, int stride,
                    const char *conv, const char *norm)
{
    char name[MODEL_NAME_LIMIT];
    const int64_t dim[] = {filters, shape->channels, kernel, kernel};
    (void)snprintf(name, sizeof name, "%s.weight", conv); /* fits */
    int weight =
        program_tensor(w, name, 4, dim, PARAM_INIT_NORMAL, sqrt(2.0 / ((double)filters * kernel * kernel)));
    if (weight < 0)
        return -1;
    int x = program_conv2d_by(w, in, shape, kernel, stride, kernel / 2, weight, -1);
    return program_batch_norm2d(w, x, shape, norm, norm_epsilon, norm_momentum);
}

/* torchvision's BasicBlock, as a layer. */
static int basic_block(struct writer *w, int before, struct planes *shape, int stage, int index, int filters)
{
    const int stride = stage > 0 && index == 0 ? 2 : 1;
    int layer = program_layer(w, "layer%d.%d", stage + 1, index);
    struct planes shortcut = *shape;
    int in = program_input(w, before), same = in;
    int x = program_relu(w, convolve(w, in, shape, filters, 3, stride, "conv1", "bn1"));
    x = convolve(w, x, shape, filters, 3, 1, "conv2", "bn2");
    if (stride > 1 || shortcut.channels != filters)
        same = convolve(w, in, &shortcut, filters, 1, stride, "downsample.0", "downsample.1");
    program_result(w, program_relu(w, program_add(w, x, same)));
    return layer;
}

struct model *resnet_create(const struct resnet_config *c, struct muster_error *err)
{
    static const char *const metadata[] = {"architecture", "resnet", NULL};
    if (check_resnet(c, err) < 0)
        return NULL;
    struct planes shape = {c->channels, c->height, c->width};
    struct writer w = writer_begin("resnet-%dx%dx%d", c->stages, c->blocks, c->filters);
    int pictures = writer_input(&w, "pictures", DTYPE_F32, true, (int64_t)c->channels * c->height * c->width);
    int labels = writer_input(&w, "labels", DTYPE_I32, true, 1);

    int layer = program_layer(&w, "stem");
    program_prefix(&w, "");
    int x = convolve(&w, program_values(&w, pictures), &shape, c->filters, 3, 1, "conv1", "bn1");
    program_result(&w, program_relu(&w, x));
    for (int stage = 0; stage < c->stages; stage++)
        for (int i = 0; i < c->blocks; i++)
            layer = basic_block(&w, layer, &shape, stage, i, c->filters << stage);
    (void)program_layer(&w, "head");
    program_prefix(&w, "");
    x = program_avg_pool2d(&w, program_input(&w, layer), &shape, 1, 1);
    program_classes(&w, x, c->classes, "fc", labels);

    struct model *model = writer_finish(&w, err);
    if (model) {
        model->max_positions = 1;
        model->metadata = metadata;
    }
    return model;
}
