/* rank_file.h - one rank's file of a checkpoint: a safetensors file of flat tensors, "moment1/wte.weight".
 *
 * Where several ranks hold the same elements each one writes its part of them. The header's metadata has for
 * each tensor the parameter's first element and the checksums, so that it is written last. */
#ifndef MUSTER_RUNTIME_CHECKPOINT_RANK_FILE_H
#define MUSTER_RUNTIME_CHECKPOINT_RANK_FILE_H

#include "runtime/checkpoint/manifest.h"

/* Writes and syncs this rank's file in an existing folder; *bytes: its size. */
int rank_file_write(struct trainer *trainer, const char *folder, int rank, int64_t *bytes,
                    struct muster_error *err);
/* Reads the header of a file just written and adds the file, and its tensors as those of file number `rank`.
 * MUSTER_E_NOT_FOUND where it is not there: the folder is not the same one on all nodes. */
int rank_file_describe(const struct model *model, const char *folder, int rank,
                       struct manifest_writer *writer, struct muster_error *err);
/* Whether a file in the folder has the size and header that a manifest gives. MUSTER_E_INVALID,
 * MUSTER_E_NOT_FOUND. header: false: its size alone. */
int rank_file_check(const char *folder, const struct manifest_file *file, bool header,
                    struct muster_error *err);

#endif
