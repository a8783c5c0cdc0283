/* delay_queue.h - a piece of wire: frames that go in at one end come out at the other a fixed time later, in
 * order.
 *
 * Pure: the time is passed in. As a wire does, it loses frames that it cannot hold; nothing is reordered,
 * since the delay of one queue never changes. All memory is taken at the start. */
#ifndef MUSTER_TESTS_DELAY_QUEUE_H
#define MUSTER_TESTS_DELAY_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/clock.h"
#include "proto/base/guard.h"

enum { DELAY_FRAME_LIMIT = 2048 }; /* bytes; an Ethernet frame of the usual MTU has 1,518 at most */

struct delay_queue;

struct delay_frame {
    const unsigned char *data; /* until the next pop */
    size_t length;
};

/* Room for so many frames at a time. NULL: no memory, or no room asked for. */
struct delay_queue *delay_queue_create(int64_t delay_ns, size_t frames);
/* Accepts NULL. */
void delay_queue_destroy(struct delay_queue *queue);
GUARD_DEFINE(delay_queue, struct delay_queue *, delay_queue_destroy);

/* Puts in a copy; false where it is lost: the queue is full or the frame too long. */
bool delay_queue_push(struct delay_queue *queue, const void *data, size_t length, struct instant now);
/* When the next frame comes out; INSTANT_NEVER where there is none. */
struct instant delay_queue_due(const struct delay_queue *queue);
/* The next frame that has come out by now; false where there is none. */
bool delay_queue_pop(struct delay_queue *queue, struct instant now, struct delay_frame *frame);
/* How many were lost. */
uint64_t delay_queue_lost(const struct delay_queue *queue);

#endif
