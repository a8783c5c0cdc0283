/* agent_status.h - what the agent tells of itself (status/status.h), and to whom: `muster status` finds it by
 * a local socket, and the metrics port answers where one was given. */
#ifndef MUSTER_LAUNCHER_AGENT_AGENT_STATUS_H
#define MUSTER_LAUNCHER_AGENT_AGENT_STATUS_H

#include "launcher/agent/agent_internal.h"

extern const struct agent_part agent_status_part;

#endif
