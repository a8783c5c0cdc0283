/* choose.h - pure: the step at which ranks go on after a loss, and where each gets its state from. */
#ifndef MUSTER_RUNTIME_TRAIN_RECOVER_CHOOSE_H
#define MUSTER_RUNTIME_TRAIN_RECOVER_CHOOSE_H

#include <stdbool.h>
#include <stdint.h>

enum { RECOVER_GENERATIONS = 2 };

/* Numbers of finished steps; -1: none. A rank that was started anew has none at all. As numbers that ranks
 * sum. */
struct recover_rank {
    double live;                      /* its state */
    double own[RECOVER_GENERATIONS];  /* copies of its own state */
    double kept[RECOVER_GENERATIONS]; /* copies of another rank's state */
    double finishes;                  /* 1: its state can be that of the next step, too */
};

struct recover_choice {
    int64_t step;
    int text_from; /* a rank that has the text of that step: it has finished it */
};

/* Whether there is any step. */
bool recover_rank_has_any(const struct recover_rank *steps);

/* Whether a state has the step; the generation of such a copy, -1: none. */
int recover_generation(const double steps[RECOVER_GENERATIONS], int64_t step);

/* Whether a rank has not made that step, but can finish it. */
bool recover_finishes(const struct recover_rank *rank, int64_t step);

/* ranks: [size]. replica_of: [size] equal for ranks whose states are equal at equal steps. Rank r's copies
 * are kept by rank (r + shift) % size; shift 0: there are none. from: [size] the rank that has the state for
 * each rank: itself, live (a step that it can finish is, too) or in a copy of its own; a replica of that
 * step; or the keeper of its copy. false: there is no step that every rank can have. */
bool recover_choose(const struct recover_rank *ranks, int size, const int *replica_of, int shift,
                    struct recover_choice *choice, int *from);

#endif
