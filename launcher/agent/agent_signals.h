/* agent_signals.h - signals to the agent: a signal that stops the job is AGENT_SIGNAL, another AGENT_PASS_ON,
 * the end of a child AGENT_CHILDREN. Before the loop runs they are handled while it waits for something. */
#ifndef MUSTER_LAUNCHER_AGENT_AGENT_SIGNALS_H
#define MUSTER_LAUNCHER_AGENT_AGENT_SIGNALS_H

#include <signal.h>

#include "launcher/agent/agent_internal.h"
#include "launcher/loop/background_job.h"

extern const struct agent_part agent_signals_part;

/* Ignored when this process started. */
const sigset_t *agent_signals_ignored(const struct agent *agent);
/* Before the loop turns: waits so long until fd is readable. -1 with MUSTER_E_TIMEOUT, or
 * MUSTER_E_CANCELLED if a signal that stops the job comes first. what: for the error. */
int agent_signals_await(struct agent *agent, int fd, int64_t patience_ns, const char *what,
                        struct muster_error *err);
/* The same for the end of a job, whose payload may be read then. */
int agent_signals_await_job(struct agent *agent, const struct background_job *job, int64_t patience_ns,
                            const char *what, struct muster_error *err);
/* The signal for which a wait was cancelled; 0: none. */
int agent_signals_early(const struct agent *agent);
/* If PID 1 is a shell that does not forward signals, logs it with the remedy. */
void agent_signals_warn_of_init(const struct agent *agent);

#endif
