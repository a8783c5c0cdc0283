/* agent_drain.h - muster drain: an operator's request at this agent that a node leaves. It goes to the agent
 * that serves the job, again and again for as long as the command asks. */
#ifndef MUSTER_LAUNCHER_AGENT_DRAIN_AGENT_DRAIN_H
#define MUSTER_LAUNCHER_AGENT_DRAIN_AGENT_DRAIN_H

#include "launcher/agent/agent_internal.h"
#include "proto/base/buffer.h"

extern const struct agent_part agent_drain_part;

/* The command's line, "NUMBER alone|spare NODE", begins a request or asks how far it has come. out gets a
 * line: a word and a text. The word is "asked" (no answer yet), a name of MEMBERSHIP_EVICTIONS (world.h), or
 * "ends": the node is this one, and its agent is about to end. */
void agent_drain_ask(struct agent *agent, const char *line, struct buffer *out);

#endif
