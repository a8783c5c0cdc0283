/* hang.h - pure: actions on workers whose heartbeats stopped, as a table of states and events.
 *
 *   WATCHING --STALLED--> ASKING (kernel's view read, SIGUSR1 where it is caught) --ANSWERED or bound-->
 *   ABORTING (SIGABRT: faulthandler writes the stacks) --GONE or bound--> WATCHING, the failure having
 * been reported
 *
 * RESET (the workers are being stopped for another reason) leads back from any state. */
#ifndef MUSTER_LAUNCHER_POLICY_HANG_H
#define MUSTER_LAUNCHER_POLICY_HANG_H

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
    struct instant deadline; /* of ASKING and ABORTING; else never */
};

/* The action for the event; HANG_NOTHING if the event has no meaning in this state. */
enum hang_action hang_step(struct hang *hang, enum hang_event event, struct instant now);

/* "?" for a number outside the list. */
const char *hang_state_name(enum hang_state state);

#endif
