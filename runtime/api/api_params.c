/* api_params.c - muster_trainer.h: parameters by name, files of them, and models in few bits. */
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/api/api_trainer.h"
#include "runtime/files/files.h"
#include "runtime/hash/model_hash.h"
#include "runtime/quantize/quantize.h"
#include "runtime/world/sized.h"

static const struct param_desc *param_at(const struct muster_trainer *t, int parameter)
{
    return parameter >= 0 && parameter < t->model.param_count ? &t->model.params[parameter] : NULL;
}

int32_t muster_trainer_parameters(const struct muster_trainer *t)
{
    return t->model.param_count;
}

int32_t muster_trainer_parameter(const struct muster_trainer *t, const char *name)
{
    for (int i = 0; i < t->model.param_count; i++)
        if (!strcmp(t->model.params[i].name, name))
            return i;
    return -1;
}

const char *muster_trainer_parameter_name(const struct muster_trainer *t, int32_t parameter)
{
    const struct param_desc *param = param_at(t, parameter);
    return param ? param->name : NULL;
}

int64_t muster_trainer_parameter_elements(const struct muster_trainer *t, int32_t parameter)
{
    const struct param_desc *param = param_at(t, parameter);
    return param ? param_elements(param) : 0;
}

int32_t muster_trainer_parameter_shape(const struct muster_trainer *t, int32_t parameter, int64_t shape[2])
{
    const struct param_desc *param = param_at(t, parameter);
    if (!param)
        return -1;
    shape[0] = param->dim[0];
    shape[1] = param->ndim > 1 ? param->dim[1] : 1;
    return param->ndim;
}

int muster_trainer_get(struct muster_trainer *t, int32_t parameter, float *values, struct muster_error *err)
{
    return trainer_get_param(t->trainer, parameter, values, err);
}

int muster_trainer_put(struct muster_trainer *t, int32_t parameter, const float *values,
                       struct muster_error *err)
{
    api_forget_base(t);
    return trainer_set_param(t->trainer, parameter, values, err);
}

int muster_trainer_average(struct muster_trainer *t, int32_t on, struct muster_error *err)
{
    if (t->config.ema_decay > 0)
        return trainer_exchange_averages(t->trainer, on != 0, err);
    return error_set(err, MUSTER_E_INVALID, "training.ema_decay is 0: no average of the parameters is kept");
}

/* ---- files ---- */

static int find_format(const char *format, struct files_export *what, struct muster_error *err)
{
    static const char *const names[] = {
#define FORMAT_NAME(symbol, name) name,
        FILES_FORMATS(FORMAT_NAME)
#undef FORMAT_NAME
    };
    *what = (struct files_export){.dtype = DTYPE_F32};
    for (int i = 0; format && i < FILES_FORMAT_COUNT; i++)
        if (!strcmp(names[i], format)) {
            what->format = (enum files_format)i;
            return 0;
        }
    return error_set(err, MUSTER_E_INVALID, "format '%s'; there are safetensors, hf, pth and peft",
                     format ? format : "");
}

int muster_export_probe(const char *path, const char *format, struct muster_error *err)
{
    struct files_export what;
    return find_format(format, &what, err) < 0 ? -1 : files_export_probe(path, &what, err);
}

static const struct architecture *architecture_of(const struct muster_trainer *t)
{
    return t->shared->known ? &t->shared->architecture : NULL;
}

static enum dtype output_dtype(const struct muster_trainer *t)
{
    const bool bf16 = t->config.output_dtype == TRAIN_OUTPUT_BF16 ||
                      (t->config.output_dtype == TRAIN_OUTPUT_AUTO && t->loaded_dtype == DTYPE_BF16);
    return bf16 ? DTYPE_BF16 : DTYPE_F32;
}

int muster_trainer_hash(struct muster_trainer *t, char exact[17], char printed[9], struct muster_error *err)
{
    struct model_hash hash = {{0}, {0}};
    if (model_hash_form(t->trainer, architecture_of(t), output_dtype(t), &hash, err) < 0)
        return -1;
    memcpy(exact, hash.exact, sizeof hash.exact);
    memcpy(printed, hash.printed, sizeof hash.printed);
    return 0;
}

void api_fill_export(const struct muster_trainer *t, struct files_export *what)
{
    what->dtype = output_dtype(t);
    what->shard_bytes = t->config.output_shard_size;
    what->architecture = architecture_of(t);
    what->folder = t->folder;
}

int muster_trainer_export(struct muster_trainer *t, const char *path, const char *format,
                          struct muster_error *err)
{
    struct files_export what;
    if (find_format(format, &what, err) < 0)
        return -1;
    api_fill_export(t, &what);
    if (api_adapts(t))
        what.lora = &t->shared->architecture.lora;
    if (what.format == FILES_PEFT ? !what.lora : what.lora && !t->shared->merges)
        return error_set(
            err, MUSTER_E_INVALID,
            what.lora ? "format %s is of a whole model, and this one has adapters: lora.merge=true adds "
                        "them to it, peft writes them alone"
                      : "format %s is of adapters, and the model has none",
            format);
    if (what.format == FILES_PEFT && t->config.output_dtype == TRAIN_OUTPUT_AUTO)
        what.dtype = DTYPE_F32; /* adapters are trained in it, for any type of the base */
    return files_export(t->trainer, path, &what, err);
}

