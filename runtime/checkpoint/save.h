/* save.h - a checkpoint that is being written, cut by the time that each part lives:
 *
 *   all checkpoints of a trainer   struct checkpoint_kept    kept.c
 *   one checkpoint                 struct checkpoint_writer  save.c, votes of all ranks and the states
 *   one state of a checkpoint      struct save_job           save_job.c, this rank's work
 *
 * save_table (commit.h) has the states. */
#ifndef MUSTER_RUNTIME_CHECKPOINT_SAVE_H
#define MUSTER_RUNTIME_CHECKPOINT_SAVE_H

#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/rank_file.h"
#include "runtime/checkpoint/save_thread.h"

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
