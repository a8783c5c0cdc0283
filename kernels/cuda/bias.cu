/* bias.cu - a bias added to rows, a thread 16 bytes of values, and its gradient: column sums in two passes, a
 * thread a column. The first sums runs of rows (blocks in y), the second the runs' sums in their order. Where
 * the rows are an activation's gradient, the first pass forms them too, a thread 16 bytes of a row. */
#include "kernels/cuda/bias.h"

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/values.cuh"

template <typename V>
static __global__ void bias_add_kernel(V *out, const V *bias, int64_t N, int OC, int64_t row, bool aligned)
{
    rows_each<V>(N, OC, [=](int64_t n, int column, int count) {
        V *to = out + n * row + column;
        float x[value_vector<V>::COUNT], more[value_vector<V>::COUNT];
        values_load(x, to, count, aligned);
        values_load(more, bias + column, count, aligned);
        CUDA_EACH (j, 0, value_vector<V>::COUNT)
            x[j] += more[j];
        values_store(to, x, count, aligned);
    });
}

template <typename V>
static int bias_add(void *out, const void *bias, int N, int OC, int row, void *stream,
                    struct muster_error *err)
{
    CUDA_CHECK_SIZE("linear_forward", N, err);
    CUDA_CHECK_SIZE("linear_forward", OC, err);
    CUDA_CHECK_ROW("linear_forward", row, OC, err);
    struct cuda_grid grid = rows_grid<V>(N, OC);
    if (grid.blocks == 0)
        return 0;
    CUDA_LAUNCH("linear_forward", err, bias_add_kernel<V>, grid.blocks, grid.threads, 0, stream, (V *)out,
                (const V *)bias, N, OC, row, values_aligned(out, bias) && distance_aligned<V>(row));
    return 0;
}

template <typename V>
static __global__ void bias_partial_kernel(float *work, const V *dout, int N, int OC, int64_t row, int rows)
{
    int64_t column = thread_first();
    if (column >= OC)
        return;
    int first = (int)blockIdx.y * rows, end = first + rows < N ? first + rows : N;
    float sum = 0;
    for (int n = first; n < end; n++)
        sum += value_get(dout[n * row + column]);
    work[(int64_t)blockIdx.y * OC + column] = sum;
}

/* Two rows at a time, so that enough bytes are on their way. */
template <typename V>
static __global__ void activation_bias_kernel(float *work, V *din, const V *pre, int kind, int N, int C,
                                              int rows, bool aligned)
{
    enum { COUNT = value_vector<V>::COUNT, ROWS = 2 };
    const int64_t column = thread_first() * COUNT;
    if (column >= C)
        return;
    const int count = values_left<V>(C, column), first = (int)blockIdx.y * rows,
              end = first + rows < N ? first + rows : N;
    float sum[COUNT] = {};
    for (int n = first; n < end; n += ROWS) {
        float x[ROWS][COUNT], dy[ROWS][COUNT];
        CUDA_EACH (r, 0, ROWS) {
            const int64_t at = (int64_t)(n + r) * C + column;
            const int there = n + r < end ? count : 0;
            values_load(x[r], pre + (there ? at : 0), there, aligned);
            values_load(dy[r], din + (there ? at : 0), there, aligned);
        }
        CUDA_EACH (r, 0, ROWS) {
            const int there = n + r < end ? count : 0;
            activation_slopes<COUNT>(x[r], kind);
            CUDA_EACH (j, 0, COUNT)
                dy[r][j] = value_get(value_of<V>(dy[r][j] * x[r][j] + 0.0f));
            values_store(din + (int64_t)(n + r) * C + column, dy[r], there, aligned);
            CUDA_EACH (j, 0, COUNT)
                if (there)
                    sum[j] += dy[r][j];
        }
    }
    elements_store<COUNT>(work + (int64_t)blockIdx.y * C + column, sum, count,
                          aligned && COUNT % value_vector<float>::COUNT == 0);
}

static __global__ void bias_total_kernel(float *dbias, const float *work, int runs, int OC, int beta)
{
    int64_t column = thread_first();
    if (column >= OC)
        return;
    float sum = beta ? dbias[column] : 0.0f;
    column_totals<1>(&sum, work, runs, OC, column);
    dbias[column] = sum;
}

/* As many runs as usual, or as fit into the work memory. */
static struct cuda_chunks bias_runs(int N, int OC, size_t work_bytes)
{
    struct cuda_chunks chunks = cuda_row_chunks(N);
    int64_t fit = (int64_t)(work_bytes / sizeof(float) / (size_t)OC);
    if (chunks.count > fit && fit > 0) {
        chunks.rows = (int)cuda_ceil_divide(N, fit);
        chunks.count = (int)cuda_ceil_divide(N, chunks.rows);
    }
    return chunks;
}

static int bias_totals(const char *operation, void *dbias, const void *work, int runs, int OC, int beta,
                       void *stream, struct muster_error *err)
{
    const struct cuda_grid grid = cuda_grid_columns(OC);
    CUDA_LAUNCH(operation, err, bias_total_kernel, grid.blocks, grid.threads, 0, stream, (float *)dbias,
                (const float *)work, runs, OC, beta);
    return 0;
}

