/* rms_norm.cu - root mean square normalisation of rows (N,C) (formulas: kernels/ref/rms_norm.c). Rows are a
 * warp's, and dweight is summed over rows by column in two steps, as in layernorm.cu; work (chunks,C).
 *
 * The loops are layernorm.cu's without its mean and bias. One template for both would have a condition at
 * each of the lines that differ, which are more than half: a mean of 0 is a register and a sum more, and a
 * bias of 0 turns -0 into 0. */
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/values.cuh"

/* The norm is taken over in, or over in + other, which goes to `added`. */
template <typename V, int K, bool adds>
static __global__ void __launch_bounds__(CUDA_BLOCK, ROW_BLOCKS(adds ? 2 * K : K))
    rms_norm_kernel(V *out, float *rstd, const V *in, const V *other, V *added, const V *weight, int64_t N,
                    int C, float epsilon, float offset, bool aligned)
{
    for (int64_t n = warp_first(); n < N; n += warp_stride()) {
        struct row_values<V, K> row;
        float squares = 0, x[value_vector<V>::COUNT];
        row.template load_row<adds>(added, in, other, n, C, aligned);
        row_each<V, K>(C, [&](int k, int c, int) {
            row.take(x, k, c); /* 0 beyond the row */
            CUDA_EACH (j, 0, value_vector<V>::COUNT)
                squares += x[j] * x[j];
        });
        float r = 1.0f / sqrtf(warp_sum(squares) / (float)C + epsilon);
        row_each<V, K>(C, [&](int k, int c, int count) {
            float w[value_vector<V>::COUNT];
            row.take(x, k, c);
            values_load(w, weight + c, count, aligned);
            CUDA_EACH (j, 0, value_vector<V>::COUNT)
                x[j] = x[j] * r * (w[j] + offset);
            values_store(out + n * C + c, x, count, aligned);
        });
        if (lane() == 0)
            rstd[n] = r;
    }
}

template <typename V, int K>
static __global__ void __launch_bounds__(CUDA_BLOCK, ROW_BLOCKS(2 * K))
    rms_norm_input_kernel(V *din, const V *dout, const V *in, const float *rstd, const V *weight,
                          float offset, int64_t N, int C, int beta_in, bool aligned)
{
    for (int64_t n = warp_first(); n < N; n += warp_stride()) {
        struct row_values<V, K> row, gradient;
        float x[value_vector<V>::COUNT], dy[value_vector<V>::COUNT], w[value_vector<V>::COUNT];
        float r = rstd[n], g_xhat_sum = 0;
        row.load(in + n * C, C, aligned);
        gradient.load(dout + n * C, C, aligned);
        row_each<V, K>(C, [&](int k, int c, int count) {
            row.take(x, k, c);
            gradient.take(dy, k, c);
            values_load(w, weight + c, count, aligned);
            CUDA_EACH (j, 0, value_vector<V>::COUNT)
                g_xhat_sum += dy[j] * (w[j] + offset) * (x[j] * r);
        });
        float g_xhat_mean = warp_sum(g_xhat_sum) / (float)C;
        row_each<V, K>(C, [&](int k, int c, int count) {
            float old[value_vector<V>::COUNT] = {};
            row.take(x, k, c);
            gradient.take(dy, k, c);
            values_load(w, weight + c, count, aligned);
            if (beta_in)
                values_load(old, din + n * C + c, count, aligned);
            CUDA_EACH (j, 0, value_vector<V>::COUNT)
                dy[j] = r * (dy[j] * (w[j] + offset) - x[j] * r * g_xhat_mean) + old[j];
            values_store(din + n * C + c, dy, count, aligned);
        });
    }
}

template <typename V>
static __global__ void rms_norm_partial_kernel(float *work, const V *dout, const V *in, const float *rstd,
                                               int N, int C, int rows)
{
    int64_t c = thread_first();
    int64_t first = (int64_t)blockIdx.y * rows, end = first + rows < N ? first + rows : N;
    float dw = 0;
    if (c >= C)
        return;
    for (int64_t n = first; n < end; n++)
        dw += value_get(dout[n * C + c]) * (value_get(in[n * C + c]) * rstd[n]);
    work[(int64_t)blockIdx.y * C + c] = dw;
}

static __global__ void rms_norm_total_kernel(float *dweight, const float *work, int chunks, int C, int beta)
{
    int64_t c = thread_first();
    if (c >= C)
        return;
    float dw = beta ? dweight[c] : 0.0f;
    column_totals<1>(&dw, work, chunks, C, c);
    dweight[c] = dw;
}

