/* api_quantize.c - muster_trainer.h: a model in few bits. */
#include "runtime/api/api_adapters.h"
#include "runtime/quantize/quantize.h"
#include "runtime/world/sized.h"

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
