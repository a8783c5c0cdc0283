/* embedding.cu - out (B,T,C) = wte[tokens] + wpe (none where NULL), and its gradients, in the reference's
 * order: additions are the same ones, so the results are the same bits.
 *
 * dwte: several of the B*T rows may have one token. The first row with a token is its owner; its block alone
 * adds dout of all rows with that token, in order, 256 tokens looked at a time. No atomics and no work
 * memory, at the price of reading every token for every owner (from the L2 cache: 4 bytes beside the 4C of a
 * row of dout). dwpe: a thread has one (t,c) and adds over b. */
#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/operations.h"

static __global__ void forward_kernel(float *out, const int32_t *tokens, const float *wte, const float *wpe,
                                      int64_t rows, int T, int C)
{
    for (int64_t row = warp_first(); row < rows; row += warp_stride()) {
        const float *token = wte + (int64_t)tokens[row] * C, *position = wpe ? wpe + row % T * C : nullptr;
        for (int c = lane(); c < C; c += CUDA_WARP)
            out[row * C + c] = token[c] + (position ? position[c] : 0.0f);
    }
}

/* Has a row before this one the same token? The whole block asks. */
static __device__ bool seen_before(const int32_t *tokens, int64_t row)
{
    int32_t token = tokens[row];
    for (int64_t first = 0; first < row; first += CUDA_BLOCK) {
        int64_t other = first + threadIdx.x;
        if (__syncthreads_or(other < row && tokens[other] == token))
            return true;
    }
    return false;
}

static __global__ void token_gradient_kernel(float *dwte, const float *dout, const int32_t *tokens,
                                             int64_t rows, int C)
{
    __shared__ unsigned matches[CUDA_BLOCK / CUDA_WARP]; /* a bit a row of the 256 looked at */
    for (int64_t owner = blockIdx.x; owner < rows; owner += gridDim.x) {
        if (seen_before(tokens, owner))
            continue;
        int32_t token = tokens[owner];
        float *sum = dwte + (int64_t)token * C;
        for (int64_t first = owner; first < rows; first += CUDA_BLOCK) {
            int64_t other = first + threadIdx.x;
            unsigned found = __ballot_sync(0xffffffffu, other < rows && tokens[other] == token);
            __syncthreads(); /* the last matches were read */
            if (lane() == 0)
                matches[threadIdx.x / CUDA_WARP] = found;
            __syncthreads();
            for (int warp = 0; warp < CUDA_BLOCK / CUDA_WARP; warp++)
                for (unsigned left = matches[warp]; left; left &= left - 1) {
                    const float *from = dout + (first + warp * CUDA_WARP + __ffs((int)left) - 1) * C;
                    for (int c = (int)threadIdx.x; c < C; c += CUDA_BLOCK)
                        sum[c] += from[c];
                }
        }
    }
}

static __global__ void position_gradient_kernel(float *dwpe, const float *dout, int B, int64_t TC)
{
    for (int64_t i = thread_first(); i < TC; i += thread_stride()) {
        float sum = dwpe[i];
        for (int64_t b = 0; b < B; b++)
            sum += dout[b * TC + i];
        dwpe[i] = sum;
    }
}

extern "C" int cuda_embedding_forward(void *out, const int32_t *tokens, const void *wte, const void *wpe,
                                      int B, int T, int C, void *stream, struct muster_error *err)
{
    CUDA_CHECK_SIZE("embedding_forward", B, err);
    CUDA_CHECK_SIZE("embedding_forward", T, err);
    CUDA_CHECK_SIZE("embedding_forward", C, err);
    int64_t rows = (int64_t)B * T;
    struct cuda_grid grid = cuda_grid_warp_rows(rows);
    if (rows == 0)
        return 0;
    forward_kernel<<<grid.blocks, grid.threads, 0, (cudaStream_t)stream>>>(
        (float *)out, tokens, (const float *)wte, (const float *)wpe, rows, T, C);
    CUDA_CHECK_LAUNCH("embedding_forward", err);
    return 0;
}

static int zero(float *values, int64_t n, cudaStream_t stream, struct muster_error *err)
{
    if (!values || n == 0)
        return 0;
    CUDA_CHECK("embedding_backward", cudaMemsetAsync(values, 0, (size_t)n * sizeof *values, stream), err);
    return 0;
}

extern "C" int cuda_embedding_backward(void *dwte, void *dwpe, const void *dout, const int32_t *tokens, int B,
                                       int T, int C, int V, int maxT, int beta, void *stream,
                                       struct muster_error *err)
{
    cudaStream_t queue = (cudaStream_t)stream;
    CUDA_CHECK_SIZE("embedding_backward", B, err);
    CUDA_CHECK_SIZE("embedding_backward", T, err);
    CUDA_CHECK_SIZE("embedding_backward", C, err);
    CUDA_CHECK_SIZE("embedding_backward", V, err);
    CUDA_CHECK_SIZE("embedding_backward", maxT, err);
    int64_t rows = (int64_t)B * T, TC = (int64_t)T * C;
    if (!beta && (zero((float *)dwte, (int64_t)V * C, queue, err) < 0 ||
                  zero((float *)dwpe, (int64_t)maxT * C, queue, err) < 0))
        return -1;
    if (rows == 0 || C == 0)
        return 0;
    if (dwte) {
        unsigned blocks = cuda_grid_block_rows(rows, CUDA_BLOCK).blocks;
        token_gradient_kernel<<<blocks, CUDA_BLOCK, 0, queue>>>((float *)dwte, (const float *)dout, tokens,
                                                                rows, C);
        CUDA_CHECK_LAUNCH("embedding_backward", err);
    }
    if (dwpe) {
        struct cuda_grid grid = cuda_grid_elements(TC);
        position_gradient_kernel<<<grid.blocks, grid.threads, 0, queue>>>((float *)dwpe, (const float *)dout,
                                                                          B, TC);
        CUDA_CHECK_LAUNCH("embedding_backward", err);
    }
    return 0;
}
