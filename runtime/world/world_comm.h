/* world_comm.h - the collectives of a world for its user's own values: a comm with a device and a piece of
 * memory of its own. Operations run on the calling thread. */
#ifndef MUSTER_RUNTIME_WORLD_WORLD_COMM_H
#define MUSTER_RUNTIME_WORLD_WORLD_COMM_H

#include "runtime/comm/comm.h"

struct world_comm_options {
    int rank, size, local_rank, local_size;
    const struct kv_store *store;
    const char *address; /* this rank's address, from world_address */
    int64_t timeout_ns;  /* time-out of creation and of each operation */
};

struct world_comm;

/* Collective: an error of one rank is an error of all. */
struct world_comm *world_comm_create(const struct world_comm_options *options, struct muster_error *err);
void world_comm_destroy(struct world_comm *comm); /* accepts NULL */

/* Collective. op: all_reduce or broadcast, of data in place; its count is that of all data, which goes
 * through in pieces. After an error every later call returns that error. */
int world_comm_run(struct world_comm *comm, const struct comm_op *op, void *data, struct muster_error *err);

#endif
