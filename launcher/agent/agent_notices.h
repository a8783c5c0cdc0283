/* agent_notices.h - telling workers of a stop that is planned (docs/notice.md): their sockets, who listens,
 * and the notice itself. Emits AGENT_NOTICE. */
#ifndef MUSTER_LAUNCHER_AGENT_AGENT_NOTICES_H
#define MUSTER_LAUNCHER_AGENT_AGENT_NOTICES_H

#include "launcher/agent/agent_internal.h"

extern const struct agent_part agent_notices_part;

/* *theirs becomes the worker's. */
int agent_notices_open(struct agent *agent, struct worker *worker, int *theirs, struct muster_error *err);
/* Live workers that listen, as far as they have said so by now. */
int agent_notices_listeners(struct agent *agent);
/* What stops the round, as the server said or as this agent was asked. */
enum membership_change agent_notices_coming(const struct agent *agent);
/* SAVING begins, or its end comes nearer: those that listen are told, the others get the signal. */
void agent_notices_announce(struct agent *agent);

#endif