template <typename V>
static int forward(const char *operation, void *out, void *added, void *rstd, const void *in,
                   const void *other, const void *weight, int N, int C, double epsilon, double offset,
                   void *stream, struct muster_error *err)
{
    struct cuda_grid grid = cuda_grid_warp_rows(N);
    CUDA_CHECK_SIZE(operation, N, err);
    CUDA_CHECK_SIZE(operation, C, err);
    if (N == 0)
        return 0;
    const bool aligned = C % value_vector<V>::COUNT == 0 && values_aligned(out, in, weight, added, other);
    const bool few = row_is_short<V>(C);
    const auto kernel =
        other ? (few ? rms_norm_kernel<V, ROW_FEW, true> : rms_norm_kernel<V, ROW_MANY / 2, true>)
              : (few ? rms_norm_kernel<V, ROW_FEW, false> : rms_norm_kernel<V, ROW_MANY, false>);
    CUDA_LAUNCH(operation, err, kernel, grid.blocks, grid.threads, 0, stream, (V *)out, (float *)rstd,
                (const V *)in, (const V *)other, (V *)added, (const V *)weight, N, C, (float)epsilon,
                (float)offset, aligned);
    return 0;
}

template <typename V>
static int rms_norm_forward_of(void *out, void *rstd, const void *in, const void *weight, int N, int C,
                               double epsilon, double offset, void *stream, struct muster_error *err)
{
    return forward<V>("rms_norm_forward", out, nullptr, rstd, in, nullptr, weight, N, C, epsilon, offset,
                      stream, err);
}

template <typename V>
static int add_rms_norm_forward_of(void *out, void *sum, void *rstd, const void *a, const void *b,
                                   const void *weight, int N, int C, double epsilon, double offset,
                                   void *stream, struct muster_error *err)
{
    return forward<V>("add_rms_norm_forward", out, sum, rstd, a, b, weight, N, C, epsilon, offset, stream,
                      err);
}

extern "C" size_t cuda_rms_norm_backward_work(int N, int C)
{
    return cuda_layernorm_work_bytes(N, C) / 2; /* one sum instead of two */
}

/* Without rows the gradient is still written: 0, or its old value. */
template <typename V>
static int rms_norm_weight(float *dweight, const V *dout, const V *in, const float *rstd, int N, int C,
                           int beta, float *work, cudaStream_t stream, struct muster_error *err)
{
    struct cuda_grid grid = cuda_grid_columns(C);
    struct cuda_chunks chunks = cuda_row_chunks(N);
    if (C == 0 || !dweight)
        return 0;
    if (chunks.count > 0) {
        dim3 blocks(grid.blocks, (unsigned)chunks.count);
        CUDA_LAUNCH("rms_norm_backward", err, rms_norm_partial_kernel<V>, blocks, grid.threads, 0, stream,
                    work, dout, in, rstd, N, C, chunks.rows);
    }
    CUDA_LAUNCH("rms_norm_backward", err, rms_norm_total_kernel, grid.blocks, grid.threads, 0, stream,
                dweight, work, chunks.count, C, beta);
    return 0;
}

template <typename V>
static int rms_norm_backward_of(void *din, void *dweight, const void *dout, const void *in, const void *rstd,
                                const void *weight, double offset, int N, int C, int beta_in, int beta,
                                void *work, void *stream, struct muster_error *err)
{
    struct cuda_grid grid = cuda_grid_warp_rows(N);
    cudaStream_t queue = (cudaStream_t)stream;
    CUDA_CHECK_SIZE("rms_norm_backward", N, err);
    CUDA_CHECK_SIZE("rms_norm_backward", C, err);
    if (N > 0 && din) {
        const bool aligned = C % value_vector<V>::COUNT == 0 && values_aligned(din, dout, in, weight);
        const auto kernel =
            row_is_short<V>(C) ? rms_norm_input_kernel<V, ROW_FEW> : rms_norm_input_kernel<V, ROW_MANY / 2>;
        CUDA_LAUNCH("rms_norm_backward", err, kernel, grid.blocks, grid.threads, 0, queue, (V *)din,
                    (const V *)dout, (const V *)in, (const float *)rstd, (const V *)weight, (float)offset, N,
                    C, beta_in, aligned);
    }
    return rms_norm_weight((float *)dweight, (const V *)dout, (const V *)in, (const float *)rstd, N, C, beta,
                           (float *)work, queue, err);
}

#define TYPED_rms_norm_forward     ~,
#define TYPED_add_rms_norm_forward ~,
#define TYPED_rms_norm_backward    ~,
#include "kernels/cuda/typed.inc"
#undef TYPED_rms_norm_forward
#undef TYPED_add_rms_norm_forward
#undef TYPED_rms_norm_backward
