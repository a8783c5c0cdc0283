/* sweeper.h - the sweeps of kin.h, done by a thread: to read a process's environment may block for ever where
 * that process is stuck in the kernel, whoever's it is.
 *
 * One sweep at a time. One that does not come back in time is called off, and the process that it hangs at is
 * not looked into again; a sweep that was called off sends nothing any more. */
#ifndef MUSTER_LAUNCHER_SWEEPER_H
#define MUSTER_LAUNCHER_SWEEPER_H

#include <stdbool.h>
#include <sys/types.h>

#include "launcher/kin.h"
#include "launcher/loop.h"

enum { SWEEPER_LEFT_LIMIT = 16, SWEEPER_UNREAD_LIMIT = 8 };

struct sweep;

struct sweeper {
    struct loop *loop;
    struct loop_source done;
    struct errand *errand; /* NULL: no sweep is under way */
    struct sweep *sweep;   /* of errand */
    struct instant deadline;
    unsigned looked; /* at how many processes it had looked when the deadline was set */
    pid_t unread[SWEEPER_UNREAD_LIMIT];
    int unread_count;
    struct kin_process left[SWEEPER_LEFT_LIMIT]; /* whom the last sweep that came back found */
    int left_count;
};

/* Who gets the signal: all that kin names, but not the groups of live session leaders where spare_groups. A
 * signal other than KILL is followed by CONT, since a stopped process handles nothing. */
struct sweep_order {
    struct kin kin; /* id and sessions are copied */
    int signal;
    bool spare_groups;
};

/* A sweep for the same signal that is under way goes on instead; one for another signal is called off. */
int sweeper_start(struct sweeper *sweeper, const struct sweep_order *order, struct muster_error *err);
/* Returns when nothing will be sent any more. */
void sweeper_call_off(struct sweeper *sweeper);
/* How long to wait before the next sweep for KILL, so long after the first: often while the killed may still
 * have had children, seldom where something cannot be killed. Pure. */
int64_t sweeper_pause_ns(int64_t elapsed_ns);
/* Waits so long for the sweep that is under way. */
void sweeper_wait(struct sweeper *sweeper, int64_t patience_ns);
/* When sweeper_tick is due; never where no sweep is under way. */
struct instant sweeper_deadline(const struct sweeper *sweeper);
/* Calls off a sweep that has not got on since the last deadline. Returns the process at which it hangs; 0:
 * none. */
pid_t sweeper_tick(struct sweeper *sweeper, struct instant now);

#endif
