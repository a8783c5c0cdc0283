/* log_directory.h - paths of workers' log files: <log_dir>/<run_id>_<8
 * characters>/attempt_<n>/<local_rank>/.
 *
 * One run directory for each agent process, readable by its user only. Nothing is ever deleted: files are
 * opened for appending, so that an attempt with a repeated number keeps the earlier content. */
#ifndef MUSTER_LAUNCHER_OUTPUT_LOG_DIRECTORY_H
#define MUSTER_LAUNCHER_OUTPUT_LOG_DIRECTORY_H

#include <stdint.h>

#include "proto/base/temporary.h"
#include "proto/include/muster_error.h"

/* Makes the run directory and returns its path (mem_free). log_dir: --log-dir; NULL or "": it is under a
 * fresh muster_<8 characters> in the folder for temporary files, which is found then. random chooses the
 * characters. */
char *log_directory_make(const char *log_dir, const char *run_id, uint64_t random,
                         struct temporary_folder *temporary, struct muster_error *err);

/* Removes the directories created by log_directory_make if they are empty: the run directory and a base of
 * its own choice. For a run that ends before its first worker. */
void log_directory_discard(const char *log_dir, const char *run);

/* <run directory>/attempt_<attempt>/<local rank>, made, in fresh memory. */
char *log_directory_worker(const char *run, int64_t attempt, int local_rank, struct muster_error *err);

/* Opens directory/name for appending; -1 with an error. */
int log_directory_open(const char *directory, const char *name, struct muster_error *err);

#endif
