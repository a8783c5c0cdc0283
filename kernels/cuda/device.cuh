/* device.cuh - shared by the kernels on the device: indices of a thread, and sums and maxima over a warp
 * and over a block, always in the same order. */
#ifndef MUSTER_KERNELS_CUDA_DEVICE_CUH
#define MUSTER_KERNELS_CUDA_DEVICE_CUH

#include <cuda_runtime.h>
#include <stdint.h>

#include "kernels/cuda/geometry.h"

/* for i from first up to end, laid out: over an array that has to stay in registers. */
#ifndef CUDA_EMULATED
#define CUDA_EACH(i, first, end) _Pragma("unroll") for (int i = (first); i < (end); i++)
#else
#define CUDA_EACH(i, first, end) for (int i = (first); i < (end); i++)
#endif

/* Memory that is read or written so many bytes at once. The emulator's processor would not mind. */
#ifndef CUDA_EMULATED
#define CUDA_ALIGNED(pointer, bytes) ((void)0)
#else
#define CUDA_ALIGNED(pointer, bytes) emu_aligned((pointer), (bytes), __FILE__, __LINE__)
#endif

/* The first element of this thread and the step to its next, for grids of cuda_grid_elements. */
static __device__ inline int64_t thread_first()
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
static __device__ inline int64_t thread_stride()
{
    return (int64_t)gridDim.x * blockDim.x;
}

/* The same for warps and their rows, for grids of cuda_grid_warp_rows. */
static __device__ inline int64_t warp_first()
{
    return thread_first() / CUDA_WARP;
}
static __device__ inline int64_t warp_stride()
{
    return thread_stride() / CUDA_WARP;
}
static __device__ inline int lane()
{
    return (int)(threadIdx.x % CUDA_WARP);
}

/* The whole warp calls, and every lane gets the result. A butterfly: addition commutes, so all lanes hold the
 * same bits. */
template <typename T> static __device__ inline T warp_sum(T value)
{
    for (int mask = CUDA_WARP / 2; mask > 0; mask /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, mask);
    return value;
}
static __device__ inline float warp_max(float value)
{
    for (int mask = CUDA_WARP / 2; mask > 0; mask /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, mask));
    return value;
}

/* The whole block (of whole warps) calls, and every thread gets the result. `shared` holds one T a warp; it
 * may be used again at once. */
template <typename T> static __device__ inline T block_sum(T value, T *shared)
{
    T total = 0;
    value = warp_sum(value);
    __syncthreads(); /* the last use of shared is over */
    if (lane() == 0)
        shared[threadIdx.x / CUDA_WARP] = value;
    __syncthreads();
    for (unsigned warp = 0; warp < blockDim.x / CUDA_WARP; warp++)
        total += shared[warp];
    return total;
}
static __device__ inline float block_max(float value, float *shared)
{
    value = warp_max(value);
    __syncthreads();
    if (lane() == 0)
        shared[threadIdx.x / CUDA_WARP] = value;
    __syncthreads();
    for (unsigned warp = 0; warp < blockDim.x / CUDA_WARP; warp++)
        value = fmaxf(value, shared[warp]);
    return value;
}

#endif
