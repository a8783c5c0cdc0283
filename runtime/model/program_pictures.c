/* program_pictures.c - the operations on pictures as a page writes them, and the end of a classifier: shapes
 * are checked, and each becomes a step. See program.h. */
#include <math.h>
#include <stdio.h>

#include "proto/base/error.h"
#include "runtime/model/program_internal.h"

enum { SIDE_LIMIT = 1 << 15 };

/* The value is so many planes, and windows of this kind fit into them. */
static bool planes_fit(struct writer *w, const struct operation *op, int in, const struct planes *shape)
{
    const int64_t width = w->program->values[in].width;
    if (shape->channels < 1 || shape->height < 1 || shape->width < 1 || shape->height > SIDE_LIMIT ||
        shape->width > SIDE_LIMIT || (int64_t)shape->channels * shape->height * shape->width != width)
        return !writer_fail(w, MUSTER_E_INVALID, "%s reads %lld elements as %d planes of %d x %d", op->name,
                            (long long)width, shape->channels, shape->height, shape->width);
    return true;
}

static bool windows_fit(struct writer *w, const struct operation *op, const struct planes *shape, int kernel,
                        int stride, int padding)
{
    int smaller = shape->height < shape->width ? shape->height : shape->width;
    if (kernel < 1 || kernel > SIDE_LIMIT || stride < 1 || stride > SIDE_LIMIT || padding < 0 ||
        padding >= kernel || smaller + 2 * padding < kernel)
        return !writer_fail(w, MUSTER_E_INVALID,
                            "%s has windows of %d, %d apart, with %d around planes of %d x %d; windows must "
                            "fit, and there may be less around than a window has",
                            op->name, kernel, stride, padding, shape->height, shape->width);
    return true;
}

static int64_t planes_width(const struct planes *shape)
{
    return (int64_t)shape->channels * shape->height * shape->width;
}

/* "0" and ".weight" */
static int drawn_parameter(struct writer *w, const char *name, const char *part, int ndim, const int64_t *dim,
                           double fan_in)
{
    char full[MODEL_NAME_LIMIT];
    if (snprintf(full, sizeof full, "%s%s", name, part) >= (int)sizeof full)
        return writer_fail(w, MUSTER_E_LIMIT, "%s%s is longer than %d characters", name, part,
                           MODEL_NAME_LIMIT - 1);
    return program_tensor(w, full, ndim, dim, PARAM_INIT_UNIFORM, 1 / sqrt(fan_in));
}

int program_conv2d_by(struct writer *w, int in, struct planes *shape, int kernel, int stride, int padding,
                      int weight, int bias)
{
    const struct operation *op = &operation_conv2d;
    if (!program_step_fits(w, op, &in, 1) || !planes_fit(w, op, in, shape) ||
        !windows_fit(w, op, shape, kernel, stride, padding))
        return -1;
    if (weight < 0 || weight >= w->model->param_count)
        return writer_fail(w, MUSTER_E_INVALID, "%s uses parameter %d; the model has %d so far", op->name,
                           weight, w->model->param_count);
    const struct param_desc *filters = &w->model->params[weight];
    if (filters->ndim != 4 || filters->dim[1] != shape->channels || filters->dim[2] != kernel ||
        filters->dim[3] != kernel)
        return writer_fail(w, MUSTER_E_INVALID, "%s of %d planes by %d x %d: %s has another shape", op->name,
                           shape->channels, kernel, kernel, filters->name);
    const struct operation_settings settings = {.conv = {.channels = shape->channels,
                                                         .height = shape->height,
                                                         .width = shape->width,
                                                         .filters = (int)filters->dim[0],
                                                         .kernel = kernel,
                                                         .stride = stride,
                                                         .padding = padding}};
    *shape = (struct planes){settings.conv.filters, conv2d_size(shape->height, kernel, stride, padding),
                             conv2d_size(shape->width, kernel, stride, padding)};
    return program_step_add(w, op, &settings, &in, 1, weight, bias, planes_width(shape), NULL);
}

