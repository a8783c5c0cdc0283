/* agent_outcome.h - the end of a failed job: the report and the verdict, on the console and in files. */
#ifndef MUSTER_LAUNCHER_AGENT_AGENT_OUTCOME_H
#define MUSTER_LAUNCHER_AGENT_AGENT_OUTCOME_H

#include "launcher/agent/agent_internal.h"

/* exit_code: the agent's. Also if some parts were never created. */
void agent_outcome_tell(struct agent *agent, int exit_code);

#endif
