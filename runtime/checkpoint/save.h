/* save.h - a checkpoint that is being written, cut by the time that each part lives:
 *
 *   all checkpoints of a trainer   struct checkpoint_kept    kept.c
 *   one checkpoint                 struct checkpoint_writer  save.c, votes of all ranks and the states
 *   one state of a checkpoint      struct save_job           save_job.c, this rank's work
 *
 * save_table (commit.h) has the states. */
#ifndef MUSTER_RUNTIME_CHECKPOINT_SAVE_H
#define MUSTER_RUNTIME_CHECKPOINT_SAVE_H

#include <pthread.h>

#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/futex.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/rank_file.h"

/* ---- save_thread.c: a thread that does one job after another ----
 *
 * It stays from one checkpoint to the next: starting a thread takes 0.2 ms between two steps. */

/* Zeroed at first. All functions are the trainer's thread's. */
struct save_thread {
    pthread_t thread;
    bool started, stops;
    void (*work)(void *context); /* the ordered job */
    void *context;
    struct futex_word ordered, done; /* number of jobs so far; equal: the thread has no job */
};

/* Starts the job; save_thread_idle must be true. 0, or the number of the system's error. */
int save_thread_order(struct save_thread *thread, void (*work)(void *context), void *context);
/* Whether the last job has ended; true before the first. */
bool save_thread_idle(const struct save_thread *thread);
/* Waits for the job until the deadline, or a little less. */
void save_thread_await(struct save_thread *thread, struct instant deadline);
/* Ends the thread, which must be idle. Another order starts it again. */
void save_thread_stop(struct save_thread *thread);

/* ---- one state ---- */

/* This rank's work in a state. The thread owns it until the work has ended. */
struct save_job {
    bool at_once; /* the work ended without the thread */
    bool failed;
    bool room; /* SAVE_WRITE: it failed for lack of room; rank 0's commit or undo: an older checkpoint was
                  removed to make room */
    struct muster_error err;
};

/* ---- one checkpoint ---- */

/* Set anew at each begin, except `thread`. */
struct checkpoint_writer {
    struct save_thread *thread;  /* the trainer's; this checkpoint's alone from begin to end */
    struct checkpoint_save save; /* `folder`, `local` and the run's notes are copies of the writer's */
    struct rank_file *file;      /* the trainer's; NULL: there was no memory for it */
    enum save_state state;
    struct save_job job;         /* the state's */
    struct muster_error err;     /* this rank's first error */
    struct muster_error no_copy; /* why the node has no copy; the thread's while it works */
    double failed;               /* number of failed ranks, in all states */
    bool copies;                 /* some rank writes a copy on its node: known with the votes on the files */
    bool room;                   /* some rank's job in the previous state has set `room` */
    int64_t given_up;            /* rank 0's: step of the removed checkpoint; -1: none */
    struct instant begun, ended;
    int64_t stall_ns; /* time in calls; the file counts the time of steps */
};

/* Begins this rank's work in w->state. An error of the work is left in w->job. */
void save_job_start(struct checkpoint_writer *w);
bool save_job_ended(const struct checkpoint_writer *w);
/* Waits for the work until the deadline, or a little less. */
void save_job_await(struct checkpoint_writer *w, struct instant deadline);
/* Waits for the work and takes its error. No step waits for this checkpoint afterwards. */
void save_job_end(struct checkpoint_writer *w);

/* ---- commit_walk.c: rank 0's work, the table of commit.h on a file system ---- */

/* Works from a state on until a state in which other ranks take part, or the end. bytes: size of this rank's
 * file. err keeps the first error. Reads only fields of the trainer that never change. */
enum commit_state commit_walk(const struct checkpoint_save *save, int64_t bytes, enum commit_state state,
                              struct muster_error *err);
/* After a save that failed for lack of room: removes an older checkpoint (retention_give_up), and from now on
 * keeps no more checkpoints than fit. Returns the step of the removed checkpoint; -1: none may be removed. */
int64_t commit_give_up(const struct checkpoint_save *save);

/* ---- all checkpoints of a trainer ---- */

/* The writer of the next checkpoint, and its thread; NULL: all are in use. */
struct checkpoint_writer *kept_take_writer(struct checkpoint_kept *kept);
void kept_put_writer(struct checkpoint_kept *kept, struct checkpoint_writer *w);
/* A file of an earlier checkpoint, to be renewed; NULL: there is none. `kept` may be NULL here and below. */
struct rank_file *kept_take_file(struct checkpoint_kept *kept);
void kept_put_file(struct checkpoint_kept *kept, struct rank_file *file); /* may be NULL */
/* Points run->settings and run->numerics at texts that are the same in all checkpoints of the trainer. The
 * first checkpoint's settings are copied. Without `kept` the run owns the texts: kept_drop_texts. -1: no
 * memory. */
int kept_texts(struct checkpoint_kept *kept, const struct trainer *trainer, manifest_texts settings,
               struct manifest_run *run);
void kept_drop_texts(const struct checkpoint_kept *kept, struct manifest_run *run);
/* A copy, to be freed with text_list_free_items; NULL stays NULL. -1: no memory. */
int copy_texts(manifest_texts texts, manifest_texts *out);

#endif
