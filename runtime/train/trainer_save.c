/* trainer_save.c - the parameters of a trainer as one safetensors file: every rank gathers, rank 0 writes. */
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/model/safetensors.h"
#include "runtime/train/trainer_state.h"

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
            tensors[i].dim[d] = param->dim[param->file_transposed ? param->ndim - 1 - d : d];
    }
    return safetensors_create(path, tensors, model->param_count, metadata, err);
}

static int64_t param_bytes(const struct trainer *trainer, int param)
{
    return param_elements(&trainer->model->params[param]) * dtype_size(trainer->kernels->dtype);
}

/* ---- transposing ---- */

/* Side of a square whose rows and columns stay in the first cache. */
enum { TILE = 32 };

static void transpose_tile(const void *from, void *to, int64_t rows, int64_t columns, int64_t row,
                           int64_t column, int size)
{
    int64_t last_row = row + TILE < rows ? row + TILE : rows;
    int64_t last_column = column + TILE < columns ? column + TILE : columns;
    for (int64_t r = row; r < last_row; r++) {
        for (int64_t c = column; c < last_column; c++) {
            if (size == 4)
                ((uint32_t *)to)[c * rows + r] = ((const uint32_t *)from)[r * columns + c];
            else
                ((uint64_t *)to)[c * rows + r] = ((const uint64_t *)from)[r * columns + c];
        }
    }
}

/* from: (rows, columns) elements of 4 or 8 bytes; to: (columns, rows). */
static void transpose(const void *from, void *to, int64_t rows, int64_t columns, int size)
{
    for (int64_t row = 0; row < rows; row += TILE) {
        for (int64_t column = 0; column < columns; column += TILE)
            transpose_tile(from, to, rows, columns, row, column, size);
    }
}

/* ---- saving ---- */

struct saving {
    const struct trainer *trainer;
    struct safetensors_writer *writer;
    void *transposed; /* room for the largest parameter that is */
};

static int write_param(void *context, int param, const void *values, struct muster_error *err)
{
    const struct saving *saving = context;
    const struct param_desc *desc = &saving->trainer->model->params[param];
    if (desc->file_transposed) {
        transpose(values, saving->transposed, desc->dim[0], desc->dim[1],
                  dtype_size(saving->trainer->kernels->dtype));
        values = saving->transposed;
    }
    return safetensors_write(saving->writer, values, param_bytes(saving->trainer, param), err);
}

static int open_saving(struct saving *saving, const char *path, struct muster_error *err)
{
    int64_t most = 1;
    const struct model *model = saving->trainer->model;
    for (int i = 0; i < model->param_count; i++) {
        int64_t bytes = model->params[i].file_transposed ? param_bytes(saving->trainer, i) : 0;
        most = bytes > most ? bytes : most;
    }
    saving->transposed = mem_calloc((size_t)most, 1);
    if (!saving->transposed)
        return error_set(err, MUSTER_E_NOMEM, "no memory to transpose %lld bytes", (long long)most);
    saving->writer = open_writer(saving->trainer, path, err);
    return saving->writer ? 0 : -1;
}

static void close_saving(struct saving *saving)
{
    safetensors_destroy(saving->writer);
    mem_free(saving->transposed);
}

/* A rank 0 that cannot write still takes part in every gather; otherwise the others would wait for it. */
int trainer_save(struct trainer *trainer, const char *path, struct muster_error *err)
{
    struct saving saving = {.trainer = trainer};
    int failed = trainer->rank == 0 ? open_saving(&saving, path, err) : 0;
    int (*visit)(void *, int, const void *, struct muster_error *) = saving.writer ? write_param : NULL;
    failed |=
        trainer_each_param(trainer, visit, &saving, failed ? NULL : err); /* the first error is reported */
    if (!failed && saving.writer)
        failed = safetensors_finish(take_pointer(&saving.writer), err);
    close_saving(&saving);
    return failed;
}
