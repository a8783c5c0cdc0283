/* warm_reaper.h - the parent of the workers that a kept template has made, for one agent.
 *
 * A process that was forked from a kept template cannot become the agent's child. It becomes the child of a
 * reaper: a process next to the agent, one for each job, which descends from the template and executes this
 * very program (`muster warm-reaper`). It adopts the workers, and the orphans of their descendants, reports
 * the end of each to the agent, and reaps the process at the agent's order: until then its number is its own,
 * as that of a child. When the agent's end of the socket closes, it ends, and the kernel kills the workers,
 * whose parent it is; so does its own death by a signal. */
#ifndef MUSTER_LAUNCHER_WARM_WARM_REAPER_H
#define MUSTER_LAUNCHER_WARM_WARM_REAPER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "launcher/loop/loop.h"

/* --- messages: agent and reaper are the same program --- */

/* symbol, meaning */
#define WARM_REAPER_MESSAGES(X)                                                                              \
    X(WARM_REAPER_READY, "it adopts from now on; pid: its own; value: the keeper of the job's template")     \
    X(WARM_REAPER_ENDED, "a child ended and is not reaped; pid, code: si_code, value: si_status")            \
    X(WARM_REAPER_EMPTY, "it has no child; value: how many orders to reap it has carried out")               \
    X(WARM_REAPER_NONE, "no further child has ended now")                                                    \
    X(WARM_REAPER_REAP, "from the agent: reap the ended child; answered by ENDED, EMPTY or NONE")

enum warm_reaper_kind {
#define WARM_REAPER_ENUM(symbol, meaning) symbol,
    WARM_REAPER_MESSAGES(WARM_REAPER_ENUM)
#undef WARM_REAPER_ENUM
};

struct warm_reaper_message {
    uint32_t kind;
    int32_t pid, code, value;
};

/* --- the reaper's half --- */

#define WARM_REAPER_COMMAND "warm-reaper"
enum { WARM_REAPER_FD = 3 };

/* `muster warm-reaper KEEPER`, with its end of the socket at WARM_REAPER_FD. Returns the exit code. */
int warm_reaper_main(int argc, char *argv[]);

/* --- the agent's half --- */

enum { WARM_REAPER_WORKERS_LIMIT = 4096 };

/* An end of a child that is reaped by now. */
struct warm_end {
    pid_t pid;
    int code, status; /* si_code and si_status */
};

struct warm_reaper_link {
    pid_t pid, keeper; /* 0: not ready yet */
    bool gone;
    struct loop *loop;
    struct loop_source source; /* fd: our end; -1: closed */
    void (*changed)(void *context);
    void *context;
    bool ended_waits; /* a child has ended */
    struct warm_end ended;
    int orders; /* to reap, that were sent to it */
    bool empty;
    pid_t *workers; /* not reaped */
    int count;
};

/* fd: our end of the socket, owned from now on, also on failure. changed: after each message, in the loop. */
int warm_reaper_open(struct warm_reaper_link *link, int fd, struct loop *loop, void (*changed)(void *context),
                     void *context, struct muster_error *err);
/* Ends the reaper, and the remains of its workers. */
void warm_reaper_close(struct warm_reaper_link *link);
/* A worker of it was taken up. */
int warm_reaper_add(struct warm_reaper_link *link, pid_t worker);
/* The next child that has ended, which is reaped; false: none. The children of a reaper that has gone were
 * killed.
 */
bool warm_reaper_take(struct warm_reaper_link *link, struct warm_end *end);
/* Whether it has ended, which the loop may not have seen yet. */
bool warm_reaper_has_ended(const struct warm_reaper_link *link);
/* Whether no process is left with it. */
bool warm_reaper_is_empty(const struct warm_reaper_link *link);

#endif
