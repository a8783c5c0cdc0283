/* results.h - results as one object of JSON, for programs that call muster-train; and the commands that take
 * no step. */
#ifndef MUSTER_TRAINER_RUN_RESULTS_H
#define MUSTER_TRAINER_RUN_RESULTS_H

#include "trainer/run/run.h"

/* Adds members to an object: a figure and ", "; the last evaluation, without a comma after it. */
void result_number(struct buffer *out, const char *name, double value);
void result_evaluation(const struct run *run, struct buffer *out);
/* Prints the result of a whole training, on rank 0; begun: when it began. */
int result_training(const struct run *run, struct instant begun, FILE *to, struct muster_error *err);
/* Prints the text so far. */
int result_print(FILE *to, struct buffer *out, struct muster_error *err);
/* muster-train preprocess: opens the data, stage by stage where there are some, which tokenizes them. No
 * world is opened. */
int run_preprocess(struct run *run, bool json, struct muster_error *err);

/* ---- runs without a step: eval.c ---- */

/* Where a run without a step takes its parameters from. */
struct restore_source {
    const char *checkpoint; /* --checkpoint; NULL: none was named */
    bool from_model;        /* --model: no checkpoint is looked for */
};
/* Before a world is opened: the settings, where --model was given. */
void restore_take_sizes(struct train_config *config);
/* Collective. The world, then what `inputs` opens on this rank (the model, and data where they are wanted),
 * then the trainer and its parameters, of a checkpoint or of files. */
int restore_run(struct run *run, const struct restore_source *source,
                int (*inputs)(struct run *run, struct muster_error *err), struct muster_error *err);

/* muster-train eval: completes the settings, before a world is opened; then the whole command. */
int eval_settings(struct train_config *config, struct muster_error *err);
int eval_run(struct run *run, const struct restore_source *source, bool json, struct muster_error *err);

/* muster-train eval --task, in the same way. */
struct command_task;
int task_settings(const struct train_config *config, struct muster_error *err);
int eval_task_run(struct run *run, const struct restore_source *source, const struct command_task *asked,
                  bool json, struct muster_error *err);

/* generate.c: muster-train generate, in the same way. */
struct command_draw;
int generate_settings(const struct train_config *config, struct muster_error *err);
int generate_run(struct run *run, const struct restore_source *source, const struct command_draw *draw,
                 bool json, struct muster_error *err);

/* quantize.c: muster-train quantize, in the same way. */
struct command_quantize;
int quantize_settings(struct train_config *config, const struct command_quantize *asked,
                      struct muster_error *err);
int quantize_run(struct run *run, const struct restore_source *source, const struct command_quantize *asked,
                 bool json, struct muster_error *err);

#endif
