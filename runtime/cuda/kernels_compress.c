/* kernels_compress.c - struct kernels_compress of a CUDA device. */
#include "kernels/cuda/operations.h"
#include "runtime/cuda/kernels_enqueue.h"

static void enqueue_topk_encode(void *encoded, void *dense, void *gradient, void *feedback,
                                const struct compress_piece *pieces, int count,
                                const struct step_scalars *scalars, double *figures, void *work, void *stream)
{
    ENQUEUE(cuda_topk_encode(encoded, dense, gradient, feedback, pieces, count, scalars, figures, work, queue,
                             err));
}

static void enqueue_topk_decode(void *gradient, const void *encoded, const void *dense,
                                const struct compress_piece *pieces, int count, int replicas, int64_t stride,
                                const struct step_scalars *scalars, void *stream)
{
    ENQUEUE(cuda_topk_decode(gradient, encoded, dense, pieces, count, replicas, stride, scalars, queue, err));
}

static void enqueue_power_left(void *left, void *dense, void *gradient, const void *feedback,
                               const void *factor, const struct compress_piece *pieces, int count,
                               const struct step_scalars *scalars, void *stream)
{
    ENQUEUE(cuda_power_left(left, dense, gradient, feedback, factor, pieces, count, scalars, queue, err));
}

static void enqueue_power_right(void *left, void *right, const void *gradient,
                                const struct compress_piece *pieces, int count,
                                const struct step_scalars *scalars, void *stream)
{
    ENQUEUE(cuda_power_right(left, right, gradient, pieces, count, scalars, queue, err));
}

static void enqueue_power_decode(void *gradient, void *feedback, const void *left, void *right, void *factor,
                                 const void *dense, const struct compress_piece *pieces, int count,
                                 int replicas, const struct step_scalars *scalars, double *figures,
                                 void *work, void *stream)
{
    ENQUEUE(cuda_power_decode(gradient, feedback, left, right, factor, dense, pieces, count, replicas,
                              scalars, figures, work, queue, err));
}

const struct kernels_compress kernels_compress_cuda = {
    .topk_work = cuda_topk_work,
    .topk_encode = enqueue_topk_encode,
    .topk_decode = enqueue_topk_decode,
    .power_left = enqueue_power_left,
    .power_right = enqueue_power_right,
    .power_work = cuda_power_work,
    .power_decode = enqueue_power_decode,
};
