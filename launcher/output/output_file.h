/* output_file.h - the destination of a write queue: the console or one log file. Counts written bytes,
 * writes a notice into the text at each gap, splits writes to a pipe at line ends, and rotates a log file.
 *
 * The write queue's lock guards the producer's part; the rest belongs to its thread alone. */
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
    bool owned;                    /* closed with the output file */
    const char *name;              /* in notices: "the console" */
    const struct log_style *style; /* style of notices; copied; NULL: text */
    /* rotation, of a regular file that was opened for appending */
    const char *path; /* copied; NULL: none */
    int64_t size;     /* present size of the file */
    int64_t max_size; /* bytes; 0: no rotation */
    int keep;         /* older files: path.1 is the newest, path.<keep> the oldest; >= 1 */
};

/* A piece in a queue; its bytes follow it. */
struct output_file_record {
    struct output_file *target;
    uint64_t bytes_before, lines_before; /* bytes queued for this file before this record */
    uint32_t length, lines;              /* bytes; ends of lines, 0 if not counted */
    bool starts;                         /* at the beginning of a line, or lines have no meaning */
};

struct output_file {
    struct output_file *next;
    /* the producer */
    const void *open; /* owner of the line that has not ended */
    uint64_t put_bytes, put_lines;
    uint64_t due_bytes, due_lines; /* bytes queued at the time when the queue was last empty */
    bool closed;                   /* no more input */
    /* the thread */
    int fd;
    bool owned, at_start; /* at_start: of a line */
    bool large;           /* a pipe that was enlarged, or need not be */
    size_t atom;          /* limit of one write, by whole lines; 0: no limit */
    const char *name;
    struct log_style style;
    char *host, *path;
    int64_t size, max_size;
    int keep;
    uint64_t seen_bytes, seen_lines;     /* written, or known to be missing; atomic */
    uint64_t untold_bytes, untold_lines; /* missing, and no notice written yet */
    uint64_t written_bytes;              /* part of the queued bytes; atomic */
    uint64_t lost_bytes, lost_lines;     /* missing in all; atomic */
    uint64_t gap_bytes, gap_lines;       /* part of the lost: never reached the thread; atomic */
};

enum { OUTPUT_FILE_PARTS = 64 };

/* The parts of the next write call; a zeroed one is empty. */
struct output_file_batch {
    struct output_file *target;
    struct iovec parts[OUTPUT_FILE_PARTS];
    int count;
    size_t total;
};

struct output_file_port {
    /* Writes all parts; returns how many bytes it has written, fewer with errno if it had to give up. */
    size_t (*write)(void *context, int fd, struct iovec *parts, int count);
    void *context;
};

/* Much is to be written: enlarges a pipe, so that writer and reader alternate less often. */
void output_file_expect_much(struct output_file *t);
/* NULL without memory; fd is then not closed. */
struct output_file *output_file_create(const struct output_file_options *options);
/* Closes the descriptor if it owns it. Accepts NULL. */
void output_file_destroy(struct output_file *t);

/* One record, added to the batch or written; data must stay until the batch is flushed. */
void output_file_take(struct output_file_batch *batch, const struct output_file_port *port,
                      const struct output_file_record *record, const char *data);
void output_file_flush(struct output_file_batch *batch, const struct output_file_port *port);
/* Nothing is queued: bytes of due_bytes that were not written are lost. Writes the notice about all of
 * them. */
void output_file_settle(struct output_file *t, const struct output_file_port *port);

#endif
