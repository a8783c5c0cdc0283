/* safetensors.c - see safetensors.h. */
#include "runtime/files/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/json/json_text.h"

/* ---- types ---- */

static const struct type {
    const char *name;
    enum dtype dtype; /* DTYPE_COUNT: of no parameter */
    int size;
} types[] = {
    {"F32", DTYPE_F32, 4},       {"F64", DTYPE_F64, 8},   {"BF16", DTYPE_BF16, 2},
    {"F16", DTYPE_F16, 2},       {"I32", DTYPE_I32, 4},   {"U8", DTYPE_U8, 1},
    {"BOOL", DTYPE_COUNT, 1},    {"I8", DTYPE_COUNT, 1},  {"F8_E4M3", DTYPE_COUNT, 1},
    {"F8_E5M2", DTYPE_COUNT, 1}, {"I16", DTYPE_COUNT, 2}, {"U16", DTYPE_COUNT, 2},
    {"U32", DTYPE_COUNT, 4},     {"I64", DTYPE_COUNT, 8}, {"U64", DTYPE_COUNT, 8},
};
enum { TYPES = sizeof types / sizeof *types };
#define INTEGER "I64"

static const struct type *type_by_name(const char *name)
{
    for (int i = 0; i < TYPES; i++) {
        if (!strcmp(types[i].name, name))
            return &types[i];
    }
    return NULL;
}

static const struct type *type_by_dtype(enum dtype dtype)
{
    for (int i = 0; i < TYPES; i++) {
        if (types[i].dtype == dtype && dtype != DTYPE_COUNT)
            return &types[i];
    }
    return NULL;
}

/* ---- reading ---- */

int64_t safetensors_header_length(const char *name, const void *start, int64_t file_bytes,
                                  struct muster_error *err)
{
    const unsigned char *bytes = start;
    uint64_t length = 0;
    if (file_bytes < SAFETENSORS_LENGTH)
        return error_set(err, MUSTER_E_INVALID, "%s: %lld bytes are too few for a safetensors file", name,
                         (long long)file_bytes);
    for (int i = 0; i < SAFETENSORS_LENGTH; i++)
        length |= (uint64_t)bytes[i] << (8 * i);
    if (length > JSON_TEXT_LIMIT)
        return error_set(
            err, MUSTER_E_INVALID,
            "%s: neither a safetensors file nor a file of torch.save, or a file with too large a "
            "header: it gives its header "
            "%llu bytes, and at most %d are read",
            name, (unsigned long long)length, JSON_TEXT_LIMIT);
    if ((int64_t)length > file_bytes - SAFETENSORS_LENGTH)
        return error_set(err, MUSTER_E_INVALID,
                         "%s: not a safetensors file, or cut off: its header has %llu bytes, the file %lld",
                         name, (unsigned long long)length, (long long)file_bytes);
    return (int64_t)length;
}

static int read_shape(const char *name, const json_t *shape, struct file_tensor *tensor,
                      struct muster_error *err)
{
    if (!json_is_array(shape) || json_array_size(shape) > TENSOR_DIMS)
        return error_set(err, MUSTER_E_INVALID, "%s: tensor '%s' has no shape, or more than %d dimensions",
                         name, tensor->name, TENSOR_DIMS);
    tensor->ndim = (int)json_array_size(shape);
    for (int i = 0; i < tensor->ndim; i++) {
        const json_t *dim = json_array_get(shape, (size_t)i);
        if (!json_is_integer(dim))
            return error_set(err, MUSTER_E_INVALID, "%s: the shape of tensor '%s' is not whole numbers", name,
                             tensor->name);
        tensor->dim[i] = json_integer_value(dim);
    }
    return 0;
}

/* The offsets of a tensor's bytes, counted from the first tensor's. */
static int read_offsets(const char *name, const json_t *offsets, int64_t data, int64_t file_bytes,
                        struct file_tensor *tensor, struct muster_error *err)
{
    const json_t *from = json_array_get(offsets, 0), *to = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(from) || !json_is_integer(to))
        return error_set(err, MUSTER_E_INVALID, "%s: tensor '%s' has no pair of data_offsets", name,
                         tensor->name);
    int64_t first = json_integer_value(from), end = json_integer_value(to);
    if (first < 0 || end < first || end > file_bytes - data)
        return error_set(err, MUSTER_E_INVALID,
                         "%s: tensor '%s' is at bytes %lld to %lld of %lld: the file is cut off or damaged",
                         name, tensor->name, (long long)first, (long long)end,
                         (long long)(file_bytes - data));
    tensor->offset = data + first;
    tensor->bytes = end - first;
    return 0;
}

static int check_bytes(const char *name, const struct type *type, const struct file_tensor *tensor,
                       struct muster_error *err)
{
    int64_t elements = tensor_elements(tensor->ndim, tensor->dim);
    if (elements >= 0 && (!type || elements * type->size == tensor->bytes))
        return 0;
    scope_buffer shape = {0};
    (void)tensor_shape_text(&shape, tensor->ndim, tensor->dim);
    return error_set(err, MUSTER_E_INVALID, "%s: tensor '%s' has %lld bytes, which is not the size of %s %s",
                     name, tensor->name, (long long)tensor->bytes, tensor->type,
                     shape.data ? shape.data : "");
}

