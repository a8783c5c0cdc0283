/* save_thread.c - orders go to the thread by two counts: of jobs ordered and of jobs done.
 */
#include "runtime/checkpoint/save.h"

#include "proto/base/thread.h"

static void *run_jobs(void *argument)
{
    struct save_thread *thread = argument;
    for (uint32_t done = 0;;) {
        while (atomic_load(&thread->ordered.value) == done)
            (void)futex_wait(&thread->ordered, done, INSTANT_NEVER, FUTEX_PRIVATE); /* never late */
        if (thread->stops)
            return NULL;
        thread->work(thread->context);
        atomic_store(&thread->done.value, ++done);
        futex_wake(&thread->done, FUTEX_PRIVATE);
    }
}

int save_thread_order(struct save_thread *thread, void (*work)(void *context), void *context)
{
    const int failed = thread->started ? 0 : thread_start(&thread->thread, 0, run_jobs, thread);
    if (failed)
        return failed;
    thread->started = true;
    thread->work = work;
    thread->context = context;
    atomic_fetch_add(&thread->ordered.value, 1);
    futex_wake(&thread->ordered, FUTEX_PRIVATE);
    return 0;
}

bool save_thread_idle(const struct save_thread *thread)
{
    return atomic_load(&thread->done.value) == atomic_load(&thread->ordered.value);
}

void save_thread_await(struct save_thread *thread, struct instant deadline)
{
    const uint32_t done = atomic_load(&thread->done.value);
    if (!save_thread_idle(thread))
        (void)futex_wait(&thread->done, done, deadline, FUTEX_PRIVATE);
}

void save_thread_stop(struct save_thread *thread)
{
    if (!thread->started)
        return;
    thread->stops = true;
    atomic_fetch_add(&thread->ordered.value, 1);
    futex_wake(&thread->ordered, FUTEX_PRIVATE);
    (void)pthread_join(thread->thread, NULL); /* cannot fail: ours, joined once */
    *thread = (struct save_thread){0};
}
