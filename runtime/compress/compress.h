/* compress.h - gradients in fewer bytes between replicas, with error feedback. Pure functions on host memory.
 *
 * Each replica adds to its gradient the part that it did not send so far, and sends an approximation of this
 * sum. All replicas add up the approximations in the order of the replicas, so that they hold the same bits.
 * A replica keeps the difference between its sum and its approximation: the error feedback.
 *
 * Top-k (Aji and Heafield, arXiv 1704.05021): the elements of a tensor with the largest magnitudes. Of equal
 * magnitudes the first ones are sent.
 * PowerSGD (Vogels et al., arXiv 1905.13727): a matrix M becomes left x right', with left = M factor made
 * orthonormal, and right = M' left. left and right are summed over the ranks; the next step begins with right
 * as its factor (warm start). */
#ifndef MUSTER_RUNTIME_COMPRESS_COMPRESS_H
#define MUSTER_RUNTIME_COMPRESS_COMPRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"

/* One gradient. All arrays are of dtype, f32 or f64. */
struct compress_call {
    enum dtype dtype;
    void *gradient; /* becomes the sum of gradient and feedback, then the replicas' sum */
    void *feedback; /* of as many elements; NULL: none is kept */
    const struct compress_piece *pieces;
    int count;
    /* The optimizer's factor of the gradient, loss scale included: feedback is stored multiplied by it, so
     * that it does not depend on the loss scale. */
    double factor;
    bool skip;       /* the step changes nothing: gradient, feedback and factor stay, and zeros are sent */
    double *figures; /* [2]: += squares of the part not sent, and of the whole; dense pieces do not count */
    enum dtype wire; /* of the values that top-k sends: bf16 or f16; any other: dtype */
};

/* Elements that top-k sends of a run. */
int64_t compress_kept(double ratio, int64_t count);
/* Elements in a buffer: of all dense pieces, of all kept elements, of all left and of all right factors. */
struct compress_sizes {
    int64_t dense, kept, left, right;
};
struct compress_sizes compress_measure(const struct compress_piece *pieces, int count);

/* Bytes of that many kept values, each of `size` bytes, before their places: a multiple of 4. */
static inline int64_t compress_values_bytes(int64_t kept, int size)
{
    return (kept * size + 3) / 4 * 4;
}
/* encoded: the kept values, of c->wire, then their places in their pieces, 4 bytes each. 16 bits round the
 * values, the largest finite value of the type at most; the feedback keeps the rest. The choice is that of
 * dtype. dense: the dense pieces, of dtype; may be NULL where there are none. */
void compress_topk_encode(const struct compress_call *c, void *encoded, void *dense);
/* encoded: of all replicas, `stride` bytes apart. dense: summed. */
void compress_topk_decode(const struct compress_call *c, const void *encoded, int replicas, int64_t stride,
                          const void *dense);

/* left = (gradient + feedback) factor, of this rank's elements. */
void compress_left(const struct compress_call *c, const void *factor, void *left, void *dense);
/* left, summed, becomes orthonormal; right = (gradient + feedback)' left, of this rank's elements. */
void compress_right(const struct compress_call *c, void *left, void *right);
/* right: summed. The gradient becomes left right', and the feedback the rest. right becomes
 * orthonormal and is copied to factor, for the next step. */
void compress_power_decode(const struct compress_call *c, const void *left, void *right, int replicas,
                           const void *dense, void *factor);
/* Makes the columns of a factor orthonormal. A column of zeros, or in the space of the columns before it,
 * becomes that of `other`, or a unit vector; with other NULL it becomes 0. */
void compress_orthonormal(enum dtype dtype, void *columns, int64_t rows, int rank, const void *other);

#endif
