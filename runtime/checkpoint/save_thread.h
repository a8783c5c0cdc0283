/* save_thread.h - a thread that does one job after another. It stays from one checkpoint to the next:
 * starting a thread takes 0.2 ms between two steps. */
#ifndef MUSTER_RUNTIME_CHECKPOINT_SAVE_THREAD_H
#define MUSTER_RUNTIME_CHECKPOINT_SAVE_THREAD_H

#include <pthread.h>

#include "proto/base/futex.h"

/* Zeroed at first. All functions are the trainer's thread's. */
struct save_thread {
    pthread_t thread;
    bool started, stops;
    void (*work)(void *context); /* the ordered job */
    void *context;
    struct futex_word ordered, done; /* number of jobs so far; equal: the thread has no job */
};

/* Starts the job; save_thread_idle must be true. 0, or the number of the system's error. */
int save_thread_order(struct save_thread *thread, void (*work)(void *context), void *context);
/* Whether the last job has ended; true before the first. */
bool save_thread_idle(const struct save_thread *thread);
/* Waits for the job until the deadline, or a little less. */
void save_thread_await(struct save_thread *thread, struct instant deadline);
/* Ends the thread, which must be idle. Another order starts it again. */
void save_thread_stop(struct save_thread *thread);

#endif
