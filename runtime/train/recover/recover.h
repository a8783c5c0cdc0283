/* recover.h - after a loss: all ranks get the state of one step from the ranks that stayed. */
#ifndef MUSTER_RUNTIME_TRAIN_RECOVER_RECOVER_H
#define MUSTER_RUNTIME_TRAIN_RECOVER_RECOVER_H

#include "proto/base/buffer.h"
#include "runtime/train/trainer.h"

struct recover_copies;
struct recover_kept;

enum { RECOVER_TEXT_LIMIT = 1 << 20 }; /* bytes of a text */

/* Collective, on every rank after trainer_create or trainer_rejoin. copies: this rank's; NULL: none are made.
 * kept: this rank's state from a world of another size, or with other places; NULL: it has none. mine: the
 * caller's text about this rank's state (trainer_whole), of at most RECOVER_TEXT_LIMIT bytes; theirs gets
 * that of the step at which all go on, and the trainer the state and the counts. 1: done; 0: no step has a
 * state on every rank: this rank's is not used either, and is to be begun or loaded anew; -1: the trainer is
 * broken. Copies are made anew at that step. moved: bytes that this rank has sent or received. */
int trainer_recover(struct trainer *trainer, struct recover_copies *copies, const struct recover_kept *kept,
                    const struct buffer *mine, struct buffer *theirs, int64_t *moved,
                    struct muster_error *err);

/* Whether this rank's state is also that of a rank that is none of first..first+count-1. Pure. */
bool trainer_has_replicas(const struct trainer *trainer, int first, int count);

/* ---- a state that outlives its trainer, for a world of another size or with other places ---- */

/* Whether this run's state can be divided anew between other ranks: without gradients that are compressed
 * between replicas, parameters in few bits, adapters, and copies of pipeline stages. */
bool trainer_divides(const struct trainer *trainer);
/* After trainer_stop: copies the state, where it is whole, and the copies, and mine, the caller's text about
 * the state. sharing: ranks that share this machine's memory. 1: *out is owned by the caller; 0: there is no
 * state; -1: there is no memory for it. */
int recover_keep(struct trainer *trainer, const struct recover_copies *copies, int sharing,
                 const struct buffer *mine, struct recover_kept **out, struct muster_error *err);
/* A number of the live state: equal for ranks of one world that had equal states. */
int recover_kept_number(const struct recover_kept *kept);
void recover_kept_destroy(struct recover_kept *kept); /* accepts NULL */

/* ---- copies in a neighbour's memory ---- */

/* The copies that plan_options.state_copies plans: images of this rank, and of the rank whose neighbour this
 * one is, two of each. On several nodes the neighbour is on another node, unless a node has more than half of
 * the ranks. NULL with err: no memory. ranks_per_node: of this rank's node, other nodes may have others; 0:
 * one node. */
struct recover_copies *recover_copies_create(struct trainer *trainer, int ranks_per_node,
                                             struct muster_error *err);
void recover_copies_destroy(struct recover_copies *copies); /* accepts NULL */
/* Collective, between steps: copies this rank's state and its text, and exchanges images with the neighbours.
 */
int recover_copies_make(struct recover_copies *copies, const struct buffer *text, struct muster_error *err);

#endif
