/* api_model.c - muster_model.h: creation of a model, its layers, inputs and parameters, its completion. */
#include "runtime/api/api_model.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/config/train_model.h"
#include "runtime/config/train_settings.h"
#include "runtime/files/files.h"
#include "runtime/model/program_internal.h"

/* ---- lifetime ---- */

static struct muster_model *create(struct muster_error *err)
{
    struct muster_model *model = mem_calloc(1, sizeof *model);
    if (!model) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a model");
        return NULL;
    }
    model->references = 1;
    (void)pthread_mutex_init(&model->lock, NULL); /* cannot fail with default attributes */
    return model;
}

struct muster_model *muster_model_new(const char *name, struct muster_error *err)
{
    struct muster_model *model = create(err);
    if (!model)
        return NULL;
    model->writer = writer_begin("%s", name && *name ? name : "model");
    if (!model->writer.error.code)
        return model;
    (void)writer_finish(&model->writer, err); /* NULL with the writer's error */
    muster_model_free(model);
    return NULL;
}

/* Labels of the settings in the place of those of config.json. */
static int set_labels(const struct train_config *c, struct architecture *found, struct muster_error *err)
{
    int count = (int)c->num_classes;
    for (int i = 0; c->labels && c->labels[i]; i++)
        count = i + 1;
    if (!count || (!c->labels && architecture_classifies(found) && count == architecture_labels(found)))
        return 0;
    return architecture_set_labels(found, (const char *const *)c->labels, count, err);
}

/* The sizes of a built-in model: by name from settings, otherwise from the files at a path. */
static int find_sizes(const char *architecture, const char *const *settings, struct architecture *found,
                      struct train_config *config, struct muster_error *err)
{
    bool by_name = !architecture;
    for (int i = 0; architecture && i < ARCHITECTURE_COUNT; i++)
        by_name |= !strcmp(architecture, architecture_name((enum architecture_kind)i));
    if (by_name) {
        if (train_settings_model(architecture, settings, config, err) < 0)
            return -1;
        if (config->model_page && *config->model_page)
            return error_set(
                err, MUSTER_E_INVALID,
                "model.page %s has no effect: it reads config.json of a folder that model.path names",
                config->model_page);
        *found = train_architecture(config);
        return 0;
    }
    const char *other = train_settings_other(settings);
    if (other)
        return error_set(err, MUSTER_E_INVALID, "setting '%s' has no effect: the files at %s have the sizes",
                         other, architecture);
    if (train_settings_read(settings, "model", config, err) < 0)
        return -1;
    const char *page = config->model_page && *config->model_page ? config->model_page : NULL;
    struct files *files = files_open_by(architecture, page, err);
    if (!files)
        return -1;
    int result = 0;
    if (files_architecture(files)) {
        *found = *files_architecture(files);
        architecture_keep(found);
        result = set_labels(config, found, err);
    } else
        result = error_set(
            err, MUSTER_E_INVALID,
            "%s has parameters without sizes: name a folder with config.json, or a file that ends in "
            ".safetensors or .pth next to the model's keys; a folder of adapters (PEFT) is lora.path, next "
            "to "
            "its base",
            architecture);
    files_close(files);
    return result;
}

/* With its adapters. */
static int find_architecture(const char *architecture, const char *const *settings,
                             struct architecture *found, bool *merges, struct muster_error *err)
{
    struct train_config config = {0};
    int result = find_sizes(architecture, settings, found, &config, err);
    if (!result)
        result = train_adapters(&config, found, err);
    *merges = config.lora_merge;
    train_config_free(&config);
    return result;
}

struct muster_model *muster_model_open(const char *architecture, const char *const *settings,
                                       struct muster_error *err)
{
    struct architecture found = {0};
    bool merges;
    const int result = find_architecture(architecture, settings, &found, &merges, err);
    struct muster_model *model = result < 0 ? NULL : create(err);
    if (!model) {
        architecture_drop(&found);
        return NULL;
    }
    model->known = true;
    model->architecture = found;
    model->merges = merges;
    model->model = architecture_model(&found, err);
    if (!model->model)
        muster_model_free(take_pointer(&model));
    return model;
}

const char *muster_model_architecture(const struct muster_model *model)
{
    return model->known ? architecture_title(&model->architecture) : NULL;
}

struct muster_model *api_model_retain(struct muster_model *model)
{
    atomic_fetch_add(&model->references, 1);
    return model;
}

