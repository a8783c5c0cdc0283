/* share.h - bytes that an exchange after a loss sends: also the text of the step. A world of one rank sends
 * nothing. */
#ifndef MUSTER_RUNTIME_TRAIN_RECOVER_SHARE_H
#define MUSTER_RUNTIME_TRAIN_RECOVER_SHARE_H

#include "proto/base/buffer.h"
#include "runtime/train/trainer.h"

/* One operation of the world's comm, in place. */
int share_bytes(struct trainer *trainer, enum comm_kind kind, int root, void *bytes, int64_t count,
                struct muster_error *err);
/* The counts and the text of rank root, which alone has them: all ranks get both. */
int share_text(struct trainer *trainer, int root, const struct trainer_counts *counts,
               const struct buffer *text, struct buffer *theirs, struct muster_error *err);

#endif
