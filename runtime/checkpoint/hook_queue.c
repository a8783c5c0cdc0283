/* hook_queue.c - see hook_queue.h. */
#include "runtime/checkpoint/hook_queue.h"

int64_t hook_queue_add(struct hook_queue *queue, int64_t step)
{
    const int64_t skipped = queue->waiting == step ? -1 : queue->waiting;
    queue->waiting = step;
    return skipped;
}

int64_t hook_queue_begin(struct hook_queue *queue)
{
    if (queue->running >= 0 || queue->waiting < 0)
        return -1;
    queue->running = queue->waiting;
    queue->waiting = -1;
    return queue->running;
}

void hook_queue_end(struct hook_queue *queue)
{
    queue->running = -1;
}

bool hook_queue_holds(const struct hook_queue *queue, int64_t step)
{
    return step >= 0 && (queue->running == step || queue->waiting == step);
}

bool hook_queue_is_empty(const struct hook_queue *queue)
{
    return queue->running < 0 && queue->waiting < 0;
}
