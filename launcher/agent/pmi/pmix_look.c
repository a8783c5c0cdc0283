/* pmix_look.c - see pmix_look.h: by the files that a process has mapped. */
#include "launcher/agent/pmi/pmix_look.h"

#include <stdio.h>

#include "launcher/pmi/mpi_library.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"

enum { MAPS_LIMIT = 4 << 20 };

/* Each look is four times as late as the one before. */
static const int64_t first_look_ns = 500 * NS_PER_MS, last_look_ns = 60 * NS_PER_S;

void pmix_look_begin(struct pmix_look *look, struct instant now)
{
    *look = (struct pmix_look){.begun = now, .due_ns = first_look_ns};
}

struct instant pmix_look_deadline(const struct pmix_look *look)
{
    return look->due_ns ? instant_add(look->begun, look->due_ns) : INSTANT_NEVER;
}

static bool has_loaded(const struct worker *worker, char *soname, size_t size)
{
    scope_buffer maps = {0};
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/maps", (int)worker->pid);
    return io_read_file(path, MAPS_LIMIT, &maps, NULL) == 0 &&
           mpi_library_of_maps(maps.data, maps.length, soname, size) == MPI_LIBRARY_PMIX;
}

/* Its ranks never ask here: each is a world of its own, with the whole work. */
void pmix_look(struct pmix_look *look, struct agent *agent, const struct pmi *pmi)
{
    if (look->due_ns && instant_reached(clock_now(NULL), pmix_look_deadline(look)))
        look->due_ns = look->due_ns < last_look_ns ? 4 * look->due_ns : 0;
    else if (!look->due_ns)
        return;
    for (int i = 0; i < agent->round.worker_count; i++) {
        const struct worker *worker = &agent->round.workers[i];
        char soname[64];
        if (!worker->alive || pmi_state_of(pmi, i) != PMI_STARTED ||
            !has_loaded(worker, soname, sizeof soname))
            continue;
        log_error(
            &agent->log,
            "rank %d (pid %d) has loaded %s (Open MPI), which needs PMIx: without mpirun each worker is "
            "an MPI world of its own; --mpi serves PMI-1: use MPICH, Intel MPI or MVAPICH, or start it "
            "with mpirun",
            worker->rank, (int)worker->pid, soname);
        look->due_ns = 0;
        return;
    }
}

void pmix_look_ended(struct pmix_look *look, struct agent *agent, const struct pmi *pmi)
{
    if (look->ended)
        return;
    look->ended = true;
    pmix_look(look, agent, pmi);
}
