/* agent_events.h - event lines (output/event_line.h) to where --event-log-handler says: nowhere, the console,
 * or a file that a thread writes. Only listens. */
#ifndef MUSTER_LAUNCHER_AGENT_AGENT_EVENTS_H
#define MUSTER_LAUNCHER_AGENT_AGENT_EVENTS_H

#include "launcher/agent/agent_internal.h"

extern const struct agent_part agent_events_part;

#endif
