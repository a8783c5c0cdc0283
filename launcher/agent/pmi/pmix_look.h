/* pmix_look.h - workers with --mpi that have loaded an MPI library which does not speak PMI-1: an error names
 * them. A script's library is in no file that could be looked at before. */
#ifndef MUSTER_LAUNCHER_AGENT_PMIX_LOOK_H
#define MUSTER_LAUNCHER_AGENT_PMIX_LOOK_H

#include "launcher/agent/agent_internal.h"
#include "launcher/pmi/pmi.h"

/* Of one round. */
struct pmix_look {
    struct instant begun;
    int64_t due_ns; /* after begun; 0: no more looks */
    bool ended;     /* the look at the first end of a rank was made */
};

void pmix_look_begin(struct pmix_look *look, struct instant now);
struct instant pmix_look_deadline(const struct pmix_look *look);
/* Looks at the ranks that have not called MPI_Init. */
void pmix_look(struct pmix_look *look, struct agent *agent, const struct pmi *pmi);
/* A rank has ended: looks at the others of a short program, once. */
void pmix_look_ended(struct pmix_look *look, struct agent *agent, const struct pmi *pmi);

#endif
