/* write_queue_internal.h - shared by write_queue.c (the queue) and write_queue_threads.c (writer and
 * spooler). */
#ifndef MUSTER_LAUNCHER_OUTPUT_WRITE_QUEUE_INTERNAL_H
#define MUSTER_LAUNCHER_OUTPUT_WRITE_QUEUE_INTERNAL_H

#include <pthread.h>

#include "launcher/output/spool.h"
#include "launcher/output/write_queue.h"

enum { WRITE_QUEUE_SPILL = WRITE_QUEUE_LIMIT / 2 }; /* bytes of a batch, at least */

struct write_queue {
    pthread_mutex_t lock;
    pthread_cond_t filled, spill, drained; /* for the writer, the spooler, and the closing thread */
    int references;                        /* the owner's, each thread's, and of each that may write here */
    bool writer_started, writer_ended, spooler_started, spooler_stops, closing;
    bool writing_here;  /* there is no writer, and who put a piece writes */
    int no_thread;      /* why, of the first time; 0: there never was none */
    pid_t writer_tid;   /* 0: it has not begun */
    bool release_asked; /* an output file was closed */
    int wake_fd;
    char *spool_folder;

    struct buffer filling, spilling, writing; /* runs of struct output_file_record and bytes */
    struct output_file *targets;

    bool wanted;                                    /* a producer waits for room */
    bool late, spool_late;                          /* was full for too long */
    struct instant full_since, spool_since, grudge; /* never: not full; no waiting until then */
    struct instant late_since;
    uint64_t moved_then; /* progress at full_since */

    bool spool_wanted, spool_useless; /* unusable: no file can be created */
    bool spill_busy;                  /* the spooler is writing `spilling` */
    bool spill_taken, spill_reading;  /* the writer has taken it and is writing it */
    bool truncate;                    /* the file is not needed for now */
    int spool_fd;

    uint64_t closed_bytes, closed_lines; /* lost by files that are closed */
    uint64_t closed_gap_bytes, closed_gap_lines;
    uint64_t refused_bytes, refused_lines; /* before they were queued */
    uint64_t moved;                        /* bytes ever written, atomic: shows progress */
    int error;                             /* atomic */
    struct spool spool;                    /* last: its batches are not cleared */
};

/* Queued data gets to the writer, which is started; without a writer it is written here, with the lock
 * released. Call it with the lock. */
void write_queue_pass_on(struct write_queue *o);
/* Whether the spool holds a batch. With the lock. */
bool write_queue_has_spooled(const struct write_queue *o);
/* With the lock. False: no thread. */
bool write_queue_start_spooler(struct write_queue *o);
/* Drops one reference; the last one frees. With the lock, which it releases. */
void write_queue_unlock_and_leave(struct write_queue *o);

#endif