static int keep_opened(struct muster_trainer *t, const struct files *files)
{
    scope_buffer text = {0};
    mem_free(take_pointer(&t->opened));
    if (files_coded_text(files, &text) < 0)
        return -1;
    t->opened = text.length ? mem_strdup(text.data) : NULL;
    return text.length && !t->opened ? -1 : 0;
}

const char *muster_trainer_opened(const struct muster_trainer *t)
{
    return t->opened;
}

static int keep_drawn(struct muster_trainer *t, const struct files *files)
{
    const char *text = files_drawn(files, &t->drawn_count);
    mem_free(t->drawn);
    t->drawn = text ? mem_strdup(text) : NULL;
    return text && !t->drawn ? -1 : 0;
}

const char *muster_trainer_drawn(const struct muster_trainer *t, int32_t *count)
{
    if (count)
        *count = t->drawn_count;
    return t->drawn;
}

/* The settings of an export. */
static int keep_source(struct muster_trainer *t, const struct files *files, struct muster_error *err)
{
    const char *folder = files_folder(files);
    int lacks;
    const bool adapters = files_lora(files) != NULL;
    (void)files_drawn(files, &lacks);
    if (adapters && !lacks) { /* with its classifier */
        mem_free(take_pointer(&t->drawn));
        t->drawn_count = 0;
    }
    if (adapters) /* the base is of another folder */
        return 0;
    char *copy = folder ? mem_strdup(folder) : NULL;
    if (folder && !copy)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the name of %s", folder);
    mem_free(t->folder);
    t->folder = copy;
    if (keep_opened(t, files) < 0 || keep_drawn(t, files) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for what %s has", folder ? folder : "a file");
    t->loaded_dtype = files_dtype(files);
    t->dropout = files_dropout(files);
    return 0;
}

static int load(struct muster_trainer *t, const char *path, struct muster_error *err)
{
    const char *page = t->shared->known ? architecture_own_page(&t->shared->architecture) : NULL;
    GUARD(guard_files) struct files *files = files_open_by(path, page, err);
    if (!files)
        return -1;
    const struct architecture *theirs = files_architecture(files);
    if (files_match(files, &t->model, theirs && t->shared->known ? theirs : architecture_of(t), err) < 0)
        return -1;
    return files_load(files, t->trainer, err) || keep_source(t, files, err) ? -1 : 0;
}

int muster_trainer_load(struct muster_trainer *t, const char *path, struct muster_error *err)
{
    api_forget_base(t);
    int failed = load(t, path, err);
    double sum = failed != 0;
    if (trainer_reduce(t->trainer, &sum, 1, failed ? NULL : err) < 0 || failed)
        return -1;
    if (sum > 0)
        return error_set(err, MUSTER_E_PEER, "%s could not be read on %.0f other ranks, see their errors",
                         path, sum);
    return 0;
}

/* ---- a model in few bits ---- */

static int quantize_into(struct muster_trainer *t, struct muster_quantization *about,
                         const struct quantize_options *options, const char *path, struct muster_error *err)
{
    struct files_export what = {.format = FILES_HF, .dtype = DTYPE_F32};
    api_fill_export(t, &what);
    api_forget_base(t);
    GUARD(guard_quantized) struct quantized *q = quantize(t->trainer, options, err);
    if (!q || quantized_write(q, t->trainer, path, &what, err) < 0)
        return -1;
    const bool grouped = options->method == QUANTIZE_INT4 || options->method == QUANTIZE_GPTQ;
    about->group = grouped ? options->group : 0;
    about->tensors = q->tensors;
    about->kept = t->model.param_count - q->tensors;
    about->elements = q->elements;
    about->pruned = q->pruned;
    about->plain_bytes = quantized_plain_bytes(q, what.dtype);
    about->bytes = quantized_bytes(q, what.dtype);
    return 0;
}

int muster_trainer_quantize(struct muster_trainer *t, struct muster_quantization *quantization,
                            const void *const *arrays, int64_t rows, const char *path,
                            struct muster_error *err)
{
    static const char name[] = "muster_quantization";
    struct muster_quantization about;
    struct quantize_options options = {.arrays = arrays, .rows = rows};
    if (sized_in(name, &about, sizeof about, quantization, quantization->size, sizeof about, err) < 0 ||
        quantize_method_find(about.method, &options.method, err) < 0)
        return -1;
    options.group = about.group ? about.group : CODED_GROUP;
    options.prune = about.prune;
    options.tables = about.tables != 0;
    options.keep = about.keep;
    if (options.method == QUANTIZE_GPTQ && api_check_arrays(t, arrays, rows, err) < 0)
        return -1;
    return quantize_into(t, &about, &options, path, err) < 0
               ? -1
               : sized_out(name, quantization, quantization->size, &about, sizeof about, sizeof about, err);
}
