/* log_files.h - makes the log directories and opens the log files on a thread: they may be on a network
 * file system that does not respond, and heartbeats must go on.
 *
 * Two background jobs: the run directory with the agent's own log, once; and the files of all workers of
 * one round. */
#ifndef MUSTER_LAUNCHER_OUTPUT_LOG_FILES_H
#define MUSTER_LAUNCHER_OUTPUT_LOG_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/temporary.h"
#include "proto/include/muster_error.h"

struct log_files;

/* An open file; fd -1: there is none. */
struct log_file {
    int fd;
    int64_t size; /* bytes of an existing regular file */
    char *path;
};

struct log_round {
    const char *run; /* the run directory */
    int64_t attempt;
    int workers;
    const uint8_t *streams; /* enum stream_bits for each local rank: which files it needs */
    unsigned filtered;      /* enum stream_bits: the files that all of them share */
};

/* Makes the run directory (below); with --log-dir agent.log in it too. random: 64 random bits. */
struct log_files *log_files_prepare(const char *log_dir, const char *run_id, uint64_t random,
                                    struct muster_error *err);
/* Makes the directories of a round and opens its files for appending. An error.json of an earlier round with
 * the same attempt number gets another name. */
struct log_files *log_files_open(const struct log_round *round, struct muster_error *err);

/* Readable once it is done. */
int log_files_fd(const struct log_files *files);
bool log_files_done(const struct log_files *files);
/* The path in use, for a message about a hang; valid until log_files_release. */
const char *log_files_path(const struct log_files *files);
/* When done: 0, or -1 with the error. */
int log_files_result(const struct log_files *files, struct muster_error *err);

/* When done without an error: the run directory; the agent's log; a file of a worker; a shared file. The
 * caller owns the taken file: fd to close, path to free. */
char *log_files_take_run(struct log_files *files);
/* A warning about TMPDIR, "" without; valid until log_files_release. */
const char *log_files_warning(const struct log_files *files);
struct log_file log_files_take_log(struct log_files *files);
struct log_file log_files_take(struct log_files *files, int local_rank, int stream);
struct log_file log_files_take_filtered(struct log_files *files, int stream);

/* Closes the files that were not taken, even if the thread is still running. Accepts NULL. */
void log_files_release(struct log_files *files);

/* --- directories ---
 *
 * paths of workers' log files: <log_dir>/<run_id>_<8
 * characters>/attempt_<n>/<local_rank>/.
 *
 * One run directory for each agent process, readable by its user only. Nothing is ever deleted: files are
 * opened for appending, so that an attempt with a repeated number keeps the earlier content. */

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
