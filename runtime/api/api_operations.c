/* api_operations.c - muster_model.h: the operations, by handles. The functions of program.h find errors of
 * shapes and widths; here are errors of handles, names and flags. */
#include <stdio.h>
#include <string.h>

#include "runtime/api/api_model.h"
#include "runtime/model/program_internal.h"

int api_model_value(struct writer *w, const char *operation, int32_t handle)
{
    const struct model *model = w->model;
    int layer = handle / API_HANDLE_VALUES, value = handle % API_HANDLE_VALUES;
    if (!program_is_open(w))
        return -1;
    if (handle < 0 || layer >= model->layer_count)
        return writer_fail(w, MUSTER_E_INVALID, "%s reads value %d, which is none", operation, handle);
    if (value == API_LOGITS)
        return writer_fail(w, MUSTER_E_INVALID, "%s reads the logits: cross_entropy ends a model", operation);
    if (layer == model->layer_count - 1)
        return value;
    const struct program *p = model->layers[layer].config;
    if (value != p->result)
        return writer_fail(w, MUSTER_E_INVALID,
                           "%s reads a value inside of layer %s; only its result is there for other layers",
                           operation, p->name);
    return program_input(w, layer);
}

int32_t api_model_handle(const struct writer *w, int value)
{
    return value < 0 ? -1 : (w->model->layer_count - 1) * API_HANDLE_VALUES + value;
}

/* A parameter of an operation: its name is new. */
static int32_t own_parameter(struct muster_model *m, struct writer *w, const char *name, const char *part,
                             int64_t rows, int64_t columns, enum muster_init init, double std, uint32_t flags)
{
    char full[2 * MODEL_NAME_LIMIT];
    int before = w->model->param_count;
    if (!name || !*name || strlen(name) >= MODEL_NAME_LIMIT)
        return writer_fail(w, MUSTER_E_INVALID, "the name '%s' must have 1 to %d characters",
                           name ? name : "", MODEL_NAME_LIMIT - 1);
    (void)snprintf(full, sizeof full, "%s%s", name, part); /* they fit */
    int32_t param = muster_parameter(m, full, rows, columns, init, std, flags);
    if (param >= 0 && param < before)
        return writer_fail(w, MUSTER_E_INVALID,
                           "parameter %s is there already; to tie it, take the function "
                           "..._by",
                           w->model->params[param].name);
    return param;
}

static int64_t width_of(const struct writer *w, int value)
{
    return w->program->values[value].width;
}

/* ---- products and norms ---- */

int32_t muster_linear_by(struct muster_model *model, int32_t in, int32_t weight, int32_t bias)
{
    struct writer *w = api_model_writer(model);
    int x = w ? api_model_value(w, "linear", in) : -1;
    return x < 0 ? -1 : api_model_handle(w, program_linear_by(w, x, weight, bias));
}

int32_t muster_linear(struct muster_model *model, int32_t in, int64_t width, const char *name, double std,
                      uint32_t flags)
{
    struct writer *w = api_model_writer(model);
    int x = w ? api_model_value(w, "linear", in) : -1;
    uint32_t of_parameter = flags & ~(uint32_t)MUSTER_NO_BIAS;
    if (x < 0)
        return -1;
    int32_t weight =
        own_parameter(model, w, name, ".weight", width, width_of(w, x), MUSTER_NORMAL, std, of_parameter);
    int32_t bias = -1;
    if (!(flags & MUSTER_NO_BIAS))
        bias = own_parameter(model, w, name, ".bias", width, 0, MUSTER_ZERO, 0, of_parameter);
    return api_model_handle(w, program_linear_by(w, x, weight, bias));
}

int32_t muster_layer_norm_by(struct muster_model *model, int32_t in, int32_t weight, int32_t bias,
                             double epsilon)
{
    struct writer *w = api_model_writer(model);
    int x = w ? api_model_value(w, "layer_norm", in) : -1;
    return x < 0 ? -1 : api_model_handle(w, program_layer_norm_by(w, x, weight, bias, epsilon));
}

int32_t muster_layer_norm(struct muster_model *model, int32_t in, const char *name, double epsilon,
                          uint32_t flags)
{
    struct writer *w = api_model_writer(model);
    int x = w ? api_model_value(w, "layer_norm", in) : -1;
    if (x < 0)
        return -1;
    int32_t weight = own_parameter(model, w, name, ".weight", width_of(w, x), 0, MUSTER_ONE, 0, flags);
    int32_t bias = own_parameter(model, w, name, ".bias", width_of(w, x), 0, MUSTER_ZERO, 0, flags);
    return muster_layer_norm_by(model, in, weight, bias, epsilon);
}

