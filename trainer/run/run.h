/* run.h - one run of one rank of muster-train: opened, trained, finished, closed. */
#ifndef MUSTER_TRAINER_RUN_RUN_H
#define MUSTER_TRAINER_RUN_RUN_H

#include <stdio.h>

#include "proto/base/clock.h"
#include "proto/nvml/nvml_usage.h"
#include "runtime/config/train_config.h"
#include "runtime/include/muster.h"
#include "trainer/data/data.h"
#include "trainer/report/report.h"
#include "trainer/report/stragglers.h"
#include "trainer/run/checkpoints.h"
#include "trainer/run/command.h"
#include "trainer/run/next_batch.h"
#include "trainer/run/progress.h"
#include "trainer/run/sample_log.h"
#include "trainer/tokens/tokenizer.h"

/* Of run_watch.c. */
struct watch {
    struct z_score loss, grad_norm;
    double loss_z, grad_norm_z; /* of the last step */
    struct straggler_window window;
    double *sums;          /* of all ranks' windows */
    struct straggler slow; /* of the last window */
    struct straggler_streak streak;
};

/* Of one class in an evaluation: rows of it, rows that were taken for it, rows of it that were found. */
struct class_rows {
    double there, taken, found;
};

/* Evaluations on the samples that are held out, and the last one. */
struct run_evaluation {
    int64_t samples; /* of one, over all ranks; 0: there are none */
    struct batch_source source;
    int64_t passes_at_once;            /* micro-batches whose samples are in memory */
    void *arrays[BATCH_SOURCE_ARRAYS]; /* theirs */
    struct class_rows *classes;        /* of a classifier */
    double loss, accuracy;             /* of classes, in percent; NaN: there are none */
    double precision, recall, f1;      /* likewise, 0 to 1 */
    int64_t counted, ns;               /* targets over all ranks; wall time */
    bool best, lowers;                 /* so far; the learning rate, by ReduceLROnPlateau */
};

/* The tokenizer of the data, which is open only while it is used: it takes memory beside the plan's. */
struct run_tokenizer {
    char *name; /* for tokenizer_open */
    char *path; /* NULL: bytes */
    const char *kind;
    int64_t vocabulary;
};

/* How far tokenizing is, in the process that does it: the others of its node wait for it. */
struct run_tokenizing {
    struct instant begun, next;
    const char *path; /* of the source whose time is measured */
};

/* What was trained on of the epoch that goes on, of a classifier. */
struct run_epoch {
    double loss, correct; /* sums over steps, rows */
    int64_t steps, rows;
};

/* Of a training in stages; run->config is the stage's. */
struct run_stages {
    struct train_config whole; /* what the stages' settings are made of */
    int count;                 /* 0: there are none */
    int number;                /* of the stage, from 0 */
    char *name;                /* NULL: it has none */
    int64_t first;             /* steps that were done when it began */
    int64_t follows;           /* for muster_trainer_stage */
};

struct run {
    struct train_config config;
    struct run_stages stages;
    struct muster_world *world;
    struct muster_model *model;
    struct run_tokenizer tokenizer;
    struct data *data;         /* of a model of text */
    struct pictures *pictures; /* of a model of pictures */
    struct labelled *labelled; /* of a classifier of texts; one of the three is not NULL */
    struct run_epoch epoch;
    struct muster_trainer *trainer;
    char **settings;        /* of the trainer */
    const char *checkpoint; /* --checkpoint; NULL: none was named */
    bool from_model;        /* by --model: no checkpoint is looked for */
    int rank, world_size;
    int skipped;          /* steps in a row */
    int64_t went_back_to; /* step of the checkpoint; 0 and times_back 0: never */
    int times_back;       /* to it */
    struct next_batch *next;
    struct sample_log *samples; /* NULL: no log of them is written */
    struct run_evaluation evaluation;
    struct progress progress;
    struct report *report; /* the log in files; NULL: none, and on other ranks than 0 */
    struct watch watch;
    struct instant figures_at; /* handed to the launcher last; 0: never */
    struct nvml_sampler *gpu;  /* of this rank's GPU; NULL: none */
    struct instant stats_at;   /* the machine's figures, in the log last; 0: never */
    int64_t data_wait_ns;      /* of the step's batch */
    struct checkpoints checkpoints;
    bool listening;         /* as below, and for signals */
    bool listens, noticed;  /* for stop notices; of one */
    struct instant ends;    /* by that notice */
    int coming;             /* by that notice: enum muster_coming */
    bool cut_short;         /* all ranks have stopped for a notice or SIGTERM, before the last step */
    int64_t resident_bytes; /* measured at resident_at */
    struct instant resident_at;
    struct instant begun; /* of a training */
    bool json;            /* its result goes to standard output, all other lines to standard error */
    bool refused;         /* the settings were, before there was a world */
    struct muster_error
        command;          /* of the last run of training.checkpoint_command, code 0: it went well; rank 0's */
    int64_t command_step; /* its checkpoint */
    bool terminal, line_open; /* an unterminated progress line is on the terminal */
};