static int read_tensor(const char *name, const char *key, const json_t *value, int64_t data,
                       int64_t file_bytes, int file, struct file_tensors *tensors, struct muster_error *err)
{
    struct file_tensor tensor = {.name = (char *)key, .file = file, .dtype = DTYPE_COUNT};
    const char *type_name = json_string_value(json_object_get(value, "dtype"));
    if (!type_name || strlen(type_name) >= TENSOR_TYPE)
        return error_set(err, MUSTER_E_INVALID, "%s: tensor '%s' has no dtype", name, key);
    memcpy(tensor.type, type_name, strlen(type_name) + 1);
    const struct type *type = type_by_name(type_name);
    if (type)
        tensor.dtype = type->dtype;
    tensor.integer = !strcmp(type_name, INTEGER);
    if (read_shape(name, json_object_get(value, "shape"), &tensor, err) ||
        read_offsets(name, json_object_get(value, "data_offsets"), data, file_bytes, &tensor, err) ||
        check_bytes(name, type, &tensor, err))
        return -1;
    return tensors_add(tensors, &tensor, err);
}

static int compare_offsets(const void *a, const void *b)
{
    const struct file_tensor *first = a, *second = b;
    if (first->offset != second->offset)
        return first->offset < second->offset ? -1 : 1;
    return first->bytes < second->bytes ? -1 : first->bytes > second->bytes; /* an empty one comes first */
}

/* Each tensor from `first` on begins where another ends, and the last ends with the file. Sorts them. */
static int check_holes(const char *name, struct file_tensors *tensors, int first, int64_t data,
                       int64_t file_bytes, struct muster_error *err)
{
    int64_t end = data;
    if (tensors->count > first)
        qsort(tensors->item + first, (size_t)(tensors->count - first), sizeof *tensors->item,
              compare_offsets);
    for (int i = first; i < tensors->count; i++) {
        const struct file_tensor *tensor = &tensors->item[i];
        if (tensor->offset != end)
            return error_set(err, MUSTER_E_INVALID, "%s: tensor '%s' %s the one before it in the file", name,
                             tensor->name, tensor->offset < end ? "overlaps" : "leaves a hole after");
        end += tensor->bytes;
    }
    if (end != file_bytes)
        return error_set(err, MUSTER_E_INVALID, "%s: the tensors end at byte %lld of %lld", name,
                         (long long)end, (long long)file_bytes);
    return 0;
}

int safetensors_parse(const char *name, const char *header, size_t length, int64_t file_bytes, int file,
                      struct file_tensors *tensors, struct muster_error *err)
{
    int before = tensors->count;
    int64_t data = SAFETENSORS_LENGTH + (int64_t)length;
    const char *key;
    json_t *value;
    GUARD(guard_json) json_t *root = json_text_parse(name, header, length, err);
    if (!root)
        return -1;
    json_object_foreach(root, key, value)
    {
        if (strcmp(key, "__metadata__") &&
            read_tensor(name, key, value, data, file_bytes, file, tensors, err))
            return -1;
    }
    return check_holes(name, tensors, before, data, file_bytes, err);
}

/* ---- writing ---- */

static void format_metadata(struct buffer *out, const char *const *metadata, bool more)
{
    if (!metadata || !metadata[0])
        return;
    (void)buffer_text(out, "\"__metadata__\":{");
    for (int i = 0; metadata[i]; i += 2) {
        (void)buffer_text(out, i ? "," : "");
        (void)buffer_json_string(out, metadata[i]);
        (void)buffer_text(out, ":");
        (void)buffer_json_string(out, metadata[i + 1]);
    }
    (void)buffer_text(out, more ? "}," : "}");
}

static void format_tensor(struct buffer *out, const struct file_tensor *tensor, const char *type,
                          int64_t first)
{
    (void)buffer_json_string(out, tensor->name);
    (void)buffer_printf(out, ":{\"dtype\":\"%s\",\"shape\":[", type);
    for (int i = 0; i < tensor->ndim; i++)
        (void)buffer_printf(out, "%s%lld", i ? "," : "", (long long)tensor->dim[i]);
    (void)buffer_printf(out, "],\"data_offsets\":[%lld,%lld]}", (long long)first,
                        (long long)(first + tensor->bytes));
}

int64_t safetensors_format(struct file_tensor *tensors, int count, const char *const *metadata,
                           struct buffer *out, struct muster_error *err)
{
    int64_t end = 0;
    scope_buffer header = {0};
    (void)buffer_text(&header, "{");
    format_metadata(&header, metadata, count > 0);
    for (int i = 0; i < count; i++) {
        const struct type *type = tensors[i].integer                ? type_by_name(INTEGER)
                                  : tensors[i].dtype == DTYPE_COUNT ? type_by_name(tensors[i].type)
                                                                    : type_by_dtype(tensors[i].dtype);
        if (!type)
            return error_set(err, MUSTER_E_UNSUPPORTED,
                             "tensor %s has a type that safetensors does not support", tensors[i].name);
        if (i)
            (void)buffer_text(&header, ",");
        format_tensor(&header, &tensors[i], type->name, end);
        end += tensors[i].bytes;
    }
    (void)buffer_text(&header, "}");
    while (!header.failed && header.length % 8) /* tensors start aligned */
        (void)buffer_text(&header, " ");
    if (header.failed)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a header of %d tensors", count);
    unsigned char length[SAFETENSORS_LENGTH];
    for (int i = 0; i < SAFETENSORS_LENGTH; i++)
        length[i] = (unsigned char)((uint64_t)header.length >> (8 * i));
    if (buffer_append(out, length, sizeof length) || buffer_append(out, header.data, header.length))
        return error_set(err, MUSTER_E_NOMEM, "no memory for a header of %d tensors", count);
    int64_t at = SAFETENSORS_LENGTH + (int64_t)header.length;
    for (int i = 0; i < count; i++) {
        tensors[i].offset = at;
        at += tensors[i].bytes;
    }
    return at;
}
