/* norm_squared.cu - *out = beta * *out + sum of squares of values (n), in two passes: CUDA_NORM_BLOCKS blocks
 * at most each sum their share in double, then one warp adds the blocks' sums. No atomics: the order is
 * fixed. */
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"

static __global__ void norm_partial_kernel(double *partial, const float *values, int64_t n)
{
    __shared__ double shared[CUDA_BLOCK / CUDA_WARP];
    double sum = 0;
    for (int64_t i = thread_first(); i < n; i += thread_stride())
        sum += (double)values[i] * (double)values[i];
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

static __global__ void norm_total_kernel(double *out, const double *partial, unsigned count, int beta)
{
    double sum = 0;
    for (unsigned i = threadIdx.x; i < count; i += CUDA_WARP)
        sum += partial[i];
    sum = warp_sum(sum);
    if (threadIdx.x == 0)
        *out = sum + (beta ? *out : 0.0);
}

extern "C" size_t cuda_norm_squared_work(void)
{
    return cuda_norm_work_bytes();
}

extern "C" int cuda_norm_squared(double *out, const void *values, int64_t n, int beta, void *work,
                                 void *stream, struct muster_error *err)
{
    struct cuda_grid grid = cuda_grid_norm(n);
    cudaStream_t queue = (cudaStream_t)stream;
    CUDA_CHECK_SIZE("norm_squared", n, err);
    if (n > 0) {
        CUDA_LAUNCH("norm_squared", err, norm_partial_kernel, grid.blocks, grid.threads, 0, queue,
                    (double *)work, (const float *)values, n);
    }
    CUDA_LAUNCH("norm_squared", err, norm_total_kernel, 1, CUDA_WARP, 0, queue, out, (const double *)work,
                grid.blocks, beta);
    return 0;
}
