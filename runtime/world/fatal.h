/* fatal.h - ranks that fail alike: each has printed its error before the first one exits.
 *
 * A launcher stops all ranks as soon as one has exited: the one that has the reason may not have printed it
 * yet, while another one, which has only learned that there is one, is done. */
#ifndef MUSTER_RUNTIME_WORLD_FATAL_H
#define MUSTER_RUNTIME_WORLD_FATAL_H

#include "runtime/include/muster_world.h"

/* After this rank has printed its error, or has left that to another rank: waits until every rank of the
 * world has come here, for at most so long; 0: it is counted and waits for none. world NULL or of one:
 * nothing. */
void fatal_meet(struct muster_world *world, int64_t wait_ns);

#endif
