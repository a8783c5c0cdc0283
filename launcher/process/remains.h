/* remains.h - removes what dead workers leave: their descendants, and their files in /dev/shm. Both are done
 * by a thread: reading a process's environment, maps or descriptors may block for ever if that process is
 * stuck in the kernel. */
#ifndef MUSTER_LAUNCHER_PROCESS_REMAINS_H
#define MUSTER_LAUNCHER_PROCESS_REMAINS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "launcher/loop/background_job.h"
#include "launcher/loop/loop.h"
#include "launcher/process/descendants.h"
#include "proto/base/buffer.h"

/* --- descendants ---
 *
 * One sweep (descendants.h) at a time. A sweep that does not return in time is cancelled, and the process at
 * which it hangs is skipped from then on; a cancelled sweep sends no more signals. */

enum { REMAINS_LEFT_LIMIT = 16, REMAINS_UNREAD_LIMIT = 8 };

struct sweep;

struct remains_killer {
    struct loop *loop;
    struct loop_source done;
    struct background_job *job; /* NULL: no sweep is in progress */
    struct sweep *sweep;        /* the background job's */
    struct instant deadline;
    unsigned looked; /* how many processes it had examined when the deadline was set */
    pid_t unread[REMAINS_UNREAD_LIMIT];
    int unread_count;
    struct descendants_process left[REMAINS_LEFT_LIMIT]; /* processes found by the last sweep that returned */
    int left_count;
};

/* The receivers of the signal: all descendants, but not the groups of live session leaders if
 * spare_groups. A signal other than KILL is followed by CONT, since a stopped process handles nothing. */
struct sweep_order {
    struct descendants descendants; /* id and sessions are copied */
    int signal;
    bool spare_groups;
};

/* A sweep for the same signal that is in progress goes on instead; one for another signal is cancelled. */
int remains_killer_start(struct remains_killer *killer, const struct sweep_order *order,
                         struct muster_error *err);
/* Returns when no more signals will be sent. */
void remains_killer_cancel(struct remains_killer *killer);
/* How long to wait before the next sweep for KILL, so long after the first: short while the killed
 * processes may still have had children, long if some cannot be killed. Pure. */
int64_t remains_killer_pause_ns(int64_t elapsed_ns);
/* Waits so long for the sweep in progress. */
void remains_killer_wait(struct remains_killer *killer, int64_t patience_ns);
/* When remains_killer_tick is due; never if no sweep is in progress. */
struct instant remains_killer_deadline(const struct remains_killer *killer);
/* Cancels a sweep without progress since the last deadline. Returns the process at which it hangs; 0:
 * none. */
pid_t remains_killer_tick(struct remains_killer *killer, struct instant now);

/* --- files in /dev/shm ---
 *
 * Without them the next round would run out of space, or fail on a name that exists. Files that may belong
 * to others are kept. */

struct remains_files_scope {
    uid_t uid;         /* ours */
    int64_t since_ns;  /* wall clock when the round's first worker was started */
    bool sees_all;     /* every process that could use the files is visible in our /proc */
    const pid_t *dead; /* reaped processes of the round */
    size_t dead_count;
};

struct remains_files_file {
    const char *name;
    uid_t uid;
    int64_t changed_ns; /* time of the last change of its metadata, wall clock */
};

/* The earliest that a file of a round may seem to be: the round began at begun_ns of the wall clock,
 * running_ns ago, and now that clock may have been set back. */
static inline int64_t remains_files_since(int64_t begun_ns, int64_t running_ns, int64_t now_ns)
{
    return begun_ns < now_ns - running_ns ? begun_ns : now_ns - running_ns;
}

/* Whether it is, unless a process has it open or maps it, left over from the round: torch_<pid>_... and
 * __KMP_REGISTERED_LIB_<pid>_... of a dead process; nccl-... and MPI's, whose names identify no process,
 * if they were created in this round and all their possible users are visible. */
bool remains_files_is_candidate(const struct remains_files_file *file,
                                const struct remains_files_scope *scope);

struct remains_files {
    struct remains_files_scope scope; /* dead is owned */
    char *directory;                  /* "/dev/shm" */
    struct buffer removed; /* names, separated by blanks; owned by the background job until it is done */
    int count;
};

/* scope->dead is copied; sees_all is found out. *cleanup lives as long as the background job. */
struct background_job *remains_files_start(const struct remains_files_scope *scope, const char *directory,
                                           struct remains_files **cleanup, struct muster_error *err);

#endif
