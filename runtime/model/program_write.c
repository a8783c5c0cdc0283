/* program_write.c - writing a model down: layers, their inputs and results, and parameters. Mistakes are
 * found here and reported by the names that the page uses. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "runtime/model/program_internal.h"

int writer_fail(struct writer *w, int code, const char *format, ...)
{
    if (w->error.code)
        return -1;
    char text[sizeof w->error.text];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    const char *model = w->model ? w->model->name : "model";
    return w->program ? error_set(&w->error, code, "%s: layer %s: %s", model, w->program->name, text)
                      : error_set(&w->error, code, "%s: %s", model, text);
}

bool program_is_open(struct writer *w)
{
    if (!w->error.code && !w->program)
        (void)writer_fail(w, MUSTER_E_INVALID, "an operation was written outside of a layer");
    return !w->error.code;
}

/* ---- the model ---- */

int writer_check_sizes(const struct size_limit *sizes, size_t count, struct muster_error *err)
{
    for (size_t i = 0; i < count; i++)
        if (sizes[i].value < sizes[i].least || sizes[i].value > sizes[i].most)
            return error_set(err, MUSTER_E_INVALID, "model: %s is %d, but must be %d to %d", sizes[i].name,
                             sizes[i].value, sizes[i].least, sizes[i].most);
    return 0;
}

struct writer writer_begin(const char *name_format, ...)
{
    struct writer w = {0};
    va_list args;
    w.model = mem_calloc(1, sizeof *w.model);
    if (!w.model) {
        (void)writer_fail(&w, MUSTER_E_NOMEM, "no memory for a model");
        return w;
    }
    va_start(args, name_format);
    (void)vsnprintf(w.model->name, sizeof w.model->name, name_format, args);
    va_end(args);
    w.model->parts = 1;
    return w;
}

int writer_input(struct writer *w, const char *name, enum dtype dtype, bool positions, int64_t width)
{
    if (w->error.code)
        return -1;
    int input = model_add_input(w->model, name, dtype, positions, width);
    return input < 0
               ? writer_fail(w, MUSTER_E_LIMIT, "input %s of the batch: there may be %d", name, BATCH_INPUTS)
               : input;
}

void writer_adapt(struct writer *w, const struct lora *lora, const char *around)
{
    if (!lora || !lora->rank || w->error.code)
        return;
    w->lora = *lora;
    (void)snprintf(w->around, sizeof w->around, "%s", around); /* the caller's word, short */
    (void)lora_check(lora, &w->error);
}

/* The weights of a layer's products, and its tables where they are asked for, are held in few bits. */
static void store_base(struct writer *w, const struct layer_desc *layer)
{
    const struct program *p = layer->config;
    for (int s = 0; s < p->step_count; s++) {
        const struct program_step *step = &p->steps[s];
        const bool table = step->op == &operation_embedding || step->op == &operation_cross_entropy;
        if (step->param[0] < 0 || (step->op != &operation_linear && !(table && w->lora.tables)))
            continue;
        struct param_desc *param = &w->model->params[layer->param[step->param[0]]];
        if (param->adapter == PARAM_OF_BASE && param->ndim == 2)
            param->stored = w->lora.base;
    }
}

/* Checks that every target has met a product, and freezes all parameters but adapters. */
static void finish_adapters(struct writer *w)
{
    for (int i = 0; i < w->lora.target_count && !w->error.code; i++)
        if (!(w->targets_met >> i & 1))
            (void)writer_fail(w, MUSTER_E_INVALID,
                              "lora: target '%s' names no product of its own; their names end like %s and %s",
                              w->lora.target[i], *w->modules[0] ? w->modules[0] : "(there is none)",
                              w->modules[1]);
    for (int i = 0; i < w->model->param_count; i++)
        w->model->params[i].trainable = w->model->params[i].adapter != PARAM_OF_BASE;
    w->model->adapter_scale = lora_scale(&w->lora);
    for (int l = 0; l < w->model->layer_count && w->lora.base != STORED_PLAIN; l++)
        store_base(w, &w->model->layers[l]);
}

void model_destroy(struct model *model)
{
    if (!model)
        return;
    for (int i = 0; i < model->layer_count; i++)
        mem_free((void *)(uintptr_t)model->layers[i].config); /* the layer's program */
    for (struct model_numbers *next = NULL, *list = model->numbers; list; list = next) {
        next = list->next;
        mem_free(list);
    }
    mem_free(model->params);
    mem_free(model->layers);
    mem_free(model);
}

