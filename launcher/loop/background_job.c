/* background_job.c - see background_job.h. */
#include "launcher/loop/background_job.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "proto/base/thread.h"

struct background_job {
    int references; /* atomic */
    int done_fd;
    bool done; /* atomic: run's results are complete */
    void (*run)(void *);
    void (*release)(void *);
    void *payload;
};

void background_job_release(struct background_job *job)
{
    if (!job || __atomic_sub_fetch(&job->references, 1, __ATOMIC_ACQ_REL))
        return;
    if (job->release)
        job->release(job->payload);
    (void)close(job->done_fd); /* an eventfd */
    mem_free(job);
}

static void *background_job_thread(void *context)
{
    struct background_job *job = context;
    job->run(job->payload);
    __atomic_store_n(&job->done, true, __ATOMIC_RELEASE);
    (void)eventfd_write(job->done_fd, 1); /* an eventfd that refuses is readable already */
    background_job_release(job);
    return NULL;
}

static struct background_job *job_create(const char *what, void (*run)(void *payload), void *payload,
                                         void (*release)(void *payload), struct muster_error *err)
{
    struct background_job *job = mem_calloc(1, sizeof *job);
    int fd = job ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
    if (fd < 0) {
        error_errno(err, "no memory or descriptor for %s", what);
        mem_free(job);
        if (release)
            release(payload);
        return NULL;
    }
    *job = (struct background_job){
        .references = 2, .done_fd = fd, .run = run, .release = release, .payload = payload};
    return job;
}

struct background_job *background_job_start(const char *what, void (*run)(void *payload), void *payload,
                                            void (*release)(void *payload), struct muster_error *err)
{
    struct background_job *job = job_create(what, run, payload, release, err);
    const int failed = job ? thread_start(NULL, 0, background_job_thread, job) : 0;
    if (!failed)
        return job;
    (void)thread_error(err, failed, "a thread for %s", what);
    job->references = 1;
    background_job_release(job);
    return NULL;
}

struct background_job *background_job_start_or_run(const char *what, void (*run)(void *payload),
                                                   void *payload, void (*release)(void *payload),
                                                   struct muster_error *err)
{
    struct background_job *job = job_create(what, run, payload, release, err);
    if (job && thread_start(NULL, 0, background_job_thread, job))
        (void)background_job_thread(job);
    return job;
}

int background_job_fd(const struct background_job *job)
{
    return job->done_fd;
}

bool background_job_wait(const struct background_job *job, int64_t patience_ns)
{
    struct pollfd done = {.fd = job->done_fd, .events = POLLIN};
    int milliseconds = (int)((patience_ns + NS_PER_MS - 1) / NS_PER_MS);
    (void)poll(&done, 1, milliseconds); /* signals are blocked, or in a test cut the wait short */
    return __atomic_load_n(&job->done, __ATOMIC_ACQUIRE);
}

/* --- as an event of a loop --- */

static void background_watch_ready(void *context, uint32_t events)
{
    struct background_watch *watch = context;
    (void)events;
    if (background_job_is_done(watch->job))
        watch->done(watch->context);
}

int background_watch_begin(struct background_watch *watch, struct loop *loop, struct background_job *job,
                           void (*done)(void *context), void *context, struct muster_error *err)
{
    if (!job)
        return -1;
    *watch = (struct background_watch){.job = job, .loop = loop, .done = done, .context = context};
    watch->source = (struct loop_source){background_job_fd(job), background_watch_ready, watch};
    if (loop_add(loop, &watch->source, EPOLLIN, err) == 0)
        return 0;
    background_job_release(job);
    watch->job = NULL;
    return -1;
}

void background_watch_end(struct background_watch *watch)
{
    if (!watch->job)
        return;
    loop_remove(watch->loop, &watch->source);
    background_job_release(watch->job);
    watch->job = NULL;
}
