/* checkpoint.h - a training run's state in files. All ranks of a trainer save it while steps run, and load it
 * between steps.
 *
 * A checkpoint is the folder DIR/step-N with one safetensors file a rank and manifest.json. N ranks load what
 * M ranks have written, each reading the elements that it holds. DIR is one folder for all nodes. A committed
 * checkpoint is known by its folder's name: no file points to the newest checkpoint. */
#ifndef MUSTER_RUNTIME_CHECKPOINT_CHECKPOINT_H
#define MUSTER_RUNTIME_CHECKPOINT_CHECKPOINT_H

#include "runtime/checkpoint/commit.h"
#include "runtime/checkpoint/manifest.h"

/* ---- saving ---- */

struct checkpoint_hook;
struct rank_header;
/* A checkpoint that is being written. Its own threads write it from the trainer's memory while steps go on. A
 * step waits before it changes a group that is not copied yet. */
struct checkpoint_writer;
/* Number of ranks, from rank 0 on, with a kept header: tens of KB each for a model of 100 M parameters. */
enum { HEADERS_KEPT = 64 };

/* Objects that all checkpoints of one trainer use, kept from one checkpoint to the next; zeroed at first. */
struct checkpoint_kept {
    char *staging[2]; /* memory for the file and for the copy, as disk_staging_create makes it; one checkpoint
                         uses it at a time; not owned; NULL: each checkpoint makes its own */
    /* files that no checkpoint uses; they know the place of each element */
    struct rank_file *files[SAVES_AT_ONCE];
    struct checkpoint_writer *writers[SAVES_AT_ONCE]; /* writers that no checkpoint uses */
    /* begun by checkpoint_begin, the oldest first; not owned */
    struct checkpoint_writer *begun[SAVES_AT_ONCE];
    char *spare_in; /* rank 0's: DIR, if it may have a spare folder; NULL: it has none */
    /* rank 0's, [HEADERS_KEPT] or NULL: the header last read from each rank's file */
    struct rank_header *headers;
    /* copies of the first checkpoint's: later checkpoints need not give them; NULL: none yet */
    manifest_texts settings;
    const char *numerics; /* copy of the first checkpoint's; NULL: none yet */
    int64_t fits; /* rank 0's: checkpoints that fit on the disk next to the checkpoint that is being written;
                     0: not known */
};
/* Makes the writers that checkpoint_begin takes, so that it returns a writer even where a rank has no memory
 * left. */
int checkpoint_kept_make(struct checkpoint_kept *kept, struct muster_error *err);
void checkpoint_kept_free(struct checkpoint_kept *kept); /* after all checkpoints, before the trainer */

struct checkpoint_save {
    struct trainer *trainer;
    const char *folder; /* DIR */
    int rank;
    struct retention retention;
    const char *local;            /* folder on the node's own disk for a copy; NULL: no copy */
    int64_t local_keep;           /* number of copies that stay next to the newest copy */
    bool beside;                  /* another checkpoint is not committed yet; its files are written */
    struct checkpoint_hook *hook; /* rank 0's: checkpoints that it holds are not removed; NULL: no hook */
    struct checkpoint_kept *kept; /* the trainer's; NULL: nothing is kept (checkpoint_save) */
    /* the caller sets step, samples, settings and notes; the trainer gives the other fields */
    struct manifest_run run;
};

/* Every rank calls it between the same two steps. Begins to write the state as it is now, and waits for no
 * other rank and no file system. If this rank cannot write, checkpoint_poll fails on every rank. Texts are
 * copied. save->kept must have been made (checkpoint_kept_make). A trainer writes one checkpoint at a time. A
 * second checkpoint with all files written may still wait for its commit, so that no step waits for a commit.
 * NULL: SAVES_AT_ONCE checkpoints exist already. */