struct model *writer_finish(struct writer *w, struct muster_error *err)
{
    if (w->program)
        (void)writer_fail(w, MUSTER_E_INVALID, "it was not closed by program_result");
    if (!w->error.code && w->lora.rank)
        finish_adapters(w);
    if (!w->error.code && model_check(w->model, &w->error))
        (void)error_wrap(&w->error, "%s", w->model->name);
    struct model *model = take_pointer(&w->model);
    mem_free(w->results);
    w->results = NULL;
    if (!w->error.code)
        return model;
    if (err)
        *err = w->error;
    model_destroy(model);
    return NULL;
}

/* Room for one more element of an array that doubles. */
static void *grown(struct writer *w, void *array, int count, int *room, size_t size)
{
    if (count < *room)
        return array;
    int more = *room ? 2 * *room : 16;
    void *larger = mem_realloc(array, (size_t)more, size);
    if (!larger) {
        (void)writer_fail(w, MUSTER_E_NOMEM, "no memory for %d parameters or layers", more);
        return NULL;
    }
    *room = more;
    return larger;
}

/* ---- layers ---- */

static struct layer_desc *open_desc(struct writer *w)
{
    return &w->model->layers[w->model->layer_count - 1];
}

int program_layer(struct writer *w, const char *name_format, ...)
{
    if (w->error.code)
        return -1;
    if (w->program)
        return writer_fail(w, MUSTER_E_INVALID, "it was not closed by program_result");
    struct model *model = w->model;
    int room = w->layer_room;
    struct layer_desc *layers = grown(w, model->layers, model->layer_count, &w->layer_room, sizeof *layers);
    model->layers = layers ? layers : model->layers;
    struct layer_result *results =
        layers ? grown(w, w->results, model->layer_count, &room, sizeof *results) : NULL;
    w->results = results ? results : w->results;
    struct program *program = results ? mem_calloc(1, sizeof *program) : NULL;
    if (!program)
        return writer_fail(w, MUSTER_E_NOMEM, "no memory for a layer");
    va_list args;
    va_start(args, name_format);
    (void)vsnprintf(program->name, sizeof program->name, name_format, args);
    va_end(args);
    program->result = -1;
    w->program = program;
    w->results[model->layer_count] = (struct layer_result){0};
    struct layer_desc *layer = &model->layers[model->layer_count++];
    *layer = (struct layer_desc){.ops = &program_ops, .config = program};
    (void)snprintf(layer->name, sizeof layer->name, "%s", program->name);
    if (snprintf(w->prefix, sizeof w->prefix, "%s.", program->name) >= (int)sizeof w->prefix)
        return writer_fail(w, MUSTER_E_LIMIT, "its name is longer than %d characters", MODEL_NAME_LIMIT - 2);
    return model->layer_count - 1;
}

void program_prefix(struct writer *w, const char *prefix)
{
    if (snprintf(w->prefix, sizeof w->prefix, "%s", prefix) >= (int)sizeof w->prefix)
        (void)writer_fail(w, MUSTER_E_LIMIT, "the prefix %s is longer than %d characters", prefix,
                          MODEL_NAME_LIMIT - 1);
}

int program_value(struct writer *w, int64_t width, bool sample, int source, int step)
{
    struct program *p = w->program;
    if (p->value_count == PROGRAM_VALUES)
        return writer_fail(w, MUSTER_E_LIMIT, "it has more than %d values; divide it into two layers",
                           PROGRAM_VALUES);
    if (width < 1 || width > INT32_MAX)
        return writer_fail(w, MUSTER_E_INVALID, "a value has %lld elements a row; it may have 1 to %d",
                           (long long)width, INT32_MAX);
    p->values[p->value_count] = (struct program_value){
        .width = width, .sample = sample, .source = source, .step = step, .last_use = -1};
    return p->value_count++;
}

int program_input(struct writer *w, int layer)
{
    if (!program_is_open(w))
        return -1;
    struct layer_desc *desc = open_desc(w);
    if (layer < 0 || layer >= w->model->layer_count - 1 || !w->results[layer].width)
        return writer_fail(w, MUSTER_E_INVALID,
                           "it reads layer %d, which is not an earlier one with a result", layer);
    for (int v = 0; v < w->program->value_count; v++) {
        int source = w->program->values[v].source;
        if (source >= 0 && desc->source[source] == layer)
            return v;
    }
    if (desc->source_count == LAYER_SOURCES)
        return writer_fail(w, MUSTER_E_LIMIT, "it reads more than %d layers", LAYER_SOURCES);
    desc->source[desc->source_count] = layer;
    return program_value(w, w->results[layer].width, w->results[layer].sample, desc->source_count++, -1);
}

