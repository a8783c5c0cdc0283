/* agent_events.h - event lines (output/event_line.h) to the destination of --event-log-handler: none, the
 * console, or a file written by a thread. Only receives events. */
#ifndef MUSTER_LAUNCHER_AGENT_AGENT_EVENTS_H
#define MUSTER_LAUNCHER_AGENT_AGENT_EVENTS_H

#include "launcher/agent/agent_internal.h"

extern const struct agent_part agent_events_part;

#endif
