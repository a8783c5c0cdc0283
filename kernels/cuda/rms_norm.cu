/* rms_norm.cu - root mean square normalisation of rows (N,C) (formulas: kernels/ref/rms_norm.c). Rows are a
 * warp's, and dweight is summed over rows by column in two steps, as in layernorm.cu; work (chunks,C). */
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"

static __global__ void forward_kernel(float *out, float *rstd, const float *in, const float *weight,
                                      int64_t N, int C, float epsilon, float offset)
{
    for (int64_t n = warp_first(); n < N; n += warp_stride()) {
        const float *x = in + n * C;
        float squares = 0;
        for (int c = lane(); c < C; c += CUDA_WARP)
            squares += x[c] * x[c];
        float r = 1.0f / sqrtf(warp_sum(squares) / (float)C + epsilon);
        for (int c = lane(); c < C; c += CUDA_WARP)
            out[n * C + c] = x[c] * r * (weight[c] + offset);
        if (lane() == 0)
            rstd[n] = r;
    }
}

static __global__ void input_gradient_kernel(float *din, const float *dout, const float *in,
                                             const float *rstd, const float *weight, float offset, int64_t N,
                                             int C, int beta_in)
{
    for (int64_t n = warp_first(); n < N; n += warp_stride()) {
        const float *x = in + n * C, *dy = dout + n * C;
        float r = rstd[n], g_xhat_sum = 0;
        for (int c = lane(); c < C; c += CUDA_WARP)
            g_xhat_sum += dy[c] * (weight[c] + offset) * (x[c] * r);
        float g_xhat_mean = warp_sum(g_xhat_sum) / (float)C;
        for (int c = lane(); c < C; c += CUDA_WARP) {
            float d = r * (dy[c] * (weight[c] + offset) - x[c] * r * g_xhat_mean);
            din[n * C + c] = d + (beta_in ? din[n * C + c] : 0.0f);
        }
    }
}

static __global__ void weight_partial_kernel(float *work, const float *dout, const float *in,
                                             const float *rstd, int N, int C, int rows)
{
    int64_t c = thread_first();
    int64_t first = (int64_t)blockIdx.y * rows, end = first + rows < N ? first + rows : N;
    float dw = 0;
    if (c >= C)
        return;
    for (int64_t n = first; n < end; n++)
        dw += dout[n * C + c] * (in[n * C + c] * rstd[n]);
    work[(int64_t)blockIdx.y * C + c] = dw;
}

static __global__ void weight_total_kernel(float *dweight, const float *work, int chunks, int C, int beta)
{
    int64_t c = thread_first();
    if (c >= C)
        return;
    float dw = beta ? dweight[c] : 0.0f;
    for (int64_t chunk = 0; chunk < chunks; chunk++)
        dw += work[chunk * C + c];
    dweight[c] = dw;
}

extern "C" int cuda_rms_norm_forward(void *out, void *rstd, const void *in, const void *weight, int N, int C,
                                     double epsilon, double offset, void *stream, struct muster_error *err)
{
    struct cuda_grid grid = cuda_grid_warp_rows(N);
    CUDA_CHECK_SIZE("rms_norm_forward", N, err);
    CUDA_CHECK_SIZE("rms_norm_forward", C, err);
    if (N == 0)
        return 0;
    CUDA_LAUNCH("rms_norm_forward", err, forward_kernel, grid.blocks, grid.threads, 0, stream, (float *)out,
                (float *)rstd, (const float *)in, (const float *)weight, N, C, (float)epsilon, (float)offset);
    return 0;
}

extern "C" size_t cuda_rms_norm_backward_work(int N, int C)
{
    return cuda_layernorm_work_bytes(N, C) / 2; /* one sum instead of two */
}

/* Without rows the gradient is still written: 0, or its old value. */
static int weight_gradient(float *dweight, const float *dout, const float *in, const float *rstd, int N,
                           int C, int beta, float *work, cudaStream_t stream, struct muster_error *err)
{
    struct cuda_grid grid = cuda_grid_columns(C);
    struct cuda_chunks chunks = cuda_row_chunks(N);
    if (C == 0 || !dweight)
        return 0;
    if (chunks.count > 0) {
        dim3 blocks(grid.blocks, (unsigned)chunks.count);
        CUDA_LAUNCH("rms_norm_backward", err, weight_partial_kernel, blocks, grid.threads, 0, stream, work,
                    dout, in, rstd, N, C, chunks.rows);
    }
    CUDA_LAUNCH("rms_norm_backward", err, weight_total_kernel, grid.blocks, grid.threads, 0, stream, dweight,
                work, chunks.count, C, beta);
    return 0;
}

extern "C" int cuda_rms_norm_backward(void *din, void *dweight, const void *dout, const void *in,
                                      const void *rstd, const void *weight, double offset, int N, int C,
                                      int beta_in, int beta, void *work, void *stream,
                                      struct muster_error *err)
{
    struct cuda_grid grid = cuda_grid_warp_rows(N);
    cudaStream_t queue = (cudaStream_t)stream;
    CUDA_CHECK_SIZE("rms_norm_backward", N, err);
    CUDA_CHECK_SIZE("rms_norm_backward", C, err);
    if (N > 0 && din) {
        CUDA_LAUNCH("rms_norm_backward", err, input_gradient_kernel, grid.blocks, grid.threads, 0, queue,
                    (float *)din, (const float *)dout, (const float *)in, (const float *)rstd,
                    (const float *)weight, (float)offset, N, C, beta_in);
    }
    return weight_gradient((float *)dweight, (const float *)dout, (const float *)in, (const float *)rstd, N,
                           C, beta, (float *)work, queue, err);
}
