/* padding.h - how much of what an epoch computes are texts, and how much lies behind their ends. */
#ifndef MUSTER_TRAINER_LABELLED_PADDING_H
#define MUSTER_TRAINER_LABELLED_PADDING_H

#include "trainer/labelled/labelled.h"

enum { PADDING_SAMPLES = 1 << 16 };

struct padding {
    int64_t samples;  /* that were counted: of the first epoch, at most about PADDING_SAMPLES */
    int64_t tokens;   /* of their texts, as far as they are read */
    int64_t computed; /* positions, where each micro-batch ends with its longest text */
    int64_t drawn;    /* the same without length_buckets */
};
/* step, micro_batch: samples of them. Micro-batches of all ranks lie one behind the other in a step, so that
 * the sums are of any world. */
struct padding padding_count(const struct labelled *set, int64_t step, int64_t micro_batch);

#endif
