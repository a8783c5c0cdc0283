/* power.cu - PowerSGD's factors of the runs of a gradient, and their product (rules and bits:
 * runtime/compress/power.c). Sums are in double, eight side by side, in the host's order. Products of two
 * floats are exact in double, so that a fused operation changes nothing there. */
#include "kernels/cuda/compress/compress.cuh"

enum { POWER_LANES = 8, POWER_ROWS = CUDA_BLOCK / POWER_LANES }; /* rows of a block's pass */

/* ---- orthonormal columns, of one block ---- */

static __device__ double power_dot(const float *a, const float *b, int64_t count, double *sums)
{
    __syncthreads(); /* the last use of sums is over, and all writes to a and b are there */
    if (threadIdx.x < POWER_LANES) {
        double sum = 0;
        for (int64_t i = threadIdx.x; i < count; i += POWER_LANES)
            sum += (double)a[i] * (double)b[i];
        sums[threadIdx.x] = sum;
    }
    __syncthreads();
    double total = 0;
    for (int i = 0; i < POWER_LANES; i++)
        total += sums[i];
    return total;
}

/* Takes the columns before out of a column and gives it the length 1. false: nothing of it is left. */
static __device__ bool power_orthonormal(float *columns, int64_t rows, int number, double *sums)
{
    float *column = columns + number * rows;
    const double begun = sqrt(power_dot(column, column, rows, sums));
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < number; i++) {
            const float *other = columns + i * rows;
            const double factor = -power_dot(other, column, rows, sums);
            for (int64_t r = threadIdx.x; r < rows; r += blockDim.x)
                column[r] = (float)plus((double)column[r], times(factor, (double)other[r]));
        }
    const double length = sqrt(power_dot(column, column, rows, sums));
    if (!(length > begun * 1e-6) || !(length > 0))
        return false;
    for (int64_t r = threadIdx.x; r < rows; r += blockDim.x)
        column[r] = (float)((double)column[r] / length);
    return true;
}

/* A block a run. other NULL: a column that is lost becomes 0. copies: to `other`, at last. */
static __global__ void power_orthonormal_kernel(float *factors, float *other, bool left,
                                                struct cuda_pieces pieces, const struct step_scalars *scalars)
{
    __shared__ double sums[POWER_LANES];
    const struct cuda_piece p = pieces.piece[blockIdx.y];
    const int64_t rows = left ? p.rows : p.columns, at = left ? p.left : p.right;
    float *columns = factors + at, *own = other ? other + at : NULL;
    if (scalars->skip)
        return;
    for (int c = 0; c < p.rank; c++) {
        float *column = columns + c * rows;
        if (power_orthonormal(columns, rows, c, sums))
            continue;
        __syncthreads();
        for (int64_t r = threadIdx.x; r < rows; r += blockDim.x)
            column[r] = own ? own[c * rows + r] : 0.0f;
        for (int64_t unit = 0; own && !power_orthonormal(columns, rows, c, sums) && unit < rows; unit++) {
            __syncthreads();
            for (int64_t r = threadIdx.x; r < rows; r += blockDim.x)
                column[r] = r == unit ? 1.0f : 0.0f;
        }
    }
    __syncthreads();
    for (int64_t i = threadIdx.x; own && i < rows * p.rank; i += blockDim.x)
        own[i] = columns[i];
}

/* ---- factors ---- */

/* Eight lanes a row. */
static __global__ void power_left_kernel(float *left, const float *gradient, const float *factor,
                                         struct cuda_pieces pieces, const struct step_scalars *scalars)
{
    const struct cuda_piece p = pieces.piece[blockIdx.y];
    const int part = (int)threadIdx.x % POWER_LANES, first_lane = lane() / POWER_LANES * POWER_LANES;
    const bool skip = scalars->skip != 0;
    if (!p.rank)
        return;
    for (int64_t begin = (int64_t)blockIdx.x * POWER_ROWS; begin < p.rows;
         begin += (int64_t)gridDim.x * POWER_ROWS) {
        const int64_t row = begin + threadIdx.x / POWER_LANES;
        const int64_t start = row * p.columns > p.first ? row * p.columns : p.first;
        const int64_t stop =
            (row + 1) * p.columns < p.first + p.count ? (row + 1) * p.columns : p.first + p.count;
        const float *from = gradient + p.at + (start - p.first);
        for (int k = 0; k < p.rank; k++) {
            const float *with = factor + p.right + k * p.columns + (start - row * p.columns);
            double sum = 0, total = 0;
            for (int64_t i = part; row < p.rows && !skip && i < stop - start; i += POWER_LANES)
                sum += (double)from[i] * (double)with[i];
            for (int i = 0; i < POWER_LANES; i++)
                total += __shfl_sync(0xffffffffu, sum, first_lane + i);
            if (part == 0 && row < p.rows)
                left[p.left + k * p.rows + row] = (float)total;
        }
    }
}

/* A thread a column of a factor: it adds up the rows one after another. */
static __global__ void power_right_kernel(float *right, const float *gradient, const float *left,
                                          struct cuda_pieces pieces, const struct step_scalars *scalars)
{
    const struct cuda_piece p = pieces.piece[blockIdx.y];
    const int64_t end = p.first + p.count, rows = p.count ? (end + p.columns - 1) / p.columns : 0;
    for (int64_t i = thread_first(); i < p.columns * p.rank; i += thread_stride()) {
        const int64_t k = i / p.columns, column = i % p.columns;
        float sum = 0;
        for (int64_t row = p.first / p.columns; row < rows && !scalars->skip; row++) {
            const int64_t element = row * p.columns + column;
            if (element >= p.first && element < end)
                sum = (float)((double)sum + (double)left[p.left + k * p.rows + row] *
                                                (double)gradient[p.at + element - p.first]);
        }
        right[p.right + i] = sum;
    }
}

