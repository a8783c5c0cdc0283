/* conv2d.cu - convolution, directly: a thread an output, or an element of the input; a block a weight. Sums
 * are in the order of the formula, or of the block's threads (formulas: kernels/ref/conv2d.c). */
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/values.cuh"

struct conv_sizes {
    struct conv2d c;
    int rows, columns;        /* size of the output */
    int64_t ins, outs, depth; /* elements of a picture, of its output, of a filter */
};

static struct conv_sizes conv_sizes_of(const struct conv2d *c)
{
    struct conv_sizes s;
    s.c = *c;
    s.rows = conv2d_size(c->height, c->kernel, c->stride, c->padding);
    s.columns = conv2d_size(c->width, c->kernel, c->stride, c->padding);
    s.ins = (int64_t)c->channels * c->height * c->width;
    s.outs = (int64_t)c->filters * s.rows * s.columns;
    s.depth = (int64_t)c->channels * c->kernel * c->kernel;
    return s;
}

/* The element of a picture under element (channel, y, x) of the filter at output (i, j); -1: outside the
 * picture. */
static __device__ inline int64_t conv_under(const struct conv2d *c, int channel, int i, int j, int y, int x)
{
    int row = i * c->stride + y - c->padding, column = j * c->stride + x - c->padding;
    if (row < 0 || row >= c->height || column < 0 || column >= c->width)
        return -1;
    return ((int64_t)channel * c->height + row) * c->width + column;
}

template <typename V>
static __global__ void conv2d_forward_kernel(V *out, const V *in, const V *weight, const V *bias,
                                             struct conv_sizes s, int64_t n)
{
    const struct conv2d *c = &s.c;
    for (int64_t at = thread_first(); at < n; at += thread_stride()) {
        int plane = (int)(at % s.outs / ((int64_t)s.rows * s.columns)), j = (int)(at % s.columns);
        int i = (int)(at / s.columns % s.rows);
        const V *picture = in + at / s.outs * s.ins, *filter = weight + plane * s.depth;
        float sum = bias ? value_get(bias[plane]) : 0.0f;
        for (int channel = 0; channel < c->channels; channel++)
            for (int y = 0; y < c->kernel; y++)
                for (int x = 0; x < c->kernel; x++, filter++) {
                    int64_t under = conv_under(c, channel, i, j, y, x);
                    sum += under < 0 ? 0.0f : value_get(picture[under]) * value_get(*filter);
                }
        out[at] = value_of<V>(sum);
    }
}

template <typename V>
static int conv2d_forward_of(void *out, const void *in, const void *weight, const void *bias,
                             const struct conv2d *c, int N, void *work, void *stream,
                             struct muster_error *err)
{
    struct conv_sizes s = conv_sizes_of(c);
    int64_t n = N * s.outs;
    struct cuda_grid grid = cuda_grid_elements(n);
    (void)work;
    CUDA_CHECK_SIZE("conv2d_forward", n, err);
    if (n == 0)
        return 0;
    CUDA_LAUNCH("conv2d_forward", err, conv2d_forward_kernel<V>, grid.blocks, grid.threads, 0, stream,
                (V *)out, (const V *)in, (const V *)weight, (const V *)bias, s, n);
    return 0;
}

template <typename V>
static __global__ void conv2d_input_kernel(V *din, const V *dout, const V *weight, struct conv_sizes s,
                                           int beta, int64_t n)
{
    const struct conv2d *c = &s.c;
    for (int64_t at = thread_first(); at < n; at += thread_stride()) {
        int column = (int)(at % c->width), row = (int)(at / c->width % c->height);
        int channel = (int)(at % s.ins / ((int64_t)c->height * c->width));
        const V *picture = dout + at / s.ins * s.outs;
        float sum = beta ? value_get(din[at]) : 0.0f;
        for (int filter = 0; filter < c->filters; filter++)
            for (int y = 0; y < c->kernel; y++)
                for (int x = 0; x < c->kernel; x++) {
                    int i = row + c->padding - y, j = column + c->padding - x;
                    if (i < 0 || j < 0 || i % c->stride || j % c->stride || i / c->stride >= s.rows ||
                        j / c->stride >= s.columns)
                        continue;
                    sum +=
                        value_get(
                            picture[((int64_t)filter * s.rows + i / c->stride) * s.columns + j / c->stride]) *
                        value_get(weight[filter * s.depth + (channel * c->kernel + y) * c->kernel + x]);
                }
        din[at] = value_of<V>(sum);
    }
}

