/* compress.cuh - shared by the kernels that compress gradients: runs of tensors as an argument of a kernel,
 * and the arithmetic of runtime/compress, operation by operation, so that results have its bits.
 *
 * A launch has up to CUDA_PIECES runs, one each in the grid's y. The grid's x is chunks of a run, of which a
 * block has one; blocks beyond the run's last chunk do nothing. */
#ifndef MUSTER_KERNELS_CUDA_COMPRESS_CUH
#define MUSTER_KERNELS_CUDA_COMPRESS_CUH

#include "kernels/cuda/check.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/operations.h"

struct cuda_piece {
    int64_t at, first, count, kept, rows, columns, left, right;
    int64_t sent, dense; /* kept elements, and dense elements, of the runs before */
    int rank;
};
struct cuda_pieces {
    struct cuda_piece piece[CUDA_PIECES];
};

/* The runs of one launch; `next` goes through all of a gradient. */
struct cuda_batch {
    struct cuda_pieces pieces;
    int count;
    unsigned chunks, kept_chunks; /* most of a run, and of a run's kept elements */
    int64_t tallest, widest;      /* rows of the tallest matrix; elements of the largest right factor */
};

static inline int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The next runs, from *next on; false: there are none. sent, dense: before *next. */
static inline bool next_batch(const struct compress_piece *pieces, int count, int *next, int64_t *sent,
                              int64_t *dense, struct cuda_batch *batch)
{
    batch->count = 0;
    batch->chunks = batch->kept_chunks = 0;
    batch->tallest = batch->widest = 0;
    for (; *next < count && batch->count < CUDA_PIECES; ++*next) {
        const struct compress_piece *p = &pieces[*next];
        struct cuda_piece *to = &batch->pieces.piece[batch->count++];
        to->at = p->at;
        to->first = p->first;
        to->count = p->count;
        to->kept = p->kept;
        to->rows = p->rank ? p->rows : 0;
        to->columns = p->rank ? p->columns : 1;
        to->left = p->left;
        to->right = p->right;
        to->rank = p->rank;
        to->sent = *sent;
        to->dense = *dense;
        *sent += p->kept;
        *dense += p->kept || p->rank ? 0 : p->count;
        batch->chunks = (unsigned)larger(batch->chunks, cuda_compress_chunks(p->count));
        batch->kept_chunks = (unsigned)larger(batch->kept_chunks, cuda_compress_chunks(p->kept));
        batch->tallest = larger(batch->tallest, to->rows);
        batch->widest = larger(batch->widest, p->rank ? p->columns * p->rank : 0);
    }
    return batch->count > 0;
}

static __device__ inline bool is_dense(const struct cuda_piece *p)
{
    return p->kept == 0 && p->rank == 0;
}

/* Without fused operations, as the host rounds. */
static __device__ inline double times(double a, double b)
{
#ifdef CUDA_EMULATED
    volatile double product = a * b;
    return product;
#else
    return __dmul_rn(a, b);
#endif
}
static __device__ inline double plus(double a, double b)
{
#ifdef CUDA_EMULATED
    return a + b;
#else
    return __dadd_rn(a, b);
#endif
}

/* The chunk of a run that belongs to this block: elements from `begin` up to `end`. */
struct cuda_chunk {
    int64_t begin, end;
};
static __device__ inline struct cuda_chunk chunk_of(int64_t count)
{
    struct cuda_chunk chunk;
    const int64_t size = cuda_compress_chunk(count);
    chunk.begin = size * blockIdx.x < count ? size * blockIdx.x : count;
    chunk.end = chunk.begin + size < count ? chunk.begin + size : count;
    return chunk;
}

/* gradient += feedback, for all runs that are compressed. */
int cuda_compress_begin(float *gradient, const float *feedback, float *dense, const struct cuda_batch *batch,
                        const struct step_scalars *scalars, void *stream, struct muster_error *err);
/* Dense runs go back to the gradient. */
int cuda_compress_unpack(float *gradient, const float *dense, const struct cuda_batch *batch,
                         const struct step_scalars *scalars, void *stream, struct muster_error *err);
/* figures[0..1] += the partial sums of all chunks of the runs, in order. partial: two a chunk. */
int cuda_compress_figures(double *figures, const double *partial, const struct cuda_batch *batch,
                          const struct step_scalars *scalars, void *stream, struct muster_error *err);

#endif
