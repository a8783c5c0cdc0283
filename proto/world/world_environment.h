/* world_environment.h - rank and sizes, read from the variables set by a launcher. Pure: the variables
 * come through a callback. */
#ifndef MUSTER_PROTO_WORLD_WORLD_ENVIRONMENT_H
#define MUSTER_PROTO_WORLD_WORLD_ENVIRONMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/include/muster_error.h"

enum { WORLD_RANKS_MAX = 1 << 20, WORLD_HOST = 256 };

struct world_place {
    int rank, size, local_rank, local_size;
    char master_addr[WORLD_HOST]; /* a name or address; "" in a world of one without a launcher */
    uint16_t master_port;
    bool agent_store;        /* the launcher serves the store */
    bool elastic;            /* the number of nodes may change: MUSTER_NNODES, else torchrun's PET_NNODES */
    int64_t round, restarts; /* 0 where they are not set */
};

/* All of RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; else, with neither RANK nor WORLD_SIZE, the variables of
 * mpirun, mpiexec or srun (world_launchers.h); else none of the four: a world of one. LOCAL_WORLD_SIZE is
 * WORLD_SIZE and LOCAL_RANK is RANK modulo LOCAL_WORLD_SIZE where they are not set. An empty variable counts
 * as not set. Errors are MUSTER_E_INVALID and name the variable and its value: also where a launcher's
 * variables are there in part, and where torchrun's ask for several processes that nothing has started
 * (world_alone.h). */
int world_place_read(const char *(*get)(void *context, const char *name), void *context,
                     struct world_place *place, struct muster_error *err);

/* Keeps the name or address of the host that serves the store; -1 if it is too long. */
int world_place_host(struct world_place *place, const char *host, struct muster_error *err);

#endif
