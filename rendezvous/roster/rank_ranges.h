/* rank_ranges.h - a set of a world's group ranks, as few ranges in ascending order. */
#ifndef MUSTER_RENDEZVOUS_ROSTER_RANK_RANGES_H
#define MUSTER_RENDEZVOUS_ROSTER_RANK_RANGES_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { RANK_RANGES_LIMIT = 32 };

struct rank_ranges {
    int count;
    struct {
        int first, last;
    } items[RANK_RANGES_LIMIT];
};

/* Adds a rank above all others. Whether there was room. */
bool rank_ranges_add(struct rank_ranges *ranges, int rank);
/* Copies the ranges in use; the rest of `to` stays. */
void rank_ranges_copy(struct rank_ranges *to, const struct rank_ranges *from);

#ifdef __cplusplus
}
#endif
#endif
