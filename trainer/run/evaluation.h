/* evaluation.h - evaluations of a run on the samples that are held out. */
#ifndef MUSTER_TRAINER_RUN_EVALUATION_H
#define MUSTER_TRAINER_RUN_EVALUATION_H

#include "trainer/run/run.h"

/* Figures of the last evaluation. */
struct evaluation_figures {
    int64_t samples;              /* samples of an evaluation, over all ranks */
    int64_t counted;              /* targets that counted, over all ranks */
    int64_t ns;                   /* wall time; 0: there was none yet */
    double loss;                  /* mean over the targets */
    double accuracy;              /* percent of the classes that were found; NaN: no classes */
    double precision, recall, f1; /* 0 to 1; 0 without classes */
    bool best;                    /* the lowest loss so far */
    bool lowers;                  /* ReduceLROnPlateau has lowered the learning rate */
};

/* Memory for evaluations, where samples are held out; an error of this rank alone. */
int evaluation_open(struct run *run, struct muster_error *err);
void evaluation_close(struct run *run);
/* Collective, after so many steps. Evaluates if it is due and was not done yet: 1; 0: not; -1. *keep: a
 * checkpoint of this step is to be written, and stays as the best. */
int evaluation_step(struct run *run, int64_t step, bool *keep, struct muster_error *err);
/* Collective: evaluates, with no consequence. */
int evaluation_now(struct run *run, struct muster_error *err);
/* Collective: the bytes of text of all targets that count in an evaluation; NaN: the samples are no texts, or
 * the tokenizer has no bytes for a token. */
int evaluation_bytes(struct run *run, double *bytes, struct muster_error *err);
/* Whether evaluations end the training here; the same on every rank. */
bool evaluation_ends(const struct run *run);
/* The figures; ns 0 before the first evaluation. */
const struct evaluation_figures *evaluation_last(const struct run *run);

#endif
