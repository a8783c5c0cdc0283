/* agent_internal.h - shared by the parts of an agent: the agent, its events, and the interface of a part.
 * README.md has the whole in ten lines. */
#ifndef MUSTER_LAUNCHER_AGENT_AGENT_INTERNAL_H
#define MUSTER_LAUNCHER_AGENT_AGENT_INTERNAL_H

#include <assert.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "launcher/agent/agent.h"
#include "launcher/loop/loop.h"
#include "launcher/policy/worker_group.h"
#include "launcher/process/children.h"
#include "launcher/process/descendants.h"
#include "launcher/round/round.h"
#include "rendezvous/membership.h"

struct agent;
struct agent_event;

/* --- a part --- */

/* One concern of the agent. Its state is a struct of its own file, private to it; its header has the
 * functions for other parts. It gets all events by `event`, and emits its own by agent_emit. Parts may
 * call each other's functions, but never in circles (tests/lint/layers.py): a called part informs its
 * caller by an event. All five are called from the agent's thread. */
struct agent_part {
    const char *name;
    int (*create)(struct agent *agent, struct muster_error *err);
    struct instant (*deadline)(const struct agent *agent); /* when tick is due; NULL: never */
    void (*tick)(struct agent *agent, struct instant now); /* after every turn of the loop; or NULL */
    void (*event)(struct agent *agent, const struct agent_event *event); /* or NULL */
    void (*destroy)(struct agent *agent); /* also called if create failed; or NULL */
};

/* --- what happens --- */

/* symbol, the worker group's step for it (or none), meaning. Every part gets it before the group's step. */
#define AGENT_NO_STEP GROUP_EVENT_COUNT
#define AGENT_EVENTS(X)                                                                                      \
    X(AGENT_WORLD, GROUP_WORLD,                                                                              \
      "a world was formed: the round begins, its workers are not started yet; membership")                   \
    X(AGENT_STOP, GROUP_STOP, "the server stops the round; membership")                                      \
    X(AGENT_VERDICT, GROUP_VERDICT, "the job is over; membership")                                           \
    X(AGENT_LOST, GROUP_LOST, "the membership is lost; code")                                                \
    X(AGENT_SIGNAL, GROUP_SIGNAL, "a signal stops this agent; code")                                         \
    X(AGENT_FAILURE, GROUP_FAILURE, "a worker failed, or could not be started; failure")                     \
    X(AGENT_SUCCESS, GROUP_SUCCESS, "the last worker of the round has ended")                                \
    X(AGENT_EMPTY, GROUP_EMPTY, "no process of this agent is left")                                          \
    X(AGENT_DEADLINE, GROUP_DEADLINE, "the worker group's deadline is reached")                              \
    X(AGENT_CLEANED, GROUP_CLEANED, "the clean-up after the workers is done")                                \
    X(AGENT_STATE, AGENT_NO_STEP, "the worker group has changed its state; code: enum, the one before")      \
    X(AGENT_FILES, AGENT_NO_STEP, "the round's log files are open: its workers can be started")              \
    X(AGENT_TEMPLATE, AGENT_NO_STEP,                                                                         \
      "the template is ready or has ended: the workers that waited for it can be started")                   \
    X(AGENT_NO_FILES, AGENT_NO_STEP, "they cannot be opened; text")                                          \
    X(AGENT_STARTED, AGENT_NO_STEP, "all workers were started, or one was not; duration_ns; code: 1, 0")     \
    X(AGENT_CHILDREN, AGENT_NO_STEP, "a child may have ended")                                               \
    X(AGENT_WORKER_ENDED, AGENT_NO_STEP, "worker has ended and its end is classified; failure or none")      \
    X(AGENT_ABORTED, AGENT_NO_STEP,                                                                          \
      "a worker has asked for the end of the round, or exited 0 where others need it; worker, code above "   \
      "0, text")                                                                                             \
    X(AGENT_HUNG, AGENT_NO_STEP, "workers are hung, worker is the slowest; duration_ns")                     \
    X(AGENT_SERVER_LOST, AGENT_NO_STEP, "the serving node is lost, and none follows")                        \
    X(AGENT_SERVER_MOVED, AGENT_NO_STEP, "another node serves the job, or none does; text")                  \
    X(AGENT_EVICTION, AGENT_NO_STEP, "the answer to an operator's request that a node leaves; membership")   \
    X(AGENT_GO, AGENT_NO_STEP, "an operator has asked for this node to leave; text")                         \
    X(AGENT_PASS_ON, AGENT_NO_STEP, "a signal is to be forwarded to the workers; code")                      \
    X(AGENT_NOTICE, AGENT_NO_STEP, "the workers got a stop notice; duration_ns: left to them")               \
    X(AGENT_ROUND_ENDS, AGENT_NO_STEP, "the workers have ended: their resources are closed")                 \
    X(AGENT_ENDED, AGENT_NO_STEP, "the agent's part in the job is over; duration_ns; code: the exit code")

