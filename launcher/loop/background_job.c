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

void background_job_release(struct background_job *errand)
{
    if (!errand || __atomic_sub_fetch(&errand->references, 1, __ATOMIC_ACQ_REL))
        return;
    if (errand->release)
        errand->release(errand->payload);
    (void)close(errand->done_fd); /* an eventfd */
    mem_free(errand);
}

static void *background_job_thread(void *context)
{
    struct background_job *errand = context;
    errand->run(errand->payload);
    __atomic_store_n(&errand->done, true, __ATOMIC_RELEASE);
    (void)eventfd_write(errand->done_fd, 1); /* an eventfd that refuses is readable already */
    background_job_release(errand);
    return NULL;
}

struct background_job *background_job_start(const char *what, void (*run)(void *payload), void *payload,
                                            void (*release)(void *payload), struct muster_error *err)
{
    struct background_job *errand = mem_calloc(1, sizeof *errand);
    int fd = errand ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
    if (fd < 0) {
        error_errno(err, "no memory or descriptor for %s", what);
        mem_free(errand);
        if (release)
            release(payload);
        return NULL;
    }
    *errand = (struct background_job){
        .references = 2, .done_fd = fd, .run = run, .release = release, .payload = payload};
    int failure = thread_start(NULL, 0, background_job_thread, errand);
    if (!failure)
        return errand;
    errno = failure;
    error_errno(err, "cannot start a thread for %s", what);
    errand->references = 1;
    background_job_release(errand);
    return NULL;
}

int background_job_fd(const struct background_job *errand)
{
    return errand->done_fd;
}

bool background_job_wait(const struct background_job *errand, int64_t patience_ns)
{
    struct pollfd done = {.fd = errand->done_fd, .events = POLLIN};
    int milliseconds = (int)((patience_ns + NS_PER_MS - 1) / NS_PER_MS);
    (void)poll(&done, 1, milliseconds); /* signals are blocked, or in a test cut the wait short */
    return __atomic_load_n(&errand->done, __ATOMIC_ACQUIRE);
}

/* --- as an event of a loop --- */

static void background_watch_ready(void *context, uint32_t events)
{
    struct background_watch *watch = context;
    (void)events;
    if (background_job_is_done(watch->errand))
        watch->done(watch->context);
}

int background_watch_begin(struct background_watch *watch, struct loop *loop, struct background_job *errand,
                           void (*done)(void *context), void *context, struct muster_error *err)
{
    if (!errand)
        return -1;
    *watch = (struct background_watch){.errand = errand, .loop = loop, .done = done, .context = context};
    watch->source = (struct loop_source){background_job_fd(errand), background_watch_ready, watch};
    if (loop_add(loop, &watch->source, EPOLLIN, err) == 0)
        return 0;
    background_job_release(errand);
    watch->errand = NULL;
    return -1;
}

void background_watch_end(struct background_watch *watch)
{
    if (!watch->errand)
        return;
    loop_remove(watch->loop, &watch->source);
    background_job_release(watch->errand);
    watch->errand = NULL;
}
