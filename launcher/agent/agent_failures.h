/* agent_failures.h - the ends of workers: reaps and classifies them (policy/worker_group.h), keeps the
 * records of failures.
 *
 * A failure is reported to the others at once, with the facts known to the agent (AGENT_FAILURE). A thread
 * then reads the worker's files (verdict/postmortem.h); the findings are sent as a second report of the same
 * failure, before this node reports STOPPED. So a file system that hangs delays the verdict, with a bound,
 * but not the stop of the other nodes. */
#ifndef MUSTER_LAUNCHER_AGENT_AGENT_FAILURES_H
#define MUSTER_LAUNCHER_AGENT_AGENT_FAILURES_H

#include "launcher/agent/agent_internal.h"

extern const struct agent_part agent_failures_part;

/* worker (NULL: none in particular) could not be started: emits AGENT_FAILURE. */
void agent_failures_not_started(struct agent *agent, const struct worker *worker, int exit_code,
                                const char *why);
/* Some worker processes survived SIGKILL: the node is unfit, which is logged and reported to the others. */
void agent_failures_unkillable(struct agent *agent);
/* Whether a post-mortem is in progress: the round is not over before it is reported. */
bool agent_failures_are_pending(const struct agent *agent);
/* At the end: waits for that, with a bound. */
void agent_failures_settle(struct agent *agent);
/* In all rounds. */
int64_t agent_failures_seen(const struct agent *agent);
/* Rounds that failed while this agent was a member, by the class of their first cause: FAILURE_CLASS_COUNT
 * counts. */
const int64_t *agent_failures_of_rounds(const struct agent *agent);

#endif
