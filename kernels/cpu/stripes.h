/* stripes.h - column sums over rows (the gradients of a norm's weights) by several threads, with a result
 * that does not depend on their number: rows are cut into blocks, whose number depends on N alone, each block
 * sums into a stripe of `work`, and the stripes are added in order. */
#ifndef MUSTER_KERNELS_CPU_STRIPES_H
#define MUSTER_KERNELS_CPU_STRIPES_H

#include "kernels/cpu/cpu.h"

enum { STRIPE_BLOCKS = 32 };

static inline int stripe_blocks(int N)
{
    int blocks = N < STRIPE_BLOCKS ? N : STRIPE_BLOCKS;
    return blocks < 1 ? 1 : blocks; /* without rows there is still a sum: zero */
}

/* The first row of a block; that of the block after the last one is N. */
static inline int stripe_first(int N, int block)
{
    return (int)((int64_t)N * block / stripe_blocks(N));
}

/* out (C) = beta*out + the sum of the blocks' stripes, which are `distance` floats apart; out NULL: skipped
 */
static inline void stripes_add(float *__restrict out, const float *__restrict stripes, int blocks,
                               size_t distance, int C, int beta)
{
    if (!out)
        return;
    for (int c = 0; c < C; c++)
        out[c] = beta ? out[c] + stripes[c] : stripes[c];
    for (int block = 1; block < blocks; block++)
        for (int c = 0; c < C; c++)
            out[c] += stripes[(size_t)block * distance + c];
}

#endif
