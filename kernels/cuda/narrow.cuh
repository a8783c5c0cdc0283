/* narrow.cuh - 16-bit values on the device, of a dtype that is known at run time only. */
#ifndef MUSTER_KERNELS_CUDA_NARROW_CUH
#define MUSTER_KERNELS_CUDA_NARROW_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

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

#endif
