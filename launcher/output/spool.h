/* spool.h - a bounded ring of batches in one unlinked file: what waits where memory is full.
 *
 * Each batch lies in one piece. A new one takes the place of the oldest where the ring has no room, so that
 * what is lost is always the oldest. Where it is (the table) is pure; spool_write and spool_read are the
 * edge. The owner guards the table by a lock of its own and calls the edge without it. */
#ifndef MUSTER_LAUNCHER_OUTPUT_SPOOL_H
#define MUSTER_LAUNCHER_OUTPUT_SPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct spool_batch {
    uint64_t id; /* never comes again */
    int64_t offset;
    size_t length;
};

enum { SPOOL_BATCHES = 4096 };

struct spool {
    int64_t limit;    /* bytes of the file, at most */
    int64_t capacity; /* the same, less where the disk had no more */
    int64_t extent;   /* bytes that the file has */
    uint64_t next_id, first_id;
    uint64_t dropped;                          /* bytes of batches that had to go */
    struct spool_batch batches[SPOOL_BATCHES]; /* by id, modulo */
};

/* --- the table --- */

void spool_init(struct spool *s, int64_t limit);
/* Makes room for length bytes, dropping the oldest batches that lie there; false where they can never fit.
 * The place is the caller's until spool_add or the next spool_place. */
bool spool_place(struct spool *s, size_t length, int64_t *offset);
/* What was placed is written. */
void spool_add(struct spool *s, int64_t offset, size_t length);
/* The disk had no room for what was placed: the file stays as large as it is. False: it did not get smaller
 * by that, and there is nothing to be had. */
bool spool_shrink(struct spool *s, int64_t offset, size_t length);
/* The oldest batch; false where there is none. */
bool spool_oldest(const struct spool *s, struct spool_batch *batch);
/* Takes the batch out; false where it has been dropped meanwhile, and what was read of it is not it. */
bool spool_take(struct spool *s, uint64_t id);
bool spool_is_empty(const struct spool *s);
/* The file was cut to nothing. Only while empty. */
void spool_reset(struct spool *s);

/* --- the edge --- */

/* An unlinked file in folder; -1 with errno. */
int spool_open(const char *folder);
/* All of it, or -1 with errno. */
int spool_write(int fd, int64_t offset, const char *data, size_t length);
int spool_read(int fd, int64_t offset, char *data, size_t length);

#endif
