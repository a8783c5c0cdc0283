/* train_batch.c - see train_batch.h. */
#include "runtime/config/train_batch.h"

int64_t train_batch_micro_batches(const struct train_batch *b)
{
    const int64_t at_once = b->micro_batch * b->ranks;
    return (b->global_batch + at_once - 1) / at_once;
}

int64_t train_batch_samples(const struct train_batch *b)
{
    const int64_t before = (train_batch_micro_batches(b) - 1) * b->micro_batch; /* these are whole */
    int64_t last = b->global_batch - train_batch_row(b, before);
    last = last < 0 ? 0 : last > b->micro_batch ? b->micro_batch : last;
    return before + last;
}

int64_t train_batch_row(const struct train_batch *b, int64_t i)
{
    const int64_t micro = i / b->micro_batch;
    return (micro * b->ranks + b->rank) * b->micro_batch + i % b->micro_batch;
}
