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
    for (int i = 0; i < model->param_count; i++) { /* in the order in which they will be gathered */
        const struct param_desc *param = &model->params[trainer->plan.group_params[i]];
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

struct saving {
    const struct trainer *trainer;
    struct safetensors_writer *writer;
};

static int write_param(void *context, int param, const void *values, struct muster_error *err)
{
    const struct saving *saving = context;
    return safetensors_write(saving->writer, values, param_bytes(saving->trainer, param), err);
}

/* A rank 0 that cannot write still takes part in every gather; otherwise the others would wait for it. */
int trainer_save(struct trainer *trainer, const char *path, struct muster_error *err)
{
    GUARD(guard_safetensors) struct safetensors_writer *writer = NULL;
    if (trainer->rank)
        return trainer_each_param(trainer, NULL, NULL, err);
    if (!(writer = open_writer(trainer, path, err))) {
        (void)trainer_each_param(trainer, NULL, NULL, NULL); /* the file's error is the one to report */
        return -1;
    }
    struct saving saving = {trainer, writer};
    if (trainer_each_param(trainer, write_param, &saving, err))
        return -1;
    return safetensors_finish(take_pointer(&writer), err);
}
