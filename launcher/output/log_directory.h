/* logdir.h - where workers' log files are: <log_dir>/<run_id>_<8 characters>/attempt_<n>/<local_rank>/.
 *
 * One run directory for each life of an agent, readable by its user only. Nothing is ever deleted: files are
 * opened for appending, so that an attempt whose number comes again keeps what is there. */
#ifndef MUSTER_LAUNCHER_LOGDIR_H
#define MUSTER_LAUNCHER_LOGDIR_H

#include <stdbool.h>
#include <stdint.h>

#include "launcher/config.h"

/* Whether files are wanted at all: a log directory, a redirect or a tee was asked for, and the directory is
 * not /dev/null. */
bool logdir_wanted(const struct run_config *config);

/* Makes the run directory and returns its path (mem_free). Without --log-dir it is under a fresh
 * muster_<8 characters> in TMPDIR or /tmp. random chooses the characters. */
char *logdir_make(const struct run_config *config, uint64_t random, struct muster_error *err);

/* Takes back what logdir_make made, as far as nothing was put there: the run directory and a base of its own
 * choice. For a run that ends before its first worker. */
void logdir_discard(const struct run_config *config, const char *run);

/* <run directory>/attempt_<attempt>/<local rank>, made, in fresh memory. */
char *logdir_worker(const char *run, int64_t attempt, int local_rank, struct muster_error *err);

/* Opens directory/name for appending; -1 with an error. */
int logdir_open(const char *directory, const char *name, struct muster_error *err);

#endif
