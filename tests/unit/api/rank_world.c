/* rank_world.c - see rank_world.h. */
#include "tests/unit/api/rank_world.h"

#include <stdio.h>

#include "tests/support/fake_environment.h"

struct muster_world *rank_world_open(char variables[RANK_WORLD_VARIABLES], int rank, int size, int port,
                                     struct muster_error *err)
{
    (void)snprintf(
        variables, RANK_WORLD_VARIABLES,
        "RANK=%d WORLD_SIZE=%d LOCAL_RANK=%d LOCAL_WORLD_SIZE=%d MASTER_ADDR=127.0.0.1 MASTER_PORT=%d", rank,
        size, rank, size, port);
    const struct muster_world_options options = {.size = sizeof options,
                                                 .timeout_ms = 60000,
                                                 .get_environment = fake_environment,
                                                 .context = variables};
    return muster_world_open(&options, err);
}
