/* agent_pmi.h - MPI programs (--mpi): each worker's PMI-1 descriptor, and the exchanges between the nodes
 * (launcher/pmi/pmi.h). Emits AGENT_ABORTED. */
#ifndef MUSTER_LAUNCHER_AGENT_AGENT_PMI_H
#define MUSTER_LAUNCHER_AGENT_AGENT_PMI_H

#include "launcher/agent/agent_internal.h"

extern const struct agent_part agent_pmi_part;

/* *theirs is passed to the worker; -1 where the job has no PMI. */
int agent_pmi_open(struct agent *agent, struct worker *worker, int *theirs, struct muster_error *err);
/* What MPI has to do with the end of a worker that failed; NULL: nothing that is known. */
const char *agent_pmi_explain(const struct agent *agent, const struct worker *worker);

#endif
