/* layernorm.cu - layer normalisation of rows (N,C) (formulas: kernels/ref/layernorm.c). Rows are a warp's:
 * lane l has columns l, l+32, ... and sums meet in a butterfly.
 *
 * dweight and dbias are sums over rows: a thread sums one column of one chunk of rows into work (2,chunks,C),
 * then a thread sums one column over the chunks, in order. No atomics: the order is fixed. */
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"

static __global__ void forward_kernel(float *out, float *mean, float *rstd, const float *in,
                                      const float *weight, const float *bias, int64_t N, int C, float epsilon)
{
    for (int64_t n = warp_first(); n < N; n += warp_stride()) {
        const float *x = in + n * C;
        float sum = 0, squares = 0;
        for (int c = lane(); c < C; c += CUDA_WARP)
            sum += x[c];
        float m = warp_sum(sum) / (float)C;
        for (int c = lane(); c < C; c += CUDA_WARP)
            squares += (x[c] - m) * (x[c] - m);
        /* Not rsqrtf: it is off by 2 units in the last place and its error would go into every element. */
        float r = 1.0f / sqrtf(warp_sum(squares) / (float)C + epsilon);
        for (int c = lane(); c < C; c += CUDA_WARP)
            out[n * C + c] = (x[c] - m) * r * weight[c] + (bias ? bias[c] : 0.0f);
        if (lane() == 0) {
            mean[n] = m;
            rstd[n] = r;
        }
    }
}

static __global__ void input_gradient_kernel(float *din, const float *dout, const float *in,
                                             const float *mean, const float *rstd, const float *weight,
                                             int64_t N, int C, int beta_in)
{
    for (int64_t n = warp_first(); n < N; n += warp_stride()) {
        const float *x = in + n * C, *dy = dout + n * C;
        float m = mean[n], r = rstd[n], g_sum = 0, g_xhat_sum = 0;
        for (int c = lane(); c < C; c += CUDA_WARP) {
            float g = dy[c] * weight[c];
            g_sum += g;
            g_xhat_sum += g * ((x[c] - m) * r);
        }
        float g_mean = warp_sum(g_sum) / (float)C, g_xhat_mean = warp_sum(g_xhat_sum) / (float)C;
        for (int c = lane(); c < C; c += CUDA_WARP) {
            float d = r * (dy[c] * weight[c] - g_mean - (x[c] - m) * r * g_xhat_mean);
            din[n * C + c] = d + (beta_in ? din[n * C + c] : 0.0f);
        }
    }
}

static __global__ void weight_partial_kernel(float *work, const float *dout, const float *in,
                                             const float *mean, const float *rstd, int N, int C, int rows)
{
    int64_t c = thread_first();
    int64_t first = (int64_t)blockIdx.y * rows, end = first + rows < N ? first + rows : N;
    float dw = 0, db = 0;
    if (c >= C)
        return;
    for (int64_t n = first; n < end; n++) {
        dw += dout[n * C + c] * ((in[n * C + c] - mean[n]) * rstd[n]);
        db += dout[n * C + c];
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
    float dw = beta && dweight ? dweight[c] : 0.0f, db = beta && dbias ? dbias[c] : 0.0f;
    for (int64_t chunk = 0; chunk < chunks; chunk++) {
        dw += work[chunk * C + c];
        db += work[(chunks + chunk) * C + c];
    }
    if (dweight)
        dweight[c] = dw;
    if (dbias)
        dbias[c] = db;
}

extern "C" int cuda_layernorm_forward(void *out, void *mean, void *rstd, const void *in, const void *weight,
                                      const void *bias, int N, int C, double epsilon, void *stream,
                                      struct muster_error *err)
{
    struct cuda_grid grid = cuda_grid_warp_rows(N);
    CUDA_CHECK_SIZE("layernorm_forward", N, err);
    CUDA_CHECK_SIZE("layernorm_forward", C, err);
    if (N == 0)
        return 0;
    CUDA_LAUNCH("layernorm_forward", err, forward_kernel, grid.blocks, grid.threads, 0, stream, (float *)out,
                (float *)mean, (float *)rstd, (const float *)in, (const float *)weight, (const float *)bias,
                N, C, (float)epsilon);
    return 0;
}

extern "C" size_t cuda_layernorm_backward_work(int N, int C)
{
    return cuda_layernorm_work_bytes(N, C);
}

/* Without rows the gradients of weight and bias are still written: 0, or their old values. */
static int weight_gradient(float *dweight, float *dbias, const float *dout, const float *in,
                           const float *mean, const float *rstd, int N, int C, int beta, float *work,
                           cudaStream_t stream, struct muster_error *err)
{
    struct cuda_grid grid = cuda_grid_columns(C);
    struct cuda_chunks chunks = cuda_row_chunks(N);
    if (C == 0 || (!dweight && !dbias))
        return 0;
    if (chunks.count > 0) {
        dim3 blocks(grid.blocks, (unsigned)chunks.count);
        CUDA_LAUNCH("layernorm_backward", err, weight_partial_kernel, blocks, grid.threads, 0, stream, work,
                    dout, in, mean, rstd, N, C, chunks.rows);
    }
    CUDA_LAUNCH("layernorm_backward", err, weight_total_kernel, grid.blocks, grid.threads, 0, stream, dweight,
                dbias, work, chunks.count, C, beta);
    return 0;
}

extern "C" int cuda_layernorm_backward(void *din, void *dweight, void *dbias, const void *dout,
                                       const void *in, const void *mean, const void *rstd, const void *weight,
                                       int N, int C, int beta_in, int beta, void *work, void *stream,
                                       struct muster_error *err)
{
    struct cuda_grid grid = cuda_grid_warp_rows(N);
    cudaStream_t queue = (cudaStream_t)stream;
    CUDA_CHECK_SIZE("layernorm_backward", N, err);
    CUDA_CHECK_SIZE("layernorm_backward", C, err);
    if (N > 0 && din) {
        CUDA_LAUNCH("layernorm_backward", err, input_gradient_kernel, grid.blocks, grid.threads, 0, queue,
                    (float *)din, (const float *)dout, (const float *)in, (const float *)mean,
                    (const float *)rstd, (const float *)weight, N, C, beta_in);
    }
    return weight_gradient((float *)dweight, (float *)dbias, (const float *)dout, (const float *)in,
                           (const float *)mean, (const float *)rstd, N, C, beta, (float *)work, queue, err);
}
