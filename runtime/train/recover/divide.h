/* divide.h - after a loss, in a world of another size or with other places: the state of one step of the
 * world before, divided anew. See recover.c. */
#ifndef MUSTER_RUNTIME_TRAIN_RECOVER_DIVIDE_H
#define MUSTER_RUNTIME_TRAIN_RECOVER_DIVIDE_H

#include "runtime/plan/mesh.h"
#include "runtime/train/recover/keep.h"

/* The states of a rank of the new world, as numbers that ranks sum. */
struct divide_rank {
    double rank, size;       /* in the world that its state is of */
    double side[SIDE_COUNT]; /* mesh of that world */
    double shift;            /* copies_shift */
    double agreed, wanted;   /* copies_describe_shift, of the present world */
    double layout[2];        /* plan.asked of that world, in halves */
    double kept;             /* 1: its state has the layout of a plan before the present one */
    struct recover_rank steps;
};

/* This rank's: kept, else the trainer's own state. */
void divide_describe(const struct trainer *trainer, const struct recover_copies *copies,
                     const struct recover_kept *kept, struct divide_rank *out);
/* Whether all states have the layout of the present plan, and ranks of the same number. Pure. */
bool divide_is_needless(const struct divide_rank *ranks, int size);

/* Collective, as trainer_recover and with its results: ranks [world_size] as summed. A rank without kept
 * offers its trainer's own state and copies, with mine as its text. */
int divide_recover(struct trainer *trainer, struct recover_copies *copies, const struct recover_kept *kept,
                   const struct divide_rank *ranks, const struct buffer *mine, struct buffer *theirs,
                   int64_t *moved, struct muster_error *err);

#endif
