/* local_copy.h - copies of ranks' files on a node's own disk, DIR/step-N/rank-R.safetensors, and of their
 * manifest, for restarts on the same nodes.
 *
 * They are read in place of the shared folder's files, chunk by chunk against the manifest's checksums: what
 * is missing, torn or of another run is read from there. So nothing here has to be whole, and a rank removes
 * only what it wrote. The manifest's copy has the size and time of the shared one, by which it is known: it
 * is read in place of that only where they are equal. */
#ifndef MUSTER_RUNTIME_CHECKPOINT_LOCAL_COPY_H
#define MUSTER_RUNTIME_CHECKPOINT_LOCAL_COPY_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/include/muster_error.h"

/* Where this rank's file comes, in a folder that is there then; owned by the caller (mem_free). */
char *local_copy_path(const char *dir, int64_t step, int rank, struct muster_error *err);
/* Takes the manifest of a committed checkpoint of the shared folder beside the copies. */
int local_copy_manifest(const char *dir, const char *shared, int64_t step, struct muster_error *err);
/* Size and time of a checkpoint's manifest; zeros where it cannot be found out. */
struct manifest_stamp {
    int64_t bytes, seconds, nanoseconds;
};
struct manifest_stamp local_copy_stamp(const char *folder, int64_t step);
/* Whether the copy has this stamp, which is not zeros. -1: that cannot be found out. */
int local_copy_has(const char *dir, int64_t step, struct manifest_stamp stamp, struct muster_error *err);
/* Removes this rank's other files but those of the `keep` newest steps before `step`. Of errors nothing
 * follows. */
void local_copy_prune(const char *dir, int64_t step, int rank, int64_t keep);

#endif
