/* batch_norm.cu - batch normalisation, a block a channel (formulas: kernels/ref/batch_norm.c); sums are of
 * double, in a fixed order. The change of running statistics is a thread a channel. */
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/narrow.cuh"
#include "kernels/cuda/operations.h"

/* The i-th element of channel c, counted over rows. */
static __device__ inline int64_t batch_norm_at(const struct batch_norm *b, int64_t i, int c)
{
    return (i / b->plane * b->channels + c) * b->plane + i % b->plane;
}

static __device__ inline int64_t batch_norm_there(const struct batch_norm *b, int64_t N, int64_t samples)
{
    int64_t rows = samples * b->rows_per_sample - b->first;
    return rows < 0 ? 0 : rows < N ? rows : N;
}

static __device__ double *batch_norm_shared()
{
    __shared__ double shared[CUDA_BLOCK / CUDA_WARP];
    return shared;
}

template <typename V>
static __device__ void batch_norm_write(V *out, const V *in, const struct batch_norm *b, int64_t n, int c,
                                        float factor, float offset)
{
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        int64_t at = batch_norm_at(b, i, c);
        out[at] = value_of<V>(value_get(in[at]) * factor + offset);
    }
}

template <typename V>
static __global__ void batch_norm_forward_kernel(V *out, float *mean, float *var, const V *in,
                                                 const V *weight, const V *bias, struct batch_norm b, int N,
                                                 const struct step_scalars *scalars)
{
    double *shared = batch_norm_shared();
    const int c = (int)blockIdx.x;
    const int64_t there = batch_norm_there(&b, N, scalars->samples) * b.plane;
    double sum = 0, squares = 0;
    for (int64_t i = threadIdx.x; i < there; i += blockDim.x)
        sum += (double)value_get(in[batch_norm_at(&b, i, c)]);
    sum = block_sum(sum, shared);
    const double m = there > 0 ? sum / (double)there : 0;
    for (int64_t i = threadIdx.x; i < there; i += blockDim.x) {
        double off = (double)value_get(in[batch_norm_at(&b, i, c)]) - m;
        squares += off * off;
    }
    squares = block_sum(squares, shared);
    const double v = there > 0 ? squares / (double)there : 1;
    if (threadIdx.x == 0) {
        mean[c] = (float)m;
        var[c] = (float)v;
    }
    const float factor = value_get(weight[c]) * (float)(1.0 / sqrt(v + b.epsilon));
    batch_norm_write(out, in, &b, N * b.plane, c, factor, value_get(bias[c]) - (float)m * factor);
}

template <typename V>
static int batch_norm_forward_of(void *out, void *mean, void *var, const void *in, const void *weight,
                                 const void *bias, const struct batch_norm *b, int N,
                                 const struct step_scalars *scalars, void *stream, struct muster_error *err)
{
    CUDA_CHECK_SIZE("batch_norm_forward", (int64_t)N * b->channels * b->plane, err);
    CUDA_LAUNCH("batch_norm_forward", err, batch_norm_forward_kernel<V>, b->channels, CUDA_BLOCK, 0, stream,
                (V *)out, (float *)mean, (float *)var, (const V *)in, (const V *)weight, (const V *)bias, *b,
                N, scalars);
    return 0;
}

template <typename V>
static __global__ void batch_norm_fixed_kernel(V *out, const V *in, const V *weight, const V *bias,
                                               const V *mean, const V *var, struct batch_norm b, int N)
{
    const int c = (int)blockIdx.x;
    const float factor = value_get(weight[c]) * (float)(1.0 / sqrt((double)value_get(var[c]) + b.epsilon));
    batch_norm_write(out, in, &b, N * b.plane, c, factor, value_get(bias[c]) - value_get(mean[c]) * factor);
}

template <typename V>
static int batch_norm_fixed_of(void *out, const void *in, const void *weight, const void *bias,
                               const void *mean, const void *var, const struct batch_norm *b, int N,
                               void *stream, struct muster_error *err)
{
    CUDA_CHECK_SIZE("batch_norm_fixed", (int64_t)N * b->channels * b->plane, err);
    CUDA_LAUNCH("batch_norm_fixed", err, batch_norm_fixed_kernel<V>, b->channels, CUDA_BLOCK, 0, stream,
                (V *)out, (const V *)in, (const V *)weight, (const V *)bias, (const V *)mean, (const V *)var,
                *b, N);
    return 0;
}

struct batch_norm_betas {
    int din, dweight, dbias;
};

template <typename V>
static __global__ void batch_norm_backward_kernel(V *din, float *dweight, float *dbias, const V *dout,
                                                  const V *in, const float *mean, const float *var,
                                                  const V *weight, struct batch_norm b, int N,
                                                  struct batch_norm_betas beta,
                                                  const struct step_scalars *scalars)
{
    double *shared = batch_norm_shared();
    const int c = (int)blockIdx.x;
    const int64_t there = batch_norm_there(&b, N, scalars->samples) * b.plane;
    const double m = (double)mean[c], r = 1.0 / sqrt((double)var[c] + b.epsilon);
    double plain = 0, weighted = 0;
    for (int64_t i = threadIdx.x; i < there; i += blockDim.x) {
        int64_t at = batch_norm_at(&b, i, c);
        plain += (double)value_get(dout[at]);
        weighted += (double)value_get(dout[at]) * ((double)value_get(in[at]) - m);
    }
    plain = block_sum(plain, shared);
    weighted = block_sum(weighted, shared) * r;
    if (threadIdx.x == 0 && dweight)
        dweight[c] = (beta.dweight ? dweight[c] : 0.0f) + (float)weighted;
    if (threadIdx.x == 0 && dbias)
        dbias[c] = (beta.dbias ? dbias[c] : 0.0f) + (float)plain;
    if (!din)
        return;
    const float factor = value_get(weight[c]) * (float)r,
                level = there > 0 ? (float)(plain / (double)there) : 0.0f;
    const float slope = there > 0 ? (float)(weighted * r / (double)there) : 0.0f;
    for (int64_t i = threadIdx.x; i < N * b.plane; i += blockDim.x) {
        int64_t at = batch_norm_at(&b, i, c);
        float d =
            i < there ? factor * (value_get(dout[at]) - level - slope * (value_get(in[at]) - mean[c])) : 0.0f;
        din[at] = value_of<V>((beta.din ? value_get(din[at]) : 0.0f) + d);
    }
}

