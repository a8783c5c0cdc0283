/* nccl_log.h - NCCL's own log files (NCCL_DEBUG_FILE) of the workers of one round, read for its warnings:
 * they pass through no stream of a worker.
 *
 * Reading may block for as long as the file system likes, so that it is a background job. The log belongs to
 * its owner and to the job under way; a job that never returns keeps it. */
#ifndef MUSTER_LAUNCHER_NCCL_NCCL_LOG_H
#define MUSTER_LAUNCHER_NCCL_NCCL_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "launcher/loop/background_job.h"
#include "launcher/output/tail.h"

enum { NCCL_LOG_WARNINGS = 16, NCCL_LOG_FILES = 256, NCCL_LOG_PATH = 512 };

struct nccl_log;

/* pattern: NCCL_DEBUG_FILE as NCCL reads it: %h is the host's name up to its first dot, %p the process, %% a
 * %. first_rank: of the first worker. NULL: no memory. */
struct nccl_log *nccl_log_create(const char *pattern, const char *host, int first_rank);
/* One more owner; returns log. */
struct nccl_log *nccl_log_hold(struct nccl_log *log);
/* An owner less. Accepts NULL. */
void nccl_log_release(struct nccl_log *log);

/* A job that reads the new bytes (at most 4 MB of each) in the files of these workers and of the processes in
 * their sessions. pids: count of them, 0 for a worker that was not started; copied; NULL: the same as before.
 * At most one job at a time; until it is done only hold and release are called. NULL: err. */
struct background_job *nccl_log_read(struct nccl_log *log, const pid_t *pids, int count,
                                     struct muster_error *err);

struct nccl_log_warning {
    int rank;
    char text[NOTABLE_TEXT], path[NCCL_LOG_PATH];
};
/* The next warning that no worker has printed before; false: none, or there were NCCL_LOG_WARNINGS. */
bool nccl_log_take(struct nccl_log *log, struct nccl_log_warning *out);

/* Pure. Whether NCCL_DEBUG_FILE (NULL: not set) names files: a path below /dev and /proc is a worker's own
 * stream, which is looked at as it passes, and here would be the agent's. */
bool nccl_log_is_file(const char *pattern);
/* Pure. The file of a process (pid < 0: what glob finds them all with; special characters are escaped).
 * false: longer than size - 1. */
bool nccl_log_path(const char *pattern, const char *host, pid_t pid, char *out, size_t size);

#endif
