/* next_batch.h - a rank's batches are made by a thread, two steps ahead: the one of the next step is there
 * before this step begins, so that its number of targets that count can be summed over the ranks in this
 * step.
 *
 * Three batches' memory, from creation to destruction. Which samples a step has is a function of the step's
 * first sample and of the rank alone (config/train_batch.h), so that the thread changes no number. */
#ifndef MUSTER_TRAINER_RUN_NEXT_BATCH_H
#define MUSTER_TRAINER_RUN_NEXT_BATCH_H

#include "runtime/config/train_batch.h"
#include "trainer/run/batch_source.h"

struct next_batch_options {
    struct batch_source source;
    struct train_batch batch;
};
struct next_batch;

/* One step's batch on this rank, and what is known of the next one's. */
struct step_batch {
    const void *arrays[BATCH_SOURCE_ARRAYS]; /* (samples) each, as the source has them */
    const uint64_t *ids;                     /* (samples): of the run, as data.h numbers them */
    int64_t samples;                         /* 0 too */
    int64_t targets_next;                    /* that count in the next step; -1: it could not be read */
};

/* NULL on error. */
struct next_batch *next_batch_create(const struct next_batch_options *options, struct muster_error *err);
void next_batch_destroy(struct next_batch *next); /* accepts NULL */
/* The batch of the step whose first sample is `first`, 0 or more. It is the caller's until the next call,
 * while the thread makes that of the step but one; where another step comes next (the first one, a run that
 * goes back), its batch and the one behind it are made in the call. -1 where its samples cannot be read. */
int next_batch_take(struct next_batch *next, int64_t first, struct step_batch *out, struct muster_error *err);
/* What all calls so far have waited for batches, in ns. */
int64_t next_batch_waited_ns(const struct next_batch *next);

#endif