void muster_model_free(struct muster_model *model)
{
    if (!model || atomic_fetch_sub(&model->references, 1) > 1)
        return;
    if (model->writer.model)
        model_destroy(writer_finish(&model->writer, NULL));
    model_destroy(model->model);
    architecture_drop(&model->architecture);
    (void)pthread_mutex_destroy(&model->lock);
    mem_free(model);
}

/* ---- completion ---- */

struct writer *api_model_writer(struct muster_model *model)
{
    return model && model->writer.model ? &model->writer : NULL;
}

/* The open layer's result is the value that it leaves unread; of several the last, and program_result names
 * the others. */
static void end_layer(struct writer *w)
{
    const struct program *p = w->program;
    int result = -1;
    if (!p || w->error.code)
        return;
    for (int v = 0; v < p->value_count; v++) {
        int step = p->values[v].step;
        if (step >= 0 && p->steps[step].out == v && p->values[v].last_use < 0)
            result = v;
    }
    if (result < 0)
        (void)writer_fail(w, MUSTER_E_INVALID, "it has no operation");
    else
        program_result(w, result);
}

static void complete(struct muster_model *m)
{
    if (!m->writer.model)
        return;
    end_layer(&m->writer);
    m->model = writer_finish(&m->writer, &m->error);
    if (m->model && api_model_check_page(m->model, &m->error) < 0) {
        model_destroy(m->model);
        m->model = NULL;
    }
}

const struct model *api_model_complete(struct muster_model *model, struct muster_error *err)
{
    if (!model) {
        (void)error_set(err, MUSTER_E_INVALID, "the model is NULL");
        return NULL;
    }
    (void)pthread_mutex_lock(&model->lock);
    complete(model);
    (void)pthread_mutex_unlock(&model->lock);
    if (!model->model && err)
        *err = model->error;
    return model->model;
}

int muster_model_check(struct muster_model *model, struct muster_error *err)
{
    return api_model_complete(model, err) ? 0 : -1;
}

int muster_model_pack(struct muster_model *model, struct muster_error *err)
{
    if (!api_model_complete(model, err))
        return -1;
    (void)pthread_mutex_lock(&model->lock);
    const int result = model_pack(model->model, err);
    (void)pthread_mutex_unlock(&model->lock);
    return result;
}

int32_t muster_model_logits(struct muster_model *model)
{
    const struct model *whole = api_model_complete(model, NULL);
    if (!whole)
        return -1;
    int layer = whole->layer_count - 1;
    const struct program *p = whole->layers[layer].config;
    const struct program_step *loss = &p->steps[p->step_count - 1];
    if (loss->op != &operation_squared_error)
        return layer * API_HANDLE_VALUES + API_LOGITS;
    int value = loss->in[0], source = p->values[value].source;
    if (source >= 0) { /* the result of an earlier layer */
        layer = whole->layers[layer].source[source];
        value = ((const struct program *)whole->layers[layer].config)->result;
    }
    return layer * API_HANDLE_VALUES + value;
}

/* ---- inputs, layers, parameters ---- */

static int32_t add_input(struct muster_model *model, const char *name, int32_t dtype, bool positions,
                         int64_t width)
{
    static const enum dtype dtypes[] = {
        [MUSTER_I32] = DTYPE_I32, [MUSTER_F32] = DTYPE_F32, [MUSTER_F64] = DTYPE_F64, [MUSTER_U8] = DTYPE_U8};
    struct writer *w = api_model_writer(model);
    if (!w)
        return -1;
    if (!name || !*name || strlen(name) >= BATCH_NAME_LIMIT)
        return writer_fail(w, MUSTER_E_INVALID, "the name of input '%s' must have 1 to %d characters",
                           name ? name : "", BATCH_NAME_LIMIT - 1);
    for (int i = 0; i < w->model->input_count; i++)
        if (!strcmp(w->model->inputs[i].name, name))
            return writer_fail(w, MUSTER_E_INVALID, "input %s is declared twice", name);
    if (dtype < MUSTER_I32 || dtype > MUSTER_U8)
        return writer_fail(w, MUSTER_E_INVALID, "input %s has the type %d; types are %d to %d", name, dtype,
                           MUSTER_I32, MUSTER_U8);
    if (dtype == MUSTER_I32 && width != 1)
        return writer_fail(w, MUSTER_E_UNSUPPORTED,
                           "input %s has %lld elements of MUSTER_I32; operations read one a position", name,
                           (long long)width);
    if (width < 1 || width > INT32_MAX)
        return writer_fail(w, MUSTER_E_INVALID, "input %s has %lld elements a row; it may have 1 to %d", name,
                           (long long)width, INT32_MAX);
    return writer_input(w, name, dtypes[dtype], positions, width);
}

