/* tensor_text_dump - prints tensors as runtime/hash/tensor_text.c does, for model_hash_test.py to compare.
 *
 *     tensor_text_dump <TENSORS
 *
 * TENSORS: one after the other, each i32 type (0: f32, 1: bf16, 2: int64), i32 dimensions, their i32 sizes,
 * and its elements as float. Each text ends with a NUL. */
#include <stdio.h>

#include "proto/base/guard.h"
#include "runtime/hash/model_hash_internal.h"

static int dump(int32_t type)
{
    struct file_tensor tensor = {.dtype = type == 1 ? DTYPE_BF16 : DTYPE_F32, .integer = type == 2};
    int32_t size, ndim;
    scope_buffer text = {0};
    if (fread(&ndim, sizeof ndim, 1, stdin) != 1 || ndim < 0 || ndim > TENSOR_DIMS)
        return -1;
    tensor.ndim = ndim;
    for (int d = 0; d < ndim; d++) {
        if (fread(&size, sizeof size, 1, stdin) != 1)
            return -1;
        tensor.dim[d] = size;
    }
    const size_t count = (size_t)tensor_elements(tensor.ndim, tensor.dim);
    scope_free float *values = mem_calloc(count, sizeof *values);
    if (!values || fread(values, sizeof *values, count, stdin) != count ||
        tensor_text(&text, &tensor, values))
        return -1;
    return fwrite(text.data, 1, text.length + 1, stdout) == text.length + 1 ? 0 : -1;
}

int main(void)
{
    int32_t type;
    while (fread(&type, sizeof type, 1, stdin) == 1)
        if (dump(type) < 0) {
            fprintf(stderr, "tensor_text_dump: the input is not as described\n");
            return 1;
        }
    return fflush(stdout) ? 1 : 0;
}
