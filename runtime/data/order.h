/* order.h - which sample comes when: pure functions of (seed, epoch, index). Nothing is stored, every rank
 * agrees, and any sample is found in constant time. */
#ifndef MUSTER_RUNTIME_DATA_ORDER_H
#define MUSTER_RUNTIME_DATA_ORDER_H

#include <stdint.h>

/* The bijection on [0, n): a four-round Feistel network, walked until it falls inside n. */
uint64_t order_permute(uint64_t seed, uint64_t epoch, uint64_t index, uint64_t n);

#endif
