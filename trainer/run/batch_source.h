/* batch_source.h - where the samples of a batch come from: texts, pictures, or texts with labels. */
#ifndef MUSTER_TRAINER_RUN_BATCH_SOURCE_H
#define MUSTER_TRAINER_RUN_BATCH_SOURCE_H

#include "trainer/data/data.h"
#include "trainer/labelled/labelled.h"
#include "trainer/pictures/pictures.h"

enum { BATCH_SOURCE_ARRAYS = 3 };

struct batch_source {
    const void *from;                  /* outlives it; only read, by any thread */
    int arrays;                        /* in the order of the model's inputs */
    size_t bytes[BATCH_SOURCE_ARRAYS]; /* of a sample in each */
    int64_t samples;                   /* of an epoch */
    /* Sample g of the run, an address for each array. Returns how many of its targets count; -1 on error. */
    int (*read)(const struct batch_source *source, uint64_t g, void *const *to, struct muster_error *err);
};

struct batch_source batch_source_texts(const struct data *data, int positions);
struct batch_source batch_source_pictures(const struct pictures *pictures);
struct batch_source batch_source_labelled(const struct labelled *set, int positions);

/* Memory for arrays of so many samples; false: there is none. Freed by mem_free, one by one. */
bool batch_source_reserve(const struct batch_source *source, size_t samples,
                          void *arrays[BATCH_SOURCE_ARRAYS]);
/* Reads sample g as number `at` of the arrays; as `read`. */
int batch_source_read(const struct batch_source *source, uint64_t g, void *const arrays[BATCH_SOURCE_ARRAYS],
                      int64_t at, struct muster_error *err);

#endif
