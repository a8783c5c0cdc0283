/* hook_queue.h - which checkpoint the command of training.checkpoint_command is run for. Pure.
 *
 * The command runs for one checkpoint at a time. A newer checkpoint waits, and takes the place of a
 * checkpoint that waits already. */
#ifndef MUSTER_RUNTIME_CHECKPOINT_HOOK_QUEUE_H
#define MUSTER_RUNTIME_CHECKPOINT_HOOK_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

/* Steps; -1: none. Begins as HOOK_QUEUE_EMPTY. */
struct hook_queue {
    int64_t running, waiting;
};
#define HOOK_QUEUE_EMPTY ((struct hook_queue){-1, -1})

/* Adds a committed checkpoint. Returns the step of the waiting checkpoint that is skipped for it, or -1. */
int64_t hook_queue_add(struct hook_queue *queue, int64_t step);
/* Begins a run of the command. Returns its step; -1: nothing waits, or the command runs. */
int64_t hook_queue_begin(struct hook_queue *queue);
void hook_queue_end(struct hook_queue *queue); /* the running command has ended */
/* Whether the files of this checkpoint are read, or will be. */
bool hook_queue_holds(const struct hook_queue *queue, int64_t step);
bool hook_queue_is_empty(const struct hook_queue *queue);

#endif
