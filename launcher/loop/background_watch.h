/* errand_watch.h - an errand whose end is an event of a loop.
 *
 * One object for one errand after another; zeroed it has none. It must stay where it is while it has one. */
#ifndef MUSTER_LAUNCHER_ERRAND_WATCH_H
#define MUSTER_LAUNCHER_ERRAND_WATCH_H

#include <stdint.h>

#include "launcher/errand.h"
#include "launcher/loop.h"

struct errand_watch {
    struct errand *errand; /* NULL: none is under way */
    struct loop *loop;
    struct loop_source source;
    void (*done)(void *context);
    void *context;
};

/* Waits for an errand that was just started (NULL where that failed: err says why, and so does -1 here). It
 * belongs to the watch, also on failure. done is called once, in the loop, when the payload may be looked at;
 * it ends with errand_watch_end. */
int errand_watch_begin(struct errand_watch *watch, struct loop *loop, struct errand *errand,
                       void (*done)(void *context), void *context, struct muster_error *err);
/* Lets go of the errand, whether it is done or not; the payload may be gone then. */
void errand_watch_end(struct errand_watch *watch);

#endif
