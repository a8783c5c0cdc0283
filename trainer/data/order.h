/* order.h - the order of samples: pure functions of (seed, epoch, index). Nothing is stored, every rank
 * agrees, and any sample is found in constant time. */
#ifndef MUSTER_TRAINER_DATA_ORDER_H
#define MUSTER_TRAINER_DATA_ORDER_H

#include <stdint.h>

/* A bijection on [0, n): a four-round Feistel network, applied until the result is below n. */
uint64_t order_permute(uint64_t seed, uint64_t epoch, uint64_t index, uint64_t n);

/* Sources with weights: each block of ORDER_BLOCK consecutive samples has each source's share, mixed. */
enum { ORDER_BLOCK = 4096 };
/* The number of samples of each of `count` sources in a block: the largest remainders of weight / sum are
 * rounded up, and each source has at least one sample. Weights are above 0, count at most ORDER_BLOCK. */
void order_shares(const double *weights, int count, int *shares);
struct order_turn {
    int source;
    uint64_t number; /* samples of this source before this sample */
};
/* The source of sample g. */
struct order_turn order_turn(uint64_t seed, const int *shares, int count, uint64_t g);

#endif
