/* event_queue.c - see transport.h. */
#include "rendezvous/transport/transport.h"

#include <assert.h>

struct membership_event *event_queue_push(struct event_queue *queue)
{
    assert(queue->count <= EVENT_QUEUE_LIMIT && queue->first < EVENT_QUEUE_LIMIT);
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
