/* copies.h - what recover.c needs of the copies in memory (recover.h). All accept NULL: there are none. */
#ifndef MUSTER_RUNTIME_TRAIN_RECOVER_COPIES_H
#define MUSTER_RUNTIME_TRAIN_RECOVER_COPIES_H

#include "proto/base/buffer.h"
#include "runtime/train/recover/choose.h"
#include "runtime/train/trainer.h"

struct recover_copies;

/* One copy of this rank's state, or of another's. Text and counts: of this rank's own. */
struct copy {
    char *image;
    int64_t step; /* -1: none, or it is being made */
    struct buffer text;
    struct trainer_counts counts;
};

/* [RECOVER_GENERATIONS] of this rank's own state, and of the other rank's; NULL: there are none. */
const struct copy *copies_own(const struct recover_copies *copies);
const struct copy *copies_kept(const struct recover_copies *copies);
/* Rank r's copies are kept by rank (r + shift) % size; 0: there are none. */
int copies_shift(const struct recover_copies *copies);
/* The shift that all ranks have agreed on, 0: none yet; and the one that this rank wants. */
void copies_describe_shift(const struct recover_copies *copies, double *agreed, double *wanted);
void copies_agree(struct recover_copies *copies, int shift);
void copies_steps(const struct recover_copies *copies, double own[RECOVER_GENERATIONS],
                  double kept[RECOVER_GENERATIONS]);
/* Puts this rank's own copy of a step, which is there, into the trainer. */
void copies_restore(struct recover_copies *copies, int64_t step);
/* Walks the copy of the other rank, piece by piece as image_walk. */
int copies_walk_kept(struct recover_copies *copies, int64_t step,
                     int (*visit)(void *context, char *bytes, int64_t count), void *context);
const struct buffer *copies_text(const struct recover_copies *copies, int64_t step,
                                 struct trainer_counts *counts);
/* Collective: makes what ranks lack of the copies of a step, at which all of them are, with the text of that
 * step. ranks: [world_size], what each has. moved: adds bytes that this rank has sent or received. */
int copies_complete(struct recover_copies *copies, const struct recover_rank *ranks, int64_t step,
                    const struct buffer *text, int64_t *moved, struct muster_error *err);
/* All ranks go on at this step: copies of later ones are of a past that is not repeated. */
void copies_reset(struct recover_copies *copies, int64_t step);

#endif
