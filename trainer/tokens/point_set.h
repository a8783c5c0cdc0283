/* point_set.h - sets of code points, as ranges. Functions that add return -1 without memory. */
#ifndef MUSTER_TRAINER_TOKENS_POINT_SET_H
#define MUSTER_TRAINER_TOKENS_POINT_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { POINT_LAST = 0x10FFFF };

struct point_range {
    uint32_t first, last;
};
/* Zeroed: empty. The ranges are sorted and apart after point_set_order. */
struct point_set {
    struct point_range *range;
    size_t count, capacity;
};

void point_set_free(struct point_set *s);
int point_set_add(struct point_set *s, uint32_t first, uint32_t last);
/* Adds the code points whose classes are `wanted` under `mask`; wanted 0: any of the mask. */
int point_set_add_classes(struct point_set *s, unsigned mask, unsigned wanted);
int point_set_join(struct point_set *s, const struct point_set *more);
/* Sorts the ranges, and joins neighbours. */
void point_set_order(struct point_set *s);
int point_set_invert(struct point_set *s);
/* Leaves the code points of both sets; other is changed too. */
int point_set_meet(struct point_set *s, struct point_set *other);
/* The set is in order. */
bool point_set_has(const struct point_set *s, uint32_t point);

#endif
