/* next_batch.h - the batch of the next step is made by a thread while a step runs. Two batches' memory, from
 * creation to destruction; which samples a step has is a function of the step alone, so that the thread
 * changes no number. */
#ifndef MUSTER_RUNTIME_APP_NEXT_BATCH_H
#define MUSTER_RUNTIME_APP_NEXT_BATCH_H

#include "runtime/data/data.h"

struct next_batch_options {
    const struct data *data; /* outlives it; only read */
    int rank, world_size, micro_batches, micro_batch, positions;
};
struct next_batch;

/* NULL on error. */
struct next_batch *next_batch_create(const struct next_batch_options *options, struct muster_error *err);
void next_batch_destroy(struct next_batch *next); /* accepts NULL */
/* The (micro_batches, micro_batch, positions) tokens and targets of a step, number 0 or more. They are the
 * caller's until the next call, while the thread makes those of number + 1; where another number comes next
 * (a run that goes back), its batch is made in the call. Returns how many targets count; -1 where the samples
 * cannot be read. */
int64_t next_batch_take(struct next_batch *next, int64_t number, const int32_t **tokens,
                        const int32_t **targets, struct muster_error *err);
/* What all calls so far have waited for batches, in ns. */
int64_t next_batch_waited_ns(const struct next_batch *next);

#endif
