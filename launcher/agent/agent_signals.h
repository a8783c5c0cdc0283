/* agent_signals.h - signals to the agent: those that stop the job are AGENT_SIGNAL, others AGENT_PASS_ON, the
 * end of a child AGENT_CHILDREN. Before the loop turns they are looked at while something is awaited. */
#ifndef MUSTER_LAUNCHER_AGENT_AGENT_SIGNALS_H
#define MUSTER_LAUNCHER_AGENT_AGENT_SIGNALS_H

#include <signal.h>

#include "launcher/agent/agent_internal.h"
#include "launcher/loop/background_job.h"

extern const struct agent_part agent_signals_part;

/* What this process inherited as ignored. */
const sigset_t *agent_signals_ignored(const struct agent *agent);
/* Before the loop turns: waits so long until fd is readable. -1 with MUSTER_E_TIMEOUT, or MUSTER_E_CANCELLED
 * where a signal that stops the job comes first. what: for the error. */
int agent_signals_await(struct agent *agent, int fd, int64_t patience_ns, const char *what,
                        struct muster_error *err);
/* The same for the end of a job, whose payload may be looked at then. */
int agent_signals_await_job(struct agent *agent, const struct background_job *job, int64_t patience_ns,
                            const char *what, struct muster_error *err);
/* The signal for which one of these was cancelled; 0: none. */
int agent_signals_early(const struct agent *agent);
/* Where PID 1 is a shell that keeps signals to itself, says so and what helps. */
void agent_signals_warn_of_init(const struct agent *agent);

#endif
