/* transpose.h - inside kernels/cpu: a block of 4 by 4 words, transposed in registers. */
#ifndef MUSTER_KERNELS_CPU_TRANSPOSE_H
#define MUSTER_KERNELS_CPU_TRANSPOSE_H

#include <stddef.h>
#include <stdint.h>

typedef float quad __attribute__((vector_size(16), aligned(4), may_alias));

/* clang has no other spelling, and GCC has this spelling from version 12 on. */
#ifdef __clang__
#define QUAD_OF(x, y, i, j, k, l) __builtin_shufflevector(x, y, i, j, k, l)
#else
typedef int32_t quad_order __attribute__((vector_size(16)));
#define QUAD_OF(x, y, i, j, k, l) __builtin_shuffle(x, y, (quad_order){i, j, k, l})
#endif

/* to (4 rows of 4) = the transpose of from (4 rows of 4), whose rows are so many floats apart. */
static inline __attribute__((always_inline)) void transpose_quad(float *to, size_t to_stride,
                                                                 const float *from, size_t stride)
{
    quad a = *(const quad *)from, b = *(const quad *)(from + stride);
    quad c = *(const quad *)(from + 2 * stride), d = *(const quad *)(from + 3 * stride);
    quad ab_low = QUAD_OF(a, b, 0, 4, 1, 5);
    quad ab_high = QUAD_OF(a, b, 2, 6, 3, 7);
    quad cd_low = QUAD_OF(c, d, 0, 4, 1, 5);
    quad cd_high = QUAD_OF(c, d, 2, 6, 3, 7);
    *(quad *)to = QUAD_OF(ab_low, cd_low, 0, 1, 4, 5);
    *(quad *)(to + to_stride) = QUAD_OF(ab_low, cd_low, 2, 3, 6, 7);
    *(quad *)(to + 2 * to_stride) = QUAD_OF(ab_high, cd_high, 0, 1, 4, 5);
    *(quad *)(to + 3 * to_stride) = QUAD_OF(ab_high, cd_high, 2, 3, 6, 7);
}

#endif
