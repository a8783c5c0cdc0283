/* background_watch.c - see background_watch.h. */
#include "launcher/loop/background_watch.h"

#include <stddef.h>

static void ready(void *context, uint32_t events)
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
    watch->source = (struct loop_source){background_job_fd(errand), ready, watch};
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
