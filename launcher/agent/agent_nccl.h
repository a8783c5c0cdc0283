/* agent_nccl.h - NCCL's environment for the workers of each world (nccl/nccl_env.h): logged when it
 * changes, kept in the log directory as nccl.json; and the differences between the nodes, which the agent
 * of group rank 0 logs. */
#ifndef MUSTER_LAUNCHER_AGENT_AGENT_NCCL_H
#define MUSTER_LAUNCHER_AGENT_AGENT_NCCL_H

#include "launcher/agent/agent_internal.h"

/* Creating it fails if this node must not join (nccl_env.unfit). */
extern const struct agent_part agent_nccl_part;

/* There is a world, its workers are about to start: decides their variables. */
int agent_nccl_decide(struct agent *agent, struct muster_error *err);
/* The workers' inherited environment. */
char *const *agent_nccl_environment(const struct agent *agent);

#endif
