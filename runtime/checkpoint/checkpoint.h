/* checkpoint.h - a training run's state in files, saved and loaded by all ranks of a trainer, between steps.
 *
 * A checkpoint is the folder DIR/step-N with one safetensors file a rank and manifest.json. N ranks load what
 * M ranks have written, each reading the elements that it holds. DIR is one folder for all nodes. What there
 * is, is what has been committed: no file points to the newest one. */
#ifndef MUSTER_RUNTIME_CHECKPOINT_CHECKPOINT_H
#define MUSTER_RUNTIME_CHECKPOINT_CHECKPOINT_H

#include "runtime/checkpoint/commit.h"
#include "runtime/checkpoint/manifest.h"

/* ---- saving ---- */

struct checkpoint_save {
    struct trainer *trainer;
    const char *folder; /* DIR */
    int rank;
    struct retention retention;
    struct manifest_run run; /* step, samples, settings and notes; the rest is the trainer's */
    int64_t bytes;           /* filled: of this rank's file */
};

/* Collective. Replaces a checkpoint of the same step. A failure of one rank is an error on all of them, and
 * leaves the checkpoints that there were and a trainer that can go on: MUSTER_E_PEER where another rank has
 * the reason. Of errors in removing older ones nothing follows. */
int checkpoint_save(struct checkpoint_save *save, struct muster_error *err);

/* ---- loading ---- */

struct checkpoint_load {
    struct trainer *trainer;
    const char *folder; /* DIR, or the checkpoint itself */
    bool one;           /* it is the checkpoint itself: another one is not tried */
    int rank, world_size;
    /* Whether the run can go on from there, the same on every rank; writes to `report` what differs and does
     * not matter. An error refuses it. May be NULL. */
    int (*accept)(void *context, const struct manifest *manifest, struct buffer *report,
                  struct muster_error *err);
    void *context;
    struct buffer *report;    /* lines: which checkpoints were refused, and why */
    struct manifest manifest; /* filled: of what was loaded, to be freed in any case */
};

/* Collective. Loads the newest checkpoint that is whole and accepted. 1: loaded; 0: there is none, or, with
 * their lines in the report, all there are are damaged: the trainer is as after trainer_create then. -1: one
 * that is whole was refused and none was loaded, or a rank cannot read. */
int checkpoint_load(struct checkpoint_load *load, struct muster_error *err);

#endif
