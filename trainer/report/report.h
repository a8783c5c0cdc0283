/* report.h - the log of a run in files: JSON lines, TensorBoard's events, W&B's and
 * MLflow's folders, written by one rank.
 *
 * A file that cannot be written costs a warning and entries, never the run: what did not fit is taken back,
 * so that every line and record in a file is whole, and later entries are tried again. A thread writes
 * (writer.h): a file system that stalls is not waited for. */
#ifndef MUSTER_TRAINER_REPORT_REPORT_H
#define MUSTER_TRAINER_REPORT_REPORT_H

#include "proto/base/log.h"
#include "proto/include/muster_error.h"
#include "trainer/report/entry.h"
#include "trainer/report/tracking.h"

struct report;

struct report_options {
    const char *json_path;          /* appended to, without an unfinished last line; NULL or "": none */
    const char *tensorboard_folder; /* gets a file of its own for every run; NULL or "": none */
    const char *host;               /* of the file's name */
    int64_t step;                   /* steps that were done before: entries of later ones are void */
    struct tracking_options tracking;
    const struct log_sink *log; /* for warnings; outlives the report */
};

/* Makes folders and files. NULL: MUSTER_E_IO with the path, before anything is lost. */
struct report *report_open(const struct report_options *options, struct muster_error *err);
/* The run has ended, with 0: all steps are done; 128 + a signal: it was stopped. Without it, it has failed.
 */
void report_end(struct report *report, int exit_code);
/* Writes what is left, for some seconds at most where the file system has stalled; warns of entries that were
 * lost. Accepts NULL. */
void report_close(struct report *report);

/* Adds an entry to every file; report NULL: no file is open. */
void report_add(struct report *report, const struct entry *entry);
/* Figures of the machine, by W&B's names, for W&B alone: "gpu.0.gpu". */
void report_add_machine(struct report *report, const struct entry *entry);
/* A text such as the configuration: an entry of kind "start" has it in JSON lines under its tag. */
void report_add_text(struct report *report, const char *tag, const char *text, int64_t step);
/* The folders of the run in W&B's and in MLflow's store, or NULL. */
const char *report_wandb_folder(const struct report *report);
const char *report_mlflow_folder(const struct report *report);

#endif
