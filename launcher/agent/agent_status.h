/* agent_status.h - the agent's status (status/status.h) and its servers: a local socket for `muster
 * status`, and the metrics port if one is configured. */
#ifndef MUSTER_LAUNCHER_AGENT_AGENT_STATUS_H
#define MUSTER_LAUNCHER_AGENT_AGENT_STATUS_H

#include "launcher/agent/agent_internal.h"

extern const struct agent_part agent_status_part;

#endif
