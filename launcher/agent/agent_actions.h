/* agent_actions.h - the worker group (policy/worker_group.h) inside the agent: which of its steps an event
 * is, and what its actions do. */
#ifndef MUSTER_LAUNCHER_AGENT_AGENT_ACTIONS_H
#define MUSTER_LAUNCHER_AGENT_AGENT_ACTIONS_H

#include "launcher/agent/agent_internal.h"

/* The part that keeps the group's own deadline. */
extern const struct agent_part agent_actions_part;

/* Before the parts hear of it. False: it does not fit, and nobody is to hear of it. */
bool agent_actions_admit(struct agent *agent, const struct agent_event *event);
/* After they have: takes the group's step and does what it asks for. */
void agent_actions_take(struct agent *agent, const struct agent_event *event);

#endif
