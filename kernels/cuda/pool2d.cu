/* pool2d.cu - pooling, a thread an output. Backward has a thread for each element of the input, which looks
 * at all windows that contain it, so that nothing is added atomically (formulas: kernels/ref/pool2d.c). The
 * file also counts the rows whose largest logit is at their target. */
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/values.cuh"

/* The element of a plane that wins window (i, j): the first of the largest, or the last NaN. */
template <typename V>
static __device__ inline int pool_winner(const struct pool2d *p, const V *plane, int i, int j)
{
    int row = i * p->stride - p->padding, column = j * p->stride - p->padding;
    int bottom = row + p->kernel < p->height ? row + p->kernel : p->height;
    int right = column + p->kernel < p->width ? column + p->kernel : p->width;
    row = row > 0 ? row : 0, column = column > 0 ? column : 0;
    int best = row * p->width + column;
    for (int y = row; y < bottom; y++)
        for (int x = column; x < right; x++) {
            int at = y * p->width + x;
            const float value = value_get(plane[at]);
            if (value > value_get(plane[best]) || isnan(value))
                best = at;
        }
    return best;
}

template <typename V>
static __global__ void max_pool2d_forward_kernel(V *out, const V *in, struct pool2d p, int rows, int columns,
                                                 int64_t n)
{
    for (int64_t at = thread_first(); at < n; at += thread_stride()) {
        const V *plane = in + at / ((int64_t)rows * columns) * p.height * p.width;
        out[at] = plane[pool_winner(&p, plane, (int)(at / columns % rows), (int)(at % columns))];
    }
}

template <typename V>
static int max_pool2d_forward_of(void *out, const void *in, const struct pool2d *p, int N, void *stream,
                                 struct muster_error *err)
{
    int rows = conv2d_size(p->height, p->kernel, p->stride, p->padding);
    int columns = conv2d_size(p->width, p->kernel, p->stride, p->padding);
    int64_t n = (int64_t)N * p->channels * rows * columns;
    struct cuda_grid grid = cuda_grid_elements(n);
    CUDA_CHECK_SIZE("max_pool2d_forward", n, err);
    if (n == 0)
        return 0;
    CUDA_LAUNCH("max_pool2d_forward", err, max_pool2d_forward_kernel<V>, grid.blocks, grid.threads, 0, stream,
                (V *)out, (const V *)in, *p, rows, columns, n);
    return 0;
}

/* Windows from..end - 1 have the element of that place on one side. */
static __device__ inline int pool_from(int place, int kernel, int stride, int padding)
{
    int first = place + padding - kernel + 1;
    return first <= 0 ? 0 : (first + stride - 1) / stride;
}

template <typename V>
static __global__ void max_pool2d_backward_kernel(V *din, const V *in, const V *dout, struct pool2d p,
                                                  int rows, int columns, int beta, int64_t n)
{
    for (int64_t at = thread_first(); at < n; at += thread_stride()) {
        int64_t size = (int64_t)p.height * p.width, plane = at / size;
        int place = (int)(at % size), y = place / p.width, x = place % p.width;
        float sum = beta ? value_get(din[at]) : 0.0f;
        for (int i = pool_from(y, p.kernel, p.stride, p.padding); i < rows && i * p.stride - p.padding <= y;
             i++)
            for (int j = pool_from(x, p.kernel, p.stride, p.padding);
                 j < columns && j * p.stride - p.padding <= x; j++)
                if (pool_winner(&p, in + plane * size, i, j) == place)
                    sum += value_get(dout[(plane * rows + i) * columns + j]);
        din[at] = value_of<V>(sum);
    }
}

template <typename V>
static int max_pool2d_backward_of(void *din, const void *in, const void *dout, const struct pool2d *p, int N,
                                  int beta, void *stream, struct muster_error *err)
{
    int rows = conv2d_size(p->height, p->kernel, p->stride, p->padding);
    int columns = conv2d_size(p->width, p->kernel, p->stride, p->padding);
    int64_t n = (int64_t)N * p->channels * p->height * p->width;
    struct cuda_grid grid = cuda_grid_elements(n);
    CUDA_CHECK_SIZE("max_pool2d_backward", n, err);
    if (n == 0)
        return 0;
    CUDA_LAUNCH("max_pool2d_backward", err, max_pool2d_backward_kernel<V>, grid.blocks, grid.threads, 0,
                stream, (V *)din, (const V *)in, (const V *)dout, *p, rows, columns, beta, n);
    return 0;
}

/* ---- means ---- */

/* Window i of a side begins here, and ends before that of pool_mean_end. */
static __device__ inline int pool_mean_from(int i, int size, int windows)
{
    return (int)((int64_t)i * size / windows);
}
static __device__ inline int pool_mean_end(int i, int size, int windows)
{
    return (int)((((int64_t)i + 1) * size + windows - 1) / windows);
}

struct pool_means {
    int height, width, rows, columns;
};

