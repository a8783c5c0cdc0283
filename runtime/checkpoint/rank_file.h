/* rank_file.h - one rank's file of a checkpoint: a safetensors file of flat tensors, "moment1/wte.weight".
 *
 * Where several ranks hold the same elements, each rank writes its part of them. The header's metadata has
 * the parameter's first element and the checksums of each tensor, so that it is written last. Tensors come in
 * the order in which a step changes them. */
#ifndef MUSTER_RUNTIME_CHECKPOINT_RANK_FILE_H
#define MUSTER_RUNTIME_CHECKPOINT_RANK_FILE_H

#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/rank_header.h"

/* ---- writing ---- */

/* A rank's state that is being written to a file. The writing thread reads the trainer's memory while steps
 * run: rank_file_wait has to return before a group is stepped. */
struct rank_file;

/* Allocates all memory but the disk's blocks; opens no file. NULL: no memory. */
struct rank_file *rank_file_create(struct trainer *trainer, const char *folder, int rank,
                                   struct muster_error *err);
/* Reuses a file that was written for another folder, with the trainer's state at that time. */
int rank_file_renew(struct rank_file *file, const char *folder, int rank, struct muster_error *err);
/* Writes the same bytes to a second path too, for example on a disk of the node. Takes ownership of the path.
 * If the copy cannot be written the file is still whole: rank_file_copy_error has the reason (code 0: none).
 */
void rank_file_copy_to(struct rank_file *file, char *path);
const struct muster_error *rank_file_copy_error(const struct rank_file *file);
/* Gives memory for the blocks of the file and of the copy (disk_staging_create), until rank_file_write has
 * returned; NULL: the file makes its own. */
void rank_file_stage(struct rank_file *file, char *staging, char *copy_staging);
void rank_file_destroy(struct rank_file *file); /* accepts NULL; after rank_file_write has returned */
/* Between steps, where trainer_part_address gives no addresses: copies the rank's elements to pinned memory
 * of the file's, which stays for the next checkpoint. 1: copied; any thread may write the file, and no step
 * waits for it. 0: there is no memory for it (err has the reason): the file is written on the trainer's
 * thread. -1: the run has failed. */
int rank_file_take(struct rank_file *file, struct muster_error *err);
/* Writes and syncs the file in the folder, which must exist. Runs on any thread where trainer_part_address
 * gives addresses or rank_file_take has copied, else on the trainer's thread. Call it once. After an error
 * rank_file_wait waits for no group. */
int rank_file_write(struct rank_file *file, struct muster_error *err);
/* In place of rank_file_write, if there is no folder: rank_file_wait then waits for no group. */
void rank_file_release(struct rank_file *file);
/* From another thread: waits until the group's memory is no longer read. */
void rank_file_wait(struct rank_file *file, int group);
/* From another thread: makes rank_file_write end soon, with MUSTER_E_STATE. */
void rank_file_cancel(struct rank_file *file);
int64_t rank_file_bytes(const struct rank_file *file);
int64_t rank_file_waited_ns(const struct rank_file *file); /* total time in rank_file_wait */

/* ---- headers of files ---- */

/* Reads the header of a file just written and adds the file, and its tensors as tensors of file number
 * `rank`. known: that rank's header in the previous checkpoint, replaced by this header; may be NULL.
 * MUSTER_E_NOT_FOUND if the file is missing: the nodes do not share one folder. */
int rank_file_describe(const struct model *model, const char *folder, int rank, struct rank_header *known,
                       struct manifest_writer *writer, struct muster_error *err);
/* Whether a file in the folder has the size and header that a manifest gives. MUSTER_E_INVALID,
 * MUSTER_E_NOT_FOUND. header: false: only the size is checked. */
int rank_file_check(const char *folder, const struct manifest_file *file, bool header,
                    struct muster_error *err);

#endif
