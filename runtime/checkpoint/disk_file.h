/* disk_file.h - a file that is written once from its start to its end. While its own thread writes some
 * blocks, the caller fills the next blocks. A small file is in memory as a whole and needs no thread: the
 * caller writes it at the end, at once.
 *
 * Blocks go past the page cache where the file system can do that: it costs no copy, evicts nothing and keeps
 * the disk's own rate. In a hurry blocks go into the page cache: the caller then waits for memory alone. */
#ifndef MUSTER_RUNTIME_CHECKPOINT_DISK_FILE_H
#define MUSTER_RUNTIME_CHECKPOINT_DISK_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/include/muster_error.h"

enum {
    DISK_BLOCK = 1 << 20,
    DISK_BLOCKS = 8, /* blocks that may wait for the disk, which takes up to four of them at once, as dd does
                        with bs=4M */
    DISK_STAGING = DISK_BLOCKS * DISK_BLOCK,
    DISK_ALIGNMENT = 4096 /* bytes; of writes past the page cache; a multiple of all sectors */
};

/* Opens a file to be written as a whole. Takes an existing file if it has this size (-1: any), no other name
 * and no reader: its blocks cost a file system less than new blocks. Else makes a new file. how: O_DIRECT or
 * 0. -1: errno has the reason. */
int disk_file_open(const char *path, int64_t bytes, int how);

struct disk_file;

/* Makes DISK_STAGING bytes of memory for blocks, for one file after another. The memory is touched already: a
 * first touch costs more than the copy into it, in a virtual machine many times as much. NULL: no memory. */
char *disk_staging_create(struct muster_error *err);
void disk_staging_destroy(char *staging); /* accepts NULL */

/* Whether a file of so many bytes is small. */
bool disk_file_is_small(int64_t bytes);

/* Opens the file at path for `bytes` bytes; the first `head` bytes are written last. `bytes` of a small file,
 * or `head` of a large file, is a multiple of DISK_ALIGNMENT; else the file goes through the page cache.
 * staging: used by the file until it is destroyed; NULL: it makes its own. Returns NULL with the error. */
struct disk_file *disk_file_create(const char *path, int64_t head, int64_t bytes, char *staging,
                                   struct muster_error *err);
void disk_file_destroy(struct disk_file *file); /* accepts NULL; an unended file stays as it is */

/* The next DISK_BLOCK bytes of the file, to be filled; waits for the disk. NULL: an earlier block could not
 * be written. */
char *disk_file_block(struct disk_file *file, struct muster_error *err);
/* Gives the block to the disk: it is full, or the file's last one. */
void disk_file_put(struct disk_file *file, int64_t bytes);
/* From any thread. */
void disk_file_hurry(struct disk_file *file, bool hurry);
/* Waits for the blocks, writes the head (its length is that of creation) and syncs. */
int disk_file_end(struct disk_file *file, const void *head, struct muster_error *err);

#endif
