/* data_internal.h - a set of samples, for data.c and sample.c. */
#ifndef MUSTER_TRAINER_DATA_DATA_INTERNAL_H
#define MUSTER_TRAINER_DATA_DATA_INTERNAL_H

#include <stdbool.h>

#include "trainer/data/corpus.h"
#include "trainer/data/data.h"
#include "trainer/data/selection.h"

/* Consecutive samples of a source, but for those that usable.h takes out: windows, or documents. */
struct data_part {
    struct corpus *corpus;
    int64_t first, samples;
    int64_t *kept;              /* (samples) their numbers; NULL: first and those behind it */
    struct selection selection; /* of the corpus' documents; count 0: all of it */
};

struct data {
    struct data_part *part; /* (count) */
    int count;
    bool owned;   /* the corpora are this one's */
    bool ordered; /* samples come as in the sources */
    bool masked;  /* some tokens are no targets */
    int *shares;  /* (count) of ORDER_BLOCK samples; NULL: by size */
    int T;
    enum data_packing packing;
    int64_t samples, vocabulary;
    uint64_t seed;
    struct data *validation;
    int64_t tokens, cut;
    struct buffer identity;
    int files;
};

#endif
