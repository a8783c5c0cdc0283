/* narrow.cuh - 16-bit values on the device, of a dtype that is known at run time only. */
#ifndef MUSTER_KERNELS_CUDA_NARROW_CUH
#define MUSTER_KERNELS_CUDA_NARROW_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "kernels/cuda/values.cuh"
#include "kernels/kernels.h"

static __device__ inline uint16_t narrow_encode(float value, enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? __bfloat16_as_ushort(__float2bfloat16_rn(value))
                               : __half_as_ushort(__float2half_rn(value));
}

static __device__ inline float narrow_decode(uint16_t value, enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? __bfloat162float(__ushort_as_bfloat16(value))
                               : __half2float(__ushort_as_half(value));
}

/* A vector's floats, of which `count` are stored, 8 bytes at once where `to` is a multiple of 8. */
static __device__ inline void narrow_store(uint16_t *to, const float *from, int count, bool aligned,
                                           enum dtype dtype)
{
    enum { COUNT = value_vector<float>::COUNT };
    uint16_t bits[COUNT];
    CUDA_EACH (j, 0, COUNT)
        bits[j] = narrow_encode(from[j], dtype);
    if (aligned && count >= COUNT) {
        uint2 both;
        CUDA_ALIGNED(to, 8);
        memcpy(&both, bits, sizeof both);
        *(uint2 *)to = both;
    } else {
        CUDA_EACH (j, 0, COUNT)
            if (j < count)
                to[j] = bits[j];
    }
}

/* The host's: whether `to`, or NULL, can be written so. */
static inline bool narrow_aligned(const uint16_t *to)
{
    return ((uintptr_t)to & 7) == 0;
}

#endif
