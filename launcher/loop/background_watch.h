/* background_watch.h - an errand whose end is an event of a loop.
 *
 * One object for one errand after another; zeroed it has none. It must stay where it is while it has one. */
#ifndef MUSTER_LAUNCHER_LOOP_BACKGROUND_WATCH_H
#define MUSTER_LAUNCHER_LOOP_BACKGROUND_WATCH_H

#include <stdint.h>

#include "launcher/loop/background_job.h"
#include "launcher/loop/loop.h"

struct background_watch {
    struct background_job *errand; /* NULL: none is under way */
    struct loop *loop;
    struct loop_source source;
    void (*done)(void *context);
    void *context;
};

/* Waits for an errand that was just started (NULL where that failed: err says why, and so does -1 here). It
 * belongs to the watch, also on failure. done is called once, in the loop, when the payload may be looked at;
 * it ends with background_watch_end. */
int background_watch_begin(struct background_watch *watch, struct loop *loop, struct background_job *errand,
                           void (*done)(void *context), void *context, struct muster_error *err);
/* Lets go of the errand, whether it is done or not; the payload may be gone then. */
void background_watch_end(struct background_watch *watch);

#endif