template <typename V>
static int conv2d_backward_input_of(void *din, const void *dout, const void *weight, const struct conv2d *c,
                                    int N, int beta, void *work, void *stream, struct muster_error *err)
{
    struct conv_sizes s = conv_sizes_of(c);
    int64_t n = N * s.ins;
    struct cuda_grid grid = cuda_grid_elements(n);
    (void)work;
    CUDA_CHECK_SIZE("conv2d_backward_input", n, err);
    if (n == 0)
        return 0;
    CUDA_LAUNCH("conv2d_backward_input", err, conv2d_input_kernel<V>, grid.blocks, grid.threads, 0, stream,
                (V *)din, (const V *)dout, (const V *)weight, s, beta, n);
    return 0;
}

static __device__ float *conv2d_shared()
{
    __shared__ float shared[CUDA_BLOCK / CUDA_WARP];
    return shared;
}

/* Block b forms weight b; blocks after the weights form biases. Either pointer may be NULL. */
template <typename V>
static __global__ void conv2d_weight_kernel(float *dweight, float *dbias, const V *dout, const V *in,
                                            struct conv_sizes s, int N, int beta)
{
    const struct conv2d *c = &s.c;
    const int64_t plane = (int64_t)s.rows * s.columns, weights = c->filters * s.depth;
    for (int64_t b = blockIdx.x; b < weights + c->filters; b += gridDim.x) {
        const bool is_bias = b >= weights;
        float *to = is_bias ? (dbias ? dbias + (b - weights) : NULL) : (dweight ? dweight + b : NULL);
        const int64_t filter = is_bias ? b - weights : b / s.depth;
        const int element = (int)(b % s.depth), x = element % c->kernel, y = element / c->kernel % c->kernel;
        const int channel = element / c->kernel / c->kernel;
        float sum = 0.0f;
        for (int64_t at = threadIdx.x; to && at < N * plane; at += blockDim.x) {
            const int64_t p = at % plane, picture = at / plane;
            const int64_t under =
                is_bias ? 0 : conv_under(c, channel, (int)(p / s.columns), (int)(p % s.columns), y, x);
            const float gradient = value_get(dout[picture * s.outs + filter * plane + p]);
            sum += is_bias ? gradient : under < 0 ? 0.0f : gradient * value_get(in[picture * s.ins + under]);
        }
        sum = block_sum(sum, conv2d_shared());
        if (to && threadIdx.x == 0)
            *to = beta ? *to + sum : sum;
    }
}

template <typename V>
static int conv2d_backward_weight_of(void *dweight, void *dbias, const void *dout, const void *in,
                                     const struct conv2d *c, int N, int beta, void *work, void *stream,
                                     struct muster_error *err)
{
    struct conv_sizes s = conv_sizes_of(c);
    struct cuda_grid grid = cuda_grid_of(c->filters * s.depth + c->filters, CUDA_ROW_BLOCKS, CUDA_BLOCK);
    (void)work;
    CUDA_CHECK_SIZE("conv2d_backward_weight", N * s.outs, err);
    CUDA_LAUNCH("conv2d_backward_weight", err, conv2d_weight_kernel<V>, grid.blocks, grid.threads, 0, stream,
                (float *)dweight, (float *)dbias, (const V *)dout, (const V *)in, s, N, beta);
    return 0;
}

extern "C" size_t cuda_conv2d_work(const struct conv2d *c, int N)
{
    (void)c, (void)N;
    return 0;
}

#define TYPED_conv2d_forward         ~,
#define TYPED_conv2d_backward_input  ~,
#define TYPED_conv2d_backward_weight ~,
#include "kernels/cuda/typed.inc"
#undef TYPED_conv2d_forward
#undef TYPED_conv2d_backward_input
#undef TYPED_conv2d_backward_weight