enum agent_event_kind {
#define AGENT_EVENT_ENUM(symbol, ...) symbol,
    AGENT_EVENTS(AGENT_EVENT_ENUM)
#undef AGENT_EVENT_ENUM
        AGENT_EVENT_COUNT
};

/* The emitter owns the memory that the pointers point to; it lives until agent_emit returns. */
struct agent_event {
    enum agent_event_kind kind;
    int code;
    int64_t duration_ns;
    const char *text;
    const struct membership_event *membership;
    struct worker *worker;
    const struct worker_failure *failure;
};

/* --- the agent --- */

/* Readable by all parts; the writer of each field is named. The parts' own states are opaque. */
struct agent {
    const struct run_config *config;
    struct nccl_env *tune; /* the caller's */
    struct log_sink log;   /* through the pump, so that it never blocks */
    struct pump *pump;     /* agent_output.c */
    struct loop loop;
    char host[MACHINE_NAME_SIZE];
    char id[DESCENDANTS_ID_LENGTH + 1];
    char *id_chain;            /* MUSTER_AGENT_ID of the workers: the outer agents' ids, then ours */
    struct rlimit descriptors; /* this process's environment; its own soft limit may be higher */
    struct instant started;
    struct round round;        /* by its functions */
    struct worker_group group; /* agent_actions.c */
    struct children children;  /* agent_processes.c */
    int64_t restarts_told;     /* restart count of the last world for which a restart was logged; the same */
    bool moves;                /* the world has other places for workers than the last one; agent_actions.c */
    bool finished;             /* the loop ends */
    char end_reason[MUSTER_ERROR_TEXT]; /* if it ends without a verdict: the reason; "" if unknown */

    /* The only way from a part to the agent: set by agent.c. */
    void (*emit)(struct agent *agent, const struct agent_event *event);
    int created,
        whole; /* parts, in the order of the table; whole: created without a failure, they get events */
    struct agent_output *output;
    struct agent_signals *signals;
    struct agent_job_state *job_state;
    struct agent_nccl *nccl;
    struct agent_events *events;
    struct agent_server *server;
    struct agent_port *port;
    struct agent_heartbeats *heartbeats;
    struct agent_notices *notices;
    struct agent_pmi *pmi;
    struct agent_processes *processes;
    struct agent_start *start;
    struct agent_board *board;
    struct agent_trainer *trainer;
    struct agent_audience *audience; /* agent_status.c */
    struct agent_membership *membership;
    struct agent_search *search;
    struct agent_drain *drain;
    struct agent_failures *failures;
};
static_assert(sizeof(struct agent) <= 8192, "large state belongs to a part or to the round, on the heap");

#define AGENT_HOLD_NS        (2 * NS_PER_S)  /* for workers that can stay to let go of their communicators */
#define AGENT_KILL_BOUND_NS  (30 * NS_PER_S) /* a killed process that frees much memory needs seconds */
#define AGENT_CLEAN_BOUND_NS (5 * NS_PER_S)

static inline int64_t agent_seconds_ns(double seconds)
{
    return (int64_t)(seconds * (double)NS_PER_S);
}

/* Every part gets it, then the worker group makes its step, whose actions are done when this returns. A
 * handler may emit further events. */
static inline void agent_emit(struct agent *agent, const struct agent_event *event)
{
    agent->emit(agent, event);
}

/* --- agent_actions.c: the step of the worker group for an event, and its actions --- */

/* The part that keeps the group's own deadline. */
extern const struct agent_part agent_actions_part;

/* Before the parts get it. False: it does not fit the state, and no part gets it. */
bool agent_actions_admit(struct agent *agent, const struct agent_event *event);
/* After they have: makes the group's step and executes its actions. */
void agent_actions_take(struct agent *agent, const struct agent_event *event);

/* --- agent_events.c: event lines (output/log_record.h) for --event-log-handler; only receives events --- */

extern const struct agent_part agent_events_part;

/* --- agent_outcome.c: the end of a failed job: the report and the verdict, on the console and in files ---
 */

/* exit_code: the agent's. Also if some parts were never created. */
void agent_outcome_tell(struct agent *agent, int exit_code);

/* --- agent_status.c: the agent's status (status/status.h), by a local socket and the metrics port --- */

extern const struct agent_part agent_status_part;

/* --- board/agent_trainer.c: progress for Kubeflow Trainer, from the agent that serves the job --- */

extern const struct agent_part agent_trainer_part;

#endif
