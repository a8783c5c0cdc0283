/* mean.cu - the mean over the positions of each sequence; forward a thread an element of the result, backward
 * a thread an element of the input (formulas: kernels/ref/mean.c). */
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/values.cuh"

enum { MEAN_SUM_ROWS = 32 /* positions that are summed apart */ };

template <typename V>
static __global__ void mean_forward_kernel(V *out, const V *in, const int32_t *lengths, int T, int C,
                                           int64_t n)
{
    for (int64_t at = thread_first(); at < n; at += thread_stride()) {
        const int length = lengths[at / C];
        const V *column = in + at / C * T * C + at % C;
        float sum = 0.0f;
        for (int block = 0; block < length; block += MEAN_SUM_ROWS) {
            const int end = block + MEAN_SUM_ROWS < length ? block + MEAN_SUM_ROWS : length;
            float part = 0.0f;
            for (int t = block; t < end; t++)
                part += value_get(column[(int64_t)t * C]);
            sum += part;
        }
        out[at] = value_of<V>(length ? sum / (float)length : 0.0f);
    }
}

template <typename V>
static int mean_forward_of(void *out, const void *in, const int32_t *lengths, int B, int T, int C,
                           void *stream, struct muster_error *err)
{
    const int64_t n = (int64_t)B * C;
    struct cuda_grid grid = cuda_grid_elements(n);
    CUDA_CHECK_SIZE("mean_forward", n, err);
    if (n == 0)
        return 0;
    CUDA_LAUNCH("mean_forward", err, mean_forward_kernel<V>, grid.blocks, grid.threads, 0, stream, (V *)out,
                (const V *)in, lengths, T, C, n);
    return 0;
}

template <typename V>
static __global__ void mean_backward_kernel(V *din, const V *dout, const int32_t *lengths, int T, int C,
                                            int beta, int64_t n)
{
    for (int64_t at = thread_first(); at < n; at += thread_stride()) {
        const int64_t row = at / C, b = row / T;
        const float share = row % T < lengths[b] ? value_get(dout[b * C + at % C]) / (float)lengths[b] : 0.0f;
        din[at] = value_of<V>((beta ? value_get(din[at]) : 0.0f) + share);
    }
}

template <typename V>
static int mean_backward_of(void *din, const void *dout, const int32_t *lengths, int B, int T, int C,
                            int beta, void *stream, struct muster_error *err)
{
    const int64_t n = (int64_t)B * T * C;
    struct cuda_grid grid = cuda_grid_elements(n);
    CUDA_CHECK_SIZE("mean_backward", n, err);
    if (n == 0)
        return 0;
    CUDA_LAUNCH("mean_backward", err, mean_backward_kernel<V>, grid.blocks, grid.threads, 0, stream, (V *)din,
                (const V *)dout, lengths, T, C, beta, n);
    return 0;
}

#define TYPED_mean_forward  ~,
#define TYPED_mean_backward ~,
#include "kernels/cuda/typed.inc"
#undef TYPED_mean_forward
#undef TYPED_mean_backward
