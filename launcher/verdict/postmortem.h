/* postmortem.h - what the dead of one round left behind: the last lines of a stderr that was redirected,
 * their error files, what the kernel and the GPU driver saw (kernel_evidence.h).
 *
 * Looked up by a thread: log directories lie on network file systems, and one that stalls must hold up
 * neither the heartbeats nor the stop of the other workers. Ends are added as they are seen; those that wait
 * are looked at together. All calls are from one thread. */
#ifndef MUSTER_LAUNCHER_VERDICT_POSTMORTEM_H
#define MUSTER_LAUNCHER_VERDICT_POSTMORTEM_H

#include <stdbool.h>
#include <stdint.h>

#include "launcher/verdict/kernel_evidence.h"
#include "proto/base/clock.h"
#include "proto/include/muster_error.h"
#include "rendezvous/failure/failure.h"

/* One end. failure: what is known of it; what is found is filled in. */
struct postmortem_body {
    struct worker_failure failure; /* wall_ns: when it was seen; age_ns is not used */
    bool suspect;                  /* as asked */
    struct instant at; /* when it happened: when it was seen, or its error file's time before that */
    char *stderr_file; /* to be read for the tail; NULL: failure.tail is what there is */
    char *error_file;  /* NULL: it was given none */
    char note[MUSTER_ERROR_TEXT]; /* an error file that cannot be used: why; else "" */
};

struct postmortem;

/* A round starts, the workers have not: the witness is opened, by a thread. paths are copied. */
struct postmortem *postmortem_create(const struct kernel_evidence_paths *paths, struct instant started,
                                     struct muster_error *err);
/* A look-up that is under way ends by itself, and nobody hears of it. Accepts NULL. */
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
/* Sends a thread for those that wait, unless one is under way. Where none can be sent, or one of this round
 * has stalled, they are ready as they are. */
void postmortem_go(struct postmortem *p);
/* Readable when the thread has come back; -1: none is under way. */
int postmortem_fd(const struct postmortem *p);
/* Waits so long for the thread that is under way; whether none is any more. */
bool postmortem_wait(const struct postmortem *p, int64_t patience_ns);
/* Gives up on the thread that is under way: its bodies are ready as they were, and none is sent in this round
 * any more. */
void postmortem_give_up(struct postmortem *p);
/* The bodies that are ready, in the order of postmortem_add: the caller's for postmortem_free_bodies. NULL:
 * none. */
struct postmortem_body *postmortem_take(struct postmortem *p, int *count);
void postmortem_free_bodies(struct postmortem_body *bodies, int count);
/* Whether something was added that is not taken yet. */
bool postmortem_is_busy(const struct postmortem *p);

/* When an exception happened that a worker wrote down at wall_ns (as coarse as grain_ns), given that its end
 * was seen at seen, when the same wall clock said seen_wall_ns: at the latest that fits, since a time that is
 * too early would blame it for what came before. seen itself where the file's time makes no sense. Pure. */
struct instant postmortem_time(struct instant started, struct instant seen, int64_t seen_wall_ns,
                               int64_t wall_ns, int64_t grain_ns);

#endif
