/* agent_notices.h - lines to workers by their sockets: the notice of a planned stop (docs/notice.md), and the
 * regrouping of workers that stay (docs/regroup.md). Emits AGENT_NOTICE. */
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

/* Live workers that can stay. */
int agent_notices_stayers(struct agent *agent);
/* Whether all of them can at a planned stop, after which the job has so many nodes: a node is replaced or
 * leaves on purpose, or nodes join. */
bool agent_notices_move(struct agent *agent, enum membership_change change, int next_nodes);
/* Whether all live workers take another place. */
bool agent_notices_resize(struct agent *agent);
/* HOLDING begins: workers that can stay get word to regroup, the others the signal. */
void agent_notices_hold(struct agent *agent);
/* Whether every live worker has answered. */
bool agent_notices_are_held(struct agent *agent);
/* CULLING begins: KILL to the others. */
void agent_notices_cull(struct agent *agent);
/* Sends a worker that has stayed its place in the round. A worker that cannot receive it is killed. */
void agent_notices_place(struct agent *agent, struct worker *worker);

#endif
