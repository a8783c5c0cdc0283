/* observers.h - what watches a run without changing it: progress lines, the log, traces, slow ranks, figures
 * for the launcher, the place of a rank, the samples of steps.
 *
 * An observer is a row of struct observer; RUN_OBSERVERS in run.h is the table. Its state is a struct of its
 * own file, kept in its slot of run->observers. run_steps.c and train.c know the table alone. */
#ifndef MUSTER_TRAINER_RUN_OBSERVERS_H
#define MUSTER_TRAINER_RUN_OBSERVERS_H

#include "trainer/run/batches.h"
#include "trainer/run/run.h"

/* A step, as observers see it. Later observers see the members that earlier ones fill. */
struct run_step {
    int64_t number;                 /* from 1 */
    const struct step_batch *batch; /* samples of this rank */
    struct muster_result result;    /* zero before the step */
    bool last;                      /* no step follows, as far as is known */
    struct progress_step figures;   /* members of the GPU by `gpu`, resident_bytes by `show` */
    double loss_z, grad_norm_z;     /* by `watch`: standard deviations from the recent mean */
    int slow_rank;                  /* by `watch`; -1: none */
    double slow_ms;                 /* by `watch`: time that the others wait for it in a step */
};

/* Any function may be NULL. Errors of `open`, `begin` and `step` end the run. */
struct observer {
    /* The trainer of the run, or of its next stage, is open, and steps follow. */
    int (*open)(struct run *run, struct muster_error *err);
    int (*begin)(struct run *run, const struct run_step *step, struct muster_error *err); /* before a step */
    int (*step)(struct run *run, struct run_step *step, struct muster_error *err);        /* after it */
    /* Instead of `step`: the run has gone back to an earlier step. */
    void (*back)(struct run *run, const struct run_step *step);
    void (*evaluation)(struct run *run, int64_t step);
    void (*end)(struct run *run);   /* all steps of the run or stage are done */
    void (*stage)(struct run *run); /* another stage follows; the trainer of this one will be closed */
    void (*close)(struct run *run); /* the run ends, also after an error; open may not have been called */
};

#define RUN_OBSERVER_ROW(name) extern const struct observer name##_observer;
RUN_OBSERVERS(RUN_OBSERVER_ROW)
#undef RUN_OBSERVER_ROW

/* ---- observers.c: the event for every observer; stage and close in reverse order ---- */

int observers_open(struct run *run, struct muster_error *err);
int observers_begin(struct run *run, const struct run_step *step, struct muster_error *err);
int observers_step(struct run *run, struct run_step *step, struct muster_error *err);
void observers_back(struct run *run, const struct run_step *step);
void observers_evaluation(struct run *run, int64_t step);
void observers_end(struct run *run);
void observers_stage(struct run *run);
void observers_close(struct run *run);

/* ---- what else some of them can do ---- */

/* log.c. Entries of the run's log, on rank 0; nothing where there is no log. */
void log_warning_entry(struct run *run, const char *text);
void log_command(struct run *run, int64_t step, const struct muster_error *result); /* code 0: it succeeded */
void log_sample(const struct run *run, const char *text, size_t length);

/* show.c. Prints that the files' parameters are of few bits, if they are; on rank 0. */
void show_opened(const struct run *run);

/* place.c. After an error of the run: prints the place of this rank and leaves it in the launcher's error
 * file; then gives the other ranks the time to do so. */
void place_failed(const struct run *run, const struct muster_error *err);
void place_linger(const struct run *run, const struct muster_error *err);

#endif
