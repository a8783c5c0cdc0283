/* image.h - the state of a rank as bytes: parameters, masters, moments, averages and the state of
 * compression, as they lie in its arenas, group by group. Ranks with equal plans have images of equal layout.
 */
#ifndef MUSTER_RUNTIME_TRAIN_RECOVER_IMAGE_H
#define MUSTER_RUNTIME_TRAIN_RECOVER_IMAGE_H

#include "runtime/train/trainer.h"

/* Calls visit for each piece in turn; its first error ends the walk. The host reads and writes the bytes. */
int image_walk(const struct trainer *trainer, int (*visit)(void *context, char *bytes, int64_t count),
               void *context);
int64_t image_bytes(const struct plan *plan);
void image_copy_out(const struct trainer *trainer, char *to);
void image_copy_in(const struct trainer *trainer, const char *from);

#endif
