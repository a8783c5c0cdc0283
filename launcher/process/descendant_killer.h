/* descendant_killer.h - the sweeps of descendants.h, done by a thread: reading a process's environment may
 * block for ever if that process is stuck in the kernel, ours or not.
 *
 * One sweep at a time. A sweep that does not return in time is cancelled, and the process at which it
 * hangs is skipped from then on; a cancelled sweep sends no more signals. */
#ifndef MUSTER_LAUNCHER_PROCESS_DESCENDANT_KILLER_H
#define MUSTER_LAUNCHER_PROCESS_DESCENDANT_KILLER_H

#include <stdbool.h>
#include <sys/types.h>

#include "launcher/loop/loop.h"
#include "launcher/process/descendants.h"

enum { DESCENDANT_KILLER_LEFT_LIMIT = 16, DESCENDANT_KILLER_UNREAD_LIMIT = 8 };

struct sweep;

struct descendant_killer {
    struct loop *loop;
    struct loop_source done;
    struct background_job *job; /* NULL: no sweep is in progress */
    struct sweep *sweep;        /* of the background job */
    struct instant deadline;
    unsigned looked; /* how many processes it had examined when the deadline was set */
    pid_t unread[DESCENDANT_KILLER_UNREAD_LIMIT];
    int unread_count;
    struct descendants_process
        left[DESCENDANT_KILLER_LEFT_LIMIT]; /* processes found by the last sweep that returned */
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
int descendant_killer_start(struct descendant_killer *killer, const struct sweep_order *order,
                            struct muster_error *err);
/* Returns when no more signals will be sent. */
void descendant_killer_cancel(struct descendant_killer *killer);
/* How long to wait before the next sweep for KILL, so long after the first: short while the killed
 * processes may still have had children, long if some cannot be killed. Pure. */
int64_t descendant_killer_pause_ns(int64_t elapsed_ns);
/* Waits so long for the sweep in progress. */
void descendant_killer_wait(struct descendant_killer *killer, int64_t patience_ns);
/* When descendant_killer_tick is due; never if no sweep is in progress. */
struct instant descendant_killer_deadline(const struct descendant_killer *killer);
/* Cancels a sweep without progress since the last deadline. Returns the process at which it hangs; 0:
 * none. */
pid_t descendant_killer_tick(struct descendant_killer *killer, struct instant now);

#endif
