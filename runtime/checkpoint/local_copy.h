/* local_copy.h - copies of ranks' files on a node's own disk, DIR/step-N/rank-R.safetensors, for restarts on
 * the same nodes.
 *
 * They are read in place of the shared folder's files, chunk by chunk against the shared manifest's
 * checksums: what is missing, torn or of another run is read from there. So nothing here has to be whole, and
 * a rank removes only what it wrote. */
#ifndef MUSTER_RUNTIME_CHECKPOINT_LOCAL_COPY_H
#define MUSTER_RUNTIME_CHECKPOINT_LOCAL_COPY_H

#include <stdint.h>

#include "proto/include/muster_error.h"

/* Where this rank's file comes, in a folder that is there then; owned by the caller (mem_free). */
char *local_copy_path(const char *dir, int64_t step, int rank, struct muster_error *err);
/* Removes this rank's other files but those of the `keep` newest steps before `step`. Of errors nothing
 * follows. */
void local_copy_prune(const char *dir, int64_t step, int rank, int64_t keep);

#endif