int32_t muster_rms_norm_by(struct muster_model *model, int32_t in, int32_t weight, double epsilon)
{
    struct writer *w = api_model_writer(model);
    int x = w ? api_model_value(w, "rms_norm", in) : -1;
    return x < 0 ? -1 : api_model_handle(w, program_rms_norm_by(w, x, weight, epsilon));
}

int32_t muster_rms_norm(struct muster_model *model, int32_t in, const char *name, double epsilon,
                        uint32_t flags)
{
    struct writer *w = api_model_writer(model);
    int x = w ? api_model_value(w, "rms_norm", in) : -1;
    if (x < 0)
        return -1;
    int32_t weight = own_parameter(model, w, name, ".weight", width_of(w, x), 0, MUSTER_ONE, 0, flags);
    return muster_rms_norm_by(model, in, weight, epsilon);
}

/* ---- positions and attention ---- */

static int32_t turn(struct muster_model *model, int32_t in, int32_t heads, const struct rotary *rotary)
{
    struct writer *w = api_model_writer(model);
    int x = w ? api_model_value(w, "rotary", in) : -1;
    if (x < 0)
        return -1;
    if (!(rotary->theta >= 1))
        return writer_fail(w, MUSTER_E_INVALID, "rotary has theta %g, which must be at least 1",
                           rotary->theta);
    return api_model_handle(w, program_rotary(w, x, heads, rotary));
}

int32_t muster_rotary(struct muster_model *model, int32_t in, int32_t heads, double theta)
{
    return turn(model, in, heads, &(struct rotary){.theta = theta});
}

int32_t muster_rotary_scaled(struct muster_model *model, int32_t in, int32_t heads, double theta,
                             const char *kind, double factor, double low, double high, int32_t original)
{
    struct writer *w = api_model_writer(model);
    bool linear = kind && !strcmp(kind, "linear"), llama3 = kind && !strcmp(kind, "llama3");
    if (!w)
        return -1;
    if (!linear && !llama3)
        return writer_fail(w, MUSTER_E_INVALID, "rotary is scaled by '%s'; use linear or llama3",
                           kind ? kind : "");
    if (!(factor >= 1) || (llama3 && !(low > 0 && high > low && original > 0)))
        return writer_fail(
            w, MUSTER_E_INVALID,
            "rotary has factor %g, low %g, high %g and original %d; the factor must be at least "
            "1, low above 0, high above low and original above 0",
            factor, low, high, original);
    return turn(model, in, heads,
                &(struct rotary){.theta = theta,
                                 .kind = linear ? ROTARY_LINEAR : ROTARY_LLAMA3,
                                 .factor = factor,
                                 .low = low,
                                 .high = high,
                                 .original = original});
}

int32_t muster_attention(struct muster_model *model, int32_t q, int32_t k, int32_t v, int32_t heads,
                         int32_t kv_heads, uint32_t flags)
{
    struct writer *w = api_model_writer(model);
    int a = w ? api_model_value(w, "attention", q) : -1, b = a >= 0 ? api_model_value(w, "attention", k) : -1,
        c = b >= 0 ? api_model_value(w, "attention", v) : -1;
    return c < 0 ? -1
                 : api_model_handle(w, program_attention(w, a, b, c, heads, kv_heads, flags & MUSTER_CAUSAL));
}

int32_t muster_attention_packed(struct muster_model *model, int32_t qkv, int32_t heads, int32_t kv_heads,
                                uint32_t flags)
{
    struct writer *w = api_model_writer(model);
    int x = w ? api_model_value(w, "attention_packed", qkv) : -1;
    return x < 0
               ? -1
               : api_model_handle(w, program_attention_packed(w, x, heads, kv_heads, flags & MUSTER_CAUSAL));
}

/* ---- element by element ---- */

static int no_activation(struct writer *w, const char *kind)
{
    return writer_fail(w, MUSTER_E_INVALID,
                       "activation '%s'; there are gelu_tanh, gelu, silu, relu, tanh and sigmoid",
                       kind ? kind : "");
}

