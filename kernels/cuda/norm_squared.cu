/* norm_squared.cu - *out = beta * *out + sum of squares of values (n), in two passes: CUDA_NORM_BLOCKS blocks
 * at most each sum their share in double, then one warp adds the blocks' sums. No atomics: the order is
 * fixed.
 *
 * A block has CUDA_BLOCK running sums, of which a thread has the four that take turns with its vectors'
 * elements. They are added as if each were a thread's. Few threads have to keep the memory busy: each loads
 * some vectors before it adds the first. */
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/values.cuh"

enum { NORM_SUMS = value_vector<float>::COUNT, NORM_THREADS = CUDA_BLOCK / NORM_SUMS, NORM_AHEAD = 4 };

static __global__ void norm_partial_kernel(double *partial, const float *values, int64_t n, bool aligned)
{
    __shared__ double shared[CUDA_BLOCK / CUDA_WARP];
    double sum[NORM_SUMS] = {};
    const int64_t step = thread_stride() * NORM_SUMS;
    for (int64_t first = thread_first() * NORM_SUMS; first < n; first += NORM_AHEAD * step) {
        float x[NORM_AHEAD][NORM_SUMS]; /* 0 beyond the last */
        CUDA_EACH (k, 0, NORM_AHEAD)
            values_load(x[k], values + first + k * step, values_left<float>(n, first + k * step), aligned);
        CUDA_EACH (k, 0, NORM_AHEAD)
            CUDA_EACH (j, 0, NORM_SUMS)
                sum[j] += (double)x[k][j] * (double)x[k][j];
    }
    /* a butterfly over 32 sums: over eight threads, then over the sums of a thread */
    CUDA_EACH (j, 0, NORM_SUMS)
        for (int mask = CUDA_WARP / NORM_SUMS / 2; mask > 0; mask /= 2)
            sum[j] += __shfl_xor_sync(0xffffffffu, sum[j], mask);
    const double eight = (sum[0] + sum[2]) + (sum[1] + sum[3]);
    if (threadIdx.x % (CUDA_WARP / NORM_SUMS) == 0)
        shared[threadIdx.x / (CUDA_WARP / NORM_SUMS)] = eight;
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    double total = 0;
    for (int i = 0; i < CUDA_BLOCK / CUDA_WARP; i++)
        total += shared[i];
    partial[blockIdx.x] = total;
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
        CUDA_LAUNCH("norm_squared", err, norm_partial_kernel, grid.blocks, NORM_THREADS, 0, queue,
                    (double *)work, (const float *)values, n, values_aligned(values));
    }
    CUDA_LAUNCH("norm_squared", err, norm_total_kernel, 1, CUDA_WARP, 0, queue, out, (const double *)work,
                grid.blocks, beta);
    return 0;
}