/* ---- the product ---- */

static __global__ void power_decode_kernel(float *gradient, float *feedback, const float *left,
                                           const float *right, struct cuda_pieces pieces, int replicas,
                                           double *partial, const struct step_scalars *scalars)
{
    __shared__ double sums[CUDA_BLOCK / CUDA_WARP];
    const struct cuda_piece p = pieces.piece[blockIdx.y];
    const struct cuda_chunk chunk = chunk_of(p.count);
    if (scalars->skip || !p.rank || chunk.begin >= chunk.end)
        return;
    const double factor = scalars->clip;
    double left_out = 0, all = 0;
    for (int64_t i = chunk.begin + threadIdx.x; i < chunk.end; i += blockDim.x) {
        const int64_t row = (p.first + i) / p.columns, column = (p.first + i) % p.columns;
        const double whole = (double)gradient[p.at + i];
        double value = 0;
        for (int k = 0; k < p.rank; k++)
            value +=
                (double)left[p.left + k * p.rows + row] * (double)right[p.right + k * p.columns + column];
        const double missing = whole - value / replicas;
        left_out += missing * missing;
        all += whole * whole;
        gradient[p.at + i] = (float)value;
        if (feedback)
            feedback[p.at + i] = (float)times(missing, factor);
    }
    left_out = block_sum(left_out, sums);
    all = block_sum(all, sums);
    if (threadIdx.x == 0) {
        double *to = partial + 2 * (CUDA_COMPRESS_CHUNKS * blockIdx.y + blockIdx.x);
        to[0] = left_out;
        to[1] = all;
    }
}

/* ---- launches ---- */

extern "C" size_t cuda_power_work(void)
{
    return CUDA_PIECES * 2 * CUDA_COMPRESS_CHUNKS * sizeof(double);
}

extern "C" int cuda_power_left(void *left, void *dense, void *gradient, const void *feedback,
                               const void *factor, const struct compress_piece *pieces, int count,
                               const struct step_scalars *scalars, void *stream, struct muster_error *err)
{
    struct cuda_batch batch;
    int64_t sent = 0, dense_before = 0;
    for (int next = 0; next_batch(pieces, count, &next, &sent, &dense_before, &batch);) {
        const dim3 grid(cuda_grid_of(cuda_ceil_divide(batch.tallest, POWER_ROWS), CUDA_ROW_BLOCKS, 1).blocks,
                        (unsigned)batch.count);
        if (cuda_compress_begin((float *)gradient, (const float *)feedback, (float *)dense, &batch, scalars,
                                stream, err))
            return -1;
        if (grid.x)
            CUDA_LAUNCH("power_left", err, power_left_kernel, grid, CUDA_BLOCK, 0, stream, (float *)left,
                        (const float *)gradient, (const float *)factor, batch.pieces, scalars);
    }
    return 0;
}

extern "C" int cuda_power_right(void *left, void *right, const void *gradient,
                                const struct compress_piece *pieces, int count,
                                const struct step_scalars *scalars, void *stream, struct muster_error *err)
{
    struct cuda_batch batch;
    int64_t sent = 0, dense_before = 0;
    for (int next = 0; next_batch(pieces, count, &next, &sent, &dense_before, &batch);) {
        const dim3 grid(cuda_grid_elements(batch.widest).blocks, (unsigned)batch.count),
            runs(1, (unsigned)batch.count);
        if (!grid.x)
            continue;
        CUDA_LAUNCH("power_right", err, power_orthonormal_kernel, runs, CUDA_BLOCK, 0, stream, (float *)left,
                    (float *)NULL, true, batch.pieces, scalars);
        CUDA_LAUNCH("power_right", err, power_right_kernel, grid, CUDA_BLOCK, 0, stream, (float *)right,
                    (const float *)gradient, (const float *)left, batch.pieces, scalars);
    }
    return 0;
}

extern "C" int cuda_power_decode(void *gradient, void *feedback, const void *left, void *right, void *factor,
                                 const void *dense, const struct compress_piece *pieces, int count,
                                 int replicas, const struct step_scalars *scalars, double *figures,
                                 void *work, void *stream, struct muster_error *err)
{
    struct cuda_batch batch;
    int64_t sent = 0, dense_before = 0;
    for (int next = 0; next_batch(pieces, count, &next, &sent, &dense_before, &batch);) {
        const dim3 grid(batch.chunks, (unsigned)batch.count), runs(1, (unsigned)batch.count);
        if (cuda_compress_unpack((float *)gradient, (const float *)dense, &batch, scalars, stream, err))
            return -1;
        if (grid.x && batch.widest) {
            CUDA_LAUNCH("power_decode", err, power_decode_kernel, grid, CUDA_BLOCK, 0, stream,
                        (float *)gradient, (float *)feedback, (const float *)left, (const float *)right,
                        batch.pieces, replicas, (double *)work, scalars);
            if (cuda_compress_figures(figures, (const double *)work, &batch, scalars, stream, err))
                return -1;
        }
        if (batch.widest)
            CUDA_LAUNCH("power_decode", err, power_orthonormal_kernel, runs, CUDA_BLOCK, 0, stream,
                        (float *)right, (float *)factor, false, batch.pieces, scalars);
    }
    return 0;
}
