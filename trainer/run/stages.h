/* stages.h - a training in stages: each is a run with settings, data and a trainer of its own, which begins
 * from the checkpoint at the end of the stage before. See formats/stages.h.
 *
 * The note of a checkpoint has its stage: a run that is started again goes on in the stage of the newest
 * checkpoint. Where that stage has ended it takes no step, and the next stage begins. */
#ifndef MUSTER_TRAINER_RUN_STAGES_H
#define MUSTER_TRAINER_RUN_STAGES_H

#include "trainer/run/run.h"

/* The stage that is trained. */
struct stage {
    int count;        /* number of stages; 0: the training has none, and the rest is 0 */
    int number;       /* from 0 */
    const char *name; /* NULL: it has none */
};

/* Collective. A training whose settings have stages: finds the stage to begin with, and tries the later ones.
 * run->config becomes the settings of that stage. Nothing where there are no stages. */
int stages_open(struct run *run, struct muster_error *err);
/* Collective with stages_open of ranks that were started anew: they begin in this rank's stage. */
int stages_rejoin(struct run *run, struct muster_error *err);
void stages_close(struct run *run);
struct stage stages_now(const struct run *run);
bool stages_is_last(const struct run *run); /* true of a training without stages */
/* Gives the trainer its stage, before it resumes. */
int stages_set(struct run *run, struct muster_error *err);
/* Goes on with another stage; follows: the step at which the stage before has ended, -1: not known. */
int stages_go_to(struct run *run, int number, int64_t follows, struct muster_error *err);
/* Prints "stage 2 of 3 (long) begins after step 1000: ..." */
void stages_show(const struct run *run);

/* The settings of each stage, one after the other, for a plan; an error of visit ends it. */
int stages_each(const struct train_config *whole,
                int (*visit)(void *context, int number, const char *name, const struct train_config *stage,
                             struct muster_error *err),
                void *context, struct muster_error *err);

#endif
