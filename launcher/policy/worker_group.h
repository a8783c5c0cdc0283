/* worker_group.h - pure: the life of this node's workers, as a table of states and events.
 *
 *   WAITING --WORLD--> RUNNING --all exited 0--> DONE
 *                         |  a failure, STOP, VERDICT, a signal to the agent, the membership lost
 *                         v                     (an elastic job, or a static one where
 *                         |                      workers listen: the signal leads to DRAINING, and the STOP
 *                         |                      that it requests, or a second, to STOPPING)
 *                         |                     (a planned STOP, a signal: if workers handle notices
 *                         (notice.md),
 *                         |                      SAVING comes before STOPPING)
 *                         |                     (a failure that a restart may mend, if workers can stay
 *                         |                      (regroup.md): HOLDING, CULLING, and CLEANING with workers)
 *                      STOPPING (TERM sent) --grace--> KILLING (KILL sent) --bound--> OVER, unkillable: 138
 *                         |                               |
 *                         +----------- EMPTY -------------+--> CLEANING (stopped for a new round) -->
 * WAITING, HALTED (waiting for the server's decision) or OVER
 *
 * The shell (agent.c) turns what happens into events and executes actions in the order of their numbers. */
#ifndef MUSTER_LAUNCHER_POLICY_WORKER_GROUP_H
#define MUSTER_LAUNCHER_POLICY_WORKER_GROUP_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/clock.h"
#include "proto/include/muster_error.h"

/* symbol, name, meaning */
#define GROUP_STATES(X)                                                                                      \
    X(GROUP_WAITING, "WAITING", "no workers; waiting for a world")                                           \
    X(GROUP_RUNNING, "RUNNING", "workers run; some may have exited 0")                                       \
    X(GROUP_DRAINING, "DRAINING",                                                                            \
      "the agent leaves and has requested a stop in which all may save; waiting for it")                     \
    X(GROUP_SAVING, "SAVING", "stop notice sent; workers that handle it save and exit by themselves")        \
    X(GROUP_HOLDING, "HOLDING", "workers that can stay got word to regroup, the others the stop signal")     \
    X(GROUP_CULLING, "CULLING", "KILL sent to workers that did not answer; waiting for the kernel")          \
    X(GROUP_STOPPING, "STOPPING", "stop signal sent; the grace period runs")                                 \
    X(GROUP_KILLING, "KILLING", "SIGKILL sent; waiting for the kernel")                                      \
    X(GROUP_CLEANING, "CLEANING", "stopped for a new round; cleaning up after the workers")                  \
    X(GROUP_HALTED, "HALTED", "no workers left after a failure; waiting for the server's decision")          \
    X(GROUP_DONE, "DONE", "all exited 0; waiting for the verdict")                                           \
    X(GROUP_OVER, "OVER", "the agent exits")

#define GROUP_EVENTS(X)                                                                                      \
    X(GROUP_WORLD, "WORLD", "a world was formed")                                                            \
    X(GROUP_FAILURE, "FAILURE", "a worker failed by itself, or could not be started")                        \
    X(GROUP_SUCCESS, "SUCCESS", "the last worker exited 0; SAVING: it ended, in any way")                    \
    X(GROUP_EMPTY, "EMPTY", "no process of this agent is left; HOLDING, CULLING: but of workers that stay")  \
    X(GROUP_STOP, "STOP", "the server stops the round")                                                      \
    X(GROUP_VERDICT, "VERDICT", "the job is over")                                                           \
    X(GROUP_SIGNAL, "SIGNAL", "the agent got a stop signal")                                                 \
    X(GROUP_LOST, "LOST", "the membership is lost")                                                          \
    X(GROUP_DEADLINE, "DEADLINE", "group->deadline is reached")                                              \
    X(GROUP_CLEANED, "CLEANED", "the clean-up is done")

/* In the order of execution. */
#define GROUP_ACTIONS(X)                                                                                     \
    X(GROUP_REPORT_FAILED, "REPORT_FAILED")                                                                  \
    X(GROUP_REPORT_DONE, "REPORT_DONE")                                                                      \
    X(GROUP_DRAIN, "DRAIN") /* request a planned stop of all nodes from the server */                        \
    X(GROUP_LEAVE, "LEAVE") /* report to the server that this agent leaves with exit_code */                 \
    X(GROUP_ANNOUNCE,                                                                                        \
      "ANNOUNCE") /* send the stop notice to workers that handle it; `signal` and CONT to the others */      \
    X(GROUP_HOLD, "HOLD")             /* word to regroup to workers that can stay; `signal` to the others */ \
    X(GROUP_CULL, "CULL")             /* send KILL to all that have not answered */                          \
    X(GROUP_TERMINATE, "TERMINATE")   /* send `signal` and CONT to all */                                    \
    X(GROUP_KILL, "KILL")             /* send KILL to all, until none is left */                             \
    X(GROUP_NAME_STUCK, "NAME_STUCK") /* report the processes that cannot be killed */                       \
    X(GROUP_CLEAN, "CLEAN")           /* clean up after the workers, then CLEANED */                         \
    X(GROUP_REPORT_STOPPED, "REPORT_STOPPED")                                                                \
    X(GROUP_START, "START")   /* start the workers, then report RUNNING or FAILURE */                        \
    X(GROUP_REMIND, "REMIND") /* report that the agent is stopping already */                                \
    X(GROUP_EXIT, "EXIT")     /* exit with exit_code */

