/* agent_actions.h - the worker group (policy/worker_group.h) inside the agent: the step for an event, and
 * its actions. */
#ifndef MUSTER_LAUNCHER_AGENT_AGENT_ACTIONS_H
#define MUSTER_LAUNCHER_AGENT_AGENT_ACTIONS_H

#include "launcher/agent/agent_internal.h"

/* The part that keeps the group's own deadline. */
extern const struct agent_part agent_actions_part;

/* Before the parts get it. False: it does not fit the state, and no part gets it. */
bool agent_actions_admit(struct agent *agent, const struct agent_event *event);
/* After they have: makes the group's step and executes its actions. */
void agent_actions_take(struct agent *agent, const struct agent_event *event);

#endif