template <typename V>
static __global__ void avg_pool2d_forward_kernel(V *out, const V *in, struct pool_means m, int64_t n)
{
    for (int64_t at = thread_first(); at < n; at += thread_stride()) {
        int i = (int)(at / m.columns % m.rows), j = (int)(at % m.columns);
        const V *plane = in + at / ((int64_t)m.rows * m.columns) * m.height * m.width;
        int top = pool_mean_from(i, m.height, m.rows), bottom = pool_mean_end(i, m.height, m.rows);
        int left = pool_mean_from(j, m.width, m.columns), right = pool_mean_end(j, m.width, m.columns);
        float sum = 0.0f;
        for (int y = top; y < bottom; y++)
            for (int x = left; x < right; x++)
                sum += value_get(plane[(int64_t)y * m.width + x]);
        out[at] = value_of<V>(sum / (float)((bottom - top) * (right - left)));
    }
}

template <typename V>
static int avg_pool2d_forward_of(void *out, const void *in, int64_t planes, int height, int width,
                                 int out_height, int out_width, void *stream, struct muster_error *err)
{
    struct pool_means m = {height, width, out_height, out_width};
    int64_t n = planes * out_height * out_width;
    struct cuda_grid grid = cuda_grid_elements(n);
    CUDA_CHECK_SIZE("avg_pool2d_forward", n, err);
    if (n == 0)
        return 0;
    CUDA_LAUNCH("avg_pool2d_forward", err, avg_pool2d_forward_kernel<V>, grid.blocks, grid.threads, 0, stream,
                (V *)out, (const V *)in, m, n);
    return 0;
}

template <typename V>
static __global__ void avg_pool2d_backward_kernel(V *din, const V *dout, struct pool_means m, int beta,
                                                  int64_t n)
{
    for (int64_t at = thread_first(); at < n; at += thread_stride()) {
        int y = (int)(at / m.width % m.height), x = (int)(at % m.width);
        int64_t plane = at / ((int64_t)m.height * m.width);
        float sum = beta ? value_get(din[at]) : 0.0f;
        /* from the first window that ends after the element to the last that begins at or before it */
        for (int i = (int)((int64_t)y * m.rows / m.height);
             i < m.rows && pool_mean_from(i, m.height, m.rows) <= y; i++)
            for (int j = (int)((int64_t)x * m.columns / m.width);
                 j < m.columns && pool_mean_from(j, m.width, m.columns) <= x; j++) {
                int high = pool_mean_end(i, m.height, m.rows) - pool_mean_from(i, m.height, m.rows);
                int wide = pool_mean_end(j, m.width, m.columns) - pool_mean_from(j, m.width, m.columns);
                sum += value_get(dout[(plane * m.rows + i) * m.columns + j]) / (float)(high * wide);
            }
        din[at] = value_of<V>(sum);
    }
}

template <typename V>
static int avg_pool2d_backward_of(void *din, const void *dout, int64_t planes, int height, int width,
                                  int out_height, int out_width, int beta, void *stream,
                                  struct muster_error *err)
{
    struct pool_means m = {height, width, out_height, out_width};
    int64_t n = planes * height * width;
    struct cuda_grid grid = cuda_grid_elements(n);
    CUDA_CHECK_SIZE("avg_pool2d_backward", n, err);
    if (n == 0)
        return 0;
    CUDA_LAUNCH("avg_pool2d_backward", err, avg_pool2d_backward_kernel<V>, grid.blocks, grid.threads, 0,
                stream, (V *)din, (const V *)dout, m, beta, n);
    return 0;
}

/* ---- classes ---- */

static __device__ int *correct_shared()
{
    __shared__ int shared[CUDA_BLOCK / CUDA_WARP];
    return shared;
}

/* One block: classifiers have few rows. */
template <typename V>
static __global__ void correct_sum_kernel(double *total, const V *logits, const int32_t *targets, int N,
                                          int width, int64_t row)
{
    int correct = 0;
    for (int64_t n = threadIdx.x; n < N; n += blockDim.x) {
        const V *at = logits + n * row;
        int best = 0;
        for (int i = 1; i < width; i++)
            best = value_get(at[i]) > value_get(at[best]) ? i : best;
        correct += targets[n] >= 0 && best == targets[n];
    }
    correct = block_sum(correct, correct_shared());
    if (threadIdx.x == 0)
        *total += correct;
}

template <typename V>
static int correct_sum_of(double *total, const void *logits, const int32_t *targets, int N, int width,
                          int row, void *stream, struct muster_error *err)
{
    CUDA_CHECK_SIZE("correct_sum", (int64_t)N * width, err);
    CUDA_CHECK_ROW("correct_sum", row, width, err);
    if (N == 0)
        return 0;
    CUDA_LAUNCH("correct_sum", err, correct_sum_kernel<V>, 1, CUDA_BLOCK, 0, stream, total, (const V *)logits,
                targets, N, width, row);
    return 0;
}

#define TYPED_max_pool2d_forward  ~,
#define TYPED_max_pool2d_backward ~,
#define TYPED_avg_pool2d_forward  ~,
#define TYPED_avg_pool2d_backward ~,
#define TYPED_correct_sum         ~,
#include "kernels/cuda/typed.inc"
#undef TYPED_max_pool2d_forward
#undef TYPED_max_pool2d_backward
#undef TYPED_avg_pool2d_forward
#undef TYPED_avg_pool2d_backward
#undef TYPED_correct_sum
