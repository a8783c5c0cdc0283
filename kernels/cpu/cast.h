/* cast.h - one chunk of a conversion between float and a 16-bit type, for the loops of the variants. */
#ifndef MUSTER_KERNELS_CPU_CAST_H
#define MUSTER_KERNELS_CPU_CAST_H

#include "kernels/kernels.h"
#include "kernels/narrow.h"

static inline void cpu_narrow(uint16_t *__restrict to, enum dtype dtype, const float *__restrict from,
                              int64_t n)
{
    if (dtype == DTYPE_BF16)
        for (int64_t i = 0; i < n; i++)
            to[i] = narrow_to_bf16(from[i]);
    else
        for (int64_t i = 0; i < n; i++)
            to[i] = narrow_to_f16(from[i]);
}

static inline void cpu_widen(float *__restrict to, const uint16_t *__restrict from, enum dtype dtype,
                             int beta, int64_t n)
{
    if (dtype == DTYPE_BF16 && beta)
        for (int64_t i = 0; i < n; i++)
            to[i] += narrow_from_bf16(from[i]);
    else if (dtype == DTYPE_BF16)
        for (int64_t i = 0; i < n; i++)
            to[i] = narrow_from_bf16(from[i]);
    else if (beta)
        for (int64_t i = 0; i < n; i++)
            to[i] += narrow_from_f16(from[i]);
    else
        for (int64_t i = 0; i < n; i++)
            to[i] = narrow_from_f16(from[i]);
}

#endif
