/* elements.c - see elements.h. */
#include "runtime/files/elements.h"

#include <string.h>

#include "kernels/narrow.h"

/* ---- conversion ---- */

#define CONVERT(function, type_to, type_from)                                                                \
    static void convert_##function(void *to, const void *from, int64_t count)                                \
    {                                                                                                        \
        type_to *restrict out = to;                                                                          \
        const type_from *restrict in = from;                                                                 \
        for (int64_t i = 0; i < count; i++)                                                                  \
            out[i] = narrow_##function(in[i]);                                                               \
    }
CONVERT(to_bf16, uint16_t, float)
CONVERT(to_f16, uint16_t, float)
CONVERT(from_bf16, float, uint16_t)
CONVERT(from_f16, float, uint16_t)

void elements_convert(void *to, enum dtype dtype_to, const void *from, enum dtype dtype_from, int64_t count)
{
    if (dtype_to == dtype_from)
        memcpy(to, from, (size_t)count * (size_t)dtype_size(dtype_to));
    else if (dtype_to == DTYPE_BF16 && dtype_from == DTYPE_F32)
        convert_to_bf16(to, from, count);
    else if (dtype_to == DTYPE_F16 && dtype_from == DTYPE_F32)
        convert_to_f16(to, from, count);
    else if (dtype_to == DTYPE_F32 && dtype_from == DTYPE_BF16)
        convert_from_bf16(to, from, count);
    else if (dtype_to == DTYPE_F32 && dtype_from == DTYPE_F16)
        convert_from_f16(to, from, count);
    else
        kernels_ref_f32()->cast(to, dtype_to, from, dtype_from, count, NULL);
}

void elements_to_integers(int64_t *to, const void *from, enum dtype dtype_from, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] =
            dtype_from == DTYPE_F64 ? (int64_t)((const double *)from)[i] : (int64_t)((const float *)from)[i];
}

void elements_from_integers(void *to, enum dtype dtype_to, const int64_t *from, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (dtype_to == DTYPE_F64)
            ((double *)to)[i] = (double)from[i];
        else
            ((float *)to)[i] = (float)from[i];
    }
}

/* ---- transposition ---- */

/* Side of a square whose rows and columns stay in the first cache. */
enum { TILE = 32 };

#define TRANSPOSE_TILE(type)                                                                                 \
    static void transpose_tile_##type(void *to, int64_t to_stride, const void *from, int64_t from_stride,    \
                                      int64_t rows, int64_t columns)                                         \
    {                                                                                                        \
        type *restrict out = to;                                                                             \
        const type *restrict in = from;                                                                      \
        for (int64_t column = 0; column < columns; column++) {                                               \
            for (int64_t row = 0; row < rows; row++)                                                         \
                out[column * to_stride + row] = in[row * from_stride + column];                              \
        }                                                                                                    \
    }
TRANSPOSE_TILE(uint16_t)
TRANSPOSE_TILE(uint32_t)
TRANSPOSE_TILE(uint64_t)

void elements_transpose(void *to, int64_t to_stride, const void *from, int64_t from_stride, int64_t rows,
                        int64_t columns, int size)
{
    void (*tile)(void *, int64_t, const void *, int64_t, int64_t, int64_t) =
        size == 2   ? transpose_tile_uint16_t
        : size == 4 ? transpose_tile_uint32_t
                    : transpose_tile_uint64_t;
    for (int64_t row = 0; row < rows; row += TILE) {
        int64_t high = rows - row < TILE ? rows - row : TILE;
        for (int64_t column = 0; column < columns; column += TILE) {
            int64_t wide = columns - column < TILE ? columns - column : TILE;
            tile((char *)to + (column * to_stride + row) * size, to_stride,
                 (const char *)from + (row * from_stride + column) * size, from_stride, high, wide);
        }
    }
}
