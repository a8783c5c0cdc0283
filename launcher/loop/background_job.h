/* background_job.h - work that may block for ever (a disk, NFS, /proc of strangers, a driver), done by a
 * thread of its own while the agent goes on.
 *
 * The thread and the one who sent it share the payload; the last one out frees it. Whoever sent it may let go
 * at any time: a thread that never comes back keeps its payload and nothing else. */
#ifndef MUSTER_LAUNCHER_LOOP_BACKGROUND_JOB_H
#define MUSTER_LAUNCHER_LOOP_BACKGROUND_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "launcher/loop/loop.h"
#include "proto/include/muster_error.h"

struct background_job;

/* run is called once, on the thread. release frees the payload: after background_job_release and the end of
 * run, or at once where starting failed; NULL: nothing to free. what: for error texts. */
struct background_job *background_job_start(const char *what, void (*run)(void *payload), void *payload,
                                            void (*release)(void *payload), struct muster_error *err);
/* Readable, and stays so, once run has returned. Before the payload is looked at, background_job_is_done must
 * say so too: that is what orders the two threads' memory. */
int background_job_fd(const struct background_job *errand);
/* Whether run has returned, so that the payload may be looked at; waits so long for it. */
bool background_job_wait(const struct background_job *errand, int64_t patience_ns);
static inline bool background_job_is_done(const struct background_job *errand)
{
    return background_job_wait(errand, 0);
}
/* Lets go. Accepts NULL. */
void background_job_release(struct background_job *errand);

/* --- as an event of a loop --- */

/* One object for one job after another; zeroed it has none. It must stay where it is while it has one. */
struct background_watch {
    struct background_job *errand; /* NULL: none is under way */
    struct loop *loop;
    struct loop_source source;
    void (*done)(void *context);
    void *context;
};

/* Waits for a job that was just started (NULL where that failed: err says why, and so does -1 here). It
 * belongs to the watch, also on failure. done is called once, in the loop, when the payload may be looked at;
 * it ends with background_watch_end. */
int background_watch_begin(struct background_watch *watch, struct loop *loop, struct background_job *errand,
                           void (*done)(void *context), void *context, struct muster_error *err);
/* Lets go of the job, whether it is done or not; the payload may be gone then. */
void background_watch_end(struct background_watch *watch);

#endif
