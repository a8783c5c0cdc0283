/* agent_failures.h - the ends of workers: reaping them, whose doing an end was (policy/worker_group.h), what
 * is known of a failure.
 *
 * A failure is told to the others at once, with what the agent knows (AGENT_FAILURE). What the worker left
 * behind is looked up meanwhile by a thread (verdict/postmortem.h); what is found goes out as a second report
 * of the same failure, before this node says that it has stopped. So a file system that stalls delays the
 * verdict, with a bound, and the stop of the other nodes not at all. */
#ifndef MUSTER_LAUNCHER_AGENT_AGENT_FAILURES_H
#define MUSTER_LAUNCHER_AGENT_AGENT_FAILURES_H

#include "launcher/agent/agent_internal.h"

extern const struct agent_part agent_failures_part;

/* worker (NULL: none in particular) could not be started: emits AGENT_FAILURE. */
void agent_failures_not_started(struct agent *agent, const struct worker *worker, int exit_code,
                                const char *why);
/* What is left of the workers survives KILL: the node is unfit, which is said, here and to the others. */
void agent_failures_unkillable(struct agent *agent);
/* Whether something is still looked up: the round is not over before it is told. */
bool agent_failures_are_pending(const struct agent *agent);
/* At the end: waits for that, with a bound. */
void agent_failures_settle(struct agent *agent);
/* In all rounds. */
int64_t agent_failures_seen(const struct agent *agent);

#endif
