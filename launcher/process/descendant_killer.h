/* descendant_killer.h - the sweeps of descendants.h, done by a thread: to read a process's environment may
 * block for ever where that process is stuck in the kernel, whoever's it is.
 *
 * One sweep at a time. One that does not come back in time is called off, and the process that it hangs at is
 * not looked into again; a sweep that was called off sends nothing any more. */
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
    struct background_job *errand; /* NULL: no sweep is under way */
    struct sweep *sweep;           /* of errand */
    struct instant deadline;
    unsigned looked; /* at how many processes it had looked when the deadline was set */
    pid_t unread[DESCENDANT_KILLER_UNREAD_LIMIT];
    int unread_count;
    struct descendants_process
        left[DESCENDANT_KILLER_LEFT_LIMIT]; /* whom the last sweep that came back found */
    int left_count;
};

/* Who gets the signal: all that kin names, but not the groups of live session leaders where spare_groups. A
 * signal other than KILL is followed by CONT, since a stopped process handles nothing. */
struct sweep_order {
    struct descendants kin; /* id and sessions are copied */
    int signal;
    bool spare_groups;
};

/* A sweep for the same signal that is under way goes on instead; one for another signal is called off. */
int descendant_killer_start(struct descendant_killer *sweeper, const struct sweep_order *order,
                            struct muster_error *err);
/* Returns when nothing will be sent any more. */
void descendant_killer_call_off(struct descendant_killer *sweeper);
/* How long to wait before the next sweep for KILL, so long after the first: often while the killed may still
 * have had children, seldom where something cannot be killed. Pure. */
int64_t descendant_killer_pause_ns(int64_t elapsed_ns);
/* Waits so long for the sweep that is under way. */
void descendant_killer_wait(struct descendant_killer *sweeper, int64_t patience_ns);
/* When descendant_killer_tick is due; never where no sweep is under way. */
struct instant descendant_killer_deadline(const struct descendant_killer *sweeper);
/* Calls off a sweep that has not got on since the last deadline. Returns the process at which it hangs; 0:
 * none. */
pid_t descendant_killer_tick(struct descendant_killer *sweeper, struct instant now);

#endif
