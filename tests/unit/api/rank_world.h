/* rank_world.h - the world of a rank that is a thread of a test, by muster.h. */
#ifndef MUSTER_TESTS_UNIT_API_RANK_WORLD_H
#define MUSTER_TESTS_UNIT_API_RANK_WORLD_H

#include "runtime/include/muster.h"

enum { RANK_WORLD_VARIABLES = 200 };

/* All ranks on one node, a store at the port. variables: memory that outlives the world. NULL on error. */
struct muster_world *rank_world_open(char variables[RANK_WORLD_VARIABLES], int rank, int size, int port,
                                     struct muster_error *err);

#endif
