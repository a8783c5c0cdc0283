/* embedding.cu - out (B,T,C) = wte[tokens] + wpe (none where NULL), and its gradients. Additions are in the
 * reference's order, so the results are the same bits.
 *
 * dwte and rows_add: several of the rows may have one token. The first row with a token is its owner; its
 * block alone adds all rows with that token, in order, 256 tokens looked at a time. Rows are loaded some
 * ahead of their additions: a token that is in half of all rows, as padding is, waits for memory once for so
 * many. No atomics and no work memory, at the price of reading every token for every owner (from the L2
 * cache: 4 bytes, next to the 4C of a row). dwpe: a thread has one (t,c) and adds over b. */
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/values.cuh"

template <typename V>
static __global__ void embedding_kernel(V *out, const int32_t *tokens, const V *wte, const V *wpe,
                                        int64_t rows, int T, int C, bool aligned)
{
    for (int64_t row = warp_first(); row < rows; row += warp_stride()) {
        const V *token = wte + (int64_t)tokens[row] * C, *position = wpe ? wpe + row % T * C : nullptr;
        for (int c = lane() * value_vector<V>::COUNT; c < C; c += CUDA_WARP * value_vector<V>::COUNT) {
            const int count = values_left<V>(C, c);
            float x[value_vector<V>::COUNT], y[value_vector<V>::COUNT] = {};
            values_load(x, token + c, count, aligned);
            if (position)
                values_load(y, position + c, count, aligned);
            CUDA_EACH (j, 0, value_vector<V>::COUNT)
                x[j] += y[j];
            values_store(out + row * C + c, x, count, aligned);
        }
    }
}

/* Where rows go: elements [first, first+count) of a flat array in which the table begins at element `at`. */
struct rows_target {
    float *to;
    int64_t first, count, at;
};

/* The table's row of row r. */
static __device__ int64_t row_index(const int32_t *index, int64_t r, int T)
{
    return index ? index[r] : r % T;
}

/* Has a row before this one the same index? The whole block asks. */
static __device__ bool seen_before(const int32_t *index, int64_t row, int T)
{
    if (!index)
        return row >= T;
    int32_t token = index[row];
    for (int64_t first = 0; first < row; first += CUDA_BLOCK) {
        int64_t other = first + threadIdx.x;
        if (__syncthreads_or(other < row && index[other] == token))
            return true;
    }
    return false;
}

enum { ROWS_AHEAD = 16 }; /* loaded before they are added */

/* Adds a column's elements of the rows that have a bit set, in order. */
template <typename V> static __device__ float add_column(float sum, const V *column, unsigned bits, int64_t C)
{
    while (bits) {
        const int found = __popc(bits), count = found < ROWS_AHEAD ? found : ROWS_AHEAD;
        float ahead[ROWS_AHEAD];
        CUDA_EACH (i, 0, ROWS_AHEAD) {
            if (i < count)
                ahead[i] = value_get(column[(__ffs((int)bits) - 1) * C]);
            bits &= bits - 1;
        }
        CUDA_EACH (i, 0, ROWS_AHEAD)
            if (i < count)
                sum += ahead[i];
    }
    return sum;
}

/* A bit a row of the 256 looked at. */
static __device__ unsigned *rows_matches()
{
    __shared__ unsigned matches[CUDA_BLOCK / CUDA_WARP];
    return matches;
}

template <typename V>
static __global__ void rows_add_kernel(struct rows_target target, const V *from, const int32_t *index,
                                       int64_t rows, int T, int C)
{
    unsigned *const matches = rows_matches();
    for (int64_t owner = blockIdx.x; owner < rows; owner += gridDim.x) {
        if (seen_before(index, owner, T))
            continue;
        int64_t token = row_index(index, owner, T), start = target.at + token * C - target.first;
        if (start + C <= 0 || start >= target.count)
            continue; /* a row of another rank */
        for (int64_t first = owner; first < rows; first += CUDA_BLOCK) {
            int64_t other = first + threadIdx.x;
            unsigned found = __ballot_sync(0xffffffffu, other < rows && row_index(index, other, T) == token);
            __syncthreads(); /* the last matches were read */
            if (lane() == 0)
                matches[threadIdx.x / CUDA_WARP] = found;
            if (!__syncthreads_or(found != 0))
                continue;
            for (int c = (int)threadIdx.x; c < C; c += CUDA_BLOCK) {
                if (start + c < 0 || start + c >= target.count)
                    continue;
                float sum = target.to[start + c];
                for (int warp = 0; warp < CUDA_BLOCK / CUDA_WARP; warp++)
                    sum = add_column(sum, from + (first + warp * CUDA_WARP) * C + c, matches[warp], C);
                target.to[start + c] = sum;
            }
        }
    }
}