#define GROUP_ENUM(symbol, ...) symbol,
enum worker_group_state { GROUP_STATES(GROUP_ENUM) GROUP_STATE_COUNT };
enum worker_group_event_kind { GROUP_EVENTS(GROUP_ENUM) GROUP_EVENT_COUNT };
enum worker_group_action { GROUP_ACTIONS(GROUP_ENUM) GROUP_ACTION_COUNT };
#undef GROUP_ENUM

struct worker_group_event {
    enum worker_group_event_kind kind;
    int exit_code;    /* VERDICT, LOST: the exit code */
    int signal;       /* SIGNAL */
    int64_t grace_ns; /* STOP: the workers' total time; 0: restart_grace_ns */
    bool planned;     /* STOP: nodes join or leave, no failure */
    bool moves;       /* STOP, planned: the next world has as many nodes, and workers can stay for it */
    bool elsewhere;   /* WORLD: workers that stayed have another place in it, or it has another size */
};

struct worker_group {
    enum worker_group_state state;
    int64_t shutdown_grace_ns; /* after a signal to the agent */
    int64_t restart_grace_ns;  /* after anything else: the others cannot finish */
    int64_t hold_ns;           /* limit for the answers of workers that can stay */
    int64_t kill_bound_ns;     /* limit for killed processes to end */
    int64_t clean_bound_ns;    /* limit for the clean-up */
    struct instant deadline;   /* end of DRAINING, SAVING, HOLDING, CULLING, STOPPING, KILLING, CLEANING;
                                  else never */
    struct instant kill_at;    /* SAVING: the workers that are sent SIGTERM at the deadline are killed then */
    bool listens;              /* set by the shell before each step: a live worker handles notices */
    bool keeps;                /* the same: a live worker can stay, and a restart is left */
    bool holds;                /* the same: there are live workers */
    bool drains;               /* an elastic job: others can go on without this node */
    bool ends_together; /* a static job on several nodes: a drain gives workers with notices their time too */
    bool planned;       /* SAVING, STOPPING, KILLING: for a change of nodes */
    bool renews; /* STOPPING, KILLING: the world is there, and all workers are started when they have ended */
    bool stop_asked; /* the server waits for REPORT_STOPPED */
    bool leaving;    /* exit_code is decided */
    int exit_code;
    int signal; /* the signal that TERMINATE sends */
};

/* Handles one event; *actions gets bit 1 << enum worker_group_action for each action. An event without
 * meaning in the state is -1 (MUSTER_E_STATE): nothing has changed. */
int worker_group_step(struct worker_group *group, const struct worker_group_event *event, struct instant now,
                      unsigned *actions, struct muster_error *err);
/* Whether the shell should check if any process is left. Processes of workers that stay do not count if it
 * is holding. */
bool worker_group_wants_empty(const struct worker_group *group);
bool worker_group_is_holding(const struct worker_group *group);

/* "?" for a number outside the list. */
const char *worker_group_state_name(enum worker_group_state state);
const char *worker_group_state_meaning(enum worker_group_state state);
const char *worker_group_event_name(enum worker_group_event_kind kind);
const char *worker_group_action_name(enum worker_group_action action);

/* --- the end of a worker: its own doing or the launcher's, by its wait status and the moment --- */

/* symbol, name, meaning */
#define END_KINDS(X)                                                                                         \
    X(END_DONE, "done", "it exited 0 while it should run")                                                   \
    X(END_OWN, "own", "a failure of its own")                                                                \
    X(END_AFTER_STOP, "after stop",                                                                          \
      "it was being stopped, and this is not the answer to that: a crash, or a SIGKILL that we "             \
      "did not send")                                                                                        \
    X(END_SUSPECT, "suspect",                                                                                \
      "it was being stopped and this may be its answer, or it was already failing: "                         \
      "its last output decides")                                                                             \
    X(END_STOPPED, "stopped", "terminated by the launcher")

#define END_ENUM(symbol, name, meaning) symbol,
enum end_kind { END_KINDS(END_ENUM) END_KIND_COUNT };
#undef END_ENUM

/* state: of the group when the end was seen. leaving: the agent ends in any case, or its nodes change: a
 * worker's end is then no failure (in SAVING too: the notice allowed it to end). status: the exit code
 * where exited is set, else the signal. */
enum end_kind end_kind_of(enum worker_group_state state, bool leaving, bool exited, int status);
const char *end_kind_name(enum end_kind kind);

#endif
