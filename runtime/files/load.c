/* load.c - the values of matched tensors into a trainer, a run of elements at a time. See files.h. */
#include <errno.h>
#include <string.h>

#include "proto/base/error.h"
#include "runtime/files/elements.h"
#include "runtime/files/files_internal.h"

/* Host memory for one run: as in the file, and converted before it is transposed. Grows to the largest. */
struct loading {
    const struct files *files;
    void *raw, *turned, *tied;
    size_t raw_room, turned_room, tied_room;
};

static int make_room(void **memory, size_t *room, int64_t bytes, struct muster_error *err)
{
    if ((size_t)bytes <= *room)
        return 0;
    mem_free(*memory);
    *room = 0;
    *memory = mem_calloc((size_t)bytes, 1);
    if (!*memory)
        return error_set(err, MUSTER_E_NOMEM, "no memory to read %lld bytes", (long long)bytes);
    *room = (size_t)bytes;
    return 0;
}

static int read_at(const struct source_file *file, int64_t offset, void *out, int64_t bytes,
                   struct muster_error *err)
{
    for (int64_t done = 0; done < bytes;) {
        ssize_t got = pread(file->fd, (char *)out + done, (size_t)(bytes - done), offset + done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_errno(err, "cannot read %s", file->path);
        if (!got)
            return error_set(err, MUSTER_E_IO, "%s has become shorter while it was read", file->path);
        done += got;
    }
    return 0;
}

static int read_integers(struct loading *l, const struct file_tensor *tensor, int64_t first, int64_t count,
                         enum dtype dtype, void *out, struct muster_error *err)
{
    const int64_t size = sizeof(int64_t);
    if (make_room(&l->raw, &l->raw_room, count * size, err) ||
        read_at(&l->files->file[tensor->file], tensor->offset + first * size, l->raw, count * size, err))
        return -1;
    elements_from_integers(out, dtype, l->raw, count);
    return 0;
}

/* Codes, scales and zeros of whole rows. */
static int read_coded_rows(struct loading *l, const struct file_tensor *tensor, int64_t first, int64_t rows,
                           struct coded *coded, struct muster_error *err)
{
    const struct file_codes *codes = &tensor->codes;
    const struct source_file *file = l->files->file;
    const int64_t code_bytes = coded_code_bytes(coded, 1), scale_bytes = coded_scale_bytes(coded, 1),
                  zero_bytes = coded_zero_bytes(coded, 1);
    return read_at(&file[tensor->file], tensor->offset + first * code_bytes, coded->codes, rows * code_bytes,
                   err) ||
                   read_at(&file[codes->scale_file], codes->scales + first * scale_bytes, coded->scales,
                           rows * scale_bytes, err) ||
                   read_at(&file[codes->zero_file], codes->zeros + first * zero_bytes, coded->zeros,
                           rows * zero_bytes, err)
               ? -1
               : 0;
}

/* Elements of a matrix that is kept in few bits: the rows that they lie in, opened. */
static int read_coded(struct loading *l, const struct file_tensor *tensor, int64_t first, int64_t count,
                      enum dtype dtype, void *out, struct muster_error *err)
{
    const int64_t columns = tensor->dim[1], top = first / columns;
    const int64_t rows = (first + count + columns - 1) / columns - top;
    struct coded coded = {
        .coding = tensor->codes.coding, .rows = rows, .columns = columns, .group = tensor->codes.group};
    const bool converts = dtype != DTYPE_F32;
    if (make_room(&l->raw, &l->raw_room, converts ? count * (int64_t)sizeof(float) : 1, err) ||
        coded_create(&coded, err))
        return -1;
    const int failed = read_coded_rows(l, tensor, top, rows, &coded, err);
    if (!failed) {
        coded_open(&coded, first - top * columns, count, converts ? l->raw : out);
        if (converts)
            elements_convert(out, dtype, l->raw, DTYPE_F32, count);
    }
    coded_free(&coded);
    return failed;
}

/* Reads the whole span of a view with its own strides, then takes the view's elements. */
static int read_strided(struct loading *l, const struct file_tensor *tensor, int64_t first, int64_t count,
                        enum dtype dtype, void *out, struct muster_error *err)
{
    const int size = dtype_size(tensor->dtype), real = dtype_size(dtype);
    int64_t span = 1;
    for (int d = 0; d < tensor->ndim; d++)
        span += (tensor->dim[d] - 1) * tensor->stride[d];
    if (make_room(&l->raw, &l->raw_room, span * size, err) ||
        read_at(&l->files->file[tensor->file], tensor->offset, l->raw, span * size, err))
        return -1;
    for (int64_t i = 0; i < count; i++) {
        int64_t rest = first + i, at = 0;
        for (int d = tensor->ndim - 1; d >= 0; d--) {
            at += rest % tensor->dim[d] * tensor->stride[d];
            rest /= tensor->dim[d];
        }
        const char *element = (const char *)l->raw + at * size;
        if (tensor->dtype == dtype)
            memcpy((char *)out + i * real, element, (size_t)real);
        else
            elements_convert((char *)out + i * real, dtype, element, tensor->dtype, 1);
    }
    return 0;
}

/* Elements in the order of the file. */
static int read_run(struct loading *l, const struct file_tensor *tensor, int64_t first, int64_t count,
                    enum dtype dtype, void *out, struct muster_error *err)
{
    const struct source_file *file = &l->files->file[tensor->file];
    if (tensor->integer)
        return read_integers(l, tensor, first, count, dtype, out, err);
    int size = dtype_size(tensor->dtype);
    if (tensor->codes.there)
        return read_coded(l, tensor, first, count, dtype, out, err);
    if (tensor->strided)
        return read_strided(l, tensor, first, count, dtype, out, err);
    if (tensor->dtype == dtype)
        return read_at(file, tensor->offset + first * size, out, count * size, err);
    if (make_room(&l->raw, &l->raw_room, count * size, err) ||
        read_at(file, tensor->offset + first * size, l->raw, count * size, err))
        return -1;
    elements_convert(out, dtype, l->raw, tensor->dtype, count);
    return 0;
}

/* Elements of a parameter (rows, columns) whose tensor is (columns, rows): the rows that they lie in are
 * columns there, a short run in each row of the file. */
static int read_turned(struct loading *l, const struct file_tensor *tensor, int64_t first, int64_t count,
                       enum dtype dtype, void *out, struct muster_error *err)
{
    const struct source_file *file = &l->files->file[tensor->file];
    if (tensor->strided) {
        struct file_tensor other = *tensor;
        for (int d = 0; d < 2; d++) {
            other.dim[d] = tensor->dim[1 - d];
            other.stride[d] = tensor->stride[1 - d];
        }
        return read_strided(l, &other, first, count, dtype, out, err);
    }
    int64_t columns = tensor->dim[0], rows = tensor->dim[1];
    int64_t top = first / columns, bottom = (first + count + columns - 1) / columns, wide = bottom - top;
    int size = dtype_size(tensor->dtype), real = dtype_size(dtype);
    int64_t block = wide * columns;
    if (make_room(&l->raw, &l->raw_room, block * size, err) ||
        make_room(&l->turned, &l->turned_room, 2 * block * real, err))
        return -1;
    for (int64_t column = 0; column < columns; column++) {
        if (read_at(file, tensor->offset + (column * rows + top) * size,
                    (char *)l->raw + column * wide * size, wide * size, err))
            return -1;
    }
    char *converted = l->turned, *whole = converted + block * real;
    elements_convert(converted, dtype, l->raw, tensor->dtype, block);
    elements_transpose(whole, columns, converted, wide, columns, wide, real);
    memcpy(out, whole + (first - top * columns) * real, (size_t)(count * real));
    return 0;
}

static int check_tied(struct loading *l, int param, int64_t first, int64_t count, enum dtype dtype,
                      const void *values, struct muster_error *err)
{
    const struct match *match = &l->files->match;
    const struct file_tensor *tied = &l->files->tensors.item[match->tied];
    int64_t bytes = count * dtype_size(dtype);
    if (make_room(&l->tied, &l->tied_room, bytes, err) ||
        read_run(l, tied, first, count, dtype, l->tied, err))
        return -1;
    if (!memcmp(values, l->tied, (size_t)bytes))
        return 0;
    return error_set(err, MUSTER_E_INVALID,
                     "%s: tensors %s and %s differ, but the model has one parameter for both; set "
                     "tie_word_embeddings to false in config.json where it has two",
                     l->files->path, l->files->tensors.item[match->tensor[param]].name, tied->name);
}

static int read_values(void *context, int param, int64_t first, int64_t count, enum dtype dtype, void *out,
                       struct muster_error *err)
{
    struct loading *l = context;
    const struct match *match = &l->files->match;
    if (match->tensor[param] < 0)
        return 1; /* not of this file: adapters, or their base */
    const struct file_tensor *tensor = &l->files->tensors.item[match->tensor[param]];
    bool turned = l->files->model->params[param].file_transposed && !tensor->out_in;
    if ((turned ? read_turned : read_run)(l, tensor, first, count, dtype, out, err))
        return -1;
    bool twice = match->tied >= 0 && match->tied_param == param;
    return twice ? check_tied(l, param, first, count, dtype, out, err) : 0;
}

int files_load(struct files *files, struct trainer *trainer, struct muster_error *err)
{
    struct loading l = {.files = files};
    if (!files->model)
        return error_set(err, MUSTER_E_STATE, "%s was not compared with a model", files->path);
    int result = trainer_fill_params(trainer, read_values, &l, err);
    mem_free(l.raw);
    mem_free(l.turned);
    mem_free(l.tied);
    return result;
}