int program_drawn_linear(struct writer *w, int in, int64_t width, const char *name)
{
    if (!program_step_fits(w, &operation_linear, &in, 1))
        return -1;
    const int64_t fan_in = w->program->values[in].width, dim[] = {width, fan_in};
    int weight = drawn_parameter(w, name, ".weight", 2, dim, (double)fan_in);
    int bias = drawn_parameter(w, name, ".bias", 1, dim, (double)fan_in);
    return w->error.code ? -1 : program_linear_by(w, in, weight, bias);
}

int program_conv2d(struct writer *w, int in, struct planes *shape, int filters, int kernel, int stride,
                   int padding, const char *name, bool bias)
{
    const struct operation *op = &operation_conv2d;
    if (!program_step_fits(w, op, &in, 1) || !planes_fit(w, op, in, shape) ||
        !windows_fit(w, op, shape, kernel, stride, padding))
        return -1;
    if (filters < 1)
        return writer_fail(w, MUSTER_E_INVALID, "%s of %s has %d filters", op->name, name, filters);
    const int64_t dim[] = {filters, shape->channels, kernel, kernel};
    const double fan_in = (double)shape->channels * kernel * kernel;
    int weight = drawn_parameter(w, name, ".weight", 4, dim, fan_in);
    int offset = bias ? drawn_parameter(w, name, ".bias", 1, dim, fan_in) : -1;
    if (w->error.code)
        return -1;
    return program_conv2d_by(w, in, shape, kernel, stride, padding, weight, offset);
}

/* ---- batch normalisation ---- */

/* "bn1" and ".running_mean" */
static int norm_parameter(struct writer *w, const char *name, const char *part, int64_t channels,
                          enum param_init init, enum param_statistic statistic)
{
    char full[MODEL_NAME_LIMIT];
    if (snprintf(full, sizeof full, "%s%s", name, part) >= (int)sizeof full)
        return writer_fail(w, MUSTER_E_LIMIT, "%s%s is longer than %d characters", name, part,
                           MODEL_NAME_LIMIT - 1);
    int param = program_tensor(w, full, 1, &channels, init, 0);
    if (param >= 0)
        w->model->params[param].statistic = statistic;
    return param;
}

int program_batch_norm2d(struct writer *w, int in, const struct planes *shape, const char *name,
                         double epsilon, double momentum)
{
    const struct operation *op = &operation_batch_norm2d;
    if (!program_step_fits(w, op, &in, 1) || !planes_fit(w, op, in, shape))
        return -1;
    if (!(epsilon > 0) || !(momentum > 0 && momentum <= 1))
        return writer_fail(w, MUSTER_E_INVALID,
                           "%s of %s has epsilon %g and momentum %g; the first must be above 0, the second "
                           "above 0 and at most 1",
                           op->name, name, epsilon, momentum);
    const int64_t C = shape->channels;
    const struct operation_settings settings = {.norm = {.channels = shape->channels,
                                                         .plane = (int64_t)shape->height * shape->width,
                                                         .epsilon = epsilon,
                                                         .momentum = momentum}};
    int weight = norm_parameter(w, name, ".weight", C, PARAM_INIT_ONE, PARAM_LEARNED);
    int bias = norm_parameter(w, name, ".bias", C, PARAM_INIT_ZERO, PARAM_LEARNED);
    const int running[] = {norm_parameter(w, name, ".running_mean", C, PARAM_INIT_ZERO, PARAM_STATISTIC),
                           norm_parameter(w, name, ".running_var", C, PARAM_INIT_ONE, PARAM_STATISTIC),
                           norm_parameter(w, name, ".num_batches_tracked", 1, PARAM_INIT_ZERO, PARAM_COUNT)};
    if (w->error.code)
        return -1;
    int out = program_step_add(w, op, &settings, &in, 1, weight, bias, planes_width(shape),
                               (const int64_t[OPERATION_STATISTICS]){C, C});
    for (int i = 0; out >= 0 && i < 3; i++)
        w->program->steps[w->program->step_count - 1].param[2 + i] = program_use(w, running[i]);
    return out;
}

