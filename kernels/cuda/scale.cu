/* scale.cu - values (n) *= factor, a thread 16 bytes of values; and a part of each row. The
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
static __global__ void slice_kernel(V *out, const V *in, int64_t rows, int row, int first, int width,
                                    bool aligned)
{
    rows_each<V>(rows, width, [=](int64_t n, int column, int count) {
        V x[value_vector<V>::COUNT];
        elements_load<value_vector<V>::COUNT>(x, in + n * row + first + column, count, aligned);
        elements_store<value_vector<V>::COUNT>(out + n * width + column, x, count, aligned);
    });
}

template <typename V>
static __global__ void slice_gradient_kernel(V *din, const V *dout, int64_t rows, int row, int first,
                                             int width, int beta, bool aligned)
{
    rows_each<V>(rows, row, [=](int64_t n, int column, int count) {
        float d[value_vector<V>::COUNT] = {}, old[value_vector<V>::COUNT] = {};
        const int begin = column - first; /* in the part, which an aligned vector is in or is not */
        if (aligned && begin >= 0 && begin < width)
            values_load(d, dout + n * width + begin, count, aligned);
        if (!aligned) {
            CUDA_EACH (j, 0, value_vector<V>::COUNT)
                if (j < count && begin + j >= 0 && begin + j < width)
                    d[j] = value_get(dout[n * width + begin + j]);
        }
        if (beta)
            values_load(old, din + n * row + column, count, aligned);
        CUDA_EACH (j, 0, value_vector<V>::COUNT)
            d[j] += old[j];
        values_store(din + n * row + column, d, count, aligned);
    });
}

template <typename V>
static bool slice_aligned(const void *whole, const void *part, int row, int first, int width)
{
    return values_aligned(whole, part) && distance_aligned<V>(row) && distance_aligned<V>(first) &&
           distance_aligned<V>(width);
}

template <typename V>
static int slice_forward_of(void *out, const void *in, int64_t rows, int row, int first, int width,
                            void *stream, struct muster_error *err)
{
    CUDA_CHECK_SIZE("slice_forward", rows, err);
    CUDA_CHECK_SIZE("slice_forward", width, err);
    struct cuda_grid grid = rows_grid<V>(rows, width);
    if (grid.blocks == 0)
        return 0;
    CUDA_LAUNCH("slice_forward", err, slice_kernel<V>, grid.blocks, grid.threads, 0, stream, (V *)out,
                (const V *)in, rows, row, first, width, slice_aligned<V>(in, out, row, first, width));
    return 0;
}

template <typename V>
static int slice_backward_of(void *din, const void *dout, int64_t rows, int row, int first, int width,
                             int beta, void *stream, struct muster_error *err)
{
    CUDA_CHECK_SIZE("slice_backward", rows, err);
    CUDA_CHECK_SIZE("slice_backward", row, err);
    struct cuda_grid grid = rows_grid<V>(rows, row);
    if (grid.blocks == 0)
        return 0;
    CUDA_LAUNCH("slice_backward", err, slice_gradient_kernel<V>, grid.blocks, grid.threads, 0, stream,
                (V *)din, (const V *)dout, rows, row, first, width, beta,
                slice_aligned<V>(din, dout, row, first, width));
    return 0;
}

#define TYPED_scale          ~,
#define TYPED_slice_forward  ~,
#define TYPED_slice_backward ~,
#include "kernels/cuda/typed.inc"
#undef TYPED_scale
#undef TYPED_slice_forward
#undef TYPED_slice_backward
