/* workers.c - see workers.h. */
#include "trainer/corpus/workers.h"

#include <pthread.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/thread.h"

struct crew {
    const struct workers_job *job;
    pthread_mutex_t lock; /* of what follows */
    int next;
    struct muster_error err;
};

/* -1: none is left, or something failed. */
static int take_item(struct crew *crew)
{
    (void)pthread_mutex_lock(&crew->lock); /* cannot fail: initialized, and not held */
    const int item = crew->err.code || crew->next == crew->job->items ? -1 : crew->next++;
    (void)pthread_mutex_unlock(&crew->lock);
    return item;
}

static void keep_error(struct crew *crew, const struct muster_error *err)
{
    (void)pthread_mutex_lock(&crew->lock);
    if (!crew->err.code)
        crew->err = *err;
    (void)pthread_mutex_unlock(&crew->lock);
}

static void *work(void *context)
{
    struct crew *crew = context;
    const struct workers_job *job = crew->job;
    struct muster_error err = {0};
    void *room = job->open(job->context, &err);
    int item, result = room ? 0 : -1;
    while (!result && (item = take_item(crew)) >= 0)
        result = job->run(job->context, room, item, &err);
    if (result < 0)
        keep_error(crew, &err);
    job->close(room);
    return NULL;
}

int workers_run(const struct workers_job *job, struct muster_error *err)
{
    struct crew crew = {.job = job};
    const int threads = job->threads < job->items ? job->threads : job->items;
    scope_free pthread_t *thread = mem_calloc((size_t)threads + 1, sizeof *thread);
    int started = 0;
    if (!thread || pthread_mutex_init(&crew.lock, NULL) != 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for %d threads", threads);
    for (; started < threads; started++) {
        const int failed = thread_start(&thread[started], 0, work, &crew);
        if (failed && !started) {
            (void)pthread_mutex_destroy(&crew.lock);
            return thread_error(err, failed, "a thread that prepares text");
        }
        if (failed)
            break; /* those that are there do the work */
    }
    for (int i = 0; i < started; i++)
        (void)pthread_join(thread[i], NULL); /* it was started, and is joined once */
    (void)pthread_mutex_destroy(&crew.lock);
    if (crew.err.code && err)
        *err = crew.err;
    return crew.err.code ? -1 : 0;
}