int32_t muster_activation(struct muster_model *model, int32_t in, const char *kind)
{
    struct writer *w = api_model_writer(model);
    int x = w ? api_model_value(w, "activation", in) : -1, number = program_activation_kind(kind);
    if (x < 0)
        return -1;
    return number < 0 ? no_activation(w, kind)
                      : api_model_handle(w, program_activation(w, x, (enum activation_kind)number));
}

int32_t muster_gated(struct muster_model *model, int32_t gate, int32_t up, const char *kind)
{
    struct writer *w = api_model_writer(model);
    int a = w ? api_model_value(w, "gated", gate) : -1, b = a >= 0 ? api_model_value(w, "gated", up) : -1;
    const int number = program_activation_kind(kind);
    if (b < 0)
        return -1;
    return number < 0 ? no_activation(w, kind)
                      : api_model_handle(w, program_gated(w, a, b, (enum activation_kind)number));
}

int32_t muster_swiglu(struct muster_model *model, int32_t gate, int32_t up)
{
    return muster_gated(model, gate, up, "silu");
}

int32_t muster_slice(struct muster_model *model, int32_t in, int32_t parts, int64_t first, int64_t width)
{
    struct writer *w = api_model_writer(model);
    int x = w ? api_model_value(w, "slice", in) : -1;
    return x < 0 ? -1 : api_model_handle(w, program_slice(w, x, parts, first, width));
}

int32_t muster_add(struct muster_model *model, int32_t a, int32_t b)
{
    struct writer *w = api_model_writer(model);
    int x = w ? api_model_value(w, "add", a) : -1, y = x >= 0 ? api_model_value(w, "add", b) : -1;
    return y < 0 ? -1 : api_model_handle(w, program_add(w, x, y));
}

int32_t muster_scale(struct muster_model *model, int32_t in, double factor)
{
    struct writer *w = api_model_writer(model);
    int x = w ? api_model_value(w, "scale", in) : -1;
    return x < 0 ? -1 : api_model_handle(w, program_scale(w, x, factor));
}

int32_t muster_dropout(struct muster_model *model, int32_t in, double probability)
{
    struct writer *w = api_model_writer(model);
    int x = w ? api_model_value(w, "dropout", in) : -1;
    return x < 0 ? -1 : api_model_handle(w, program_dropout(w, x, probability));
}

/* ---- both ends ---- */

int32_t muster_embedding(struct muster_model *model, int32_t input, int32_t table, int32_t positions)
{
    struct writer *w = api_model_writer(model);
    return w ? api_model_handle(w, program_embedding(w, input, table, positions)) : -1;
}

int32_t muster_cross_entropy(struct muster_model *model, int32_t in, int32_t weight, int32_t targets)
{
    struct writer *w = api_model_writer(model);
    int x = w ? api_model_value(w, "cross_entropy", in) : -1;
    if (x < 0)
        return -1;
    program_cross_entropy(w, x, weight, targets);
    return w->error.code ? -1 : api_model_handle(w, API_LOGITS);
}

int32_t muster_values(struct muster_model *model, int32_t input)
{
    struct writer *w = api_model_writer(model);
    return w ? api_model_handle(w, program_values(w, input)) : -1;
}

int32_t muster_squared_error(struct muster_model *model, int32_t in, int32_t targets)
{
    struct writer *w = api_model_writer(model);
    int x = w ? api_model_value(w, "squared_error", in) : -1;
    if (x < 0)
        return -1;
    program_squared_error(w, x, targets);
    return w->error.code ? -1 : in;
}

/* ---- texts of different lengths ---- */

int32_t muster_within(struct muster_model *model, int32_t in, int32_t lengths)
{
    struct writer *w = api_model_writer(model);
    int x = w ? api_model_value(w, "within", in) : -1;
    return x < 0 ? -1 : api_model_handle(w, program_within(w, x, lengths));
}

int32_t muster_first(struct muster_model *model, int32_t in)
{
    struct writer *w = api_model_writer(model);
    int x = w ? api_model_value(w, "first", in) : -1;
    return x < 0 ? -1 : api_model_handle(w, program_first(w, x));
}

int32_t muster_mean(struct muster_model *model, int32_t in, int32_t lengths)
{
    struct writer *w = api_model_writer(model);
    int x = w ? api_model_value(w, "mean", in) : -1;
    return x < 0 ? -1 : api_model_handle(w, program_mean(w, x, lengths));
}

/* ---- pictures ---- */

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
