/* agent_heartbeats.h - the workers' heartbeats (policy/heartbeat.h): their pipes, detection of and actions
 * on hung workers (policy/hang.h), and workers that exited early. Emits AGENT_HUNG. */
#ifndef MUSTER_LAUNCHER_AGENT_AGENT_HEARTBEATS_H
#define MUSTER_LAUNCHER_AGENT_AGENT_HEARTBEATS_H

#include "launcher/agent/agent_internal.h"

extern const struct agent_part agent_heartbeats_part;

/* *writer is passed to the worker. */
int agent_heartbeats_open(struct agent *agent, struct worker *worker, int *writer, struct muster_error *err);
/* The worker stays for another round: its next heartbeat arms hang detection again. */
void agent_heartbeats_renew(struct agent *agent, const struct worker *worker);
/* The worker was reaped. */
void agent_heartbeats_end(struct agent *agent, const struct worker *worker);
/* Whether the ends that were just reaped must not be handled yet: they belong to a hang, which is reported
 * as one failure. */
bool agent_heartbeats_hold_ends(struct agent *agent);

#endif
