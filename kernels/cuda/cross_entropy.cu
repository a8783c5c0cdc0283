/* cross_entropy.cu - softmax cross-entropy of logits (N,V) with its gradient in place, and the sum of losses
 * (formulas: kernels/ref/cross_entropy.c).
 *
 * A block has a row and reads it once for the loss: each thread keeps the maximum of its share and the sum of
 * exponentials below it, in float, and scales the sum where the maximum grows; the threads' sums meet in
 * double. For the gradient the row is read again, from its end, whose memory the cache still has, and
 * written. Elements go to threads 16 bytes at a time, where all rows are aligned so, else one by one: the
 * same elements to the same thread in both cases, so that an address changes no bit. */
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/values.cuh"

enum { AHEAD = 2 }; /* vectors that a thread loads before it looks at them */

/* Blocks that a multiprocessor has registers for: the few hundred rows of a chunk are then read at once.
 * Compute capability 7.5 has 1024 threads. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
enum { BLOCKS = 2 };
#else
enum { BLOCKS = 3 };
#endif

/* A thread's share so far: its maximum, and the sum of exp(logit - maximum). */
struct share {
    float maximum, sum;
};

/* Logits of -infinity before any other add nothing; NaN is no maximum and stays in the sum. */
template <int count> static __device__ inline void share_add(struct share *share, const float *logits)
{
    float largest = logits[0], sum = 0;
    for (int i = 1; i < count; i++)
        largest = fmaxf(largest, logits[i]);
    if (largest > share->maximum) {
        share->sum *= expf(share->maximum - largest);
        share->maximum = largest;
    }
    const float base = share->maximum == -INFINITY ? 0.0f : share->maximum;
    for (int i = 0; i < count; i++)
        sum += expf(logits[i] - base);
    share->sum += sum;
}

/* Vectors threadIdx.x, threadIdx.x + blockDim.x, ... of the row. The elements after the last whole vector
 * count as one vector more, read element by element. */
template <typename V, bool aligned> static __device__ struct share row_share(const V *logits, int width)
{
    const int VECTOR = value_vector<V>::COUNT;
    const int vectors = width / VECTOR, threads = (int)blockDim.x;
    struct share share = {-INFINITY, 0};
    float values[AHEAD * value_vector<V>::COUNT];
    int at = (int)threadIdx.x;
    for (; at < vectors - (AHEAD - 1) * threads; at += AHEAD * threads) {
        for (int i = 0; i < AHEAD; i++)
            values_load(values + i * VECTOR, logits + ((int64_t)at + i * threads) * VECTOR, VECTOR, aligned);
        share_add<AHEAD * value_vector<V>::COUNT>(&share, values);
    }
    for (; at < vectors; at += threads) {
        values_load(values, logits + (int64_t)at * VECTOR, VECTOR, aligned);
        share_add<value_vector<V>::COUNT>(&share, values);
    }
    for (int64_t i = (int64_t)at * VECTOR; at == vectors && i < width; i++) {
        values[0] = value_get(logits[i]);
        share_add<1>(&share, values);
    }
    return share;
}

/* The row's maximum and sum of exponentials, in every thread. */
static __device__ void row_total(const struct share *share, float *maximum, double *sum)
{
    __shared__ float shared_max[CUDA_BLOCK_LARGEST / CUDA_WARP];
    __shared__ double shared_sum[CUDA_BLOCK_LARGEST / CUDA_WARP];
    *maximum = block_max(share->maximum, shared_max);
    *sum = block_sum((double)share->sum * (double)expf(share->maximum - *maximum), shared_sum);
}

/* Logits become gradients: (exp(logit - maximum) * factor), less `one` at the target, whose logit is
 * at_target. Vectors as above, the last ones first. */
