/* compress.cu - common to the methods of compression (rules: runtime/compress): feedback, dense runs, and the
 * figures of a step. */
#include "kernels/cuda/compress/compress.cuh"

/* Dense runs are copied out; under skip zeros are sent, and the gradient stays. */
static __global__ void compress_begin_kernel(float *gradient, const float *feedback, float *dense,
                                             struct cuda_pieces pieces, const struct step_scalars *scalars)
{
    const struct cuda_piece p = pieces.piece[blockIdx.y];
    const struct cuda_chunk chunk = chunk_of(p.count);
    const bool skip = scalars->skip != 0;
    const double unscale = 1 / scalars->clip;
    float *sum = gradient + p.at;
    for (int64_t i = chunk.begin + threadIdx.x; i < chunk.end; i += blockDim.x) {
        if (is_dense(&p) && dense)
            dense[p.dense + i] = skip ? 0.0f : sum[i];
        else if (!is_dense(&p) && feedback && !skip)
            sum[i] = (float)plus((double)sum[i], times((double)feedback[p.at + i], unscale));
    }
}

static __global__ void compress_unpack_kernel(float *gradient, const float *dense, struct cuda_pieces pieces,
                                              const struct step_scalars *scalars)
{
    const struct cuda_piece p = pieces.piece[blockIdx.y];
    const struct cuda_chunk chunk = chunk_of(p.count);
    if (scalars->skip || !is_dense(&p))
        return;
    for (int64_t i = chunk.begin + threadIdx.x; i < chunk.end; i += blockDim.x)
        gradient[p.at + i] = dense[p.dense + i];
}

static __global__ void compress_figures_kernel(double *figures, const double *partial,
                                               struct cuda_pieces pieces, int count,
                                               const struct step_scalars *scalars)
{
    double left = 0, whole = 0;
    if (scalars->skip)
        return;
    for (int y = 0; y < count; y++) {
        const int64_t chunks = is_dense(&pieces.piece[y]) ? 0 : cuda_compress_chunks(pieces.piece[y].count);
        for (int64_t c = threadIdx.x; c < chunks; c += CUDA_WARP) {
            left += partial[2 * (CUDA_COMPRESS_CHUNKS * y + c)];
            whole += partial[2 * (CUDA_COMPRESS_CHUNKS * y + c) + 1];
        }
    }
    left = warp_sum(left);
    whole = warp_sum(whole);
    if (threadIdx.x == 0) {
        figures[0] += left;
        figures[1] += whole;
    }
}

int cuda_compress_begin(float *gradient, const float *feedback, float *dense, const struct cuda_batch *batch,
                        const struct step_scalars *scalars, void *stream, struct muster_error *err)
{
    const dim3 grid(batch->chunks, (unsigned)batch->count);
    if (grid.x)
        CUDA_LAUNCH("compress", err, compress_begin_kernel, grid, CUDA_BLOCK, 0, stream, gradient, feedback,
                    dense, batch->pieces, scalars);
    return 0;
}

int cuda_compress_unpack(float *gradient, const float *dense, const struct cuda_batch *batch,
                         const struct step_scalars *scalars, void *stream, struct muster_error *err)
{
    const dim3 grid(batch->chunks, (unsigned)batch->count);
    if (grid.x && dense)
        CUDA_LAUNCH("compress", err, compress_unpack_kernel, grid, CUDA_BLOCK, 0, stream, gradient, dense,
                    batch->pieces, scalars);
    return 0;
}

int cuda_compress_figures(double *figures, const double *partial, const struct cuda_batch *batch,
                          const struct step_scalars *scalars, void *stream, struct muster_error *err)
{
    CUDA_LAUNCH("compress", err, compress_figures_kernel, 1, CUDA_WARP, 0, stream, figures, partial,
                batch->pieces, batch->count, scalars);
    return 0;
}
