/* simple_cnn.c - the small classifier of pictures as a page. */
#include "runtime/model/architectures.h"

#include "proto/base/error.h"
#include "runtime/model/program.h"

static int check_sizes(const struct simple_cnn_config *c, struct muster_error *err)
{
    const struct size_limit limits[] = {{"input_channels", c->channels, 1, 64},
                                        {"input_height", c->height, 4, 4096},
                                        {"input_width", c->width, 4, 4096},
                                        {"num_classes", c->classes, 2, 65536}};
    return writer_check_sizes(limits, sizeof limits / sizeof *limits, err);
}

/* Opens a layer whose parameters have names of their own: torch.nn.Sequential's are numbers. */
static int stage(struct writer *w, const char *name)
{
    int layer = program_layer(w, "%s", name);
    program_prefix(w, "");
    return layer;
}

struct model *simple_cnn_create(const struct simple_cnn_config *c, struct muster_error *err)
{
    static const char *const metadata[] = {"architecture", "simple_cnn", NULL};
    if (check_sizes(c, err) < 0)
        return NULL;
    struct planes shape = {c->channels, c->height, c->width};
    struct writer w = writer_begin("simple_cnn-%dx%dx%d", c->channels, c->height, c->width);
    int pictures = writer_input(&w, "pictures", DTYPE_F32, true, (int64_t)c->channels * c->height * c->width);
    int labels = writer_input(&w, "labels", DTYPE_I32, true, 1);

    int first = stage(&w, "stage1");
    int x = program_conv2d(&w, program_values(&w, pictures), &shape, 32, 3, 1, 1, "0", true);
    program_result(&w, program_max_pool2d(&w, program_relu(&w, x), &shape, 2, 2, 0));

    int second = stage(&w, "stage2");
    x = program_conv2d(&w, program_input(&w, first), &shape, 64, 3, 1, 1, "3", true);
    program_result(&w, program_max_pool2d(&w, program_relu(&w, x), &shape, 2, 2, 0));

    int third = stage(&w, "stage3");
    x = program_conv2d(&w, program_input(&w, second), &shape, 128, 3, 1, 1, "6", true);
    program_result(&w, program_avg_pool2d(&w, program_relu(&w, x), &shape, 1, 1));

    (void)stage(&w, "head");
    program_classes(&w, program_input(&w, third), c->classes, "10", labels);

    struct model *model = writer_finish(&w, err);
    if (model) {
        model->max_positions = 1;
        model->metadata = metadata;
    }
    return model;
}
