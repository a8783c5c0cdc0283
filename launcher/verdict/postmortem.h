/* postmortem.h - the diagnostics of one round's failed workers: the last lines of a redirected stderr, a full
 * disk of redirected output, their error files, evidence from the kernel and the GPU driver
 * (kernel_evidence.h).
 *
 * Read by a thread: log directories are on network file systems, and a hang of one must delay neither the
 * heartbeats nor the stop of the other workers. Ends are added as they are seen; waiting ones are examined
 * together. All calls are from one thread. */
#ifndef MUSTER_LAUNCHER_VERDICT_POSTMORTEM_H
#define MUSTER_LAUNCHER_VERDICT_POSTMORTEM_H

#include <stdbool.h>
#include <stdint.h>

#include "launcher/verdict/kernel_evidence.h"
#include "proto/base/clock.h"
#include "proto/include/muster_error.h"
#include "rendezvous/failure/failure.h"

/* The failure of a worker as its agent saw it: one object from the end of the worker to the report. */
struct observed_failure {
    struct worker_failure failure; /* wall_ns: when it was seen, or its error file's time before that */
    struct instant at;             /* when it happened: the same, on the monotonic clock */
    bool suspect;      /* the caller's: it was being stopped, and its last output decides whether it failed */
    bool hung;         /* the caller's: hung next to the reported worker; only its place is of interest */
    bool place;        /* postmortem_take: failure.traceback is where it was, and no error */
    bool more_found;   /* postmortem_take: something was filled in */
    char *stdout_file; /* redirected: its disk is looked at; NULL: it is not. All three are owned */
    char *stderr_file; /* to be read for failure.tail; NULL: that is what there is */
    char *error_file;  /* NULL: it was given none */
    char note[MUSTER_ERROR_TEXT];  /* a warning: an error file that cannot be used, a full disk, a kernel log
                                      with gaps; "" */
    struct observed_failure *next; /* while postmortem has it */
};

void observed_failure_free(struct observed_failure *failure); /* accepts NULL */

struct postmortem;

/* The workers of a round were started, the first one at that time: a thread opens the kernel evidence. paths
 * are copied. */
struct postmortem *postmortem_create(const struct kernel_evidence_paths *paths, struct instant started,
                                     struct muster_error *err);
/* A thread in progress ends by itself, and its results are dropped. Accepts NULL. */
void postmortem_destroy(struct postmortem *p);

/* failure is the postmortem's until postmortem_take gives it back. */
void postmortem_add(struct postmortem *p, struct observed_failure *failure);
/* Starts a thread for the waiting failures, unless one is in progress. If none can be started, or a thread of
 * this round has hung, they are ready as they are. */
void postmortem_go(struct postmortem *p);
/* Readable when the thread has finished; -1: none is in progress. */
int postmortem_fd(const struct postmortem *p);
/* Waits so long for the thread in progress; whether none is in progress any more. */
bool postmortem_wait(const struct postmortem *p, int64_t patience_ns);
/* Gives up on the thread in progress: its failures are ready as they were, and no more threads are started in
 * this round. */
void postmortem_give_up(struct postmortem *p);
/* The next failure that is ready, in the order of postmortem_add: the caller's again. NULL: none. */
struct observed_failure *postmortem_take(struct postmortem *p);
/* Whether something was added that is not taken yet. */
bool postmortem_is_busy(const struct postmortem *p);
/* Whether postmortem_go has something to do, or postmortem_take something to give. */
bool postmortem_is_due(const struct postmortem *p);

/* Time of an exception that a worker recorded at wall_ns (in units of grain_ns), given that its end was
 * seen at seen, when the same wall clock showed seen_wall_ns: the latest possible, since a time that is
 * too early would blame it for earlier events. seen itself if the file's time is implausible. Pure. */
struct instant postmortem_time(struct instant started, struct instant seen, int64_t seen_wall_ns,
                               int64_t wall_ns, int64_t grain_ns);

#endif
