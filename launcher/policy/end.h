/* end.h - pure: whose doing the end of a worker was, as far as its wait status and the moment tell. */
#ifndef MUSTER_LAUNCHER_POLICY_END_H
#define MUSTER_LAUNCHER_POLICY_END_H

#include <stdbool.h>

#include "launcher/policy/worker_group.h"

/* symbol, name, meaning */
#define END_KINDS(X)                                                                                         \
    X(END_DONE, "done", "it exited 0 while it was to run")                                                   \
    X(END_OWN, "own", "a failure of its own")                                                                \
    X(END_TOLD, "told",                                                                                      \
      "it had been told to stop, and this is no answer to that: a crash, or a KILL that we "                 \
      "did not send")                                                                                        \
    X(END_SUSPECT, "suspect",                                                                                \
      "it had been told to stop and this may be its answer, or it was ending already: "                      \
      "its last words decide")                                                                               \
    X(END_STOPPED, "stopped", "our doing: terminated by the launcher")

#define END_ENUM(symbol, name, meaning) symbol,
enum end_kind { END_KINDS(END_ENUM) END_KIND_COUNT };
#undef END_ENUM

/* state: of the group when the end was seen. leaving: the agent ends whatever its workers do, or its nodes
 * change: what they die of then is nobody's failure (in SAVING too: it ended as it had been told it may).
 * status: the exit code where exited is set, else the signal. */
enum end_kind end_kind_of(enum worker_group_state state, bool leaving, bool exited, int status);
const char *end_kind_name(enum end_kind kind);

#endif