template <typename V, bool aligned>
static __device__ void row_gradient(V *logits, int target, float at_target, int width, float maximum,
                                    float factor, float one)
{
    const int VECTOR = value_vector<V>::COUNT;
    const int vectors = width / VECTOR, threads = (int)blockDim.x, thread = (int)threadIdx.x;
    float values[AHEAD][value_vector<V>::COUNT];
    for (int64_t i = (int64_t)vectors * VECTOR; vectors % threads == thread && i < width; i++)
        logits[i] = value_of<V>(expf(value_get(logits[i]) - maximum) * factor);
    for (int at = vectors / threads * threads + thread; at >= 0; at -= AHEAD * threads) {
        for (int i = 0; i < AHEAD; i++)
            if (at - i * threads >= 0 && at - i * threads < vectors)
                values_load(values[i], logits + ((int64_t)at - i * threads) * VECTOR, VECTOR, aligned);
        for (int i = 0; i < AHEAD; i++) {
            if (at - i * threads < 0 || at - i * threads >= vectors)
                continue;
            for (int j = 0; j < VECTOR; j++)
                values[i][j] = expf(values[i][j] - maximum) * factor;
            values_store(logits + ((int64_t)at - i * threads) * VECTOR, values[i], VECTOR, aligned);
        }
    }
    if (target / VECTOR % threads == thread) /* the thread that wrote it: its value of 16 bits was rounded */
        logits[target] = value_of<V>(
            (sizeof(V) == sizeof(float) ? value_get(logits[target]) : expf(at_target - maximum) * factor) -
            one);
}

template <typename V, bool aligned> static __device__ void row_zero(V *logits, int width)
{
    const int VECTOR = value_vector<V>::COUNT;
    const float zeros[value_vector<V>::COUNT] = {0};
    int at = (int)threadIdx.x;
    for (; at < width / VECTOR; at += (int)blockDim.x)
        values_store(logits + (int64_t)at * VECTOR, zeros, VECTOR, aligned);
    for (int64_t i = (int64_t)at * VECTOR; at == width / VECTOR && i < width; i++)
        logits[i] = value_of<V>(0.0f);
}

template <typename V, bool aligned>
static __global__ void __launch_bounds__(CUDA_BLOCK_LARGEST, sizeof(V) == sizeof(float) ? BLOCKS : 2)
    cross_entropy_kernel(V *all_logits, float *losses, const int32_t *targets, int64_t N, int width,
                         int64_t row, int gradient, const struct step_scalars *scalars)
{
    for (int64_t n = blockIdx.x; n < N; n += gridDim.x) {
        V *logits = all_logits + n * row;
        float maximum;
        const int target = targets[n];
        if (target >= 0) {
            const float at_target = value_get(logits[target]); /* before any thread writes */
            const struct share share = row_share<V, aligned>(logits, width);
            double sum;
            row_total(&share, &maximum, &sum);
            if (threadIdx.x == 0) /* now: fewer registers live through the gradient */
                losses[n] = (float)(log(sum) + (double)maximum - (double)at_target);
            if (gradient)
                row_gradient<V, aligned>(logits, target, at_target, width, maximum,
                                         (float)(scalars->inverse_tokens / sum),
                                         (float)scalars->inverse_tokens);
            continue;
        }
        if (gradient)
            row_zero<V, aligned>(logits, width);
        if (threadIdx.x == 0)
            losses[n] = 0;
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

template <typename V>
static int cross_entropy_of(void *logits, void *losses, const int32_t *targets, int N, int width, int row,
                            int gradient, const struct step_scalars *scalars, void *stream,
                            struct muster_error *err)
{
    const struct cuda_grid grid = cuda_grid_block_rows(N, width);
    CUDA_CHECK_SIZE("cross_entropy", N, err);
    CUDA_CHECK_SIZE("cross_entropy", width, err);
    CUDA_CHECK_ROW("cross_entropy", row, width, err);
    if (N == 0)
        return 0;
    const bool aligned = values_aligned(logits) && row % value_vector<V>::COUNT == 0;
    const auto kernel = aligned ? cross_entropy_kernel<V, true> : cross_entropy_kernel<V, false>;
    CUDA_LAUNCH("cross_entropy", err, kernel, grid.blocks, grid.threads, 0, stream, (V *)logits,
                (float *)losses, targets, N, width, row, gradient, scalars);
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

#define TYPED_cross_entropy ~,
#include "kernels/cuda/typed.inc"
#undef TYPED_cross_entropy