/* run.c: run->config has been read; the rest is zero, world_size 1. */
int run_open_model(struct run *run, struct muster_error *err);
int run_open_world(struct run *run, struct muster_error *err);
int run_training(struct run *run, struct muster_error *err); /* from the world to the sample */
/* From the inputs to the last step; and what it has opened for that, but for the model. */
int run_train(struct run *run, struct muster_error *err);
void run_train_close(struct run *run);
void run_close(struct run *run);
/* Steps at the end of the run, or of its stage. */
int64_t run_last_step(const struct run *run);
/* Whether parameters are written at the end. */
bool run_saves(const struct run *run);

/* run_data.c: the tokenizer and the data, and training.steps where training.epochs is set. Before the model.
 */
int run_data_open(struct run *run, struct muster_error *err);
/* The same for whatever the model reads: texts, pictures, labelled texts. */
int run_inputs_open(struct run *run, struct muster_error *err);
struct batch_source run_source(const struct run *run); /* of training */
const char *run_data_identity(const struct run *run);
/* A line now and then, for struct data_progress; context: a struct run_tokenizing. */
void run_print_tokenized(void *context, const char *path, int64_t bytes, int64_t of);
/* training.epochs of so many samples as training.steps. */
int run_count_steps(struct run *run, int64_t samples, struct muster_error *err);
/* The tokenizer alone, which is the caller's; run->tokenizer is filled. */
struct tokenizer *run_tokenizer_open(struct run *run, struct muster_error *err);
/* The tokenizer's files into the folder that was exported. */
int run_data_export(const struct run *run, struct muster_error *err);
int run_data_copy(const struct run *run, const char *folder, struct muster_error *err);
void run_data_close(struct run *run);

/* run_pictures.c: the pictures, where the model is one of pictures, and what is printed of them. */
bool run_has_pictures(const struct run *run);
int run_pictures_open(struct run *run, struct muster_error *err);
void run_pictures_show(const struct run *run);
/* run_labelled.c: likewise the texts with labels. */
bool run_has_labels(const struct run *run);
int run_labelled_open(struct run *run, struct muster_error *err);
void run_labelled_show(const struct run *run);

/* run_classes.c: whether the run has classes, pictures or texts, and what its samples are called; of others
 * they are "tokens". */
bool run_classifies(const struct run *run);
const char *run_unit(const struct run *run);
/* After a step: the line of an epoch that has ended. */
void run_epoch_step(struct run *run, const struct muster_result *result);
/* Around an evaluation, and after each of its calls of muster_trainer_evaluate: its classes are counted, and
 * accuracy, precision, recall and F1 follow. Nothing where there are no classes. */
int run_classes_begin(struct run *run, struct muster_error *err);
int run_classes_add(struct run *run, struct muster_error *err);
void run_classes_end(struct run *run);
/* run_restore.c: a run without a step: the world, what `inputs` opens on this rank (the model, and data where
 * they are wanted), the trainer, and its parameters from a checkpoint or from model.path. Collective. */
void run_take_sizes(struct train_config *config); /* where --model was given */
/* A file for results alone: standard output, whose other lines go to standard error from here. */
FILE *run_take_output(struct muster_error *err);
int run_restore(struct run *run, int (*inputs)(struct run *run, struct muster_error *err),
                struct muster_error *err);
/* run_eval.c: muster-train eval. What its settings leave open, before a world is opened; then all of it. */
int run_eval_settings(struct train_config *config, struct muster_error *err);
int run_eval(struct run *run, bool json, struct muster_error *err);
/* run_result.c: one object of JSON, of rank 0: figures of an object that is being written, with ", " behind
 * each, or, of an evaluation, between; then a whole training, and what was printed into `out` so far. */
void run_result_number(struct buffer *out, const char *name, double value);
void run_result_evaluation(const struct run *run, struct buffer *out);
int run_result_training(const struct run *run, FILE *to, struct muster_error *err);
int run_result_print(FILE *to, struct buffer *out, struct muster_error *err);
/* muster-train preprocess: the data are opened, stage by stage where there are some, and what has to be
 * tokenized is. No world is opened. */
int run_preprocess(struct run *run, bool json, struct muster_error *err);
/* run_generate.c: muster-train generate, likewise. */
int run_generate_settings(const struct train_config *config, struct muster_error *err);
int run_generate(struct run *run, const struct command_draw *draw, bool json, struct muster_error *err);

/* run_quantize.c: muster-train quantize, likewise. */
int run_quantize_settings(struct train_config *config, const struct command_quantize *asked,
                          struct muster_error *err);
