/* scale.cu - values (n) *= factor, a thread 16 bytes of values; and a part of each row, a thread a value. The
 * factor is rounded to float: a double for each element would cost more than its memory on GPUs with few
 * double units. */
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/values.cuh"

template <typename V> static __global__ void scale_kernel(V *values, float factor, int64_t n, bool aligned)
{
    VALUES_EACH(V, first, n)
    {
        const int count = values_left<V>(n, first);
        float x[value_vector<V>::COUNT];
        values_load(x, values + first, count, aligned);
        CUDA_EACH (j, 0, value_vector<V>::COUNT)
            x[j] *= factor;
        values_store(values + first, x, count, aligned);
    }
}

template <typename V>
static int scale_of(void *values, double factor, int64_t n, void *stream, struct muster_error *err)
{
    const struct cuda_grid grid = values_grid<V>(n);
    CUDA_CHECK_SIZE("scale", n, err);
    if (n == 0)
        return 0;
    CUDA_LAUNCH("scale", err, scale_kernel<V>, grid.blocks, grid.threads, 0, stream, (V *)values,
                (float)factor, n, values_aligned(values));
    return 0;
}

/* ---- a part of each row ---- */

template <typename V>
static __global__ void slice_kernel(V *out, const V *in, int64_t n, int row, int first, int width)
{
    for (int64_t i = thread_first(); i < n; i += thread_stride())
        out[i] = in[i / width * row + first + i % width];
}

template <typename V>
static __global__ void slice_gradient_kernel(V *din, const V *dout, int64_t n, int row, int first, int width,
                                             int beta)
{
    for (int64_t i = thread_first(); i < n; i += thread_stride()) {
        int column = (int)(i % row) - first;
        float d = column >= 0 && column < width ? value_get(dout[i / row * width + column]) : 0.0f;
        din[i] = value_of<V>(d + (beta ? value_get(din[i]) : 0.0f));
    }
}

template <typename V>
static int slice_forward_of(void *out, const void *in, int64_t rows, int row, int first, int width,
                            void *stream, struct muster_error *err)
{
    CUDA_CHECK_SIZE("slice_forward", rows, err);
    CUDA_CHECK_SIZE("slice_forward", width, err);
    struct cuda_grid grid = cuda_grid_elements(rows * width);
    if (rows * width == 0)
        return 0;
    CUDA_LAUNCH("slice_forward", err, slice_kernel<V>, grid.blocks, grid.threads, 0, stream, (V *)out,
                (const V *)in, rows * width, row, first, width);
    return 0;
}

template <typename V>
static int slice_backward_of(void *din, const void *dout, int64_t rows, int row, int first, int width,
                             int beta, void *stream, struct muster_error *err)
{
    CUDA_CHECK_SIZE("slice_backward", rows, err);
    CUDA_CHECK_SIZE("slice_backward", row, err);
    struct cuda_grid grid = cuda_grid_elements(rows * row);
    if (rows * row == 0)
        return 0;
    CUDA_LAUNCH("slice_backward", err, slice_gradient_kernel<V>, grid.blocks, grid.threads, 0, stream,
                (V *)din, (const V *)dout, rows * row, row, first, width, beta);
    return 0;
}

#define TYPED_scale          ~,
#define TYPED_slice_forward  ~,
#define TYPED_slice_backward ~,
#include "kernels/cuda/typed.inc"
#undef TYPED_scale
#undef TYPED_slice_forward
#undef TYPED_slice_backward