static int bias_check(const char *operation, int N, int OC, int row, size_t work_bytes,
                      struct muster_error *err)
{
    CUDA_CHECK_SIZE(operation, N, err);
    CUDA_CHECK_SIZE(operation, OC, err);
    CUDA_CHECK_ROW(operation, row, OC, err);
    if (work_bytes / sizeof(float) < (size_t)OC)
        return error_set(err, MUSTER_E_LIMIT,
                         "%s: the sums of %d columns need %zu bytes of work memory; %zu are there", operation,
                         OC, (size_t)OC * sizeof(float), work_bytes);
    return 0;
}

template <typename V>
static int bias_gradient(void *dbias, const void *dout, int N, int OC, int row, int beta, void *work,
                         size_t work_bytes, void *stream, struct muster_error *err)
{
    static const char operation[] = "linear_backward_weight";
    if (bias_check(operation, N, OC, row, work_bytes, err))
        return -1;
    if (OC == 0)
        return 0;
    struct cuda_grid grid = cuda_grid_columns(OC);
    struct cuda_chunks runs = bias_runs(N, OC, work_bytes);
    if (runs.count > 0) {
        dim3 blocks(grid.blocks, (unsigned)runs.count);
        CUDA_LAUNCH(operation, err, bias_partial_kernel<V>, blocks, grid.threads, 0, stream, (float *)work,
                    (const V *)dout, N, OC, row, runs.rows);
    }
    return bias_totals(operation, dbias, work, runs.count, OC, beta, stream, err);
}

template <typename V>
static int activation_bias_gradient(void *din, void *dbias, const void *pre, int kind, int N, int C, int beta,
                                    void *work, size_t work_bytes, void *stream, struct muster_error *err)
{
    static const char operation[] = "linear_backward_activation";
    if (kind < 0 || kind >= ACTIVATION_KINDS)
        return activation_unknown(operation, kind, err);
    if (bias_check(operation, N, C, C, work_bytes, err))
        return -1;
    if (C == 0)
        return 0;
    const struct cuda_grid grid = cuda_grid_columns((int)cuda_ceil_divide(C, value_vector<V>::COUNT));
    const struct cuda_chunks runs = bias_runs(N, C, work_bytes);
    if (runs.count > 0) {
        dim3 blocks(grid.blocks, (unsigned)runs.count);
        CUDA_LAUNCH(operation, err, activation_bias_kernel<V>, blocks, grid.threads, 0, stream, (float *)work,
                    (V *)din, (const V *)pre, kind, N, C, runs.rows,
                    values_aligned(din, pre, work) && distance_aligned<V>(C));
    }
    return bias_totals(operation, dbias, work, runs.count, C, beta, stream, err);
}

static int bias_unknown(const char *operation, enum dtype values, struct muster_error *err)
{
    return error_set(err, MUSTER_E_INVALID, "%s: values are of type %s; they must be f32, bf16 or f16",
                     operation, dtype_name(values));
}

extern "C" int cuda_bias_add(void *out, const void *bias, enum dtype values, int N, int OC, int row,
                             void *stream, struct muster_error *err)
{
    switch (values) {
    case DTYPE_F32:
        return bias_add<float>(out, bias, N, OC, row, stream, err);
    case DTYPE_BF16:
        return bias_add<__nv_bfloat16>(out, bias, N, OC, row, stream, err);
    case DTYPE_F16:
        return bias_add<__half>(out, bias, N, OC, row, stream, err);
    default:
        return bias_unknown("linear_forward", values, err);
    }
}

extern "C" int cuda_bias_gradient(void *dbias, const void *dout, enum dtype values, int N, int OC, int row,
                                  int beta, void *work, size_t work_bytes, void *stream,
                                  struct muster_error *err)
{
    switch (values) {
    case DTYPE_F32:
        return bias_gradient<float>(dbias, dout, N, OC, row, beta, work, work_bytes, stream, err);
    case DTYPE_BF16:
        return bias_gradient<__nv_bfloat16>(dbias, dout, N, OC, row, beta, work, work_bytes, stream, err);
    case DTYPE_F16:
        return bias_gradient<__half>(dbias, dout, N, OC, row, beta, work, work_bytes, stream, err);
    default:
        return bias_unknown("linear_backward_weight", values, err);
    }
}

extern "C" int cuda_activation_bias_gradient(void *din, void *dbias, const void *pre, enum dtype values,
                                             int kind, int N, int C, int beta, void *work, size_t work_bytes,
                                             void *stream, struct muster_error *err)
{
    switch (values) {
    case DTYPE_F32:
        return activation_bias_gradient<float>(din, dbias, pre, kind, N, C, beta, work, work_bytes, stream,
                                               err);
    case DTYPE_BF16:
        return activation_bias_gradient<__nv_bfloat16>(din, dbias, pre, kind, N, C, beta, work, work_bytes,
                                                       stream, err);
    case DTYPE_F16:
        return activation_bias_gradient<__half>(din, dbias, pre, kind, N, C, beta, work, work_bytes, stream,
                                                err);
    default:
        return bias_unknown("linear_backward_activation", values, err);
    }
}
