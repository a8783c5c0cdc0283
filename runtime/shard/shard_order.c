/* shard_order.c - see shard_core.h. */
#include "runtime/shard/shard_core.h"

#include "proto/base/mem.h"

void shard_order_begin(struct shard_order *order)
{
    if (order->diverged) {
        int *list = order->recorded, room = order->recorded_room;
        order->recorded = order->actual;
        order->recorded_count = order->actual_count;
        order->recorded_room = order->actual_room;
        order->actual = list;
        order->actual_room = room;
    }
    order->actual_count = 0;
    order->position = 0;
    order->diverged = false;
}

static int append(struct shard_order *order, int group)
{
    if (order->actual_count == SHARD_ORDER_MAX)
        return -1;
    if (order->actual_count == order->actual_room) {
        int room = order->actual_room ? 2 * order->actual_room : 64;
        int *list = mem_realloc(order->actual, (size_t)room, sizeof *list);
        if (!list)
            return -1;
        order->actual = list;
        order->actual_room = room;
    }
    order->actual[order->actual_count++] = group;
    return 0;
}

/* After an unexpected group the pass goes on after the group's next place in the record, if there is one. */
static void find_again(struct shard_order *order, int group)
{
    order->diverged = true;
    for (int i = order->position; i < order->recorded_count; i++) {
        if (order->recorded[i] == group) {
            order->position = i + 1;
            return;
        }
    }
}

int shard_order_demand(struct shard_order *order, int group)
{
    if (append(order, group))
        return -1;
    if (order->position < order->recorded_count && order->recorded[order->position] == group)
        order->position++;
    else
        find_again(order, group);
    return 0;
}

int shard_order_next(const struct shard_order *order, int depth, int *groups)
{
    int count = 0;
    for (int i = order->position; i < order->recorded_count && count < depth; i++) {
        int seen = 0;
        while (seen < count && groups[seen] != order->recorded[i])
            seen++;
        if (seen == count)
            groups[count++] = order->recorded[i];
    }
    return count;
}

void shard_order_free(struct shard_order *order)
{
    mem_free(order->recorded);
    mem_free(order->actual);
    *order = (struct shard_order){0};
}
