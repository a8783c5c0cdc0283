/* shard_order.h - the order in which a pass gathers its groups: recorded the first time, followed from then
 * on, recorded anew where it has changed. Pure.
 *
 * Every rank makes the same calls, and nothing here depends on time, so all ranks prefetch alike. */
#ifndef MUSTER_RUNTIME_SHARD_SHARD_ORDER_H
#define MUSTER_RUNTIME_SHARD_SHARD_ORDER_H

#include <stdbool.h>

/* Zeroed: nothing recorded. */
struct shard_order {
    int *recorded, *actual; /* groups, by time; actual: since the pass began */
    int recorded_count, actual_count;
    int recorded_room, actual_room; /* entries allocated */
    int position;                   /* in recorded: the next entry that is expected */
    bool diverged;                  /* actual is not how recorded begins */
};

enum { SHARD_ORDER_MAX = 1 << 22 }; /* gathers of one pass */

/* A pass begins. If the pass that ends differs from the beginning of the record, it becomes the record. */
void shard_order_begin(struct shard_order *order);
/* The caller gathers a group. -1: no memory, or more than SHARD_ORDER_MAX gathers without a new pass. */
int shard_order_demand(struct shard_order *order, int group);
/* The next groups after the last demand, each named once, at most depth; returns how many. */
int shard_order_next(const struct shard_order *order, int depth, int *groups);
void shard_order_free(struct shard_order *order);

#endif
