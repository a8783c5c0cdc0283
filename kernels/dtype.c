/* dtype.c - names and sizes of element types. */
#include "kernels/kernels.h"

static const struct {
    const char *name;
    int size;
} dtypes[DTYPE_COUNT] = {
    [DTYPE_F32] = {"f32", 4}, [DTYPE_F64] = {"f64", 8}, [DTYPE_BF16] = {"bf16", 2},
    [DTYPE_F16] = {"f16", 2}, [DTYPE_I32] = {"i32", 4}, [DTYPE_U8] = {"u8", 1},
};

int dtype_size(enum dtype dtype)
{
    return (unsigned)dtype < DTYPE_COUNT ? dtypes[dtype].size : 0;
}

const char *dtype_name(enum dtype dtype)
{
    return (unsigned)dtype < DTYPE_COUNT ? dtypes[dtype].name : "unknown";
}
