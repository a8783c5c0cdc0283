/* model.c - counts a model's parameters and checks that its two lists are consistent. */
#include "runtime/plan/model.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"

int64_t param_elements(const struct param_desc *param)
{
    int64_t elements = 1;
    for (int i = 0; i < param->ndim; i++)
        elements *= param->dim[i];
    return elements;
}

int64_t param_room(const struct param_desc *param, const struct kernels *kernels)
{
    const int64_t elements = param_elements(param), rows = param->dim[0];
    if (!param->classes || !kernels || rows > INT32_MAX)
        return elements;
    return elements / rows * kernels_row(kernels, (int)rows);
}

int64_t model_parameters(const struct model *model)
{
    int64_t elements = 0;
    for (int i = 0; i < model->param_count; i++)
        elements += model->params[i].statistic ? 0 : param_elements(&model->params[i]);
    return elements;
}

int64_t model_values(const struct model *model)
{
    int64_t elements = 0;
    for (int i = 0; i < model->param_count; i++)
        elements += param_elements(&model->params[i]);
    return elements;
}

bool model_is_base(const struct model *model, int param)
{
    return model->adapter_scale != 0 && model->params[param].adapter == PARAM_OF_BASE;
}

int model_add_input(struct model *model, const char *name, enum dtype dtype, bool positions, int64_t width)
{
    if (model->input_count == BATCH_INPUTS)
        return -1;
    struct batch_input *input = &model->inputs[model->input_count];
    *input = (struct batch_input){.dtype = dtype, .width = width, .positions = positions};
    (void)snprintf(input->name, sizeof input->name, "%s", name);
    return model->input_count++;
}

int64_t batch_input_bytes(const struct model *model, struct shape shape, int i)
{
    const struct batch_input *input = &model->inputs[i];
    return (int64_t)shape.B * (input->positions ? shape.T : 1) * input->width * dtype_size(input->dtype);
}

int64_t batch_offset(const struct model *model, struct shape shape, int i)
{
    int64_t offset = 0;
    for (int before = 0; before < i; before++)
        offset += (batch_input_bytes(model, shape, before) + 255) / 256 * 256;
    return offset;
}

int64_t batch_bytes(const struct model *model, struct shape shape)
{
    return batch_offset(model, shape, model->input_count);
}

enum dtype batch_dtype(const struct model *model)
{
    for (int i = 1; i < model->input_count; i++)
        if (model->inputs[i].dtype != model->inputs[0].dtype)
            return DTYPE_U8;
    return model->inputs[0].dtype;
}

static int check_inputs(const struct model *model, struct muster_error *err)
{
    if (model->input_count < 1 || model->input_count > BATCH_INPUTS)
        return error_set(err, MUSTER_E_INVALID, "model %s has a batch of %d inputs; it may have 1 to %d",
                         model->name, model->input_count, BATCH_INPUTS);
    for (int i = 0; i < model->input_count; i++) {
        const struct batch_input *input = &model->inputs[i];
        if (input->width < 1 || input->width > 1 << 30 || (unsigned)input->dtype >= DTYPE_COUNT)
            return error_set(err, MUSTER_E_INVALID,
                             "input %s of the batch has %lld elements a row of type %d", input->name,
                             (long long)input->width, (int)input->dtype);
        for (int other = 0; other < i; other++)
            if (!strcmp(model->inputs[other].name, input->name))
                return error_set(err, MUSTER_E_INVALID, "two inputs of the batch are called %s", input->name);
    }
    return 0;
}

static int check_param(const struct param_desc *param, int index, struct muster_error *err)
{
    const int64_t limit = INT64_C(1) << 48;
    if (param->ndim < 1 || param->ndim > MODEL_DIMS)
        return error_set(err, MUSTER_E_INVALID, "parameter %d (%s) has %d dimensions; it may have 1 to %d",
                         index, param->name, param->ndim, MODEL_DIMS);
    int64_t elements = 1;
    for (int i = 0; i < param->ndim; i++) {
        if (param->dim[i] < 1 || param->dim[i] > limit / elements)
            return error_set(err, MUSTER_E_INVALID, "parameter %d (%s): dimension %d is %lld", index,
                             param->name, i, (long long)param->dim[i]);
        elements *= param->dim[i];
    }
    if (param->parameter_class >= 8)
        return error_set(err, MUSTER_E_INVALID, "parameter %d (%s) is of class %d; classes are 0 to 7", index,
                         param->name, param->parameter_class);
    return 0;
}

