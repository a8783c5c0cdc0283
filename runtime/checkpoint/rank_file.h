/* rank_file.h - one rank's file of a checkpoint: a safetensors file of flat tensors, "moment1/wte.weight".
 *
 * Where several ranks hold the same elements each one writes its part of them. The header's metadata has for
 * each tensor the parameter's first element and the checksums, so that it is written last. Tensors come in
 * the order in which a step changes them. */
#ifndef MUSTER_RUNTIME_CHECKPOINT_RANK_FILE_H
#define MUSTER_RUNTIME_CHECKPOINT_RANK_FILE_H

#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/rank_header.h"

/* ---- writing ---- */

/* The state of a rank on its way into a file. It is read where it is, by the thread that writes, while steps
 * run: before a group is stepped rank_file_wait has to return. */
struct rank_file;

/* All memory that it takes but the disk's blocks; no file yet. NULL: no memory. */
struct rank_file *rank_file_create(struct trainer *trainer, const char *folder, int rank,
                                   struct muster_error *err);
/* One that was written becomes one of another folder, with the trainer's state as it is then. */
int rank_file_renew(struct rank_file *file, const char *folder, int rank, struct muster_error *err);
/* The same bytes go to another path too, on a disk of its own, say. Takes the path. Where they cannot be
 * written the file is whole without them: the reason is in rank_file_copy_error (code 0: none). */
void rank_file_copy_to(struct rank_file *file, char *path);
const struct muster_error *rank_file_copy_error(const struct rank_file *file);
/* Memory for the blocks of the file and of the copy (disk_staging_create), until rank_file_write has
 * returned; NULL: it takes its own. */
void rank_file_stage(struct rank_file *file, char *staging, char *copy_staging);
void rank_file_destroy(struct rank_file *file); /* accepts NULL; after rank_file_write has returned */
/* Writes and syncs the file in the folder, which is there. On any thread where trainer_part_address gives
 * addresses, else on the trainer's. Once. After an error no group is waited for. */
int rank_file_write(struct rank_file *file, struct muster_error *err);
/* In place of rank_file_write, where there is no folder: no group is waited for. */
void rank_file_release(struct rank_file *file);
/* From another thread: returns when nothing of the group is read any more. */
void rank_file_wait(struct rank_file *file, int group);
/* From another thread: rank_file_write ends soon, with MUSTER_E_STATE. */
void rank_file_cancel(struct rank_file *file);
int64_t rank_file_bytes(const struct rank_file *file);
int64_t rank_file_waited_ns(const struct rank_file *file); /* by rank_file_wait in all */

/* ---- headers of files ---- */

/* Reads the header of a file just written and adds the file, and its tensors as those of file number `rank`.
 * known: that rank's header of the checkpoint before, which becomes this one; may be NULL.
 * MUSTER_E_NOT_FOUND where it is not there: the folder is not the same one on all nodes. */
int rank_file_describe(const struct model *model, const char *folder, int rank, struct rank_header *known,
                       struct manifest_writer *writer, struct muster_error *err);
/* Whether a file in the folder has the size and header that a manifest gives. MUSTER_E_INVALID,
 * MUSTER_E_NOT_FOUND. header: false: its size alone. */
int rank_file_check(const char *folder, const struct manifest_file *file, bool header,
                    struct muster_error *err);

#endif
