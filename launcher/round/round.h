/* round.h - the state of one round of the job: the world, its workers, their outcomes.
 *
 * round_begin makes all of it anew, so a field that is added here is reset in every round. A part keeps
 * its private state of a round itself, and renews it at AGENT_WORLD. All parts read the round; each field
 * is written by the file named in its comment, else by round.c. */
#ifndef MUSTER_LAUNCHER_ROUND_ROUND_H
#define MUSTER_LAUNCHER_ROUND_ROUND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "launcher/config/config.h"
#include "launcher/output/pump.h"
#include "launcher/policy/heartbeat.h"
#include "launcher/verdict/postmortem.h"
#include "launcher/verdict/report.h"
#include "rendezvous/membership.h"

enum {
    ROUND_DEAD_KEPT = 4096 + 1024, /* for the clean-up; beyond it, the rest stays */
    ROUND_FAILURES_KEPT = 16,      /* for the report; the first cause is named by the server */
    ROUND_STOPPED_KEPT = 64,
};

/* At all times: alive only if there is a pid, ended (not a pending end) only if it is not alive, kept only if
 * it is alive. */
struct worker {
    int local_rank, rank;
    pid_t pid;                      /* also the session's; 0: not started */
    bool alive;                     /* not reaped */
    bool unhandled;                 /* reaped, and not reported as an event yet */
    bool aborted;                   /* its failure was reported before its end */
    bool kept;                      /* alive, and it stays for the next round (docs/regroup.md) */
    int end_code, end_status;       /* si_code and si_status of its end */
    struct pump_stream *streams[3]; /* agent_output.c; by descriptor number; NULL: does not pass through us */
    struct instant begun, ended;    /* ended: when it was reaped */
    char *stdout_file;              /* only if stdout is redirected, by the worker's own descriptor */
    char *stderr_file;              /* the same of stderr */
    char *error_file;
};

/* Why the round is stopped, from the server; not set if it gave no reason. */
struct round_stop {
    bool given;
    enum membership_change change;
    int next_nodes;
    char reason[MUSTER_ERROR_TEXT];
};

/* At all times: worker_count > 0; 0 <= alive <= worker_count; the failures are in the order of their keys. */
struct round {
    int worker_count;        /* for the agent's lifetime */
    struct worker *workers;  /* worker_count */
    struct heartbeat *beats; /* worker_count; agent_heartbeats.c */
    int alive;

    struct membership_world world;          /* round 0 of epoch 0 before the first one */
    char restart_reason[MUSTER_ERROR_TEXT]; /* why the round before it was stopped, if it failed; "" */
    struct round_stop stop;
    struct instant started;  /* the first worker was started */
    int64_t started_wall_ns; /* the same; 0: not yet */

    pid_t *dead; /* reaped: workers and their descendants */
    int dead_count, dead_capacity;
    struct observed_failure *failures[ROUND_FAILURES_KEPT]; /* the best, in order */
    int failure_count;
    struct report_stopped *stopped; /* by us */
    int stopped_count;              /* including those without room */
    struct report_stopped *done;    /* worker_count; exited 0 while the round ran */
    int done_count;
};

int round_init(struct round *round, int worker_count, struct muster_error *err);
/* Frees all of it. Accepts a zeroed struct. */
void round_free(struct round *round);

/* A world was formed: forgets the last round, but for the workers that stay. */
void round_begin(struct round *round, const struct membership_event *world);
/* Before the resources of a round's workers are closed, which skips those that stay. keep: live workers stay
 * for the next round; else none does. */
void round_keep_workers(struct round *round, bool keep);
/* The round's workers have ended, but for those that stay, and all their resources are closed; their outcomes
 * stay until the next begins. */
void round_end(struct round *round);

void round_take_stop(struct round *round, const struct membership_event *stop);
/* A worker was started, a worker was reaped. */
void round_worker_started(struct round *round, struct worker *worker, pid_t pid);
void round_worker_reaped(struct round *round, struct worker *worker, int code, int status);
/* To a live worker: its process or its session; KILL and CONT always to the session. Processes
 * that left the session are not reached. */
void worker_signal(const struct worker *worker, int signal, enum signal_scope scope);
/* The live worker of this pid; NULL: none. */
struct worker *round_find_worker(struct round *round, pid_t pid);
/* pid was reaped; without memory for it, its files are not cleaned up. */
void round_note_dead(struct round *round, pid_t pid);
/* Takes the failure, whose record is final; if there is no room, the weakest cause is dropped. */
void round_keep_failure(struct round *round, struct observed_failure *failure);
/* A worker exited 0 while the round ran. */
void round_note_done(struct round *round, const struct worker *worker);
/* Takes its place, too. */
void round_note_stopped(struct round *round, const struct report_stopped *stopped);

#endif
