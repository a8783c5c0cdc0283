/* rank_threads.c - see rank_threads.h. */
#include "tests/support/rank_threads.h"

#include <pthread.h>
#include <stdio.h>

enum { RANK_LIMIT = 512 };

struct rank_thread {
    pthread_t thread;
    int rank, world_size, result;
    int (*body)(int rank, int world_size, void *context);
    void *context;
};

static void *run(void *argument)
{
    struct rank_thread *t = argument;
    t->result = t->body(t->rank, t->world_size, t->context);
    return NULL;
}

int rank_threads_run(int world_size, int (*body)(int rank, int world_size, void *context), void *context)
{
    struct rank_thread threads[RANK_LIMIT];
    if (world_size < 1 || world_size > RANK_LIMIT)
        return -1;
    int started = 0;
    for (; started < world_size; started++) {
        threads[started] =
            (struct rank_thread){.rank = started, .world_size = world_size, .body = body, .context = context};
        if (pthread_create(&threads[started].thread, NULL, run, &threads[started])) {
            fprintf(stderr, "cannot start the thread of rank %d\n", started);
            break;
        }
    }
    int result = started == world_size ? 0 : -1;
    for (int i = 0; i < started; i++) {
        (void)pthread_join(threads[i].thread, NULL);
        if (!result)
            result = threads[i].result;
    }
    return result;
}
