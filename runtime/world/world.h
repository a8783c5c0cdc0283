/* world.h - the inside of struct muster_world: the store through which its ranks find each other. */
#ifndef MUSTER_RUNTIME_WORLD_WORLD_H
#define MUSTER_RUNTIME_WORLD_WORLD_H

#include <stdbool.h>

#include "rendezvous/store/kv_store.h"
#include "runtime/include/muster.h"
#include "runtime/world/regroup.h"

/* Shared by all ranks, with a key space of its own for each round and restart. NULL in a world of one.
 * Owned by the world; used by one thread at a time. */
const struct kv_store *world_store(const struct muster_world *world);

/* Time-out of connecting and of waiting for other ranks; the default where world is NULL. */
int64_t world_timeout_ns(const struct muster_world *world);

/* As muster_world_stay, and for a part of a world, too: the word of its root ends its collectives. After the
 * word the caller closes the part and calls muster_world_rejoin for the root. */
int world_stay(struct muster_world *world, struct muster_error *err);
bool world_is_part(const struct muster_world *world);
/* After muster_world_stay: let_go ends the collectives of a communicator when the launcher's word comes; see
 * regroup_hold. Nothing where this rank cannot stay. */
int world_hold(const struct muster_world *world, void (*let_go)(void *context), void *context,
               struct muster_error *err);
/* After muster_world_stay: a case more in which this rank stays, see regroup_also. Nothing where it cannot
 * stay. */
int world_stays_also(struct muster_world *world, enum regroup_case which, struct muster_error *err);
/* After a trainer that could stay, and before the next one: see regroup_busy. */
void world_busy(const struct muster_world *world);
/* After muster_world_rejoin, and when all new communicators are held: see regroup_ready. */
void world_ready(const struct muster_world *world);

/* Whether this is not the job's first round: ranks that stayed, or a checkpoint, may have a state. false
 * where world is NULL. */
bool world_has_past(const struct muster_world *world);

/* Numeric text of this rank's address as the store sees it; "127.0.0.1" in a world of one. */
enum { WORLD_ADDRESS = 64 };
int world_address(const struct muster_world *world, char out[WORLD_ADDRESS], struct muster_error *err);

#endif