int run_quantize(struct run *run, const struct command_quantize *asked, bool json, struct muster_error *err);

/* run_stages.c: a training in stages: opens, trains and closes one after the other; the last one stays open.
 * Then the stages' settings alone, one after the other, for a plan: visit's error ends it. */
int run_stages(struct run *run, struct muster_error *err);
int run_stages_each(const struct train_config *whole,
                    int (*visit)(void *context, int number, const char *name,
                                 const struct train_config *stage, struct muster_error *err),
                    void *context, struct muster_error *err);
/* "stage 2 of 3 (long) begins after step 1000: ..." */
void run_stages_show(const struct run *run);
bool run_is_last_stage(const struct run *run); /* true of a training without stages */

/* run_steps.c: all steps that are left. */
int run_steps(struct run *run, struct muster_error *err);

/* run_evaluate.c. Memory for evaluations, if there are samples for them; an error of this rank alone. */
int run_evaluate_open(struct run *run, struct muster_error *err);
void run_evaluate_close(struct run *run);
/* Collective, after so many steps: evaluates if it is due and was not done yet. keep: a checkpoint of this
 * step is to be written, and stays as the best. */
int run_evaluate(struct run *run, int64_t step, bool *keep, struct muster_error *err);
/* Collective: evaluates, and nothing follows from it. */
int run_evaluate_now(struct run *run, struct muster_error *err);
/* Whether evaluations end the training here; the same on every rank. */
bool run_stops_early(const struct run *run);

/* run_show.c: what rank 0 prints. */
void run_show_opened(const struct run *run); /* files of few bits, if the parameters are of some */
void run_show_start(struct run *run);
void run_show_data(const struct run *run); /* its first lines: what is read */
void run_show_progress(struct run *run, struct progress_step *step, bool last);
void run_show_skipped(const struct run *run, int64_t step, const struct muster_result *result);
void run_show_evaluation(const struct run *run, int64_t step);
void run_show_end(struct run *run);
void run_show_line_end(struct run *run); /* ends an overwritten line before something else is printed */
const char *run_param_name(const struct run *run, int param);

/* run_log.c: the run's log in files (trainer/report). Collective: an error on rank 0 is one of all. */
int run_log_open(struct run *run, struct muster_error *err);
void run_log_stage(struct run *run); /* a stage has begun, or goes on */
void run_log_step(struct run *run, const struct progress_step *step, const struct muster_result *result);
void run_log_evaluation(struct run *run, int64_t step);
void run_log_sample(const struct run *run, const char *text, size_t length);
void run_log_close(struct run *run); /* at the end of all steps, and after an error */
const struct log_sink *run_log_warnings(void);

/* run_result.c: prints how training.checkpoint_command has ended, after a step and, collective, at the end of
 * the run, where it is waited for: until a stop's deadline, or until it has ended. Then whether the run has
 * left its last checkpoint, and the command's copy of it; else MUSTER_E_IO, with what is missing. */
void run_hook_step(struct run *run);
int run_hook_end(struct run *run, struct muster_error *err);
int run_hook_check(struct run *run, struct muster_error *err);

/* run_figures.c: hands a step's figures to the launcher, at most once a second. */
void run_figures_open(struct run *run); /* the sampler of this rank's GPU */
void run_figures_close(struct run *run);
void run_figures_gpu(struct run *run, struct progress_step *step);
int run_figures_step(struct run *run, const struct progress_step *step, struct muster_error *err);

/* run_place.c: this rank's place in its schedule, on SIGUSR1 and after a time-out. */
int run_place_listen(struct run *run, struct muster_error *err);
void run_place_step(void);  /* a step was finished */
void run_place_close(void); /* before the trainer is closed */
void run_place_failed(const struct run *run, const struct muster_error *err);
void run_place_linger(const struct run *run, const struct muster_error *err);

/* run_watch.c: figures that jump, and ranks that the others wait for. Both collective. */
int run_watch_open(struct run *run, struct muster_error *err);
void run_watch_close(struct run *run);
int run_watch_step(struct run *run, const struct progress_step *step, struct muster_error *err);

/* run_trace.c: the steps of logging.trace, each rank's in a file of its own. Before a step, whose number is
 * from 0, and after it; last: of the run. */
int run_trace_begin(struct run *run, int64_t step, struct muster_error *err);
void run_trace_end(struct run *run, int64_t step, bool last);

/* run_fail.c: prints the error of a run, on one rank where it ends the job, and returns the exit code. */
int run_fail(struct run *run, const struct muster_error *err);
/* The exit code where the command line is wrong, which has been printed. */
int run_fail_usage(void);

/* run_sample.c: text drawn from the trained model. */
int run_sample(const struct run *run, struct muster_error *err);

#endif
