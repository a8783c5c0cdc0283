/* checkpoint.h - a training run's state in files, saved behind the steps and loaded between them by all ranks
 * of a trainer.
 *
 * A checkpoint is the folder DIR/step-N with one safetensors file a rank and manifest.json. N ranks load what
 * M ranks have written, each reading the elements that it holds. DIR is one folder for all nodes. What there
 * is, is what has been committed: no file points to the newest one. */
#ifndef MUSTER_RUNTIME_CHECKPOINT_CHECKPOINT_H
#define MUSTER_RUNTIME_CHECKPOINT_CHECKPOINT_H

#include "runtime/checkpoint/commit.h"
#include "runtime/checkpoint/manifest.h"

/* ---- saving ---- */

struct checkpoint_hook;
struct rank_header;
/* A checkpoint that is being written: by threads of its own, from the trainer's memory, while steps go on. A
 * step waits for what it is about to change and is not copied yet. */
struct checkpoint_writer;
enum { HEADERS_KEPT = 64 }; /* of the first ranks: tens of KB each for a model of 100 M parameters */

/* What the checkpoints of one trainer have in common, kept from one to the next; zeroed at first. */
struct checkpoint_kept {
    char *staging[2]; /* memory for the file and the copy (as disk_staging_create's), of one that is written
                         at a time; another's; NULL: it takes its own */
    struct rank_file *files[SAVES_AT_ONCE];           /* that are not in use: which elements come where */
    struct checkpoint_writer *writers[SAVES_AT_ONCE]; /* that are not in use */
    struct checkpoint_writer *begun[SAVES_AT_ONCE];   /* by checkpoint_begin, the oldest first; others' */
    char *spare_in;              /* rank 0's: DIR, where there may be a spare folder; NULL: there is none */
    struct rank_header *headers; /* rank 0's, [HEADERS_KEPT] or NULL: what it read of each rank's file */
    manifest_texts settings; /* copies of the first one's: later ones need not give them; NULL: none yet */
    const char *numerics;    /* likewise */
    int64_t fits; /* rank 0's: how many there is room for next to one that is written; 0: not known */
};
/* What checkpoint_begin takes, so that it needs no memory which a rank may have none of. */
int checkpoint_kept_make(struct checkpoint_kept *kept, struct muster_error *err);
void checkpoint_kept_free(struct checkpoint_kept *kept); /* after all checkpoints, before the trainer */

struct checkpoint_save {
    struct trainer *trainer;
    const char *folder; /* DIR */
    int rank;
    struct retention retention;
    const char *local;            /* a folder on the node's own disk for a copy; NULL: none */
    int64_t local_keep;           /* copies that stay beside the newest one */
    bool beside;                  /* another one is on its way, whose files are written */
    struct checkpoint_hook *hook; /* rank 0's: those that it holds are not removed; NULL: none */
    struct checkpoint_kept *kept; /* of the trainer; NULL: nothing is kept (checkpoint_save) */
    struct manifest_run run;      /* step, samples, settings and notes; the rest is the trainer's */
};

/* By every rank between the same two steps. Begins to write the state as it is now, and waits for no
 * other rank and no file system; where this rank cannot, checkpoint_poll fails on every rank. Texts are
 * copied. save->kept is given and made (checkpoint_kept_make). One at a time is written for a trainer; behind
 * it one may be whose files are, so that no step waits for a commit. NULL: there are as many already
 * (SAVES_AT_ONCE). */
struct checkpoint_writer *checkpoint_begin(const struct checkpoint_save *save);
/* The same on every rank (save_may_begin). */
enum save_state checkpoint_state(const struct checkpoint_writer *writer);
/* Another checkpoint than that of its retention is the best: before it is committed. */
void checkpoint_keep(struct checkpoint_writer *writer, int64_t best);
/* Collective, between steps, until it returns another number than 0. newer: one that was begun behind it, and
 * is looked after as well; NULL: none. 1: all ranks have written and it is committed; 0: not yet (never where
 * `wait`); -1: it was not, and what there was before is intact. What ranks have done is what the last step
 * has summed, and where it did not, a second time after a step or with `wait`, they meet for it. Replaces a
 * checkpoint of the same step. Of errors in removing older ones nothing follows. The trainer can go on. */
int checkpoint_poll(struct checkpoint_writer *writer, struct checkpoint_writer *newer, bool wait,
                    struct muster_error *err);
/* Not collective; accepts NULL. What is not committed will not be. Before the trainer is destroyed. */
void checkpoint_end(struct checkpoint_writer *writer);

/* Behind the end of one that was not saved, on every rank: an older one was removed for lack of room, and
 * another try may succeed. */
bool checkpoint_made_room(const struct checkpoint_writer *writer);

struct checkpoint_figures {
    int64_t bytes;             /* of this rank's file */
    int64_t ns;                /* from the begin to the end, or until now */
    struct muster_error local; /* why there is no copy on the node; code 0: there is, or none was wanted */
    int64_t stall_ns;          /* of it, time in which this rank's training was stalled */
    int64_t given_up;          /* rank 0's: step of the one that was removed for lack of room; -1: none */
};
struct checkpoint_figures checkpoint_figures(const struct checkpoint_writer *writer);

/* All of it at once. */
int checkpoint_save(const struct checkpoint_save *save, struct checkpoint_figures *figures,
                    struct muster_error *err);

/* ---- loading ---- */

/* What of a checkpoint is loaded beside the parameters' values, as bits. What is not loaded is as after
 * trainer_create; averages then begin with the values. */
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
    bool one;           /* it is the checkpoint itself: another one is not tried */
    int rank, world_size;
    const char *local; /* the folder of the node's copies; NULL: none */
    /* Whether the run can go on from there, the same on every rank; writes to `report` what differs and does
     * not matter. An error refuses it. May be NULL. */
    int (*accept)(void *context, const struct manifest *manifest, struct buffer *report,
                  struct muster_error *err);
    /* What of it is loaded, the same on every rank; NULL: CHECKPOINT_ALL. */
    unsigned (*parts)(void *context, const struct manifest_run *run);
    void *context;
    struct buffer *report;  /* lines: on rank 0 which checkpoints were refused, and why */
    int files, local_files; /* filled: that this rank has read of; of them those of which there is a copy */
    bool local_manifest;    /* filled: it was read on the node too */
    struct muster_error local_err; /* filled: why a copy that is there was passed over; code 0: none was */
    unsigned taken;                /* filled: the parts of the one that was tried last */
    struct manifest manifest;      /* filled: of what was loaded, to be freed in any case */
};

/* Collective. Loads the newest checkpoint that is whole and accepted; the same result on every rank. 1:
 * loaded; 0: there is none, or, with their lines in the report, all there are are damaged: the trainer is as
 * after trainer_create then, and the caller decides whether the run may begin anew beside them. -1: one that
 * is whole was refused and none was loaded; or one cannot be read (refusal.h), which may be whole, and no
 * older one was tried: MUSTER_E_IO or another code that a restart may mend. */
int checkpoint_load(struct checkpoint_load *load, struct muster_error *err);

#endif