int program_relu(struct writer *w, int in)
{
    if (!program_step_fits(w, &operation_relu, &in, 1))
        return -1;
    return program_step_add(w, &operation_relu, &(struct operation_settings){0}, &in, 1, -1, -1,
                            w->program->values[in].width, NULL);
}

int program_max_pool2d(struct writer *w, int in, struct planes *shape, int kernel, int stride, int padding)
{
    const struct operation *op = &operation_max_pool2d;
    if (!program_step_fits(w, op, &in, 1) || !planes_fit(w, op, in, shape) ||
        !windows_fit(w, op, shape, kernel, stride, padding))
        return -1;
    if (2 * padding > kernel)
        return writer_fail(w, MUSTER_E_INVALID,
                           "%s has %d around its planes, more than half of a window of %d", op->name, padding,
                           kernel);
    const struct operation_settings settings = {.pool = {.channels = shape->channels,
                                                         .height = shape->height,
                                                         .width = shape->width,
                                                         .kernel = kernel,
                                                         .stride = stride,
                                                         .padding = padding}};
    shape->height = conv2d_size(shape->height, kernel, stride, padding);
    shape->width = conv2d_size(shape->width, kernel, stride, padding);
    return program_step_add(w, op, &settings, &in, 1, -1, -1, planes_width(shape), NULL);
}

int program_avg_pool2d(struct writer *w, int in, struct planes *shape, int height, int width)
{
    const struct operation *op = &operation_avg_pool2d;
    if (!program_step_fits(w, op, &in, 1) || !planes_fit(w, op, in, shape))
        return -1;
    if (height < 1 || width < 1 || height > SIDE_LIMIT || width > SIDE_LIMIT)
        return writer_fail(w, MUSTER_E_INVALID, "%s makes planes of %d x %d", op->name, height, width);
    const struct operation_settings settings = {
        .pool = {.channels = shape->channels, .height = shape->height, .width = shape->width},
        .out_height = height,
        .out_width = width};
    shape->height = height;
    shape->width = width;
    return program_step_add(w, op, &settings, &in, 1, -1, -1, planes_width(shape), NULL);
}

void program_classes(struct writer *w, int in, int64_t classes, const char *name, int input)
{
    const struct operation *op = &operation_cross_entropy;
    if (!program_step_fits(w, op, &in, 1) || !program_integers(w, op, input, w->program->values[in].sample))
        return;
    if (classes < 2 || classes > INT32_MAX) {
        (void)writer_fail(w, MUSTER_E_INVALID, "%s of %lld classes; there must be 2 or more", op->name,
                          (long long)classes);
        return;
    }
    const int64_t width = w->program->values[in].width, dim[] = {classes, width};
    int weight = drawn_parameter(w, name, ".weight", 2, dim, (double)width);
    int bias = drawn_parameter(w, name, ".bias", 1, dim, (double)width);
    if (!w->error.code)
        program_classes_by(w, in, weight, bias, input);
}

void program_classes_by(struct writer *w, int in, int weight, int bias, int input)
{
    const struct operation *op = &operation_cross_entropy;
    if (!program_step_fits(w, op, &in, 1) || !program_integers(w, op, input, w->program->values[in].sample))
        return;
    const struct operation_settings settings = {
        .input = input, .vocabulary = w->model->params[weight].dim[0], .classes = true};
    w->model->inputs[input].absent = 0xFF;
    w->model->params[weight].classes = w->model->params[bias].classes = true;
    (void)program_step_add(w, op, &settings, &in, 1, weight, bias, 0, NULL);
    if (!w->error.code)
        program_close(w, -1);
}
