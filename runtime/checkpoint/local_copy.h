/* local_copy.h - copies of ranks' files on a node's own disk, DIR/step-N/rank-R.safetensors, and of their
 * manifest, for restarts on the same nodes.
 *
 * Copies are read in place of the shared folder's files, chunk by chunk against the manifest's checksums. A
 * chunk that is missing, torn or from another run is read from the shared folder. So no copy has to be whole,
 * and a rank removes only files that it wrote. The manifest's copy has the size and time of the shared
 * manifest. It is read in place of the shared manifest only where both are equal. */
#ifndef MUSTER_RUNTIME_CHECKPOINT_LOCAL_COPY_H
#define MUSTER_RUNTIME_CHECKPOINT_LOCAL_COPY_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/include/muster_error.h"

/* Path of this rank's copy; makes its folder. The caller owns the path (mem_free). */
char *local_copy_path(const char *dir, int64_t step, int rank, struct muster_error *err);
/* Copies the manifest of a committed checkpoint from the shared folder to the copies. */
int local_copy_manifest(const char *dir, const char *shared, int64_t step, struct muster_error *err);
/* Size and time of a checkpoint's manifest; zeros: not known. */
struct manifest_stamp {
    int64_t bytes, seconds, nanoseconds;
};
struct manifest_stamp local_copy_stamp(const char *folder, int64_t step);
/* Whether the copy has this stamp, which is not zeros. -1: not known. */
int local_copy_has(const char *dir, int64_t step, struct manifest_stamp stamp, struct muster_error *err);
/* Removes this rank's files of other steps, but keeps the `keep` newest steps before `step`. Errors are
 * ignored. */
void local_copy_prune(const char *dir, int64_t step, int rank, int64_t keep);

#endif
