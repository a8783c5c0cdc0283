/* cross_entropy.cu - softmax cross-entropy of logits (N,V) with its gradient in place, and the sum of losses
 * (formulas: kernels/ref/cross_entropy.c).
 *
 * A block has a row: maximum, sum of exponentials (each thread its share in float, the threads' sums in
 * double), then, for the gradient, exponentials once more and one multiplication. */
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"

/* Returns the row's loss in every thread; maximum and the sum of exponentials too. */
static __device__ float row_loss(const float *logits, int target, int V, float *maximum, double *sum)
{
    __shared__ float shared_max[CUDA_BLOCK_LARGEST / CUDA_WARP];
    __shared__ double shared_sum[CUDA_BLOCK_LARGEST / CUDA_WARP];
    float largest = -INFINITY, exponentials = 0, at_target = logits[target];
    for (int64_t i = threadIdx.x; i < V; i += blockDim.x)
        largest = fmaxf(largest, logits[i]);
    *maximum = block_max(largest, shared_max);
    for (int64_t i = threadIdx.x; i < V; i += blockDim.x)
        exponentials += expf(logits[i] - *maximum);
    *sum = block_sum((double)exponentials, shared_sum);
    return (float)(log(*sum) + (double)*maximum - (double)at_target);
}

static __global__ void cross_entropy_kernel(float *all_logits, float *losses, const int32_t *targets,
                                            int64_t N, int V, int64_t row, int gradient,
                                            const struct step_scalars *scalars)
{
    for (int64_t n = blockIdx.x; n < N; n += gridDim.x) {
        float *logits = all_logits + n * row, loss = 0, maximum = 0, factor = 0, one = 0;
        double sum = 1;
        int target = targets[n];
        if (target >= 0) {
            loss = row_loss(logits, target, V, &maximum, &sum);
            factor = (float)(scalars->inverse_tokens / sum);
            one = (float)scalars->inverse_tokens;
        }
        if (threadIdx.x == 0)
            losses[n] = loss;
        if (!gradient)
            continue;
        for (int64_t i = threadIdx.x; i < V; i += blockDim.x) {
            float share = target < 0 ? 0.0f : expf(logits[i] - maximum) * factor;
            logits[i] = i == target ? share - one : share;
        }
    }
}

/* One block: losses are as many as tokens, a thousandth of the logits. */
static __global__ void loss_sum_kernel(double *total, int64_t *count, const float *losses,
                                       const int32_t *targets, int64_t n)
{
    __shared__ double shared_sum[CUDA_BLOCK_LARGEST / CUDA_WARP];
    __shared__ long long shared_count[CUDA_BLOCK_LARGEST / CUDA_WARP];
    double sum = 0;
    long long counted = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        sum += (double)losses[i];
        counted += targets[i] >= 0;
    }
    sum = block_sum(sum, shared_sum);
    counted = block_sum(counted, shared_count);
    if (threadIdx.x == 0) {
        *total += sum;
        *count += counted;
    }
}

extern "C" int cuda_cross_entropy(void *logits, void *losses, const int32_t *targets, int N, int V, int row,
                                  int gradient, const struct step_scalars *scalars, void *stream,
                                  struct muster_error *err)
{
    struct cuda_grid grid = cuda_grid_block_rows(N, V);
    CUDA_CHECK_SIZE("cross_entropy", N, err);
    CUDA_CHECK_SIZE("cross_entropy", V, err);
    CUDA_CHECK_ROW("cross_entropy", row, V, err);
    if (N == 0)
        return 0;
    CUDA_LAUNCH("cross_entropy", err, cross_entropy_kernel, grid.blocks, grid.threads, 0, stream,
                (float *)logits, (float *)losses, targets, N, V, row, gradient, scalars);
    return 0;
}

extern "C" int cuda_loss_sum(double *total, int64_t *count, const void *losses, const int32_t *targets,
                             int64_t n, void *stream, struct muster_error *err)
{
    struct cuda_grid grid = cuda_grid_block_rows(1, n);
    CUDA_CHECK_SIZE("loss_sum", n, err);
    if (n == 0)
        return 0;
    CUDA_LAUNCH("loss_sum", err, loss_sum_kernel, 1, grid.threads, 0, stream, total, count,
                (const float *)losses, targets, n);
    return 0;
}
