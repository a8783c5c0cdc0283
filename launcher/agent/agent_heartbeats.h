/* agent_heartbeats.h - the workers' heartbeats (policy/heartbeat.h): their pipes, who has fallen silent and
 * what is done about it (policy/hang.h), and who left early. Emits AGENT_HUNG. */
#ifndef MUSTER_LAUNCHER_AGENT_AGENT_HEARTBEATS_H
#define MUSTER_LAUNCHER_AGENT_AGENT_HEARTBEATS_H

#include "launcher/agent/agent_internal.h"

extern const struct agent_part agent_heartbeats_part;

/* *writer becomes the worker's. */
int agent_heartbeats_open(struct agent *agent, struct worker *worker, int *writer, struct muster_error *err);
/* The worker was reaped. */
void agent_heartbeats_end(struct agent *agent, const struct worker *worker);
/* Whether the ends that were just collected are not to be handled yet: they belong to a hang, which tells of
 * them as one failure. */
bool agent_heartbeats_hold_ends(struct agent *agent);

#endif
