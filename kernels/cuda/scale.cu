/* scale.cu - values (n) *= factor, rounded to float once: a double for each element would cost more than its
 * memory on GPUs with few double units. */
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"

static __global__ void scale_kernel(float *values, float factor, int64_t n)
{
    for (int64_t i = thread_first(); i < n; i += thread_stride())
        values[i] *= factor;
}

extern "C" int cuda_scale(void *values, double factor, int64_t n, void *stream, struct muster_error *err)
{
    struct cuda_grid grid = cuda_grid_elements(n);
    CUDA_CHECK_SIZE("scale", n, err);
    if (n == 0)
        return 0;
    CUDA_LAUNCH("scale", err, scale_kernel, grid.blocks, grid.threads, 0, stream, (float *)values,
                (float)factor, n);
    return 0;
}

/* ---- a part of each row ---- */

static __global__ void slice_kernel(float *out, const float *in, int64_t n, int row, int first, int width)
{
    for (int64_t i = thread_first(); i < n; i += thread_stride())
        out[i] = in[i / width * row + first + i % width];
}

static __global__ void slice_gradient_kernel(float *din, const float *dout, int64_t n, int row, int first,
                                             int width, int beta)
{
    for (int64_t i = thread_first(); i < n; i += thread_stride()) {
        int column = (int)(i % row) - first;
        float d = column >= 0 && column < width ? dout[i / row * width + column] : 0.0f;
        din[i] = d + (beta ? din[i] : 0.0f);
    }
}

extern "C" int cuda_slice_forward(void *out, const void *in, int64_t rows, int row, int first, int width,
                                  void *stream, struct muster_error *err)
{
    CUDA_CHECK_SIZE("slice_forward", rows, err);
    CUDA_CHECK_SIZE("slice_forward", width, err);
    struct cuda_grid grid = cuda_grid_elements(rows * width);
    if (rows * width == 0)
        return 0;
    CUDA_LAUNCH("slice_forward", err, slice_kernel, grid.blocks, grid.threads, 0, stream, (float *)out,
                (const float *)in, rows * width, row, first, width);
    return 0;
}

extern "C" int cuda_slice_backward(void *din, const void *dout, int64_t rows, int row, int first, int width,
                                   int beta, void *stream, struct muster_error *err)
{
    CUDA_CHECK_SIZE("slice_backward", rows, err);
    CUDA_CHECK_SIZE("slice_backward", row, err);
    struct cuda_grid grid = cuda_grid_elements(rows * row);
    if (rows * row == 0)
        return 0;
    CUDA_LAUNCH("slice_backward", err, slice_gradient_kernel, grid.blocks, grid.threads, 0, stream,
                (float *)din, (const float *)dout, rows * row, row, first, width, beta);
    return 0;
}