template <typename V>
static __global__ void position_gradient_kernel(float *dwpe, const V *dout, int B, int64_t TC)
{
    for (int64_t i = thread_first(); i < TC; i += thread_stride()) {
        float sum = dwpe[i];
        for (int64_t b = 0; b < B; b++)
            sum += value_get(dout[b * TC + i]);
        dwpe[i] = sum;
    }
}

template <typename V>
static int embedding_forward_of(void *out, const int32_t *tokens, const void *wte, const void *wpe, int B,
                                int T, int C, void *stream, struct muster_error *err)
{
    CUDA_CHECK_SIZE("embedding_forward", B, err);
    CUDA_CHECK_SIZE("embedding_forward", T, err);
    CUDA_CHECK_SIZE("embedding_forward", C, err);
    int64_t rows = (int64_t)B * T;
    struct cuda_grid grid = cuda_grid_warp_rows(rows);
    if (rows == 0)
        return 0;
    CUDA_LAUNCH("embedding_forward", err, embedding_kernel<V>, grid.blocks, grid.threads, 0, stream, (V *)out,
                tokens, (const V *)wte, (const V *)wpe, rows, T, C,
                C % value_vector<V>::COUNT == 0 && values_aligned(out, wte, wpe));
    return 0;
}

static int zero(float *values, int64_t n, cudaStream_t stream, struct muster_error *err)
{
    if (!values || n == 0)
        return 0;
    CUDA_CHECK("embedding_backward: cudaMemsetAsync",
               cudaMemsetAsync(values, 0, (size_t)n * sizeof *values, stream), err);
    return 0;
}

template <typename V>
static int add_rows(const char *operation, struct rows_target target, const V *from, const int32_t *index,
                    int64_t rows, int T, int C, cudaStream_t stream, struct muster_error *err)
{
    unsigned blocks = cuda_grid_block_rows(rows, CUDA_BLOCK).blocks;
    CUDA_LAUNCH(operation, err, rows_add_kernel<V>, blocks, CUDA_BLOCK, 0, stream, target, from, index, rows,
                T, C);
    return 0;
}

template <typename V>
static int rows_add_of(void *to, int64_t first, int64_t count, int64_t at, const void *rows,
                       const int32_t *index, int N, int T, int C, void *stream, struct muster_error *err)
{
    CUDA_CHECK_SIZE("rows_add", N, err);
    CUDA_CHECK_SIZE("rows_add", T, err);
    CUDA_CHECK_SIZE("rows_add", C, err);
    if (N == 0 || C == 0 || count == 0)
        return 0;
    return add_rows("rows_add", {(float *)to, first, count, at}, (const V *)rows, index, N, T, C,
                    (cudaStream_t)stream, err);
}

template <typename V>
static int embedding_backward_of(void *dwte, void *dwpe, const void *dout, const int32_t *tokens, int B,
                                 int T, int C, int vocabulary, int maxT, int beta, void *stream,
                                 struct muster_error *err)
{
    cudaStream_t queue = (cudaStream_t)stream;
    CUDA_CHECK_SIZE("embedding_backward", B, err);
    CUDA_CHECK_SIZE("embedding_backward", T, err);
    CUDA_CHECK_SIZE("embedding_backward", C, err);
    CUDA_CHECK_SIZE("embedding_backward", vocabulary, err);
    CUDA_CHECK_SIZE("embedding_backward", maxT, err);
    int64_t rows = (int64_t)B * T, TC = (int64_t)T * C;
    if (!beta && (zero((float *)dwte, (int64_t)vocabulary * C, queue, err) < 0 ||
                  zero((float *)dwpe, (int64_t)maxT * C, queue, err) < 0))
        return -1;
    if (rows == 0 || C == 0)
        return 0;
    if (dwte && add_rows("embedding_backward", {(float *)dwte, 0, (int64_t)vocabulary * C, 0},
                         (const V *)dout, tokens, rows, T, C, queue, err) < 0)
        return -1;
    if (dwpe) {
        struct cuda_grid grid = cuda_grid_elements(TC);
        CUDA_LAUNCH("embedding_backward", err, position_gradient_kernel<V>, grid.blocks, grid.threads, 0,
                    queue, (float *)dwpe, (const V *)dout, B, TC);
    }
    return 0;
}

#define TYPED_embedding_forward  ~,
#define TYPED_embedding_backward ~,
#define TYPED_rows_add           ~,
#include "kernels/cuda/typed.inc"
#undef TYPED_embedding_forward
#undef TYPED_embedding_backward
#undef TYPED_rows_add
