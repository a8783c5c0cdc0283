/* agent_notices.h - sends workers the notice of a planned stop (docs/notice.md): their sockets, their
 * registration, and the notice itself. Emits AGENT_NOTICE. */
#ifndef MUSTER_LAUNCHER_AGENT_AGENT_NOTICES_H
#define MUSTER_LAUNCHER_AGENT_AGENT_NOTICES_H

#include "launcher/agent/agent_internal.h"

extern const struct agent_part agent_notices_part;

/* *theirs is passed to the worker. */
int agent_notices_open(struct agent *agent, struct worker *worker, int *theirs, struct muster_error *err);
/* Live workers that are registered for notices so far. */
int agent_notices_listeners(struct agent *agent);
/* The reason of the stop, from the server or from this agent's signal. */
enum membership_change agent_notices_coming(const struct agent *agent);
/* SAVING begins, or its deadline moves closer: registered workers get a notice, the others the signal. */
void agent_notices_announce(struct agent *agent);

#endif
