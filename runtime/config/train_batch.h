/* train_batch.h - which samples of a step a rank runs. Pure.
 *
 * A step has training.global_batch samples, rows 0 to global_batch - 1, in every world. Micro-batch m of rank
 * r of n holds micro_batch rows, from row (m*n + r)*micro_batch on. All ranks run the same number of
 * micro-batches, so that their schedules are equal. Rows from global_batch on are empty: they are the end
 * of the last micro-batch, and their targets do not count. */
#ifndef MUSTER_RUNTIME_CONFIG_TRAIN_BATCH_H
#define MUSTER_RUNTIME_CONFIG_TRAIN_BATCH_H

#include <stdint.h>

struct train_batch {
    int64_t global_batch, micro_batch;
    int rank, ranks;
};

/* Micro-batches of a step on every rank: ceil(global_batch / (micro_batch * ranks)). */
int64_t train_batch_micro_batches(const struct train_batch *batch);
/* Samples of a step on this rank, from 0. They come first in the micro-batches * micro_batch rows. */
int64_t train_batch_samples(const struct train_batch *batch);
/* The row in the global batch of this rank's sample i, counted from 0. */
int64_t train_batch_row(const struct train_batch *batch, int64_t i);

#endif
