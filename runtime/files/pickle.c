/* pickle.c - see files_internal.h. The letters are pickle's operation codes. */
#include "runtime/files/files_internal.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"

static void put_text(struct buffer *out, const char *text) /* BINUNICODE */
{
    uint32_t length = (uint32_t)strlen(text);
    const unsigned char head[5] = {'X', (unsigned char)length, (unsigned char)(length >> 8),
                                   (unsigned char)(length >> 16), (unsigned char)(length >> 24)};
    (void)buffer_append(out, head, sizeof head);
    (void)buffer_append(out, text, length);
}

static void put_integer(struct buffer *out, int64_t value) /* BININT, LONG1 */
{
    unsigned char code[10] = {'J'};
    bool small = value >= INT32_MIN && value <= INT32_MAX;
    int head = small ? 1 : 2, bytes = small ? 4 : 8;
    if (!small) {
        code[0] = 0x8a;
        code[1] = 8;
    }
    for (int i = 0; i < bytes; i++)
        code[head + i] = (unsigned char)((uint64_t)value >> (8 * i));
    (void)buffer_append(out, code, (size_t)(head + bytes));
}

static void put_tuple(struct buffer *out, int count, const int64_t *values)
{
    (void)buffer_text(out, "(");
    for (int i = 0; i < count; i++)
        put_integer(out, values[i]);
    (void)buffer_text(out, "t");
}

static const char *storage_of(const struct file_tensor *tensor)
{
    const enum dtype dtype = tensor->dtype;
    return tensor->integer       ? "LongStorage"
           : dtype == DTYPE_F32  ? "FloatStorage"
           : dtype == DTYPE_F64  ? "DoubleStorage"
           : dtype == DTYPE_BF16 ? "BFloat16Storage"
           : dtype == DTYPE_F16  ? "HalfStorage"
                                 : NULL;
}

/* _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, backward_hooks) */
static int put_tensor(struct buffer *out, const char *name, const struct file_tensor *tensor, int storage,
                      struct muster_error *err)
{
    char number[16];
    int64_t stride[TENSOR_DIMS], next = 1;
    if (!storage_of(tensor))
        return error_set(err, MUSTER_E_UNSUPPORTED, "tensor %s has a type that model.pth cannot have", name);
    for (int i = tensor->ndim - 1; i >= 0; i--) {
        stride[i] = next;
        next *= tensor->dim[i];
    }
    (void)snprintf(number, sizeof number, "%d", storage); /* fits */
    put_text(out, name);
    (void)buffer_text(out, "ctorch._utils\n_rebuild_tensor_v2\n((");
    put_text(out, "storage");
    (void)buffer_printf(out, "ctorch\n%s\n", storage_of(tensor));
    put_text(out, number);
    put_text(out, "cpu");
    put_integer(out, next);
    (void)buffer_text(out, "tQ"); /* the persistent id of a storage */
    put_integer(out, 0);
    put_tuple(out, tensor->ndim, tensor->dim);
    put_tuple(out, tensor->ndim, stride);
    (void)buffer_append(out, "\x89", 1);
    (void)buffer_text(out, "ccollections\nOrderedDict\n)RtR");
    return 0;
}

int pickle_state_dict(const struct file_tensor *tensors, int count, const char *alias, int alias_of,
                      struct buffer *out, struct muster_error *err)
{
    (void)buffer_append(out, "\x80\x02", 2);
    (void)buffer_text(out, "ccollections\nOrderedDict\n)R(");
    for (int i = 0; i < count; i++) {
        if (put_tensor(out, tensors[i].name, &tensors[i], i, err))
            return -1;
    }
    if (alias && put_tensor(out, alias, &tensors[alias_of], alias_of, err))
        return -1;
    return buffer_text(out, "u.")
               ? error_set(err, MUSTER_E_NOMEM, "no memory for a list of %d tensors", count)
               : 0;
}
