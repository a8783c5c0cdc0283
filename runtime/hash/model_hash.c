/* model_hash.c - see model_hash.h. The state dict's text has every parameter's text in the order of names; a
 * parameter's is short, whatever its size. */
#include "runtime/hash/model_hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/checksum.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"
#include "runtime/files/elements.h"
#include "runtime/hash/model_hash_internal.h"

struct named_text {
    const char *name;
    struct buffer text;
};

struct hashing {
    const struct model *model;
    enum dtype real, dtype;
    struct checksum crc;
    uint64_t sum;             /* sum over all parameters, in any order */
    struct named_text *texts; /* [param_count] */
};

/* The parameter as the file has it. */
static struct file_tensor described(const struct param_desc *param, enum dtype dtype)
{
    struct file_tensor tensor = {.dtype = dtype, .ndim = param->ndim};
    for (int d = 0; d < param->ndim; d++)
        tensor.dim[d] = param->dim[d];
    tensor.integer = param->statistic == PARAM_COUNT;
    return tensor;
}

static int hash_param(void *context, int index, const void *values, struct muster_error *err)
{
    struct hashing *h = context;
    const struct param_desc *param = &h->model->params[index];
    const int64_t count = param_elements(param);
    const struct file_tensor tensor = described(param, h->dtype);
    scope_free uint16_t *narrow = mem_calloc((size_t)count, sizeof *narrow);
    scope_free float *rounded = mem_calloc((size_t)count, sizeof *rounded);
    if (!narrow || !rounded)
        return error_set(err, MUSTER_E_NOMEM, "no memory to hash %s", param->name);
    elements_convert(rounded, DTYPE_F32, values, h->real, count);
    if (h->dtype != DTYPE_F32 && !tensor.integer) {
        elements_convert(narrow, h->dtype, rounded, DTYPE_F32, count);
        elements_convert(rounded, DTYPE_F32, narrow, h->dtype, count);
    }
    const uint32_t crc = checksum_add(&h->crc, 0, rounded, count * (int64_t)sizeof *rounded);
    h->sum += text_hash(text_hash(TEXT_HASH_START, param->name, strlen(param->name)), &crc, sizeof crc);
    h->texts[index].name = param->name;
    return tensor_text(&h->texts[index].text, &tensor, rounded)
               ? error_set(err, MUSTER_E_NOMEM, "no memory to hash %s", param->name)
               : 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct named_text *)a)->name, ((const struct named_text *)b)->name);
}

/* Python's str() of the sorted list of pairs. */
static int finish(struct hashing *h, struct model_hash *hash, struct muster_error *err)
{
    const int count = h->model->param_count;
    uint8_t digest[MD5_BYTES];
    scope_buffer text = {0};
    qsort(h->texts, (size_t)count, sizeof *h->texts, by_name);
    for (int i = 0; i < count; i++)
        (void)buffer_printf(&text, "%s('%s', %s)", i ? ", " : "[", h->texts[i].name, h->texts[i].text.data);
    if (buffer_text(&text, "]"))
        return error_set(err, MUSTER_E_NOMEM, "no memory to hash %s", h->model->name);
    md5(text.data, text.length, digest);
    (void)snprintf(hash->printed, sizeof hash->printed, "%02x%02x%02x%02x", digest[0], digest[1], digest[2],
                   digest[3]);
    (void)snprintf(hash->exact, sizeof hash->exact, "%016" PRIx64, h->sum);
    return 0;
}

static int check_names(const struct model *model, const struct architecture *architecture,
                       struct muster_error *err)
{
    const struct tensor_naming naming = architecture_naming(architecture);
    bool same = !naming.tied && !*naming.prefix && model->adapter_scale == 0;
    for (int i = 0; i < model->param_count; i++)
        same = same && !model->params[i].file_transposed;
    return same
               ? 0
               : error_set(err, MUSTER_E_UNSUPPORTED,
                           "%s: its state dict has other names or shapes than its parameters, and no hash is "
                           "formed of it",
                           model->name);
}

int model_hash_form(struct trainer *trainer, const struct architecture *architecture, enum dtype dtype,
                    struct model_hash *hash, struct muster_error *err)
{
    const bool first = trainer_plan(trainer)->options.rank == 0;
    struct hashing h = {
        .model = trainer_model(trainer), .real = trainer_kernels(trainer)->statistic, .dtype = dtype};
    *hash = (struct model_hash){{0}, {0}};
    if (check_names(h.model, architecture, err) < 0) /* on every rank alike */
        return -1;
    checksum_make(&h.crc, true);
    h.texts = mem_calloc((size_t)h.model->param_count, sizeof *h.texts);
    const int missing = h.texts ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory to hash %s", h.model->name);
    /* A rank without memory takes part all the same. */
    int result = trainer_each_param(trainer, first && !missing ? hash_param : NULL, &h, missing ? NULL : err);
    if (!result && !missing && first)
        result = finish(&h, hash, err);
    for (int i = 0; h.texts && i < h.model->param_count; i++)
        buffer_free(&h.texts[i].text);
    mem_free(h.texts);
    return missing ? missing : result;
}