struct checkpoint_writer *checkpoint_begin(const struct checkpoint_save *save);
/* The same on every rank (save_may_begin). */
enum save_state checkpoint_state(const struct checkpoint_writer *writer);
/* Changes the best checkpoint from the step in its retention. Call it before the commit. */
void checkpoint_keep(struct checkpoint_writer *writer, int64_t best);
/* Collective, between steps, until it returns another number than 0. newer: a checkpoint that was begun after
 * this checkpoint; it is polled too; NULL: none. 1: all ranks have written and the checkpoint is committed.
 * 0: not yet (never with `wait`). -1: it was not saved, and earlier checkpoints are intact. The last step's
 * sums show the ranks' progress. Without such sums (a second call after a step, or `wait`) the ranks meet.
 * Replaces a checkpoint of the same step. Errors in removing older checkpoints are ignored. The trainer can
 * go on. */
int checkpoint_poll(struct checkpoint_writer *writer, struct checkpoint_writer *newer, bool wait,
                    struct muster_error *err);
/* Not collective; accepts NULL. A checkpoint that is not committed yet will never be committed. Call it
 * before the trainer is destroyed. */
void checkpoint_end(struct checkpoint_writer *writer);

/* After a failed save, on every rank: whether an older checkpoint was removed for lack of room. Another try
 * may then succeed. */
bool checkpoint_made_room(const struct checkpoint_writer *writer);

struct checkpoint_figures {
    int64_t bytes;             /* size of this rank's file */
    int64_t ns;                /* time from the begin to the end, or until now */
    struct muster_error local; /* why the node has no copy; code 0: it has a copy, or none was wanted */
    int64_t stall_ns;          /* part of ns in which this rank's training was stalled */
    int64_t given_up; /* rank 0's: step of the checkpoint that was removed for lack of room; -1: none */
};
struct checkpoint_figures checkpoint_figures(const struct checkpoint_writer *writer);

/* Begins a checkpoint, waits for its end and frees it. */
int checkpoint_save(const struct checkpoint_save *save, struct checkpoint_figures *figures,
                    struct muster_error *err);

/* ---- loading ---- */

/* Parts of a checkpoint that are loaded with the parameters' values, as bits. A part that is not loaded stays
 * as after trainer_create; averages then begin with the values. */
enum checkpoint_parts {
    CHECKPOINT_MOMENTS = 1,
    CHECKPOINT_AVERAGES = 2,
    CHECKPOINT_COUNTS = 4, /* updates and the loss scale */
    CHECKPOINT_ALL = 7,
    CHECKPOINT_FROZEN = 8 /* moments of parameters that are frozen here may be left out */
};

struct checkpoint_load {
    struct trainer *trainer;
    const char *folder; /* DIR, or the checkpoint itself */
    bool one;           /* folder is the checkpoint itself: no other checkpoint is tried */
    int rank, world_size;
    const char *local; /* folder of the node's copies; NULL: none */
    /* Decides whether the run can go on from a checkpoint, the same on every rank. Differences that do not
     * matter are written to `report`. An error refuses the checkpoint. May be NULL. */
    int (*accept)(void *context, const struct manifest *manifest, struct buffer *report,
                  struct muster_error *err);
    /* Chooses the parts to load, the same on every rank; NULL: CHECKPOINT_ALL. */
    unsigned (*parts)(void *context, const struct manifest_run *run);
    void *context;
    struct buffer *report; /* lines: on rank 0 which checkpoints were refused, and why */
    /* filled: files that this rank has read from, and the number of them with a copy */
    int files, local_files;
    bool local_manifest; /* filled: the manifest was read from the node's copy */
    /* filled: why an existing copy was not used; code 0: every copy was used */
    struct muster_error local_err;
    unsigned taken;           /* filled: the parts of the checkpoint that was tried last */
    struct manifest manifest; /* filled: manifest of the loaded checkpoint, to be freed in any case */
};

/* Collective. Loads the newest checkpoint that is whole and accepted; the same result on every rank. 1:
 * loaded. 0: there is no checkpoint, or all checkpoints are damaged (a line for each is in the report). The
 * trainer is then as after trainer_create, and the caller decides whether a new run may begin in this folder.
 * -1: a whole checkpoint was refused and none was loaded. Also -1: a checkpoint, which may be whole, cannot
 * be read (refusal.h), and no older checkpoint was tried: MUSTER_E_IO or another code that a restart may
 * mend. */
int checkpoint_load(struct checkpoint_load *load, struct muster_error *err);

#endif
