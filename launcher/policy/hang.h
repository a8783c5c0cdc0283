/* hang.h - pure: actions on workers whose heartbeats stopped, as a table of states and events; below it hangs
 * without heartbeats.
 *
 *   WATCHING --STALLED--> ASKING (kernel's view read, SIGUSR1 where it is caught) --ANSWERED or bound-->
 *   ABORTING (SIGABRT: faulthandler writes the stacks) --GONE or bound--> WATCHING, the failure having
 * been reported
 *
 * RESET (the workers are being stopped for another reason) leads back from any state. */
#ifndef MUSTER_LAUNCHER_POLICY_HANG_H
#define MUSTER_LAUNCHER_POLICY_HANG_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/base/clock.h"

/* symbol, name, meaning */
#define HANG_STATES(X)                                                                                       \
    X(HANG_WATCHING, "WATCHING", "no worker is silent for too long")                                         \
    X(HANG_ASKING, "ASKING", "the stacks of the silent workers are being read")                              \
    X(HANG_ABORTING, "ABORTING", "the silent workers were sent SIGABRT")

#define HANG_EVENTS(X)                                                                                       \
    X(HANG_STALLED, "STALLED", "a worker has been silent for the whole timeout")                             \
    X(HANG_ANSWERED, "ANSWERED", "all was read; no worker was sent SIGUSR1")                                 \
    X(HANG_GONE, "GONE", "every stalled worker has ended")                                                   \
    X(HANG_DEADLINE, "DEADLINE", "hang->deadline is reached")                                                \
    X(HANG_RESET, "RESET", "the workers are being stopped anyway")

#define HANG_ENUM(symbol, ...) symbol,
enum hang_state { HANG_STATES(HANG_ENUM) HANG_STATE_COUNT };
enum hang_event { HANG_EVENTS(HANG_ENUM) HANG_EVENT_COUNT };
#undef HANG_ENUM

enum hang_action { HANG_NOTHING, HANG_ASK, HANG_ABORT, HANG_TELL };

struct hang {
    enum hang_state state;
    struct instant deadline; /* when ASKING or ABORTING ends; else never */
};

/* The action for the event; HANG_NOTHING if the event has no meaning in this state. */
enum hang_action hang_step(struct hang *hang, enum hang_event event, struct instant now);

/* "?" for a number outside the list. */
const char *hang_state_name(enum hang_state state);

/* --- activity ---
 *
 * Hang detection from outside, for workers that send no heartbeats (--hang-watch=outside).
 *
 * A worker is quiet while its session uses less than 1% of one processor, writes no output, and waits for a
 * processor less than half of the time: on a starved machine a worker that would compute is not hung. A node
 * hangs when all of its workers have been quiet for the whole time limit. A worker that waits for the others
 * spends no time either, so one busy worker clears the node. */

enum { ACTIVITY_WAIT_SIZE = 48 };

/* One look at a worker's session. */
struct activity_sample {
    bool there;         /* some process of the session was found */
    int64_t cpu_ns;     /* processor time of all its processes and their reaped children */
    int64_t starved_ns; /* time for which its processes' main threads were ready and had no processor;
                           0 where the kernel does not count it */
    uint64_t output;    /* bytes written so far, as far as they can be counted */
    char wait[ACTIVITY_WAIT_SIZE]; /* wait of the worker's main thread: "S futex_wait_queue"; "":
                                      unknown */
};

/* Zeroed it is ready. */
struct activity {
    bool known; /* there was a sample */
    bool over;  /* the worker has ended, and is none that hangs; set by the caller */
    bool end_seen;
    struct activity_sample sample;
    struct instant taken;       /* when */
    struct instant quiet_since; /* the first of the samples since which the worker is quiet */
};

void activity_take(struct activity *activity, const struct activity_sample *sample, struct instant now);

/* How often to look for a time limit: an eighth of it, 0.25 s to 10 s. */
int64_t activity_period_ns(int64_t timeout_ns);

/* If all count workers have been quiet, or over, for timeout_ns: the index of the suspected one, which waits
 * in another place than most; the first where all wait in the same place. Otherwise -1. */
int activities_hung(const struct activity *activities, int count, int64_t timeout_ns);

/* "all wait in S futex_wait_queue", or "rank 1 waits in D folio_wait_bit, 3 of 3 others in S
 * futex_wait_queue",
 * appended. -1: no memory, which out remembers. */
int activities_format(const struct activity *activities, int count, int suspect, int rank_base,
                      struct buffer *out);

#endif
