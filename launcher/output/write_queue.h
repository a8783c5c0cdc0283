/* write_queue.h - a bounded queue of text for output files, and a thread that writes it, so that a slow or
 * stuck console or disk never holds the thread that supervises, nor a worker for longer than
 * WRITE_QUEUE_WINDOW_NS.
 *
 *            memory                          disk                memory
 *   put --> filling --(spooler thread)--> spilling --> spool --> writing --(writer thread)--> files
 *              \______________________________________________/
 *                       if the files keep up
 *
 * A queue that stays full for WRITE_QUEUE_WINDOW_NS is late: records that must be kept then go through an
 * unlinked spool file, and others (a log file has them) are refused. If the spool is late too, or there is
 * none, everything is refused. If the spool has no room its oldest records are replaced. Every refused,
 * dropped or unwritten byte is counted, and a notice at its position in the text gives the amount.
 *
 * The threads start with the first piece and the first spill. Where the writer cannot be started (the
 * cgroup's pids.max is reached) who puts a piece writes it, and does not wait for space; a file that is stuck
 * holds it. No descriptor is ever switched to non-blocking. */
#ifndef MUSTER_LAUNCHER_OUTPUT_WRITE_QUEUE_H
#define MUSTER_LAUNCHER_OUTPUT_WRITE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "launcher/output/output_file.h"
#include "proto/base/clock.h"
#include "proto/include/muster_error.h"

/* Limit of the waiting bytes; as many again may be in each thread's hands. */
enum { WRITE_QUEUE_LIMIT = 1024 * 1024, WRITE_QUEUE_URGENT = 64 * 1024 };

/* A producer waits for room as long as this much is written in each window: 5 MB/s. Otherwise the files do
 * not keep up, and for WRITE_QUEUE_GRUDGE_NS no producer waits again, unless they turn out to be fast
 * after all. The spool, used then, has a window of its own: all of it. */
enum { WRITE_QUEUE_PACE = 512 * 1024 };
#define WRITE_QUEUE_WINDOW_NS       (100 * NS_PER_MS)
#define WRITE_QUEUE_SPOOL_WINDOW_NS (500 * NS_PER_MS)
#define WRITE_QUEUE_GRUDGE_NS       (5 * NS_PER_S)

struct write_queue_options {
    int wake_fd; /* an eventfd that becomes readable when there is room again after a shortage, and when a
                    write, or the start of the writer, failed for the first time */
    const char *spool_folder; /* copied; as in pump.h */
    int64_t spool_limit;      /* bytes */
};

struct write_queue_piece {
    struct output_file *target;
    const void *owner; /* the owner of the line that the piece belongs to; NULL: raw bytes, no lines */
    const char
        *prefix; /* put before a piece that continues a line interrupted by another owner; may be NULL */
    size_t prefix_length;
    const char *data;
    size_t length; /* at most UINT32_MAX / 2 */
    uint32_t lines;
    bool starts; /* begins at the beginning of a line */
    bool ends;   /* ends at the end of one */
    bool keep;   /* no other file has it: it may go to the spool */
    bool must;   /* room was checked before it was read: it may exceed the limit; write_queue_kick follows */
    bool urgent; /* the agent's own: may use the reserved room */
};

struct write_queue_lost {
    uint64_t lines, bytes; /* so far; without the spool's pending data */
    int error;             /* errno of the last refusal, 0 for none */
    int no_thread;         /* with which the writer could not be started, 0 for none */
};

struct write_queue;

struct write_queue *write_queue_create(const struct write_queue_options *options, struct muster_error *err);

/* A file of this queue, which owns it; NULL: no memory, and options->fd is not closed. */
struct output_file *write_queue_target(struct write_queue *o, const struct output_file_options *options);
/* No more input for it: it is closed when everything is written. Accepts NULL. */
void write_queue_release(struct write_queue *o, struct output_file *target);

/* Whether to go on reading: false if waiting is worthwhile. Ask again when wake_fd is readable and at
 * write_queue_due; records put after true may still be refused, and are counted then. */
bool write_queue_accepts(struct write_queue *o, size_t bytes, bool keep, struct instant now);
/* Never if no producer waits. */
struct instant write_queue_due(struct write_queue *o);
/* Queues a copy of the piece; false: it was refused and counted. Any thread. */
bool write_queue_put(struct write_queue *o, const struct write_queue_piece *piece);
/* Wakes the thread for records put with `must`: once for many pieces, since each wake-up costs a switch. */
void write_queue_kick(struct write_queue *o);
/* Counts a piece that the caller drops: the rest of a line whose beginning was refused. */
void write_queue_drop(struct write_queue *o, const struct write_queue_piece *piece);
/* The owner is destroyed, and its address may be reused: a line that it left open has no owner now. */
void write_queue_forget(struct write_queue *o, struct output_file *target, const void *owner);

struct write_queue_lost write_queue_lost(struct write_queue *o);
/* Waits until everything is written and ends the threads. Gives up after `patience` without progress while
 * the machine has CPU time for them, and at `limit` in any case: then the queue is left to the thread that
 * hangs, which frees it if it ever returns. *lost receives the bytes that were lost, remaining ones
 * included. Returns whether everything was written or refused. Accepts NULL. */
bool write_queue_finish(struct write_queue *o, int64_t patience_ns, struct instant limit,
                        struct write_queue_lost *lost);

#endif
