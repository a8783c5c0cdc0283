/* layernorm.cu - layer normalisation of rows (N,C) (formulas: kernels/ref/layernorm.c). Rows are a warp's
 * (rows.cuh), and sums meet in a butterfly.
 *
 * dweight and dbias are sums over rows: a thread sums one column of one chunk of rows into work (2,chunks,C),
 * then a thread sums one column over the chunks, in order. No atomics: the order is fixed. */
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/values.cuh"

/* The norm is taken over in, or over in + other, which goes to `added`. */
template <typename V, int K, bool adds>
static __global__ void __launch_bounds__(CUDA_BLOCK, ROW_BLOCKS(adds ? 2 * K : K))
    layernorm_kernel(V *out, float *mean, float *rstd, const V *in, const V *other, V *added, const V *weight,
                     const V *bias, int64_t N, int C, float epsilon, bool aligned)
{
    for (int64_t n = warp_first(); n < N; n += warp_stride()) {
        struct row_values<V, K> row;
        float sum = 0, squares = 0, x[value_vector<V>::COUNT];
        row.template load_row<adds>(added, in, other, n, C, aligned);
        row_each<V, K>(C, [&](int k, int c, int count) {
            row.take(x, k, c);
            CUDA_EACH (j, 0, value_vector<V>::COUNT)
                sum += j < count ? x[j] : 0.0f;
        });
        float m = warp_sum(sum) / (float)C;
        row_each<V, K>(C, [&](int k, int c, int count) {
            row.take(x, k, c);
            CUDA_EACH (j, 0, value_vector<V>::COUNT)
                squares += j < count ? (x[j] - m) * (x[j] - m) : 0.0f;
        });
        /* Not rsqrtf: it is off by 2 units in the last place and its error would go into every element. */
        float r = 1.0f / sqrtf(warp_sum(squares) / (float)C + epsilon);
        row_each<V, K>(C, [&](int k, int c, int count) {
            float w[value_vector<V>::COUNT], b[value_vector<V>::COUNT] = {};
            row.take(x, k, c);
            values_load(w, weight + c, count, aligned);
            if (bias)
                values_load(b, bias + c, count, aligned);
            CUDA_EACH (j, 0, value_vector<V>::COUNT)
                x[j] = (x[j] - m) * r * w[j] + b[j];
            values_store(out + n * C + c, x, count, aligned);
        });
        if (lane() == 0) {
            mean[n] = m;
            rstd[n] = r;
        }
    }
}

template <typename V, int K>
static __global__ void __launch_bounds__(CUDA_BLOCK, ROW_BLOCKS(2 * K + 1))
    layernorm_input_kernel(V *din, const V *dout, const V *in, const float *mean, const float *rstd,
                           const V *weight, int64_t N, int C, int beta_in, bool aligned)
{
    for (int64_t n = warp_first(); n < N; n += warp_stride()) {
        struct row_values<V, K> row, gradient;
        float x[value_vector<V>::COUNT], dy[value_vector<V>::COUNT], w[value_vector<V>::COUNT];
        float m = mean[n], r = rstd[n], g_sum = 0, g_xhat_sum = 0;
        row.load(in + n * C, C, aligned);
        gradient.load(dout + n * C, C, aligned);
        row_each<V, K>(C, [&](int k, int c, int count) {
            row.take(x, k, c);
            gradient.take(dy, k, c);
            values_load(w, weight + c, count, aligned);
            CUDA_EACH (j, 0, value_vector<V>::COUNT) {
                float g = j < count ? dy[j] * w[j] : 0.0f;
                g_sum += g;
                g_xhat_sum += g * ((x[j] - m) * r);
            }
        });
        float g_mean = warp_sum(g_sum) / (float)C, g_xhat_mean = warp_sum(g_xhat_sum) / (float)C;
        row_each<V, K>(C, [&](int k, int c, int count) {
            float old[value_vector<V>::COUNT] = {};
            row.take(x, k, c);
            gradient.take(dy, k, c);
            values_load(w, weight + c, count, aligned);
            if (beta_in)
                values_load(old, din + n * C + c, count, aligned);
            CUDA_EACH (j, 0, value_vector<V>::COUNT)
                dy[j] = r * (dy[j] * w[j] - g_mean - (x[j] - m) * r * g_xhat_mean) + old[j];
            values_store(din + n * C + c, dy, count, aligned);
        });
    }
}

template <typename V>
static __global__ void weight_partial_kernel(float *work, const V *dout, const V *in, const float *mean,
                                             const float *rstd, int N, int C, int rows)
{
    int64_t c = thread_first();
    int64_t first = (int64_t)blockIdx.y * rows, end = first + rows < N ? first + rows : N;
    float dw = 0, db = 0;
    if (c >= C)
        return;
    for (int64_t n = first; n < end; n++) {
        const float dy = value_get(dout[n * C + c]);
        dw += dy * ((value_get(in[n * C + c]) - mean[n]) * rstd[n]);
        db += dy;
    }
    work[(int64_t)blockIdx.y * C + c] = dw;
    work[((int64_t)gridDim.y + blockIdx.y) * C + c] = db;
}

