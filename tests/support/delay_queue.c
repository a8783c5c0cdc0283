/* delay_queue.c - a ring of frames, each with the time at which it comes out. */
#include "tests/support/delay_queue.h"

#include <string.h>

#include "proto/base/mem.h"

struct slot {
    struct instant due;
    size_t length;
    unsigned char data[DELAY_FRAME_LIMIT];
};

struct delay_queue {
    int64_t delay_ns;
    uint64_t put, taken, lost; /* counted from the start: put - taken are inside */
    size_t room;
    struct slot *slots;
};

struct delay_queue *delay_queue_create(int64_t delay_ns, size_t frames)
{
    struct delay_queue *queue = frames ? mem_calloc(1, sizeof *queue) : NULL;
    if (!queue)
        return NULL;
    *queue = (struct delay_queue){.delay_ns = delay_ns, .room = frames};
    queue->slots = mem_calloc(frames, sizeof *queue->slots);
    if (!queue->slots) {
        delay_queue_destroy(queue);
        return NULL;
    }
    return queue;
}

void delay_queue_destroy(struct delay_queue *queue)
{
    if (!queue)
        return;
    mem_free(queue->slots);
    mem_free(queue);
}

bool delay_queue_push(struct delay_queue *queue, const void *data, size_t length, struct instant now)
{
    if (queue->put - queue->taken == queue->room || length > DELAY_FRAME_LIMIT) {
        queue->lost++;
        return false;
    }
    struct slot *slot = &queue->slots[queue->put++ % queue->room];
    slot->due = instant_add(now, queue->delay_ns);
    slot->length = length;
    memcpy(slot->data, data, length);
    return true;
}

struct instant delay_queue_due(const struct delay_queue *queue)
{
    return queue->put == queue->taken ? INSTANT_NEVER : queue->slots[queue->taken % queue->room].due;
}

bool delay_queue_pop(struct delay_queue *queue, struct instant now, struct delay_frame *frame)
{
    if (queue->put == queue->taken || !instant_reached(now, delay_queue_due(queue)))
        return false;
    const struct slot *slot = &queue->slots[queue->taken++ % queue->room];
    *frame = (struct delay_frame){slot->data, slot->length};
    return true;
}

uint64_t delay_queue_lost(const struct delay_queue *queue)
{
    return queue->lost;
}
