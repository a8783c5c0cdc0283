/* mean.cu - the mean over the positions of each sequence; forward a thread an element of the result, backward
 * a thread an element of the input (formulas: kernels/ref/mean.c). */
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"

enum { MEAN_SUM_ROWS = 32 /* positions that are summed apart */ };

static __global__ void mean_forward_kernel(float *out, const float *in, const int32_t *lengths, int T, int C,
                                           int64_t n)
{
    for (int64_t at = thread_first(); at < n; at += thread_stride()) {
        const int length = lengths[at / C];
        const float *column = in + at / C * T * C + at % C;
        float sum = 0.0f;
        for (int block = 0; block < length; block += MEAN_SUM_ROWS) {
            const int end = block + MEAN_SUM_ROWS < length ? block + MEAN_SUM_ROWS : length;
            float part = 0.0f;
            for (int t = block; t < end; t++)
                part += column[(int64_t)t * C];
            sum += part;
        }
        out[at] = length ? sum / (float)length : 0.0f;
    }
}

extern "C" int cuda_mean_forward(void *out, const void *in, const int32_t *lengths, int B, int T, int C,
                                 void *stream, struct muster_error *err)
{
    const int64_t n = (int64_t)B * C;
    struct cuda_grid grid = cuda_grid_elements(n);
    CUDA_CHECK_SIZE("mean_forward", n, err);
    if (n == 0)
        return 0;
    CUDA_LAUNCH("mean_forward", err, mean_forward_kernel, grid.blocks, grid.threads, 0, stream, (float *)out,
                (const float *)in, lengths, T, C, n);
    return 0;
}

static __global__ void mean_backward_kernel(float *din, const float *dout, const int32_t *lengths, int T,
                                            int C, int beta, int64_t n)
{
    for (int64_t at = thread_first(); at < n; at += thread_stride()) {
        const int64_t row = at / C, b = row / T;
        const float share = row % T < lengths[b] ? dout[b * C + at % C] / (float)lengths[b] : 0.0f;
        din[at] = (beta ? din[at] : 0.0f) + share;
    }
}

extern "C" int cuda_mean_backward(void *din, const void *dout, const int32_t *lengths, int B, int T, int C,
                                  int beta, void *stream, struct muster_error *err)
{
    const int64_t n = (int64_t)B * T * C;
    struct cuda_grid grid = cuda_grid_elements(n);
    CUDA_CHECK_SIZE("mean_backward", n, err);
    if (n == 0)
        return 0;
    CUDA_LAUNCH("mean_backward", err, mean_backward_kernel, grid.blocks, grid.threads, 0, stream,
                (float *)din, (const float *)dout, lengths, T, C, beta, n);
    return 0;
}
