/* agent_nccl.h - what NCCL cannot know, for the workers of each world (nccl/nccl_env.h): said where it is
 * news, kept in the log directory as nccl.json; and how the nodes differ, which the agent of group rank 0
 * names. */
#ifndef MUSTER_LAUNCHER_AGENT_AGENT_NCCL_H
#define MUSTER_LAUNCHER_AGENT_AGENT_NCCL_H

#include "launcher/agent/agent_internal.h"

/* Creating it fails where this node must not join (nccl_env.unfit). */
extern const struct agent_part agent_nccl_part;

/* A world is there, its workers are about to start: decides what they get. */
int agent_nccl_decide(struct agent *agent, struct muster_error *err);
/* What workers inherit. */
char *const *agent_nccl_environment(const struct agent *agent);

#endif
