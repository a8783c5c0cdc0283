/* dots.cuh - what both of attention's backward directions begin with: D (B,heads,T), the rows of
 * dout.out, in float. */
#ifndef MUSTER_KERNELS_CUDA_ATTENTION_DOTS_CUH
#define MUSTER_KERNELS_CUDA_ATTENTION_DOTS_CUH

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/values.cuh"
#include "kernels/kernels.h"

/* A warp a row (b,t,head). */
template <typename V>
static __global__ void row_dots_kernel(float *D, const V *dout, const V *out, int64_t rows, int T, int heads,
                                       int HS)
{
    for (int64_t row = warp_first(); row < rows; row += warp_stride()) {
        float sum = 0;
        for (int i = lane(); i < HS; i += CUDA_WARP)
            sum += value_get(dout[row * HS + i]) * value_get(out[row * HS + i]);
        sum = warp_sum(sum);
        int64_t head = row % heads, t = row / heads % T, b = row / heads / T;
        if (lane() == 0)
            D[(b * heads + head) * T + t] = sum;
    }
}

/* There is at least one row. */
template <typename V>
static inline int attention_dots(float *D, const void *dout, const void *out, const struct attention *a,
                                 void *stream, struct muster_error *err)
{
    const int64_t rows = (int64_t)a->B * a->T * a->heads;
    const struct cuda_grid grid = cuda_grid_warp_rows(rows);
    CUDA_LAUNCH("attention_backward", err, row_dots_kernel<V>, grid.blocks, grid.threads, 0, stream, D,
                (const V *)dout, (const V *)out, rows, a->T, a->heads, a->head_size);
    return 0;
}

#endif
