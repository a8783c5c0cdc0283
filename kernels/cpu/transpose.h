/* transpose.h - inside kernels/cpu: a block of 4 by 4 words, transposed in registers. */
#ifndef MUSTER_KERNELS_CPU_TRANSPOSE_H
#define MUSTER_KERNELS_CPU_TRANSPOSE_H

#include <stddef.h>
#include <stdint.h>

typedef float quad __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t quad_order __attribute__((vector_size(16)));

/* to (4 rows of 4) = the transpose of from (4 rows of 4), whose rows are so many floats apart. */
static inline __attribute__((always_inline)) void transpose_quad(float *to, size_t to_stride,
                                                                 const float *from, size_t stride)
{
    quad a = *(const quad *)from, b = *(const quad *)(from + stride);
    quad c = *(const quad *)(from + 2 * stride), d = *(const quad *)(from + 3 * stride);
    quad ab_low = __builtin_shuffle(a, b, (quad_order){0, 4, 1, 5});
    quad ab_high = __builtin_shuffle(a, b, (quad_order){2, 6, 3, 7});
    quad cd_low = __builtin_shuffle(c, d, (quad_order){0, 4, 1, 5});
    quad cd_high = __builtin_shuffle(c, d, (quad_order){2, 6, 3, 7});
    *(quad *)to = __builtin_shuffle(ab_low, cd_low, (quad_order){0, 1, 4, 5});
    *(quad *)(to + to_stride) = __builtin_shuffle(ab_low, cd_low, (quad_order){2, 3, 6, 7});
    *(quad *)(to + 2 * to_stride) = __builtin_shuffle(ab_high, cd_high, (quad_order){0, 1, 4, 5});
    *(quad *)(to + 3 * to_stride) = __builtin_shuffle(ab_high, cd_high, (quad_order){2, 3, 6, 7});
}

#endif
