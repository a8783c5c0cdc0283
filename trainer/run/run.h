/* run.h - one run of one rank of muster-train, as its parts see it.
 *
 * README.md has the whole in twenty lines. A part's state is a struct of its own file; a field here is
 * written by the file that is named with it, and by no other. */
#ifndef MUSTER_TRAINER_RUN_RUN_H
#define MUSTER_TRAINER_RUN_RUN_H

#include <stdio.h>

#include "proto/base/buffer.h"
#include "proto/base/clock.h"
#include "runtime/config/train_config.h"
#include "runtime/include/muster.h"
#include "trainer/run/progress.h"

/* Observers, in the order in which they get an event: see observers.h. */
#define RUN_OBSERVERS(X)                                                                                     \
    X(samples)                                                                                               \
    X(gpu)                                                                                                   \
    X(show)                                                                                                  \
    X(place)                                                                                                 \
    X(watch)                                                                                                 \
    X(figures)                                                                                               \
    X(log)                                                                                                   \
    X(trace)                                                                                                 \
    X(command)
enum run_observer {
#define RUN_OBSERVER_SLOT(name) OBSERVER_##name,
    RUN_OBSERVERS(RUN_OBSERVER_SLOT)
#undef RUN_OBSERVER_SLOT
        OBSERVER_COUNT
};

struct run {
    struct train_config config;     /* settings; in a training in stages, of the stage */
    struct muster_world *world;     /* run.c: of the ranks that train; NULL: not open */
    struct muster_world *whole;     /* run.c: with ranks that wait (mesh.spare); NULL: there are none */
    bool reopens;                   /* train.c: after a loss the trainer is opened anew in any place */
    int rank, world_size;           /* run.c: in the world */
    struct muster_model *model;     /* run.c */
    bool packs;                     /* stages.c: a stage packs documents (data.packing packed) */
    struct muster_trainer *trainer; /* run.c; NULL: not open */
    struct muster_kept *kept; /* train.c: a state between two trainers, of which none is open; NULL: none */
    bool anew;                /* train.c: the last state did not come from the memory of ranks */
    struct progress progress; /* train.c opens it, run_steps.c moves it */
    struct inputs *inputs;    /* train.c, or the command; NULL: none are open */
    struct evaluation *evaluation;   /* evaluation.c */
    struct task_run *task;           /* eval.c; NULL: no task is evaluated */
    struct checkpoints *checkpoints; /* checkpoints.c */
    struct stages *stages;           /* stages.c; NULL: no training in stages */
    struct stop *stop;               /* stop.c; NULL: nothing is listened for */
    void *observers[OBSERVER_COUNT]; /* each slot: the observer of that name */
};

/* ---- run.c: what every part may call; run->config was read, the rest is zero, world_size 1 ---- */

/* The model of the settings, unless it is open. */
int run_open_model(struct run *run, struct muster_error *err);
int run_open_world(struct run *run, struct muster_error *err);
/* Collective, before anything else in the world. With mesh.spare: leaves the ranks out that the stages have
 * no place for. 0: this rank trains, perhaps after it was left out and ranks were lost; 1: it was left out,
 * and the others have ended (run_end). */
int run_leave_spares(struct run *run, struct muster_error *err);
/* After muster_world_rejoin of the whole world: no rank is left out. */
void run_unite(struct run *run);
int run_end(struct run *run, struct muster_error *err); /* releases the ranks that wait */
/* Collective. The trainer of the model and the settings of section training. */
int run_open_trainer(struct run *run, struct muster_error *err);
/* The state of the trainer, by value. */
struct muster_trainer_state run_state(const struct run *run);
/* Whether parameters are written at the end, and whether checkpoints are. */
bool run_saves(const struct run *run);
bool run_keeps_checkpoints(const struct run *run);
/* The name of a parameter, for messages; param -1: "no single parameter". */
const char *run_param_name(const struct run *run, int param);
/* Sets a key of the settings as a rule of the program does. */
int run_set(struct train_config *config, const char *key, const char *value, struct muster_error *err);
void run_free(struct run *run); /* trainer, model, world, settings */

/* ---- the standard output and error of this process ---- */

/* A progress line. On a terminal that is wide enough the next one is written over it, unless it is the last.
 */
void console_progress(const char *line, size_t length, bool last);
/* Ends such a line before something else is printed. */
void console_line_end(void);
/* Warnings, as lines of standard error. */
const struct log_sink *console_warnings(void);
/* A file for results alone: standard output, whose other lines go to standard error from here. NULL on error.
 */
FILE *console_take_output(struct muster_error *err);
/* Adds text that is not the program's own to out; for a terminal control characters are escaped. */
int console_text(FILE *to, const struct buffer *text, struct buffer *out);

/* ---- the rest of a run, one after the other ---- */

/* train.c: a training, from the world to the sample; with stages one after the other. */
int run_training(struct run *run, bool json, struct muster_error *err);
/* Closes everything, also after an error. */
void run_close(struct run *run);
/* run_steps.c: all steps that are left, of the run or its stage. */
int run_steps(struct run *run, struct muster_error *err);
/* generate.c: text drawn from the trained model. */
int run_sample(struct run *run, struct muster_error *err);

#endif
