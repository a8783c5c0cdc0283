/* order.h - which sample comes when: pure functions of (seed, epoch, index). Nothing is stored, every rank
 * agrees, and any sample is found in constant time. */
#ifndef MUSTER_TRAINER_DATA_ORDER_H
#define MUSTER_TRAINER_DATA_ORDER_H

#include <stdint.h>

/* The bijection on [0, n): a four-round Feistel network, walked until it falls inside n. */
uint64_t order_permute(uint64_t seed, uint64_t epoch, uint64_t index, uint64_t n);

/* Sources with weights: of every ORDER_BLOCK samples in a row each source has its share, spread over them. */
enum { ORDER_BLOCK = 4096 };
/* How many of a block each of `count` sources has: the largest remainders of weight / sum are rounded up, and
 * none has less than one. Weights are above 0, count at most ORDER_BLOCK. */
void order_shares(const double *weights, int count, int *shares);
struct order_turn {
    int source;
    uint64_t number; /* of this source's samples so far */
};
/* Whose turn sample g is. */
struct order_turn order_turn(uint64_t seed, const int *shares, int count, uint64_t g);

#endif
