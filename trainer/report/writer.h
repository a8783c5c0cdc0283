/* writer.h - a thread that appends whole entries to files, so that a file system that stalls does not stall
 * who adds them. What waits is bounded: entries beyond it are lost, counted and warned of. */
#ifndef MUSTER_TRAINER_REPORT_WRITER_H
#define MUSTER_TRAINER_REPORT_WRITER_H

#include <stdbool.h>

#include "proto/base/buffer.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"
#include "proto/include/muster_error.h"

enum { WRITER_FILES = 4, WRITER_LIMIT = 4 << 20 }; /* bytes that wait */

/* A file that is open for appending, or what writes an entry: all of it or nothing. */
struct writer_file {
    int fd;           /* -1: none; the writer's from its creation on */
    const char *path; /* outlives the writer */
    int (*write)(void *context, const char *data, size_t length, struct muster_error *err); /* NULL: to fd */
    void *context; /* outlives the writer */
};

struct writer;

/* Of an error the descriptors stay the caller's. */
struct writer *writer_create(const struct writer_file *files, int count, const struct log_sink *log,
                             struct muster_error *err);
/* Hands bytes to a file, all of which are written or none; a buffer that failed is an entry that is lost.
 * Does not wait. */
void writer_put(struct writer *writer, int file, const struct buffer *bytes);
/* Waits until what was put is written, and closes the files; warns of what was lost. Where it is not written
 * until the deadline it is given up with the thread and the memory, and a file may end in a part of an entry;
 * false then. Accepts NULL. */
bool writer_destroy(struct writer *writer, struct instant deadline);

#endif
