/* write_queue.h - a bounded queue of text for targets, and a thread that writes it, so that a slow or stuck
 * console or disk never holds the thread that supervises, nor a worker for longer than WRITE_QUEUE_WINDOW_NS.
 *
 *            memory                          disk                memory
 *   put --> filling --(spooler thread)--> spilling --> spool --> writing --(writer thread)--> targets
 *              \______________________________________________/
 *                       where the targets keep up
 *
 * A queue that stays full for WRITE_QUEUE_WINDOW_NS is late: what must be kept goes through an unlinked spool
 * file then, and what need not (its log file has it) is refused. Where the spool is late too, or there is
 * none, everything is refused. What the spool has no room for takes the place of the oldest. Whatever is
 * refused, dropped or not taken by the descriptor is counted, and its place in the text tells how much it
 * was.
 *
 * The threads start with the first piece and the first spill. No descriptor is ever switched to non-blocking.
 */
#ifndef MUSTER_LAUNCHER_OUTPUT_WRITE_QUEUE_H
#define MUSTER_LAUNCHER_OUTPUT_WRITE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "launcher/output/output_file.h"
#include "proto/base/clock.h"
#include "proto/include/muster_error.h"

/* Bytes that wait, at most; as many again may be in each thread's hands. */
enum { WRITE_QUEUE_LIMIT = 1024 * 1024, WRITE_QUEUE_URGENT = 64 * 1024 };

/* Who puts waits for room as long as this much is written in each window: 5 MB/s. Else the targets do not
 * keep up, and for WRITE_QUEUE_GRUDGE_NS nobody waits again, unless they turn out to be quick after all. The
 * spool, which is asked then, has a window of its own: all of it. */
enum { WRITE_QUEUE_PACE = 512 * 1024 };
#define WRITE_QUEUE_WINDOW_NS       (100 * NS_PER_MS)
#define WRITE_QUEUE_SPOOL_WINDOW_NS (500 * NS_PER_MS)
#define WRITE_QUEUE_GRUDGE_NS       (5 * NS_PER_S)

struct write_queue_options {
    int wake_fd; /* an eventfd that is added to when there is room again after it was missed, and when a write
                    failed for the first time */
    const char *spool_folder; /* copied; NULL: no spool */
    int64_t spool_limit;      /* bytes */
};

struct write_queue_piece {
    struct output_file *target;
    const void *owner; /* whose line it is a piece of; NULL: raw bytes, no lines */
    const char
        *prefix; /* before a piece that goes on with a line which somebody else has ended; may be NULL */
    size_t prefix_length;
    const char *data;
    size_t length; /* at most UINT32_MAX / 2 */
    uint32_t lines;
    bool starts; /* begins at the beginning of a line */
    bool ends;   /* ends at the end of one */
    bool keep;   /* nothing else has it: it may go to the spool */
    bool must; /* room was asked for before it was read: it may go beyond the limit; write_queue_kick follows
                */
    bool urgent; /* the agent's own: there is some room that is kept for it */
};

struct write_queue_lost {
    uint64_t lines, bytes; /* so far; a spool that is still to be written is not in it */
    int error;             /* errno of the last refusal, 0 for none */
};

struct write_queue;

struct write_queue *write_queue_create(const struct write_queue_options *options, struct muster_error *err);

/* A target of this outlet, which owns it; NULL: no memory, and options->fd is not closed. */
struct output_file *write_queue_target(struct write_queue *o, const struct output_file_options *options);
/* Nothing more is put for it: it is closed when everything is written. Accepts NULL. */
void write_queue_release(struct write_queue *o, struct output_file *target);

/* Whether to go on reading: false where waiting is worth it. Ask again when wake_fd says so and at
 * write_queue_due; what is put after true may still be refused, and is counted then. */
bool write_queue_accepts(struct write_queue *o, size_t bytes, bool keep, struct instant now);
/* Never where nobody waits. */
struct instant write_queue_due(struct write_queue *o);
/* Takes a copy of the piece; false: it was refused and counted. Any thread. */
bool write_queue_put(struct write_queue *o, const struct write_queue_piece *piece);
/* Has what was put with `must` written: once for many pieces, since each time wakes a thread. */
void write_queue_kick(struct write_queue *o);
/* Counts a piece that the caller gives up: the rest of a line whose beginning was refused. */
void write_queue_drop(struct write_queue *o, const struct write_queue_piece *piece);
/* The owner goes, and its address may become another's: a line that it left open is nobody's now. */
void write_queue_forget(struct write_queue *o, struct output_file *target, const void *owner);

struct write_queue_lost write_queue_lost(struct write_queue *o);
/* Waits until everything is written and ends the threads. Gives up where nothing moves for patience, though
 * the machine would let it, and at all events at limit: then the outlet is left to the thread that hangs,
 * which frees it if it ever gets on. *lost gets all that did not arrive, what is left included. Returns
 * whether everything was handed over or refused. Accepts NULL. */
bool write_queue_finish(struct write_queue *o, int64_t patience_ns, struct instant limit,
                        struct write_queue_lost *lost);

#endif
