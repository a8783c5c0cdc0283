/* background_job.h - runs a potentially blocking job (disk, NFS, other processes' /proc, driver) on a
 * background thread.
 *
 * The thread and its starter share the payload; the last one to release it frees it. The starter may
 * release at any time: a thread that never returns keeps only its payload. */
#ifndef MUSTER_LAUNCHER_LOOP_BACKGROUND_JOB_H
#define MUSTER_LAUNCHER_LOOP_BACKGROUND_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "launcher/loop/loop.h"
#include "proto/include/muster_error.h"

struct background_job;

/* run is called once, on the thread. release frees the payload: after background_job_release and the end
 * of run, or at once if starting failed; NULL: nothing to free. what: for error texts. */
struct background_job *background_job_start(const char *what, void (*run)(void *payload), void *payload,
                                            void (*release)(void *payload), struct muster_error *err);
/* The same for a job without which the agent cannot go on, or would lose something: where no thread can be
 * started, run is called before this returns, and its waits hold the caller. NULL: there is no memory or
 * descriptor. */
struct background_job *background_job_start_or_run(const char *what, void (*run)(void *payload),
                                                   void *payload, void (*release)(void *payload),
                                                   struct muster_error *err);
/* Readable, and stays so, once run has returned. Before the payload is read, background_job_is_done must
 * be true too: that orders the two threads' memory. */
int background_job_fd(const struct background_job *job);
/* Whether run has returned, so that the payload may be read; waits so long for it. */
bool background_job_wait(const struct background_job *job, int64_t patience_ns);
static inline bool background_job_is_done(const struct background_job *job)
{
    return background_job_wait(job, 0);
}
/* Releases the job. Accepts NULL. */
void background_job_release(struct background_job *job);

/* --- as an event of a loop --- */

/* One object for one job after another; zeroed it has none. It must stay where it is while it has one. */
struct background_watch {
    struct background_job *job; /* NULL: none is under way */
    struct loop *loop;
    struct loop_source source;
    void (*done)(void *context);
    void *context;
};

/* Waits for a job that was just started (NULL where that failed: err holds the reason, and so does -1 here).
 * It belongs to the watch, also on failure. done is called once, in the loop, when the payload may be looked
 * at; it ends with background_watch_end. */
int background_watch_begin(struct background_watch *watch, struct loop *loop, struct background_job *job,
                           void (*done)(void *context), void *context, struct muster_error *err);
/* Lets go of the job, whether it is done or not; the payload may be gone then. */
void background_watch_end(struct background_watch *watch);

#endif
