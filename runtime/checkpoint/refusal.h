/* refusal.h - why a checkpoint was not loaded, the same on all ranks.
 *
 * Only what was read and is wrong is damage: another checkpoint takes its place. What could not be read may
 * be whole: a run that went on without it would lose work, and one that begins anew would replace it. */
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

/* Pure: by the code of the error that reading it gave; MUSTER_OK: REFUSAL_NONE. */
enum refusal refusal_of(int error_code);

/* Collective. why: this rank's error, code 0 where it has none; becomes that of the rank with the worst one,
 * on every rank, with "rank R: " before it where it is another's. *worst: its kind, REFUSAL_NONE where no
 * rank has an error. -1: the ranks cannot go on together. */
int refusal_share(struct trainer *trainer, int rank, int world_size, struct muster_error *why,
                  enum refusal *worst, struct muster_error *err);

#endif
