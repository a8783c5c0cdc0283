/* folder.h - the folder of all checkpoints of a run, and its names: the thin edge to the file system.
 *
 *     DIR/step-20/               a checkpoint
 *     DIR/.step-30.new/          a checkpoint that is being written, or was when its writer ended
 *     DIR/.step-10.old/          a checkpoint that is being removed
 *     DIR/.spare/                a removed checkpoint; the next checkpoint takes its files
 * Names that begin with a point are never read. */
#ifndef MUSTER_RUNTIME_CHECKPOINT_FOLDER_H
#define MUSTER_RUNTIME_CHECKPOINT_FOLDER_H

#include <stddef.h>
#include <stdint.h>

#include "proto/include/muster_error.h"

#define MANIFEST_NAME "manifest.json"

/* Paths, owned by the caller; NULL: no memory. */
char *folder_step_path(const char *folder, int64_t step);
char *folder_new_path(const char *folder, int64_t step);
char *folder_rank_name(int rank); /* "rank-3.safetensors" */

/* The step of "step-20"; -1: another name. Pure. */
int64_t folder_parse_step(const char *name);

/* Steps of the checkpoints by name, newest first, owned by the caller (mem_free). Returns how many, 0 where
 * there is no such folder; -1. */
int folder_list(const char *folder, int64_t **steps, struct muster_error *err);

/* Makes the folder and finds out whether files can be written in it. */
int folder_probe(const char *folder, struct muster_error *err);

/* Operations of a commit. */
/* Makes the new folder; by any rank, in any order. It may exist already, with files of this writer or of an
 * earlier writer. Or the spare folder becomes the new folder, with files of an older checkpoint. All files
 * are written again or removed. */
int folder_make_new(const char *folder, int64_t step, struct muster_error *err);
/* Removes all from the new folder but the manifest and the files of `ranks` ranks: an earlier writer may have
 * left more. */
int folder_clear_new(const char *folder, int64_t step, int ranks, struct muster_error *err);
/* Removes the new folder with all its files; it may be missing. */
int folder_drop_new(const char *folder, int64_t step, struct muster_error *err);
/* Writes or replaces a file and syncs it; its name is synced with its folder. */
int folder_write(const char *path, const void *data, size_t length, struct muster_error *err);
int folder_sync(const char *path, struct muster_error *err);
int folder_retire(const char *folder, int64_t step, struct muster_error *err);
/* Removes a checkpoint that folder_retire has hidden, once its replacement is durable. */
int folder_drop_retired(const char *folder, int64_t step, struct muster_error *err);
int folder_place(const char *folder, int64_t step, struct muster_error *err);
/* Removes a checkpoint: it loses its name first, so that it exists as a whole or not at all. */
int folder_remove(const char *folder, int64_t step, struct muster_error *err);
/* Removes a checkpoint too, but its files stay as the spare folder, if there is none. */
int folder_retain(const char *folder, int64_t step, struct muster_error *err);
/* Removes the spare folder; errors are ignored. */
void folder_drop_spare(const char *folder);
/* Removes hidden folders that an earlier writer left, but for the new folder of `step` (-1: all). Call it
 * while no other writer exists. Errors are ignored. */
void folder_clean(const char *folder, int64_t step);

#endif
