/* batches.h - the samples of batches: where they come from, and a thread that makes the batches of the next
 * two steps.
 *
 * The batch of the next step is there before a step begins, so that the step can sum its number of targets
 * over the ranks. The memory of three batches is held from creation to destruction. The samples of a step
 * depend on its first sample and on the rank alone (config/train_batch.h): the thread changes no number. */
#ifndef MUSTER_TRAINER_RUN_BATCHES_H
#define MUSTER_TRAINER_RUN_BATCHES_H

#include "runtime/config/train_batch.h"
#include "trainer/data/data.h"
#include "trainer/labelled/labelled.h"
#include "trainer/pictures/pictures.h"

enum { BATCH_SOURCE_ARRAYS = 4 };

struct batch_source {
    const void *from;                  /* outlives the source; only read, by any thread */
    int arrays;                        /* in the order of the model's inputs */
    size_t bytes[BATCH_SOURCE_ARRAYS]; /* bytes of a sample in each array */
    int64_t samples;                   /* in an epoch; 0: there are none */
    /* Reads sample g of the run, an address for each array. Returns its targets that count; -1 on error. */
    int (*read)(const struct batch_source *source, uint64_t g, void *const *to, struct muster_error *err);
};

struct batch_source batch_source_texts(const struct data *data, int positions);
struct batch_source batch_source_pictures(const struct pictures *pictures);
/* types: tokens have types, all the first, in an array after theirs. */
struct batch_source batch_source_labelled(const struct labelled *set, int positions, bool types);
/* Memory for `samples` samples in each array (mem_free); false: there is none. */
bool batch_source_reserve(const struct batch_source *source, size_t samples,
                          void *arrays[BATCH_SOURCE_ARRAYS]);
/* Reads sample g of the run to place `at` of the arrays; returns as `read`. */
int batch_source_read(const struct batch_source *source, uint64_t g, void *const arrays[BATCH_SOURCE_ARRAYS],
                      int64_t at, struct muster_error *err);

struct next_batch_options {
    struct batch_source source;
    struct train_batch batch;
};
struct next_batch;

/* The batch of a step on this rank, and the number of targets of the next one. */
struct step_batch {
    const void *arrays[BATCH_SOURCE_ARRAYS]; /* (samples) each, in the layout of the source */
    const uint64_t *ids;                     /* (samples): numbers in the run, see data.h */
    int64_t samples;                         /* 0 too */
    int64_t targets_next;                    /* targets of the next step that count; -1: not readable */
};

/* NULL on error. */
struct next_batch *next_batch_create(const struct next_batch_options *options, struct muster_error *err);
void next_batch_destroy(struct next_batch *next); /* accepts NULL */
/* The batch of the step whose first sample is `first`, 0 or more. The caller may read it until the next call;
 * the thread makes the batch of the step after the next. Another step than the expected one (the first step,
 * a run that goes back) has its batch and the one after it made in the call. -1: its samples cannot be read.
 */
int next_batch_take(struct next_batch *next, int64_t first, struct step_batch *out, struct muster_error *err);
/* Time in ns that all calls have waited for batches. */
int64_t next_batch_waited_ns(const struct next_batch *next);

#endif
