/* output_file.h - where an outlet writes: the console or one log file. Knows how much of what was put for it
 * has come, tells in the text itself where something is missing, cuts writes to a pipe at line ends, and
 * rotates a log file.
 *
 * An outlet's lock guards the part of the one who puts; the rest is its thread's alone. */
#ifndef MUSTER_LAUNCHER_OUTPUT_OUTPUT_FILE_H
#define MUSTER_LAUNCHER_OUTPUT_OUTPUT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "launcher/output/log_record.h"
#include "proto/base/buffer.h"

struct output_file_options {
    int fd;
    bool owned;                    /* closed with the target */
    const char *name;              /* in notices: "the console" */
    const struct log_style *style; /* of notices; copied; NULL: text */
    /* rotation, of a regular file that was opened for appending */
    const char *path; /* copied; NULL: none */
    int64_t size;     /* of the file now */
    int64_t max_size; /* bytes; 0: no rotation */
    int keep;         /* older files: path.1 is the newest, path.<keep> the oldest; >= 1 */
};

/* A piece in a queue; its bytes follow it. */
struct output_file_record {
    struct output_file *target;
    uint64_t bytes_before, lines_before; /* put for the target before this one */
    uint32_t length, lines;              /* bytes; ends of lines, 0 where nobody counts them */
    bool starts;                         /* at the beginning of a line, or lines mean nothing */
};

struct output_file {
    struct output_file *next;
    /* the one who puts */
    const void *open; /* owner of the line that has not ended */
    uint64_t put_bytes, put_lines;
    uint64_t due_bytes, due_lines; /* what had been put when nothing was queued any more */
    bool closed;                   /* nothing more is put */
    /* the thread */
    int fd;
    bool owned, at_start; /* at_start: of a line */
    bool large;           /* a pipe that was made larger, or need not */
    size_t atom;          /* at most so much by one write, by whole lines; 0: no bound */
    const char *name;
    struct log_style style;
    char *host, *path;
    int64_t size, max_size;
    int keep;
    uint64_t seen_bytes, seen_lines;     /* has come, or is known to be missing; atomic */
    uint64_t untold_bytes, untold_lines; /* missing, no notice was written yet */
    uint64_t written_bytes;              /* of what was put; atomic */
    uint64_t lost_bytes, lost_lines;     /* missing in all; atomic */
    uint64_t gap_bytes, gap_lines;       /* of those: never came to the thread; atomic */
};

enum { OUTPUT_FILE_PARTS = 64 };

/* What is about to be written by one call; a zeroed one is empty. */
struct output_file_batch {
    struct output_file *target;
    struct iovec parts[OUTPUT_FILE_PARTS];
    int count;
    size_t total;
};

struct output_file_port {
    /* Writes all parts; returns how many bytes it has written, fewer with errno where it had to give up. */
    size_t (*write)(void *context, int fd, struct iovec *parts, int count);
    void *context;
};

/* Much is to be written: a pipe is made larger, so that writer and reader take turns less often. */
void output_file_expect_much(struct output_file *t);
/* NULL without memory; fd is then not closed. */
struct output_file *output_file_create(const struct output_file_options *options);
/* Closes what it owns. Accepts NULL. */
void output_file_destroy(struct output_file *t);

/* One record, added to the batch or written; data must stay until the batch is flushed. */
void output_file_take(struct output_file_batch *batch, const struct output_file_port *port,
                      const struct output_file_record *record, const char *data);
void output_file_flush(struct output_file_batch *batch, const struct output_file_port *port);
/* Nothing is queued: what of due_bytes has not come will not. Tells of all that is missing. */
void output_file_settle(struct output_file *t, const struct output_file_port *port);

#endif
