/* report.h - the log of a run in files: JSON lines, TensorBoard's events, W&B's and MLflow's folders, written
 * by one rank.
 *
 * A file that cannot be written costs a warning and entries, never the run. An incomplete entry is removed,
 * so every line and record in a file is whole, and later entries are tried again. A thread writes: a stalled
 * file system does not stall the run. */
#ifndef MUSTER_TRAINER_REPORT_REPORT_H
#define MUSTER_TRAINER_REPORT_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/log.h"
#include "proto/include/muster_error.h"

/* ---- entry.c: an entry of the log: its kind, its step and named values (see README.md). Pure. ---- */

enum { ENTRY_VALUES = 40 };

/* symbol, name in JSON lines, prefix of its numbers in TensorBoard ("": not shown there). */
#define ENTRY_KINDS(X)                                                                                       \
    X(ENTRY_START, "start", "")                                                                              \
    X(ENTRY_STAGE, "stage", "")                                                                              \
    X(ENTRY_STEP, "step", "train/")                                                                          \
    X(ENTRY_EVALUATION, "evaluation", "eval/")                                                               \
    X(ENTRY_COMMAND, "checkpoint_command", "checkpoint_command/")                                            \
    X(ENTRY_WARNING, "warning", "")                                                                          \
    X(ENTRY_END, "end", "")
enum entry_kind {
#define ENTRY_KIND_ENUM(symbol, name, prefix) symbol,
    ENTRY_KINDS(ENTRY_KIND_ENUM)
#undef ENTRY_KIND_ENUM
        ENTRY_KIND_COUNT
};
const char *entry_kind_name(enum entry_kind kind);
const char *entry_kind_prefix(enum entry_kind kind);

enum entry_type { ENTRY_NUMBER, ENTRY_INTEGER, ENTRY_FLAG, ENTRY_TEXT };
struct entry_value {
    const char *name;
    enum entry_type type;
    union {
        double number;
        int64_t integer;
        bool flag;
        const char *text;
    };
};

/* Names and texts are borrowed. */
struct entry {
    enum entry_kind kind;
    int64_t step; /* completed steps, from 1 */
    int count;
    struct entry_value values[ENTRY_VALUES];
};

/* Append a value; values after the first ENTRY_VALUES are dropped. A number that is not finite is null in
 * JSON lines and NaN in TensorBoard. */
void entry_number(struct entry *entry, const char *name, double value);
void entry_integer(struct entry *entry, const char *name, int64_t value);
void entry_flag(struct entry *entry, const char *name, bool value);
void entry_text(struct entry *entry, const char *name, const char *value);

/* ---- the folders of experiment trackers: W&B's offline runs and MLflow's file store ---- */

/* Texts that are NULL or "" are left out. */
struct wandb_run {
    const char *id, *project, *entity, *name, *group, *notes, *job_type;
    const char *tags;     /* separated by commas */
    const char *settings; /* "name=value" lines: the configuration of the run */
    const char *host, *os, *program, *folder;
    char *const *arguments; /* NULL-terminated; NULL: none */
    int cpus;
    int64_t memory; /* bytes; 0: unknown */
};

/* Texts that are NULL or "" are left out. */
struct tracking_options {
    const char *wandb_folder; /* gets wandb/offline-run-TIME-ID; NULL: none */
    struct wandb_run wandb;   /* id "": a new id, or that of the continued run; settings: for MLflow too */
    const char *mlflow_store; /* path of mlruns; NULL: none */
    const char *experiment;
    const char *memory_path; /* file that keeps the names of the runs; NULL: none */
    bool goes_on;            /* continue the runs of memory_path after a restart */
    int64_t step;            /* completed steps */
};

/* ---- the log ---- */

struct report;

struct report_options {
    const char *json_path;          /* appended to, after its unfinished last line is cut; NULL or "": none */
    const char *tensorboard_folder; /* gets a new file for every run; NULL or "": none */
    const char *host;               /* part of the file's name */
    int64_t step;                   /* steps completed before; earlier entries of later steps are void */
    struct tracking_options tracking;
    const struct log_sink *log; /* gets warnings; outlives the report */
};

/* Makes folders and files. NULL: MUSTER_E_IO with the path; nothing was changed. */
struct report *report_open(const struct report_options *options, struct muster_error *err);
/* Sets the exit code of the run. 0: all steps are done; 128 + a signal: it was stopped. Without this call the
 * run has failed. */
void report_end(struct report *report, int exit_code);
/* Writes the remaining entries, and waits some seconds at most for a stalled file system; warns of lost
 * entries. Accepts NULL. */
void report_close(struct report *report);

/* Adds an entry to every file. report NULL: no file is open. */
void report_add(struct report *report, const struct entry *entry);
/* Adds figures of the machine, with W&B's names, to W&B alone: "gpu.0.gpu". */
void report_add_machine(struct report *report, const struct entry *entry);
/* Adds a text such as the configuration; JSON lines get an entry of kind "start" with the text under its tag.
 */
void report_add_text(struct report *report, const char *tag, const char *text, int64_t step);
/* The folders of the run in W&B's and in MLflow's store, or NULL. */
const char *report_wandb_folder(const struct report *report);
const char *report_mlflow_folder(const struct report *report);

#endif