/* A layer of an embedding and nothing else, whose positions begin with their table, and which uses every
 * parameter that it declares. */
static void mark_lookup(struct layer_desc *layer, const struct program *p)
{
    const struct program_step *step = &p->steps[0];
    if (p->step_count == 1 && step->op == &operation_embedding && !step->settings.first &&
        layer->param_count == 1 + (step->param[1] >= 0))
        layer->lookup = step->settings.input + 1;
}

/* Every value leads to the result: a value that no step reads is a mistake on the page. */
void program_close(struct writer *w, int result)
{
    struct program *p = w->program;
    p->result = result;
    for (int v = 0; v < p->value_count; v++) {
        int step = p->values[v].step;
        bool statistic = step >= 0 && p->steps[step].out != v;
        if (v != result && !statistic && p->values[v].last_use < 0) {
            int param = step < 0 ? -1 : p->steps[step].param[0];
            (void)writer_fail(w, MUSTER_E_INVALID, "the %s%s%s is read by no operation",
                              step < 0 ? "input" : p->steps[step].op->name, param < 0 ? "" : " of ",
                              param < 0 ? "" : w->model->params[open_desc(w)->param[param]].name);
            return;
        }
    }
    if (!open_desc(w)->source_count) {
        open_desc(w)->source[0] = SOURCE_BATCH;
        open_desc(w)->source_count = 1;
    }
    mark_lookup(open_desc(w), p);
    for (int s = 0; s < p->step_count; s++)
        if (p->steps[s].op->batch || p->steps[s].settings.by_length)
            open_desc(w)->inputs |= 1U << p->steps[s].settings.input;
    if (result >= 0)
        w->results[w->model->layer_count - 1] =
            (struct layer_result){p->values[result].width, p->values[result].sample};
    program_place(p);
    w->program = NULL;
}

void program_result(struct writer *w, int value)
{
    if (!program_is_open(w))
        return;
    const struct program *p = w->program;
    if (value < 0 || value >= p->value_count || p->values[value].step < 0 || p->values[value].last_use >= 0 ||
        p->steps[p->values[value].step].out != value)
        (void)writer_fail(
            w, MUSTER_E_INVALID,
            "its result is value %d, but must be the result of an operation in it that no operation reads",
            value);
    else
        program_close(w, value);
}

/* ---- parameters ---- */

/* The index of the model's parameter `param` among the layer's parameters; -1 and an error if there is no
 * room. */
int program_use(struct writer *w, int param)
{
    struct layer_desc *layer = open_desc(w);
    for (int i = 0; i < layer->param_count; i++) {
        if (layer->param[i] == param)
            return i;
    }
    if (param < 0 || param >= w->model->param_count)
        return writer_fail(w, MUSTER_E_INVALID, "it uses parameter %d; the model has %d so far", param,
                           w->model->param_count);
    if (layer->param_count == LAYER_PARAMS)
        return writer_fail(w, MUSTER_E_LIMIT, "it has more than %d parameters; divide it into two layers",
                           LAYER_PARAMS);
    layer->param[layer->param_count] = param;
    return layer->param_count++;
}

int program_parameter(struct writer *w, const char *name, int64_t rows, int64_t columns, enum param_init init,
                      double std)
{
    return program_tensor(w, name, columns ? 2 : 1, (const int64_t[]){rows, columns}, init, std);
}

int program_tensor(struct writer *w, const char *name, int ndim, const int64_t *dim, enum param_init init,
                   double std)
{
    if (!program_is_open(w))
        return -1;
    struct model *model = w->model;
    struct param_desc *params = grown(w, model->params, model->param_count, &w->param_room, sizeof *params);
    if (!params)
        return -1;
    model->params = params;
    struct param_desc *param = &params[model->param_count];
    *param = (struct param_desc){
        .ndim = ndim,
        .init = init,
        .init_std = std,
        .trainable = true,
        .parameter_class = ndim > 1 ? 0 : 1,
        .unit = model->layer_count - 1,
    };
    for (int i = 0; i < ndim; i++)
        param->dim[i] = dim[i];
    if (snprintf(param->name, sizeof param->name, "%s%s", w->prefix, name) >= (int)sizeof param->name)
        return writer_fail(w, MUSTER_E_LIMIT, "parameter %s%s has a name of more than %d characters",
                           w->prefix, name, MODEL_NAME_LIMIT - 1);
    model->param_count++;
    return program_use(w, model->param_count - 1) < 0 ? -1 : model->param_count - 1;
}
