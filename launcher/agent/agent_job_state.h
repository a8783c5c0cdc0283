/* agent_job_state.h - what --state-dir keeps of the job (policy/job_state.h): read before there is a world,
 * kept by the agent that serves the job. Where the job is over already, the agent is finished at once. */
#ifndef MUSTER_LAUNCHER_AGENT_AGENT_JOB_STATE_H
#define MUSTER_LAUNCHER_AGENT_AGENT_JOB_STATE_H

#include "launcher/agent/agent_internal.h"

extern const struct agent_part agent_job_state_part;

/* Of a job that is over. */
int agent_job_state_exit_code(const struct agent *agent);
/* Used up by former lives of the job. */
int64_t agent_job_state_restarts(const struct agent *agent);
/* This agent will serve the job: what is used up counts. -1 (MUSTER_E_STATE) where that is more than there
 * is. */
int agent_job_state_resume(struct agent *agent, struct muster_error *err);
/* Keeps how the job ended (verdict; NULL: there is none), or that it may go on. Blocks, with a bound. */
void agent_job_state_keep_end(struct agent *agent, const struct membership_event *verdict);

#endif
