/* spool.h - a bounded ring of batches in one unlinked file: output waits there when memory is full.
 *
 * Each batch is contiguous. A new one replaces the oldest if the ring has no room, so that only the oldest
 * data is lost. The positions (the table) are pure; spool_write and spool_read do the I/O. The owner
 * guards the table by a lock of its own and calls the I/O without it. */
#ifndef MUSTER_LAUNCHER_OUTPUT_SPOOL_H
#define MUSTER_LAUNCHER_OUTPUT_SPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct spool_batch {
    uint64_t id; /* never reused */
    int64_t offset;
    size_t length;
};

enum { SPOOL_BATCHES = 4096 };

struct spool {
    int64_t limit;    /* limit of the file in bytes */
    int64_t capacity; /* the same, lower if the disk was full */
    int64_t extent;   /* size of the file in bytes */
    uint64_t next_id, first_id;
    uint64_t dropped;                          /* bytes of dropped batches */
    struct spool_batch batches[SPOOL_BATCHES]; /* by id, modulo */
};

/* --- the table --- */

void spool_init(struct spool *s, int64_t limit);
/* Makes room for length bytes, dropping the oldest batches there; false if they can never fit. The space
 * is reserved for the caller until spool_add or the next spool_place. */
bool spool_place(struct spool *s, size_t length, int64_t *offset);
/* The placed batch is written. */
void spool_add(struct spool *s, int64_t offset, size_t length);
/* The disk had no room for the placed batch: the file's size becomes the limit. False: the limit cannot
 * shrink further, and the spool is unusable. */
bool spool_shrink(struct spool *s, int64_t offset, size_t length);
/* The oldest batch; false where there is none. */
bool spool_oldest(const struct spool *s, struct spool_batch *batch);
/* Takes the batch out; false if it was dropped while it was read, so that the bytes are not its. */
bool spool_take(struct spool *s, uint64_t id);
bool spool_is_empty(const struct spool *s);
/* The file was truncated to nothing. Only while empty. */
void spool_reset(struct spool *s);

/* --- the edge --- */

/* An unlinked file in folder; -1 with errno. */
int spool_open(const char *folder);
/* All of it, or -1 with errno. */
int spool_write(int fd, int64_t offset, const char *data, size_t length);
int spool_read(int fd, int64_t offset, char *data, size_t length);

#endif
