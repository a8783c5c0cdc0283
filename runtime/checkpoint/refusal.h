/* refusal.h - why a checkpoint was not loaded, the same on all ranks.
 *
 * A checkpoint is damaged only if its bytes were read and are wrong: another checkpoint takes its place. A
 * checkpoint that cannot be read may be whole: a run that went on without it would lose work, and a new run
 * would replace it. */
#ifndef MUSTER_RUNTIME_CHECKPOINT_REFUSAL_H
#define MUSTER_RUNTIME_CHECKPOINT_REFUSAL_H

#include "runtime/train/trainer.h"

/* symbol, meaning; a rank's later kind counts before another rank's earlier one */
#define REFUSALS(X)                                                                                          \
    X(REFUSAL_NONE, "it is not refused")                                                                     \
    X(REFUSAL_DAMAGED, "its bytes are wrong, or a file is missing: the one before is tried")                 \
    X(REFUSAL_UNFIT, "it is whole, and not of this run: the user has chosen wrongly")                        \
    X(REFUSAL_UNREADABLE, "it cannot be read now: no other one is tried, and a restart may read it")
enum refusal {
#define REFUSAL_ENUM(symbol, meaning) symbol,
    REFUSALS(REFUSAL_ENUM)
#undef REFUSAL_ENUM
        REFUSAL_COUNT
};

/* Pure: the kind of the error code that reading a checkpoint gave; MUSTER_OK: REFUSAL_NONE. */
enum refusal refusal_of(int error_code);

/* Collective. why: this rank's error, code 0: none. It becomes the worst error of all ranks, on every rank,
 * with "rank R: " before an error of another rank. *worst: its kind, REFUSAL_NONE if no rank has an error.
 * -1: the ranks cannot go on together. */
int refusal_share(struct trainer *trainer, int rank, int world_size, struct muster_error *why,
                  enum refusal *worst, struct muster_error *err);

#endif
