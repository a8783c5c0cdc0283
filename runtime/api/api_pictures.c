/* api_pictures.c - muster_model.h: the operations on pictures, by handles. See api_operations.c. */
#include "runtime/api/api_model.h"
#include "runtime/model/program_internal.h"

static struct planes planes_of(const int32_t shape[3])
{
    return (struct planes){shape[0], shape[1], shape[2]};
}

/* The handle of a result, whose shape the caller gets. */
static int32_t result_of(const struct writer *w, int value, const struct planes *planes, int32_t shape[3])
{
    shape[0] = planes->channels;
    shape[1] = planes->height;
    shape[2] = planes->width;
    return api_model_handle(w, value);
}

int32_t muster_relu(struct muster_model *model, int32_t in)
{
    struct writer *w = api_model_writer(model);
    int x = w ? api_model_value(w, "relu", in) : -1;
    return x < 0 ? -1 : api_model_handle(w, program_relu(w, x));
}

int32_t muster_conv2d(struct muster_model *model, int32_t in, int32_t shape[3], int32_t filters,
                      int32_t kernel, int32_t stride, int32_t padding, const char *name, uint32_t flags)
{
    struct writer *w = api_model_writer(model);
    int x = w ? api_model_value(w, "conv2d", in) : -1;
    if (x < 0)
        return -1;
    if (!name || !*name)
        return writer_fail(w, MUSTER_E_INVALID, "a conv2d has no name");
    if (flags & ~(uint32_t)MUSTER_NO_BIAS)
        return writer_fail(w, MUSTER_E_INVALID, "conv2d %s has the flags %u; it may have MUSTER_NO_BIAS",
                           name, flags);
    struct planes planes = planes_of(shape);
    int value =
        program_conv2d(w, x, &planes, filters, kernel, stride, padding, name, !(flags & MUSTER_NO_BIAS));
    return result_of(w, value, &planes, shape);
}

int32_t muster_batch_norm2d(struct muster_model *model, int32_t in, const int32_t shape[3], const char *name,
                            double epsilon, double momentum)
{
    struct writer *w = api_model_writer(model);
    int x = w ? api_model_value(w, "batch_norm2d", in) : -1;
    if (x < 0)
        return -1;
    if (!name || !*name)
        return writer_fail(w, MUSTER_E_INVALID, "a batch_norm2d has no name");
    const struct planes planes = planes_of(shape);
    return api_model_handle(w, program_batch_norm2d(w, x, &planes, name, epsilon, momentum));
}

int32_t muster_max_pool2d(struct muster_model *model, int32_t in, int32_t shape[3], int32_t kernel,
                          int32_t stride, int32_t padding)
{
    struct writer *w = api_model_writer(model);
    int x = w ? api_model_value(w, "max_pool2d", in) : -1;
    if (x < 0)
        return -1;
    struct planes planes = planes_of(shape);
    int value = program_max_pool2d(w, x, &planes, kernel, stride, padding);
    return result_of(w, value, &planes, shape);
}

int32_t muster_avg_pool2d(struct muster_model *model, int32_t in, int32_t shape[3], int32_t height,
                          int32_t width)
{
    struct writer *w = api_model_writer(model);
    int x = w ? api_model_value(w, "avg_pool2d", in) : -1;
    if (x < 0)
        return -1;
    struct planes planes = planes_of(shape);
    int value = program_avg_pool2d(w, x, &planes, height, width);
    return result_of(w, value, &planes, shape);
}

int32_t muster_classes(struct muster_model *model, int32_t in, int64_t classes, const char *name,
                       int32_t labels)
{
    struct writer *w = api_model_writer(model);
    int x = w ? api_model_value(w, "classes", in) : -1;
    if (x < 0)
        return -1;
    if (!name || !*name)
        return writer_fail(w, MUSTER_E_INVALID, "classes have no name");
    program_classes(w, x, classes, name, labels);
    return w->error.code ? -1 : api_model_handle(w, API_LOGITS);
}
