/* rank_ranges.c - see rank_ranges.h. */
#include "rendezvous/roster/rank_ranges.h"

#include <string.h>

bool rank_ranges_add(struct rank_ranges *ranges, int rank)
{
    const int last = ranges->count - 1;
    if (last >= 0 && ranges->items[last].last == rank - 1) {
        ranges->items[last].last = rank;
        return true;
    }
    if (ranges->count == RANK_RANGES_LIMIT)
        return false;
    ranges->items[ranges->count].first = ranges->items[ranges->count].last = rank;
    ranges->count++;
    return true;
}

void rank_ranges_copy(struct rank_ranges *to, const struct rank_ranges *from)
{
    to->count = from->count;
    memcpy(to->items, from->items, (size_t)from->count * sizeof *from->items);
}
