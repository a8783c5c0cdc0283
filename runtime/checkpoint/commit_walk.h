/* commit_walk.h - rank 0's work on a checkpoint: the table of commit.h on a file system. */
#ifndef MUSTER_RUNTIME_CHECKPOINT_COMMIT_WALK_H
#define MUSTER_RUNTIME_CHECKPOINT_COMMIT_WALK_H

#include "runtime/checkpoint/checkpoint.h"

/* Works from a state on until a state in which other ranks take part, or the end. bytes: size of this rank's
 * file. err keeps the first error. Reads only fields of the trainer that never change. */
enum commit_state commit_walk(const struct checkpoint_save *save, int64_t bytes, enum commit_state state,
                              struct muster_error *err);
/* After a save that failed for lack of room: removes an older checkpoint (retention_give_up), and from now on
 * keeps no more checkpoints than fit. Returns the step of the removed checkpoint; -1: none may be removed. */
int64_t commit_give_up(const struct checkpoint_save *save);

#endif
