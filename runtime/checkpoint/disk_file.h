/* disk_file.h - a file that is written once from its start to its end: while a thread of its own writes some
 * blocks, the caller fills the next ones. A small file is in memory as a whole and needs no such thread: the
 * caller writes it at the end, at once.
 *
 * Blocks go past the page cache where the file system can do that, which costs no copy, evicts nothing and
 * keeps the disk's own rate. In a hurry they go into the page cache: the caller then waits for memory. */
#ifndef MUSTER_RUNTIME_CHECKPOINT_DISK_FILE_H
#define MUSTER_RUNTIME_CHECKPOINT_DISK_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/include/muster_error.h"

enum {
    DISK_BLOCK = 1 << 20,
    DISK_BLOCKS = 8, /* that wait for the disk, which takes up to four of them at once: as dd with bs=4M */
    DISK_STAGING = DISK_BLOCKS * DISK_BLOCK,
    DISK_ALIGNMENT = 4096 /* of what goes past the page cache; every disk's sectors divide it */
};

/* Opens a file to be written as a whole: one that is there and has blocks of its own, which costs a file
 * system less than new ones, where it has that size (-1: any), no other name and no reader; else a new one.
 * how: O_DIRECT or 0. -1: errno has the reason. */
int disk_file_open(const char *path, int64_t bytes, int how);

struct disk_file;

/* Memory of DISK_STAGING bytes for the blocks, which are touched: for one file after another. A first touch
 * costs more than the copy into it, in a virtual machine many times as much. NULL: no memory. */
char *disk_staging_create(struct muster_error *err);
void disk_staging_destroy(char *staging); /* accepts NULL */

/* Whether a file of so many bytes is. */
bool disk_file_is_small(int64_t bytes);

/* Opens the file at path, of `bytes` bytes of which the first `head` come last. Of a small file bytes, of
 * another one head is a multiple of DISK_ALIGNMENT, or it goes through the page cache. staging: is the file's
 * until it is destroyed; NULL: it takes its own. NULL: with the error. */
struct disk_file *disk_file_create(const char *path, int64_t head, int64_t bytes, char *staging,
                                   struct muster_error *err);
void disk_file_destroy(struct disk_file *file); /* accepts NULL; a file that was not ended stays as it is */

/* The next DISK_BLOCK bytes of the file, to be filled; waits for the disk. NULL: a block before could not be
 * written. */
char *disk_file_block(struct disk_file *file, struct muster_error *err);
/* Gives the block to the disk: it is full, or the file's last one. */
void disk_file_put(struct disk_file *file, int64_t bytes);
/* From any thread. */
void disk_file_hurry(struct disk_file *file, bool hurry);
/* Waits for the blocks, writes the head (its length is that of creation) and syncs. */
int disk_file_end(struct disk_file *file, const void *head, struct muster_error *err);

#endif
