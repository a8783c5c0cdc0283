/* trainer_save.c - the parameters of a trainer as one safetensors file: every rank gathers, rank 0 writes. */
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/model/safetensors.h"
#include "runtime/train/trainer_state.h"

GUARD_DEFINE(safetensors, struct safetensors_writer *, safetensors_destroy);

enum { METADATA_TEXTS = 16 }; /* the model's pairs, ours, and a terminating NULL */

/* How to read the file, its contents, and the settings that its last bits depend on. */
static int fill_metadata(const struct trainer *trainer, const char *metadata[METADATA_TEXTS],
                         struct buffer *numerics, struct muster_error *err)
{
    struct fingerprint print;
    int count = 0;
    trainer_fingerprint(trainer, &print);
    if (fingerprint_format(&print, numerics))
        return error_set(err, MUSTER_E_NOMEM, "no memory for the metadata");
    metadata[count++] = "format"; /* expected by readers for PyTorch */
    metadata[count++] = "pt";
    metadata[count++] = "numerics";
    metadata[count++] = numerics->data;
    for (const char *const *text = trainer->model->metadata; text && *text; text++) {
        if (count == METADATA_TEXTS - 1)
            return error_set(err, MUSTER_E_LIMIT, "the model has more than %d pairs of metadata",
                             (METADATA_TEXTS - 5) / 2);
        metadata[count++] = *text;
    }
    metadata[count] = NULL;
    return 0;
}

static struct safetensors_writer *open_writer(const struct trainer *trainer, const char *path,
                                              struct muster_error *err)
{
    const struct model *model = trainer->model;
    const char *metadata[METADATA_TEXTS];
    scope_buffer numerics = {0};
    scope_free struct safetensors_tensor *tensors = mem_calloc((size_t)model->param_count, sizeof *tensors);
    if (!tensors) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory to describe %d tensors", model->param_count);
        return NULL;
    }
    if (fill_metadata(trainer, metadata, &numerics, err))
        return NULL;
    for (int i = 0; i < model->param_count; i++) {
        const struct param_desc *param = &model->params[i];
        tensors[i] = (struct safetensors_tensor){
            .name = param->name, .dtype = trainer->kernels->dtype, .ndim = param->ndim};
        for (int d = 0; d < param->ndim; d++)
            tensors[i].dim[d] = param->dim[d];
    }
    return safetensors_create(path, tensors, model->param_count, metadata, err);
}

static int64_t param_bytes(const struct trainer *trainer, int param)
{
    return param_elements(&trainer->model->params[param]) * dtype_size(trainer->kernels->dtype);
}

/* Room for the largest parameter and the file; rank 0's part alone. */
static int open_file(const struct trainer *trainer, const char *path, void **values,
                     struct safetensors_writer **writer, struct muster_error *err)
{
    int64_t most = 0;
    for (int i = 0; i < trainer->model->param_count; i++) {
        int64_t bytes = param_bytes(trainer, i);
        most = bytes > most ? bytes : most;
    }
    *values = mem_calloc((size_t)most, 1);
    if (!*values)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a parameter of %lld bytes", (long long)most);
    *writer = open_writer(trainer, path, err);
    return *writer ? 0 : -1;
}

/* A rank 0 that cannot write still takes part in every gather; otherwise the others would wait for it. */
int trainer_save(struct trainer *trainer, const char *path, struct muster_error *err)
{
    scope_free void *values = NULL;
    GUARD(guard_safetensors) struct safetensors_writer *writer = NULL;
    int failed = trainer->rank == 0 ? open_file(trainer, path, &values, &writer, err) : 0;
    for (int i = 0; i < trainer->model->param_count; i++) {
        /* The first error is the one to report. */
        if (trainer_get_param(trainer, i, values, failed ? NULL : err))
            return failed ? -1 : error_wrap(err, "gathering %s", trainer->model->params[i].name);
        if (writer && !failed)
            failed = safetensors_write(writer, values, param_bytes(trainer, i), err);
    }
    if (!writer || failed)
        return failed;
    return safetensors_finish(take_pointer(&writer), err);
}
