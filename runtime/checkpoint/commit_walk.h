/* commit_walk.h - rank 0's work on a checkpoint: the table of commit.h on a file system. */
#ifndef MUSTER_RUNTIME_CHECKPOINT_COMMIT_WALK_H
#define MUSTER_RUNTIME_CHECKPOINT_COMMIT_WALK_H

#include "runtime/checkpoint/checkpoint.h"

/* Works from a state on until one in which others take part, or the end. bytes: of this rank's file. err
 * keeps the first error. Reads of the trainer only what never changes. */
enum commit_state commit_walk(const struct checkpoint_save *save, int64_t bytes, enum commit_state state,
                              struct muster_error *err);
/* Behind one that failed for lack of room: removes an older one (retention_give_up), and from now on keeps no
 * more than there is room for. Its step; -1: there is none to give up. */
int64_t commit_give_up(const struct checkpoint_save *save);

#endif
