/* recover.h - after a loss: all ranks get the state of one step from the ranks that stayed. */
#ifndef MUSTER_RUNTIME_TRAIN_RECOVER_RECOVER_H
#define MUSTER_RUNTIME_TRAIN_RECOVER_RECOVER_H

#include "proto/base/buffer.h"
#include "runtime/train/trainer.h"

struct recover_copies;

enum { RECOVER_TEXT_LIMIT = 1 << 20 }; /* bytes of a text */

/* Collective, on every rank after trainer_create or trainer_rejoin. copies: this rank's; NULL: none are made.
 * mine: the caller's text about this rank's state (trainer_whole), of at most RECOVER_TEXT_LIMIT bytes;
 * theirs gets that of the step at which all go on, and the trainer the state and the counts. 1: done; 0: no
 * step has a state on every rank: this rank's is not used either, and is to be begun or loaded anew; -1: the
 * trainer is broken. Copies are made anew at that step. moved: bytes that this rank has sent or received. */
int trainer_recover(struct trainer *trainer, struct recover_copies *copies, const struct buffer *mine,
                    struct buffer *theirs, int64_t *moved, struct muster_error *err);

/* Whether each rank's state is also that of another one. Pure. */
bool trainer_has_replicas(const struct trainer *trainer);

/* ---- copies in a neighbour's memory ---- */

/* The copies that plan_options.state_copies plans: images of this rank, and of the rank whose neighbour this
 * one is, two of each. On several nodes the neighbour is on the next node. NULL with err: no memory.
 * ranks_per_node: 0: one node. */
struct recover_copies *recover_copies_create(struct trainer *trainer, int ranks_per_node,
                                             struct muster_error *err);
void recover_copies_destroy(struct recover_copies *copies); /* accepts NULL */
/* Collective, between steps: copies this rank's state and its text, and exchanges images with the neighbours.
 */
int recover_copies_make(struct recover_copies *copies, const struct buffer *text, struct muster_error *err);

#endif
