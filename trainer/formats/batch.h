/* batch.h - the three sizes of a batch, of which two give the third: DeepSpeed's rules
 * (runtime/config.py, _configure_train_batch_size, 0.19). Pure. */
#ifndef MUSTER_TRAINER_FORMATS_BATCH_H
#define MUSTER_TRAINER_FORMATS_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/include/muster_error.h"

/* total = micro x accumulation x ranks. 0: not given. */
struct batch_sizes {
    int64_t total, micro, accumulation;
};

/* Fills what is not given, as DeepSpeed does. strict: what DeepSpeed refuses is refused. Otherwise total and
 * micro win over an accumulation that does not fit them, which becomes total / (micro x ranks), rounded up
 * (*changed, where the accumulation was given). MUSTER_E_INVALID: the sizes, the ranks and what fits. */
int batch_complete(struct batch_sizes *sizes, int ranks, bool strict, bool *changed,
                   struct muster_error *err);

#endif