static int check_layer_params(const struct model *model, int index, bool *used, struct muster_error *err)
{
    const struct layer_desc *layer = &model->layers[index];
    if (layer->param_count < 0 || layer->param_count > LAYER_PARAMS)
        return error_set(err, MUSTER_E_INVALID, "layer %d (%s) uses %d parameters; the most is %d", index,
                         layer->name, layer->param_count, LAYER_PARAMS);
    for (int i = 0; i < layer->param_count; i++) {
        int param = layer->param[i];
        if (param < 0 || param >= model->param_count)
            return error_set(err, MUSTER_E_INVALID, "layer %d (%s) uses parameter %d; the model has %d",
                             index, layer->name, param, model->param_count);
        for (int j = 0; j < i; j++)
            if (layer->param[j] == param)
                return error_set(err, MUSTER_E_INVALID, "layer %d (%s) names parameter %s twice", index,
                                 layer->name, model->params[param].name);
        used[param] = true;
    }
    return 0;
}

static int check_lookup(const struct model *model, int index, struct muster_error *err)
{
    const struct layer_desc *layer = &model->layers[index];
    const int input = layer->lookup - 1;
    bool tables = layer->param_count == 1 || layer->param_count == 2;
    for (int i = 0; tables && i < layer->param_count; i++)
        tables = model->params[layer->param[i]].ndim == 2 &&
                 model->params[layer->param[i]].dim[1] == model->params[layer->param[0]].dim[1];
    if (!tables || layer->source_count > 1 || (layer->source_count == 1 && layer->source[0] != SOURCE_BATCH))
        return error_set(
            err, MUSTER_E_INVALID,
            "layer %d (%s) looks rows up, but has %d parameters and %d sources; it needs one or two "
            "tables of equal width and the batch",
            index, layer->name, layer->param_count, layer->source_count);
    if (input < 0 || input >= model->input_count || model->inputs[input].dtype != DTYPE_I32 ||
        !model->inputs[input].positions || model->inputs[input].width != 1)
        return error_set(
            err, MUSTER_E_INVALID,
            "layer %d (%s) looks rows up by input %d of the batch, which is not one i32 for each "
            "position",
            index, layer->name, input);
    return 0;
}

static int check_layer(const struct model *model, int index, struct muster_error *err)
{
    const struct layer_desc *layer = &model->layers[index];
    int before = index > 0 ? model->layers[index - 1].part : 0;
    if (!layer->ops || !layer->ops->sizes)
        return error_set(err, MUSTER_E_INVALID, "layer %d (%s) has no operations", index, layer->name);
    if (layer->part < before || layer->part > before + 1 || layer->part >= model->parts ||
        (index == 0 && layer->part != 0))
        return error_set(err, MUSTER_E_INVALID,
                         "layer %d (%s) is in part %d after part %d of %d; parts are runs of layers in order",
                         index, layer->name, layer->part, before, model->parts);
    if (layer->source_count < 0 || layer->source_count > LAYER_SOURCES)
        return error_set(err, MUSTER_E_INVALID, "layer %d (%s) has %d sources; the most is %d", index,
                         layer->name, layer->source_count, LAYER_SOURCES);
    for (int i = 0; i < layer->source_count; i++) {
        int source = layer->source[i];
        if (source == SOURCE_BATCH)
            continue;
        if (source < 0 || source >= index)
            return error_set(err, MUSTER_E_INVALID,
                             "layer %d (%s) has layer %d as its source, which does not come before it", index,
                             layer->name, source);
        if (model->layers[source].part < layer->part - 1)
            return error_set(
                err, MUSTER_E_INVALID,
                "layer %d (%s) of part %d reads layer %s of part %d; only the part before can be read", index,
                layer->name, layer->part, model->layers[source].name, model->layers[source].part);
    }
    return 0;
}

int model_check(const struct model *model, struct muster_error *err)
{
    if (model->param_count < 1 || model->layer_count < 1)
        return error_set(err, MUSTER_E_INVALID,
                         "model %s has %d parameters and %d layers; it needs one of each", model->name,
                         model->param_count, model->layer_count);
    if (model->parts < 1 || model->parts > model->layer_count)
        return error_set(err, MUSTER_E_INVALID, "model %s has %d parts for %d layers; use 1 to %d",
                         model->name, model->parts, model->layer_count, model->layer_count);
    if (check_inputs(model, err) < 0)
        return -1;
    for (int i = 0; i < model->param_count; i++)
        if (check_param(&model->params[i], i, err) < 0)
            return -1;
    scope_free bool *used = mem_calloc((size_t)model->param_count, sizeof *used);
    if (!used)
        return error_set(err, MUSTER_E_NOMEM, "no memory to check model %s", model->name);
    for (int i = 0; i < model->layer_count; i++)
        if (check_layer(model, i, err) < 0 || check_layer_params(model, i, used, err) < 0 ||
            (model->layers[i].lookup && check_lookup(model, i, err) < 0))
            return -1;
    if (model->layers[model->layer_count - 1].part != model->parts - 1)
        return error_set(err, MUSTER_E_INVALID, "model %s declares %d parts but its last layer is in part %d",
                         model->name, model->parts, model->layers[model->layer_count - 1].part);
    for (int i = 0; i < model->param_count; i++)
        if (!used[i])
            return error_set(err, MUSTER_E_INVALID, "parameter %d (%s) is used by no layer", i,
                             model->params[i].name);
    return 0;
}
