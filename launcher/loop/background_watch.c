/* errand_watch.c - see errand_watch.h. */
#include "launcher/errand_watch.h"

#include <stddef.h>

static void ready(void *context, uint32_t events)
{
    struct errand_watch *watch = context;
    (void)events;
    if (errand_is_done(watch->errand))
        watch->done(watch->context);
}

int errand_watch_begin(struct errand_watch *watch, struct loop *loop, struct errand *errand,
                       void (*done)(void *context), void *context, struct muster_error *err)
{
    if (!errand)
        return -1;
    *watch = (struct errand_watch){.errand = errand, .loop = loop, .done = done, .context = context};
    watch->source = (struct loop_source){errand_fd(errand), ready, watch};
    if (loop_add(loop, &watch->source, EPOLLIN, err) == 0)
        return 0;
    errand_release(errand);
    watch->errand = NULL;
    return -1;
}

void errand_watch_end(struct errand_watch *watch)
{
    if (!watch->errand)
        return;
    loop_remove(watch->loop, &watch->source);
    errand_release(watch->errand);
    watch->errand = NULL;
}