int32_t muster_model_input(struct muster_model *model, const char *name, int32_t dtype, int64_t width)
{
    return add_input(model, name, dtype, true, width);
}

int32_t muster_model_sample_input(struct muster_model *model, const char *name, int32_t dtype, int64_t width)
{
    return add_input(model, name, dtype, false, width);
}

int32_t muster_layer(struct muster_model *model, const char *name)
{
    struct writer *w = api_model_writer(model);
    if (!w)
        return -1;
    if (!name || !*name)
        return writer_fail(w, MUSTER_E_INVALID, "a layer has no name");
    end_layer(w);
    return program_layer(w, "%s", name);
}

void muster_prefix(struct muster_model *model, const char *prefix)
{
    struct writer *w = api_model_writer(model);
    if (w && program_is_open(w))
        program_prefix(w, prefix ? prefix : "");
}

/* A parameter that exists, for another use: shape and flags have to be the same. */
static int32_t parameter_again(struct writer *w, int param, int64_t rows, int64_t columns, uint32_t flags)
{
    const struct param_desc *desc = &w->model->params[param];
    int64_t its_columns = desc->ndim > 1 ? desc->dim[1] : 0;
    uint32_t its_flags =
        (desc->trainable ? 0 : (uint32_t)MUSTER_FROZEN) | (desc->spared ? (uint32_t)MUSTER_NO_DECAY : 0);
    if (desc->dim[0] != rows || its_columns != columns)
        return writer_fail(
            w, MUSTER_E_INVALID, "parameter %s is declared as (%lld, %lld), but it is (%lld, %lld) already",
            desc->name, (long long)rows, (long long)columns, (long long)desc->dim[0], (long long)its_columns);
    if (flags != its_flags)
        return writer_fail(w, MUSTER_E_INVALID,
                           "parameter %s is declared with the flags %u, but it has the flags %u already",
                           desc->name, flags, its_flags);
    return param;
}

static int find_parameter(const struct writer *w, const char *name)
{
    char full[2 * MODEL_NAME_LIMIT];
    (void)snprintf(full, sizeof full, "%s%s", w->prefix, name); /* a name that is cut off is refused */
    for (int i = 0; i < w->model->param_count; i++)
        if (!strcmp(w->model->params[i].name, full))
            return i;
    return -1;
}

int32_t muster_parameter(struct muster_model *model, const char *name, int64_t rows, int64_t columns,
                         int32_t init, double scale, uint32_t flags)
{
    static const enum param_init inits[] = {
        [MUSTER_ZERO] = PARAM_INIT_ZERO, [MUSTER_ONE] = PARAM_INIT_ONE, [MUSTER_NORMAL] = PARAM_INIT_NORMAL};
    struct writer *w = api_model_writer(model);
    if (!w || !program_is_open(w))
        return -1;
    if (!name || !*name)
        return writer_fail(w, MUSTER_E_INVALID, "a parameter has no name");
    if (rows < 1 || columns < 0)
        return writer_fail(w, MUSTER_E_INVALID, "parameter %s has the shape (%lld, %lld)", name,
                           (long long)rows, (long long)columns);
    if (init < MUSTER_ZERO || init > MUSTER_NORMAL || !(scale >= 0))
        return writer_fail(w, MUSTER_E_INVALID, "parameter %s has the initial value %d with scale %g", name,
                           init, scale);
    if (flags & ~(uint32_t)(MUSTER_FROZEN | MUSTER_NO_DECAY))
        return writer_fail(w, MUSTER_E_INVALID,
                           "parameter %s has the flags %u; MUSTER_FROZEN and "
                           "MUSTER_NO_DECAY are of parameters",
                           name, flags);
    int found = find_parameter(w, name);
    if (found >= 0)
        return parameter_again(w, found, rows, columns, flags);
    int param = program_parameter(w, name, rows, columns, inits[init], scale);
    if (param >= 0) {
        w->model->params[param].trainable = !(flags & MUSTER_FROZEN);
        w->model->params[param].spared = (flags & MUSTER_NO_DECAY) != 0;
    }
    return param;
}
