/* values.cuh - values of one type in device memory, float, bf16 or f16, which are computed with in float:
 * one at a time, and 16 bytes at a time. */
#ifndef MUSTER_KERNELS_CUDA_VALUES_CUH
#define MUSTER_KERNELS_CUDA_VALUES_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <string.h>

static __device__ inline float value_get(float value)
{
    return value;
}
static __device__ inline float value_get(__nv_bfloat16 value)
{
    return __bfloat162float(value);
}
static __device__ inline float value_get(__half value)
{
    return __half2float(value);
}

static __device__ inline uint16_t value_bits(__nv_bfloat16 value)
{
    return __bfloat16_as_ushort(value);
}
static __device__ inline uint16_t value_bits(__half value)
{
    return __half_as_ushort(value);
}

/* Rounded once, to the nearest, ties to even. */
template <typename V> static __device__ inline V value_of(float value);
template <> __device__ inline float value_of<float>(float value)
{
    return value;
}
template <> __device__ inline __nv_bfloat16 value_of<__nv_bfloat16>(float value)
{
    return __float2bfloat16_rn(value);
}
template <> __device__ inline __half value_of<__half>(float value)
{
    return __float2half_rn(value);
}

/* 16 bytes of values. */
template <typename V> struct __align__(16) value_vector
{
    enum { COUNT = 16 / sizeof(V) };
    V of[COUNT];
};

/* `from` is a multiple of 16 bytes. */
template <typename V> static __device__ inline value_vector<V> vector_load(const V *from)
{
    value_vector<V> vector;
    const uint4 bits = *(const uint4 *)from; /* one load */
    memcpy(&vector, &bits, sizeof vector);
    return vector;
}
template <typename V> static __device__ inline void vector_store(V *to, const value_vector<V> &vector)
{
    uint4 bits;
    memcpy(&bits, &vector, sizeof bits);
    *(uint4 *)to = bits;
}

#endif