static __global__ void weight_total_kernel(float *dweight, float *dbias, const float *work, int chunks, int C,
                                           int beta)
{
    int64_t c = thread_first();
    if (c >= C)
        return;
    float sums[2] = {beta && dweight ? dweight[c] : 0.0f, beta && dbias ? dbias[c] : 0.0f};
    column_totals<2>(sums, work, chunks, C, c);
    if (dweight)
        dweight[c] = sums[0];
    if (dbias)
        dbias[c] = sums[1];
}

template <typename V>
static int forward(const char *operation, void *out, void *added, void *mean, void *rstd, const void *in,
                   const void *other, const void *weight, const void *bias, int N, int C, double epsilon,
                   void *stream, struct muster_error *err)
{
    struct cuda_grid grid = cuda_grid_warp_rows(N);
    CUDA_CHECK_SIZE(operation, N, err);
    CUDA_CHECK_SIZE(operation, C, err);
    if (N == 0)
        return 0;
    const bool aligned = C % value_vector<V>::COUNT == 0 && values_aligned(out, in, weight, bias) &&
                         values_aligned(added, other);
    const bool few = row_is_short<V>(C);
    const auto kernel =
        other ? (few ? layernorm_kernel<V, ROW_FEW, true> : layernorm_kernel<V, ROW_MANY / 2, true>)
              : (few ? layernorm_kernel<V, ROW_FEW, false> : layernorm_kernel<V, ROW_MANY - 2, false>);
    CUDA_LAUNCH(operation, err, kernel, grid.blocks, grid.threads, 0, stream, (V *)out, (float *)mean,
                (float *)rstd, (const V *)in, (const V *)other, (V *)added, (const V *)weight,
                (const V *)bias, N, C, (float)epsilon, aligned);
    return 0;
}

template <typename V>
static int layernorm_forward_of(void *out, void *mean, void *rstd, const void *in, const void *weight,
                                const void *bias, int N, int C, double epsilon, void *stream,
                                struct muster_error *err)
{
    return forward<V>("layernorm_forward", out, nullptr, mean, rstd, in, nullptr, weight, bias, N, C, epsilon,
                      stream, err);
}

template <typename V>
static int add_layernorm_forward_of(void *out, void *sum, void *mean, void *rstd, const void *a,
                                    const void *b, const void *weight, const void *bias, int N, int C,
                                    double epsilon, void *stream, struct muster_error *err)
{
    return forward<V>("add_layernorm_forward", out, sum, mean, rstd, a, b, weight, bias, N, C, epsilon,
                      stream, err);
}

extern "C" size_t cuda_layernorm_backward_work(int N, int C)
{
    return cuda_layernorm_work_bytes(N, C);
}

/* Without rows the gradients of weight and bias are still written: 0, or their old values. */
template <typename V>
static int weight_gradient(float *dweight, float *dbias, const V *dout, const V *in, const float *mean,
                           const float *rstd, int N, int C, int beta, float *work, cudaStream_t stream,
                           struct muster_error *err)
{
    struct cuda_grid grid = cuda_grid_columns(C);
    struct cuda_chunks chunks = cuda_row_chunks(N);
    if (C == 0 || (!dweight && !dbias))
        return 0;
    if (chunks.count > 0) {
        dim3 blocks(grid.blocks, (unsigned)chunks.count);
        CUDA_LAUNCH("layernorm_backward", err, weight_partial_kernel<V>, blocks, grid.threads, 0, stream,
                    work, dout, in, mean, rstd, N, C, chunks.rows);
    }
    CUDA_LAUNCH("layernorm_backward", err, weight_total_kernel, grid.blocks, grid.threads, 0, stream, dweight,
                dbias, work, chunks.count, C, beta);
    return 0;
}

template <typename V>
static int layernorm_backward_of(void *din, void *dweight, void *dbias, const void *dout, const void *in,
                                 const void *mean, const void *rstd, const void *weight, int N, int C,
                                 int beta_in, int beta, void *work, void *stream, struct muster_error *err)
{
    struct cuda_grid grid = cuda_grid_warp_rows(N);
    cudaStream_t queue = (cudaStream_t)stream;
    CUDA_CHECK_SIZE("layernorm_backward", N, err);
    CUDA_CHECK_SIZE("layernorm_backward", C, err);
    if (N > 0 && din) {
        const bool aligned = C % value_vector<V>::COUNT == 0 && values_aligned(din, dout, in, weight);
        const auto kernel =
            row_is_short<V>(C) ? layernorm_input_kernel<V, ROW_FEW> : layernorm_input_kernel<V, ROW_MANY / 2>;
        CUDA_LAUNCH("layernorm_backward", err, kernel, grid.blocks, grid.threads, 0, queue, (V *)din,
                    (const V *)dout, (const V *)in, (const float *)mean, (const float *)rstd,
                    (const V *)weight, N, C, beta_in, aligned);
    }
    return weight_gradient((float *)dweight, (float *)dbias, (const V *)dout, (const V *)in,
                           (const float *)mean, (const float *)rstd, N, C, beta, (float *)work, queue, err);
}

#define TYPED_layernorm_forward     ~,
#define TYPED_add_layernorm_forward ~,
#define TYPED_layernorm_backward    ~,
#include "kernels/cuda/typed.inc"
#undef TYPED_layernorm_forward
#undef TYPED_add_layernorm_forward
#undef TYPED_layernorm_backward
