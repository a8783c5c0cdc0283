/* world_launchers.c - see world_launchers.h. */
#include "proto/world/world_launchers.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/text.h"
#include "proto/env_names.h"
#include "proto/slurm.h"

/* Ports that are neither a well-known service's nor given to outgoing connections (from 32768). */
enum { PORTS_FROM = 20000, PORTS = 10000 };

/* A launcher: names of its variables, NULL where it has none. */
struct launcher {
    const char *name, *rank, *size, *local_rank, *local_size;
    const char *job[2]; /* what tells this job from others on the same machines */
    const char *pass;   /* how its user gives a variable to all ranks: name, value */
};

/* The first whose rank, size and local rank are set is taken; then the first whose rank and size are. Hydra's
 * ranks may be started through srun and then have Slurm's variables of the node, so that it comes first.
 * SLURM_PROCID is set in a batch script too, where nothing else runs; SLURM_STEP_NUM_TASKS is not.
 */
static const struct launcher launchers[] = {
    {"Open MPI",
     "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE",
     {"PMIX_NAMESPACE"},
     "mpirun -x %s=%s"},
    {"MVAPICH2",
     "MV2_COMM_WORLD_RANK",
     "MV2_COMM_WORLD_SIZE",
     "MV2_COMM_WORLD_LOCAL_RANK",
     "MV2_COMM_WORLD_LOCAL_SIZE",
     {NULL},
     "mpirun_rsh %s=%s"},
    {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", {NULL}, "mpiexec -genv %s %s"},
    {"Slurm",
     "SLURM_PROCID",
     "SLURM_STEP_NUM_TASKS",
     "SLURM_LOCALID",
     NULL, /* SLURM_STEP_TASKS_PER_NODE lists all nodes */
     {"SLURM_JOB_ID", "SLURM_STEP_ID"},
     "srun --export=ALL,%s=%s"},
    {"PMI", "PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE", {NULL}, "mpiexec -env %s %s"},
};
enum { LAUNCHERS = sizeof launchers / sizeof *launchers };

static const struct launcher *find_launcher(const struct world_variables *v)
{
    for (int local = 1; local >= 0; local--) {
        for (int i = 0; i < LAUNCHERS; i++) {
            const struct launcher *l = &launchers[i];
            if (world_text(v, l->rank) && world_text(v, l->size) && (!local || world_text(v, l->local_rank)))
                return l;
        }
    }
    return NULL;
}

/* Whether a launcher has given a rank without a size, or the other way round, so that its ranks would each be
 * a world of one. SLURM_PROCID alone is a batch script's. */
static int refuse_part(const struct world_variables *v)
{
    for (int i = 0; i < LAUNCHERS; i++) {
        const struct launcher *l = &launchers[i];
        const char *rank = world_text(v, l->rank), *size = world_text(v, l->size);
        if (!rank == !size || (rank && !strcmp(l->rank, "SLURM_PROCID")))
            continue;
        return error_set(v->err, MUSTER_E_INVALID,
                         "%s is set, but %s is not (%s sets both): start the program by its launcher or by "
                         "`muster run`, or unset %s to run alone",
                         rank ? l->rank : l->size, rank ? l->size : l->rank, l->name,
                         rank ? l->rank : l->size);
    }
    return 0;
}

/* ---- the ranks of this node ---- */

static int slurm_local_size(const struct world_variables *v, int64_t size, int64_t *local_size)
{
    int64_t node = -1;
    const char *tasks = world_text(v, "SLURM_STEP_TASKS_PER_NODE");
    if (world_number(v, "SLURM_NODEID", 0, size - 1, &node))
        return -1;
    if (!tasks || node < 0)
        return 0;
    *local_size = slurm_tasks_at(tasks, node, v->err);
    if (*local_size < 0)
        return error_wrap(v->err, "SLURM_STEP_TASKS_PER_NODE");
    return *local_size <= size
               ? 0
               : error_set(v->err, MUSTER_E_INVALID,
                           "SLURM_STEP_TASKS_PER_NODE is '%.100s', more tasks than the %lld of "
                           "SLURM_STEP_NUM_TASKS",
                           tasks, (long long)size);
}

/* *known: how many ranks this node has was found out; else all are taken to be here. */
static int read_ranks(const struct world_variables *v, const struct launcher *l, struct world_place *place,
                      bool *known)
{
    int64_t size = 1, rank = 0, local_size = 0, local_rank;
    if (world_number(v, l->size, 1, WORLD_RANKS_MAX, &size) || world_number(v, l->rank, 0, size - 1, &rank) ||
        (l->local_size ? world_number(v, l->local_size, 1, size, &local_size)
                       : slurm_local_size(v, size, &local_size)))
        return -1;
    *known = local_size > 0;
    if (!*known)
        local_size = size;
    local_rank = rank % local_size;
    if (world_number(v, l->local_rank, 0, local_size - 1, &local_rank))
        return -1;
    place->size = (int)size;
    place->rank = (int)rank;
    place->local_size = (int)local_size;
    place->local_rank = (int)local_rank;
    return 0;
}

/* ---- where rank 0 serves the store ---- */

static int reject(const struct world_variables *v, const struct launcher *l, const struct world_place *place,
                  const char *missing, const char *value)
{
    char pass[128];
    (void)snprintf(pass, sizeof pass, l->pass, missing, value); /* fits: texts of the table and ours */
    return error_set(v->err, MUSTER_E_INVALID,
                     "%s is %d of %d ranks (%s), but %s is not set and cannot be derived: give all ranks %s, "
                     "such as `%s`, or start them with `muster run`",
                     l->rank, place->rank, place->size, l->name, missing,
                     missing == ENV_MASTER_PORT ? "the same free port" : "the address of the host of rank 0",
                     pass);
}

static int find_address(const struct world_variables *v, const struct launcher *l, bool one_node,
                        struct world_place *place)
{
    const char *given = world_text(v, ENV_MASTER_ADDR), *hosts = NULL;
    if (given)
        return world_place_host(place, given, v->err);
    if (one_node)
        return world_place_host(place, "127.0.0.1", v->err);
    if (!l->local_size && !(hosts = world_text(v, "SLURM_STEP_NODELIST")))
        hosts = world_text(v, "SLURM_JOB_NODELIST");
    if (!hosts)
        return reject(v, l, place, ENV_MASTER_ADDR, "host0");
    return slurm_host_at(hosts, 0, place->master_addr, sizeof place->master_addr, v->err)
               ? error_wrap(v->err, "the list of nodes")
               : 0;
}

static int find_port(const struct world_variables *v, const struct launcher *l, struct world_place *place)
{
    int64_t port = 0;
    if (world_number(v, ENV_MASTER_PORT, 1, UINT16_MAX, &port))
        return -1;
    uint64_t hash = 0;
    for (size_t i = 0; !port && i < sizeof l->job / sizeof *l->job && l->job[i]; i++) {
        const char *name = world_text(v, l->job[i]);
        if (!name)
            return reject(v, l, place, ENV_MASTER_PORT, "29500");
        hash = text_hash(hash, name, strlen(name) + 1);
    }
    if (!port && !l->job[0])
        return reject(v, l, place, ENV_MASTER_PORT, "29500");
    place->master_port = (uint16_t)(port ? port : PORTS_FROM + (int64_t)(hash % PORTS));
    return 0;
}

int world_launcher_read(const struct world_variables *v, struct world_place *place)
{
    bool known;
    struct world_place found = *place;
    const struct launcher *l = find_launcher(v);
    if (!l)
        return refuse_part(v);
    if (read_ranks(v, l, &found, &known))
        return -1;
    if (found.size > 1 &&
        (find_address(v, l, known && found.local_size == found.size, &found) || find_port(v, l, &found)))
        return -1;
    *place = found;
    return 1;
}
