/* merges.h - byte pair encoding: the merges of a model and how a word becomes tokens by them.
 *
 * A word begins as one token a byte; of all neighbours that a merge joins, those of the lowest rank, the
 * leftmost of equal ones, are joined until none is left (Sennrich et al. 2016, as in `tokenizers`). */
#ifndef MUSTER_TRAINER_TOKENS_MERGES_H
#define MUSTER_TRAINER_TOKENS_MERGES_H

#include <stddef.h>
#include <stdint.h>

#include "proto/include/muster_error.h"

struct merge {
    uint64_t pair; /* left id << 32 | right id; MERGE_EMPTY */
    uint32_t rank;
    int32_t joined;
};

/* Zeroed: no merges. */
struct merges {
    struct merge *table; /* (size), a power of two */
    int64_t size, count;
};

/* The later of two merges of the same pair counts. */
int merges_add(struct merges *merges, int32_t left, int32_t right, uint32_t rank, int32_t joined,
               struct muster_error *err);
void merges_free(struct merges *merges);

/* Joins the count tokens of one word in place; returns how many are left, -1 for no memory (long words
 * alone take some). */
int64_t merges_apply(const struct merges *merges, int32_t *tokens, size_t count, struct muster_error *err);

#endif
