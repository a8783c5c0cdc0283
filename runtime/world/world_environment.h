/* world_environment.h - rank and sizes, read from the variables set by a launcher. Pure: the variables
 * come through a callback. */
#ifndef MUSTER_RUNTIME_WORLD_WORLD_ENVIRONMENT_H
#define MUSTER_RUNTIME_WORLD_WORLD_ENVIRONMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/include/muster_error.h"

enum { WORLD_RANKS_MAX = 1 << 20 };

struct world_place {
    int rank, size, local_rank, local_size;
    const char *master_addr; /* the callback's text; NULL in a world of one without a launcher */
    uint16_t master_port;
    bool agent_store;        /* the launcher serves the store */
    int64_t round, restarts; /* 0 where they are not set */
};

/* All of RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT or none of them (a world of one). LOCAL_WORLD_SIZE is
 * WORLD_SIZE and LOCAL_RANK is RANK modulo LOCAL_WORLD_SIZE where they are not set. An empty variable counts
 * as not set. Errors are MUSTER_E_INVALID and name the variable and its value. */
int world_place_read(const char *(*get)(void *context, const char *name), void *context,
                     struct world_place *place, struct muster_error *err);

#endif
