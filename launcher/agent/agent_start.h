/* agent_start.h - starts the workers of a round, from the program or from its template (--warm). */
#ifndef MUSTER_LAUNCHER_AGENT_AGENT_START_H
#define MUSTER_LAUNCHER_AGENT_AGENT_START_H

#include "launcher/agent/agent_internal.h"

extern const struct agent_part agent_start_part;

/* The start that failed. */
struct start_failure {
    const struct worker *worker; /* NULL: none in particular */
    int exit_code;               /* the exit code of its end */
};

/* The workers of the round cannot be started yet: AGENT_TEMPLATE follows when they can. */
bool agent_start_await_template(struct agent *agent);
/* Whether that has been answered, and AGENT_TEMPLATE did not follow yet. */
bool agent_start_awaits_template(const struct agent *agent);
/* Starts all workers of the round back to back. -1: the started workers are left to be stopped; out names the
 * worker that was not started. */
int agent_start_workers(struct agent *agent, struct start_failure *out, struct muster_error *err);
/* The next process that has ended, among the workers that are not this process's children (--warm-keep); it
 * is reaped now. false: none. */
struct warm_end;
bool agent_start_take_end(struct agent *agent, struct warm_end *end);
/* Whether a worker was started, in any round. */
bool agent_start_ran(const struct agent *agent);

#endif
