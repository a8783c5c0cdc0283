/* agent_job_state.h - the job's state in --state-dir (policy/job_state.h): read before there is a world,
 * kept by the serving agent. If the job is over already, the agent is finished at once. */
#ifndef MUSTER_LAUNCHER_AGENT_AGENT_JOB_STATE_H
#define MUSTER_LAUNCHER_AGENT_AGENT_JOB_STATE_H

#include "launcher/agent/agent_internal.h"

extern const struct agent_part agent_job_state_part;

/* For a job that is over. */
int agent_job_state_exit_code(const struct agent *agent);
/* Used by earlier agents of the job. */
int64_t agent_job_state_restarts(const struct agent *agent);
/* This agent will serve the job: the used restarts count. -1 (MUSTER_E_STATE) if there are more than
 * allowed. */
int agent_job_state_resume(struct agent *agent, struct muster_error *err);
/* Whether this agent serves the job now: if it has taken it over, it keeps the state from now on. */
void agent_job_state_serve(struct agent *agent, bool serves);
/* Saves how the job ended (verdict; NULL: there is none), or that it may continue. Blocks, with a bound. */
void agent_job_state_keep_end(struct agent *agent, const struct membership_event *verdict);

#endif
