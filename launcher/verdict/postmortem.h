/* postmortem.h - the diagnostics of one round's failed workers: the last lines of a redirected stderr,
 * their error files, evidence from the kernel and the GPU driver (kernel_evidence.h).
 *
 * Read by a thread: log directories are on network file systems, and a hang of one must delay neither the
 * heartbeats nor the stop of the other workers. Ends are added as they are seen; those that wait are
 * examined together. All calls are from one thread. */
#ifndef MUSTER_LAUNCHER_VERDICT_POSTMORTEM_H
#define MUSTER_LAUNCHER_VERDICT_POSTMORTEM_H

#include <stdbool.h>
#include <stdint.h>

#include "launcher/verdict/kernel_evidence.h"
#include "proto/base/clock.h"
#include "proto/include/muster_error.h"
#include "rendezvous/failure/failure.h"

/* One end. failure: the known part; the post-mortem fills in its findings. */
struct postmortem_body {
    struct worker_failure failure; /* wall_ns: when it was seen; age_ns is not used */
    bool suspect;                  /* as asked */
    struct instant at; /* when it happened: when it was seen, or its error file's time before that */
    char *stderr_file; /* to be read for the tail; NULL: failure.tail is all there is */
    char *error_file;  /* NULL: it had none */
    char note[MUSTER_ERROR_TEXT]; /* why an error file cannot be used; else "" */
};

struct postmortem;

/* A round starts, before its workers: a thread opens the kernel evidence. paths are copied. */
struct postmortem *postmortem_create(const struct kernel_evidence_paths *paths, struct instant started,
                                     struct muster_error *err);
/* A thread in progress ends by itself, and its results are dropped. Accepts NULL. */
void postmortem_destroy(struct postmortem *p);

struct postmortem_question {
    const struct worker_failure *failure;
    struct instant at;                    /* when its end was seen */
    bool suspect;                         /* for the caller: comes back with the body */
    const char *stderr_file, *error_file; /* either may be NULL */
};

/* Everything is copied. On failure (memory) nothing was added. */
int postmortem_add(struct postmortem *p, const struct postmortem_question *question,
                   struct muster_error *err);
/* Starts a thread for those that wait, unless one is in progress. If none can be started, or one of this
 * round has hung, they are ready as they are. */
void postmortem_go(struct postmortem *p);
/* Readable when the thread has finished; -1: none is in progress. */
int postmortem_fd(const struct postmortem *p);
/* Waits so long for the thread in progress; whether none is in progress any more. */
bool postmortem_wait(const struct postmortem *p, int64_t patience_ns);
/* Gives up on the thread in progress: its bodies are ready as they were, and no more are started in this
 * round. */
void postmortem_give_up(struct postmortem *p);
/* The bodies that are ready, in the order of postmortem_add: the caller's for postmortem_free_bodies. NULL:
 * none. */
struct postmortem_body *postmortem_take(struct postmortem *p, int *count);
void postmortem_free_bodies(struct postmortem_body *bodies, int count);
/* Whether a body was added that is not taken yet. */
bool postmortem_is_busy(const struct postmortem *p);

/* Time of an exception that a worker recorded at wall_ns (in units of grain_ns), given that its end was
 * seen at seen, when the same wall clock showed seen_wall_ns: the latest possible, since a time that is
 * too early would blame it for earlier events. seen itself if the file's time is implausible. Pure. */
struct instant postmortem_time(struct instant started, struct instant seen, int64_t seen_wall_ns,
                               int64_t wall_ns, int64_t grain_ns);

#endif
