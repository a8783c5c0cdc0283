/* report.h - the log of a run in files: JSON lines and TensorBoard's events, written by one rank.
 *
 * A file that cannot be written costs a warning and entries, never the run: what did not fit is taken back,
 * so that every line and record in a file is whole, and later entries are tried again. A thread writes
 * (writer.h): a file system that stalls is not waited for. */
#ifndef MUSTER_RUNTIME_REPORT_REPORT_H
#define MUSTER_RUNTIME_REPORT_REPORT_H

#include "proto/base/log.h"
#include "proto/include/muster_error.h"
#include "runtime/report/entry.h"

struct report;

struct report_options {
    const char *json_path;          /* appended to, without an unfinished last line; NULL or "": none */
    const char *tensorboard_folder; /* gets a file of its own for every run; NULL or "": none */
    const char *host;               /* of the file's name */
    int64_t step;                   /* steps that were done before: entries of later ones are void */
    const struct log_sink *log;     /* for warnings; outlives the report */
};

/* Makes folders and files. NULL: MUSTER_E_IO with the path, before anything is lost. */
struct report *report_open(const struct report_options *options, struct muster_error *err);
/* Writes what is left, for some seconds at most where the file system has stalled; warns of entries that were
 * lost. Accepts NULL. */
void report_close(struct report *report);

/* Adds an entry to every file; report NULL: no file is open. */
void report_add(struct report *report, const struct entry *entry);
/* A text such as the configuration: an entry of kind "start" has it in JSON lines under its tag. */
void report_add_text(struct report *report, const char *tag, const char *text, int64_t step);

#endif
