/* point_set.c - see point_set.h. */
#include "trainer/tokens/point_set.h"

#include <stdlib.h>

#include "proto/base/mem.h"
#include "trainer/tokens/unicode.h"

void point_set_free(struct point_set *s)
{
    mem_free(s->range);
    *s = (struct point_set){0};
}

int point_set_add(struct point_set *s, uint32_t first, uint32_t last)
{
    if (s->count == s->capacity) {
        const size_t wanted = s->capacity * 2 + 8;
        struct point_range *grown = mem_realloc(s->range, wanted, sizeof *grown);
        if (!grown)
            return -1;
        s->range = grown;
        s->capacity = wanted;
    }
    s->range[s->count++] = (struct point_range){first, last};
    return 0;
}

static int compare_first(const void *left, const void *right)
{
    const struct point_range *a = left, *b = right;
    return (a->first > b->first) - (a->first < b->first);
}

void point_set_order(struct point_set *s)
{
    size_t kept = 0;
    if (s->count)
        qsort(s->range, s->count, sizeof *s->range, compare_first);
    for (size_t i = 1; i < s->count; i++) {
        if (s->range[i].first <= s->range[kept].last + 1)
            s->range[kept].last =
                s->range[i].last > s->range[kept].last ? s->range[i].last : s->range[kept].last;
        else
            s->range[++kept] = s->range[i];
    }
    s->count = s->count ? kept + 1 : 0;
}

int point_set_invert(struct point_set *s)
{
    struct point_set other = {0};
    uint32_t from = 0;
    point_set_order(s);
    for (size_t i = 0; i < s->count; i++) {
        if (s->range[i].first > from && point_set_add(&other, from, s->range[i].first - 1) < 0)
            goto failed;
        from = s->range[i].last + 1;
    }
    if (from <= POINT_LAST && point_set_add(&other, from, POINT_LAST) < 0)
        goto failed;
    point_set_free(s);
    *s = other;
    return 0;
failed:
    point_set_free(&other);
    return -1;
}

int point_set_join(struct point_set *s, const struct point_set *more)
{
    for (size_t i = 0; i < more->count; i++)
        if (point_set_add(s, more->range[i].first, more->range[i].last) < 0)
            return -1;
    return 0;
}

int point_set_meet(struct point_set *s, struct point_set *other)
{
    /* not (not a or not b) */
    return point_set_invert(s) < 0 || point_set_invert(other) < 0 || point_set_join(s, other) < 0
               ? -1
               : point_set_invert(s);
}

bool point_set_has(const struct point_set *s, uint32_t point)
{
    size_t low = 0, high = s->count;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (s->range[middle].last < point)
            low = middle + 1;
        else
            high = middle;
    }
    return low < s->count && s->range[low].first <= point;
}

int point_set_add_classes(struct point_set *s, unsigned mask, unsigned wanted)
{
    struct unicode_run run = {0};
    while (unicode_next_run(&run)) {
        const bool in = wanted ? (run.classes & mask) == wanted : (run.classes & mask) != 0;
        if (in && point_set_add(s, run.first, run.last) < 0)
            return -1;
    }
    return 0;
}
