/* event_queue.c - see membership_carrier.h. */
#include <stddef.h>
#include <string.h>

#include "rendezvous/membership_carrier.h"

static const size_t small_part = offsetof(struct membership_event, failure);

void membership_event_clear(struct membership_event *event)
{
    memset(event, 0, small_part);
}

void membership_event_copy(struct membership_event *to, const struct membership_event *from)
{
    memcpy(to, from, from->failed ? sizeof *to : small_part);
}

struct membership_event *event_queue_push(struct event_queue *queue)
{
    if (queue->count == EVENT_QUEUE_LIMIT)
        return NULL;
    return &queue->events[(queue->first + queue->count++) % EVENT_QUEUE_LIMIT];
}

bool event_queue_pop(struct event_queue *queue, struct membership_event *event)
{
    if (!queue->count)
        return false;
    membership_event_copy(event, &queue->events[queue->first]);
    queue->first = (queue->first + 1) % EVENT_QUEUE_LIMIT;
    queue->count--;
    return true;
}
