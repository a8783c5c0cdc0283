/* end.h - pure: attributes the end of a worker to itself or to the launcher, by its wait status and the
 * moment. */
#ifndef MUSTER_LAUNCHER_POLICY_END_H
#define MUSTER_LAUNCHER_POLICY_END_H

#include <stdbool.h>

#include "launcher/policy/worker_group.h"

/* symbol, name, meaning */
#define END_KINDS(X)                                                                                         \
    X(END_DONE, "done", "it exited 0 while it should run")                                                   \
    X(END_OWN, "own", "a failure of its own")                                                                \
    X(END_TOLD, "told",                                                                                      \
      "it was being stopped, and this is not the answer to that: a crash, or a SIGKILL that we "             \
      "did not send")                                                                                        \
    X(END_SUSPECT, "suspect",                                                                                \
      "it was being stopped and this may be its answer, or it was already failing: "                         \
      "its last output decides")                                                                             \
    X(END_STOPPED, "stopped", "terminated by the launcher")

#define END_ENUM(symbol, name, meaning) symbol,
enum end_kind { END_KINDS(END_ENUM) END_KIND_COUNT };
#undef END_ENUM

/* state: of the group when the end was seen. leaving: the agent ends in any case, or its nodes change: a
 * worker's end is then no failure (in SAVING too: the notice allowed it to end). status: the exit code
 * where exited is set, else the signal. */
enum end_kind end_kind_of(enum worker_group_state state, bool leaving, bool exited, int status);
const char *end_kind_name(enum end_kind kind);

#endif
