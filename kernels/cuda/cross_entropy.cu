/* cross_entropy.cu - softmax cross-entropy of logits (N,V) with its gradient in place, and the sum of losses
 * (formulas: kernels/ref/cross_entropy.c).
 *
 * A block has a row and reads it once for the loss: each thread keeps the maximum of its share and the sum of
 * exponentials below it, in float, and scales the sum where the maximum grows; the threads' sums meet in
 * double. For the gradient the row is read again, from its end, whose memory the cache still has, and
 * written. Elements go to threads in fours, by 16 bytes where all rows are aligned so, else one by one: the
 * same elements to the same thread in both cases, so that an address changes no bit. */
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"

enum {
    VECTOR = 4, /* elements: 16 bytes */
    AHEAD = 2   /* vectors that a thread loads before it looks at them */
};

/* Blocks that a multiprocessor has registers for: the few hundred rows of a chunk are then read at once.
 * Compute capability 7.5 has 1024 threads. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
enum { BLOCKS = 2 };
#else
enum { BLOCKS = 3 };
#endif

template <bool aligned> static __device__ inline void load_vector(float *to, const float *from)
{
    if (aligned) {
        const float4 v = *(const float4 *)from;
        to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
    } else {
        for (int i = 0; i < VECTOR; i++)
            to[i] = from[i];
    }
}

template <bool aligned> static __device__ inline void store_vector(float *to, const float *from)
{
    if (aligned) {
        *(float4 *)to = make_float4(from[0], from[1], from[2], from[3]);
    } else {
        for (int i = 0; i < VECTOR; i++)
            to[i] = from[i];
    }
}

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
template <bool aligned> static __device__ struct share row_share(const float *logits, int V)
{
    const int vectors = V / VECTOR, threads = (int)blockDim.x;
    struct share share = {-INFINITY, 0};
    float values[AHEAD * VECTOR];
    int at = (int)threadIdx.x;
    for (; at < vectors - (AHEAD - 1) * threads; at += AHEAD * threads) {
        for (int i = 0; i < AHEAD; i++)
            load_vector<aligned>(values + i * VECTOR, logits + ((int64_t)at + i * threads) * VECTOR);
        share_add<AHEAD * VECTOR>(&share, values);
    }
    for (; at < vectors; at += threads) {
        load_vector<aligned>(values, logits + (int64_t)at * VECTOR);
        share_add<VECTOR>(&share, values);
    }
    for (int64_t i = (int64_t)at * VECTOR; at == vectors && i < V; i++)
        share_add<1>(&share, logits + i);
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

/* Logits become gradients: (exp(logit - maximum) * factor), less `one` at the target. Vectors as above, the
 * last ones first. */
template <bool aligned>
static __device__ void row_gradient(float *logits, int target, int V, float maximum, float factor, float one)
{
    const int vectors = V / VECTOR, threads = (int)blockDim.x, thread = (int)threadIdx.x;
    float values[AHEAD][VECTOR];
    for (int64_t i = (int64_t)vectors * VECTOR; vectors % threads == thread && i < V; i++)
        logits[i] = expf(logits[i] - maximum) * factor;
    for (int at = vectors / threads * threads + thread; at >= 0; at -= AHEAD * threads) {
        for (int i = 0; i < AHEAD; i++)
            if (at - i * threads >= 0 && at - i * threads < vectors)
                load_vector<aligned>(values[i], logits + ((int64_t)at - i * threads) * VECTOR);
        for (int i = 0; i < AHEAD; i++) {
            if (at - i * threads < 0 || at - i * threads >= vectors)
                continue;
            for (int j = 0; j < VECTOR; j++)
                values[i][j] = expf(values[i][j] - maximum) * factor;
            store_vector<aligned>(logits + ((int64_t)at - i * threads) * VECTOR, values[i]);
        }
    }
    if (target / VECTOR % threads == thread) /* the thread that wrote it */
        logits[target] -= one;
}

template <bool aligned> static __device__ void row_zero(float *logits, int V)
{
    const float zeros[VECTOR] = {0};
    int at = (int)threadIdx.x;
    for (; at < V / VECTOR; at += (int)blockDim.x)
        store_vector<aligned>(logits + (int64_t)at * VECTOR, zeros);
    for (int64_t i = (int64_t)at * VECTOR; at == V / VECTOR && i < V; i++)
        logits[i] = 0;
}

template <bool aligned>
static __global__ void __launch_bounds__(CUDA_BLOCK_LARGEST, BLOCKS)
    cross_entropy_kernel(float *all_logits, float *losses, const int32_t *targets, int64_t N, int V,
                         int64_t row, int gradient, const struct step_scalars *scalars)
{
    for (int64_t n = blockIdx.x; n < N; n += gridDim.x) {
        float *logits = all_logits + n * row, maximum, loss = 0;
        const int target = targets[n];
        if (target >= 0) {
            const float at_target = logits[target]; /* before any thread writes */
            const struct share share = row_share<aligned>(logits, V);
            double sum;
            row_total(&share, &maximum, &sum);
            loss = (float)(log(sum) + (double)maximum - (double)at_target);
            if (gradient)
                row_gradient<aligned>(logits, target, V, maximum, (float)(scalars->inverse_tokens / sum),
                                      (float)scalars->inverse_tokens);
        } else if (gradient) {
            row_zero<aligned>(logits, V);
        }
        if (threadIdx.x == 0)
            losses[n] = loss;
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
    if ((uintptr_t)logits % sizeof(float4) == 0 && row % VECTOR == 0)
        CUDA_LAUNCH("cross_entropy", err, cross_entropy_kernel<true>, grid.blocks, grid.threads, 0, stream,
                    (float *)logits, (float *)losses, targets, N, V, row, gradient, scalars);
    else
        CUDA_LAUNCH("cross_entropy", err, cross_entropy_kernel<false>, grid.blocks, grid.threads, 0, stream,
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