template <typename V>
static int batch_norm_backward_of(void *din, void *dweight, void *dbias, const void *dout, const void *in,
                                  const void *mean, const void *var, const void *weight,
                                  const struct batch_norm *b, int N, const int beta[3],
                                  const struct step_scalars *scalars, void *stream, struct muster_error *err)
{
    struct batch_norm_betas betas = {beta[0], beta[1], beta[2]};
    CUDA_CHECK_SIZE("batch_norm_backward", (int64_t)N * b->channels * b->plane, err);
    CUDA_LAUNCH("batch_norm_backward", err, batch_norm_backward_kernel<V>, b->channels, CUDA_BLOCK, 0, stream,
                (V *)din, (float *)dweight, (float *)dbias, (const V *)dout, (const V *)in,
                (const float *)mean, (const float *)var, (const V *)weight, *b, N, betas, scalars);
    return 0;
}

template <typename V>
static __global__ void batch_norm_change_kernel(float *dmean, float *dvar, float *dcount, const float *mean,
                                                const float *var, const V *running_mean, const V *running_var,
                                                struct batch_norm b, int N, struct batch_norm_betas beta,
                                                const struct step_scalars *scalars)
{
    const int64_t rows = batch_norm_there(&b, N, scalars->samples);
    const int64_t left = scalars->samples * b.rows_per_sample - b.first;
    const double count = (double)(rows * b.plane), later = left <= N ? 0.0 : (double)((left - 1) / N);
    const double part = rows > 0 ? b.momentum * pow(1.0 - b.momentum, later) / b.ranks : 0;
    for (int64_t c = thread_first(); c < b.channels; c += thread_stride()) {
        double unbiased = (double)var[c] * (count > 1 ? count / (count - 1) : 1);
        if (dmean)
            dmean[c] = (float)((beta.din ? (double)dmean[c] : 0.0) +
                               part * ((double)mean[c] - (double)value_get(running_mean[c])));
        if (dvar)
            dvar[c] = (float)((beta.dweight ? (double)dvar[c] : 0.0) +
                              part * (unbiased - (double)value_get(running_var[c])));
    }
    if (thread_first() == 0 && dcount)
        *dcount = (beta.dbias ? *dcount : 0.0f) + (rows > 0 && b.counts ? 1.0f : 0.0f);
}

template <typename V>
static int batch_norm_change_of(void *dmean, void *dvar, void *dcount, const void *mean, const void *var,
                                const void *running_mean, const void *running_var, const struct batch_norm *b,
                                int N, const int beta[3], const struct step_scalars *scalars, void *stream,
                                struct muster_error *err)
{
    struct batch_norm_betas betas = {beta[0], beta[1], beta[2]};
    struct cuda_grid grid = cuda_grid_elements(b->channels);
    CUDA_CHECK_SIZE("batch_norm_change", (int64_t)N * b->channels * b->plane, err);
    CUDA_LAUNCH("batch_norm_change", err, batch_norm_change_kernel<V>, grid.blocks, grid.threads, 0, stream,
                (float *)dmean, (float *)dvar, (float *)dcount, (const float *)mean, (const float *)var,
                (const V *)running_mean, (const V *)running_var, *b, N, betas, scalars);
    return 0;
}

static __global__ void batch_norm_step_kernel(float *values, const float *change, int64_t n, bool aligned,
                                              uint16_t *moved, enum dtype dtype_moved,
                                              const struct step_scalars *scalars)
{
    if (scalars->skip)
        return;
    VALUES_EACH(float, first, n)
    {
        enum { COUNT = value_vector<float>::COUNT };
        const int count = values_left<float>(n, first);
        float x[COUNT], more[COUNT];
        values_load(x, values + first, count, aligned);
        values_load(more, change + first, count, aligned);
        CUDA_EACH (j, 0, COUNT)
            x[j] += more[j];
        values_store(values + first, x, count, aligned);
        if (moved)
            narrow_store(moved + first, x, count, aligned, dtype_moved);
    }
}

extern "C" int cuda_batch_norm_step(void *values, const void *change, int64_t n, void *moved,
                                    enum dtype dtype_moved, const struct step_scalars *scalars, void *stream,
                                    struct muster_error *err)
{
    struct cuda_grid grid = values_grid<float>(n);
    CUDA_CHECK_SIZE("batch_norm_step", n, err);
    if (n == 0)
        return 0;
    CUDA_LAUNCH("batch_norm_step", err, batch_norm_step_kernel, grid.blocks, grid.threads, 0, stream,
                (float *)values, (const float *)change, n,
                values_aligned(values, change) && narrow_aligned((const uint16_t *)moved), (uint16_t *)moved,
                dtype_moved, scalars);
    return 0;
}

#define TYPED_batch_norm_forward  ~,
#define TYPED_batch_norm_fixed    ~,
#define TYPED_batch_norm_backward ~,
#define TYPED_batch_norm_change   ~,
#include "kernels/cuda/typed.inc"
#undef TYPED_batch_norm_forward
#undef TYPED_batch_norm_fixed
#undef TYPED_batch_norm_backward
#undef TYPED_batch_norm_change
