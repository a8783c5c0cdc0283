/* failures_internal.h - the inside of agent_failures.h, for its files: the part and the serving node
 * (agent_failures.c), the ends of workers (failures_ends.c), and records with their post-mortem
 * (failures_records.c). Each calls the later ones only. */
#ifndef MUSTER_LAUNCHER_AGENT_FAILURES_INTERNAL_H
#define MUSTER_LAUNCHER_AGENT_FAILURES_INTERNAL_H

#include "launcher/agent/agent_failures.h"

/* At all times: deadline is set if watched.fd is; every record is owned by the post-mortem, the round or
 * one function here. */
struct agent_failures {
    int64_t seen, rounds[FAILURE_CLASS_COUNT]; /* failures of this node's workers, in this run; rounds of the
                                                  job, as in the header */
    struct instant started, watch_at;          /* the round's workers; when the kernel's evidence is opened */
    struct postmortem *postmortem;             /* this round's; NULL: not yet, or no memory */
    struct loop_source watched;                /* its thread, while one is in progress; fd -1 */
    struct instant deadline;
    bool moved; /* another server than the first has served the job */
};

/* --- failures_ends.c --- */

/* Some child has ended: all of them are reaped, then classified. */
void failures_reap(struct agent *agent);
/* A single failure for all stalled workers: of the slowest, silent for so long. */
void failures_take_hang(struct agent *agent, struct worker *slowest, int64_t silent_ns);
/* AGENT_ABORTED: a worker asks for the end of the round. */
void failures_note_aborted(struct agent *agent, const struct agent_event *event);

/* --- failures_records.c: a record is the caller's until a function takes it --- */

/* The worker, node and time of a failure, not its cause. NULL without memory, which is logged. */
struct observed_failure *failures_make_record(const struct agent *agent, const struct worker *worker,
                                              struct instant at);
/* The same, of a worker that has ended, with the cause and the last output. */
struct observed_failure *failures_make_end_record(struct agent *agent, struct worker *worker);
/* The end of its stderr, and where the post-mortem finds the rest. */
void failures_take_last_words(struct agent *agent, struct worker *worker, struct observed_failure *record);
/* Takes the record of a worker that was stopped: no failure. */
void failures_note_stopped(struct agent *agent, struct observed_failure *record);
/* Takes the record of a failure. It is reported at once if it is known to be a failure. */
void failures_take(struct agent *agent, struct observed_failure *record);
/* Without memory for a record the others are stopped all the same. */
void failures_take_nothing(struct agent *agent, const struct worker *worker);
/* Opens the kernel's evidence of this round. */
void failures_watch_kernel(struct agent *agent);
/* Starts the thread for the waiting failures; stops to wait for it; gives it up, since its time is over. */
void failures_start_postmortem(struct agent *agent);
void failures_stop_watching(struct agent *agent);
void failures_give_up(struct agent *agent);

#endif
