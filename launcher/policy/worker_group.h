/* worker_group.h - pure: what happens to the workers of this node, as a table of states and events.
 *
 *   WAITING --WORLD--> RUNNING --all exited 0--> DONE
 *                         |  a failure, STOP, VERDICT, a signal to the agent, the seat lost
 *                         v                     (an elastic job, or a static one where
 *                         |                      workers listen: the signal leads to DRAINING, and the STOP
 *                         |                      that it asks for, or a second, to STOPPING)
 *                         |                     (a planned STOP, a signal: where workers listen (notice.md),
 *                         |                      SAVING comes before STOPPING)
 *                      STOPPING (TERM sent) --grace--> KILLING (KILL sent) --bound--> OVER, unkillable: 138
 *                         |                               |
 *                         +----------- EMPTY -------------+--> CLEANING (stopped for a new round) -->
 * WAITING, HALTED (the server's word is awaited) or OVER
 *
 * The shell (agent.c) turns what it sees into events and executes actions in the order of their numbers. */
#ifndef MUSTER_LAUNCHER_POLICY_WORKER_GROUP_H
#define MUSTER_LAUNCHER_POLICY_WORKER_GROUP_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/clock.h"
#include "proto/include/muster_error.h"

/* symbol, name, meaning */
#define GROUP_STATES(X)                                                                                      \
    X(GROUP_WAITING, "WAITING", "no workers; a world is awaited")                                            \
    X(GROUP_RUNNING, "RUNNING", "workers run; some may have exited 0")                                       \
    X(GROUP_DRAINING, "DRAINING", "the agent is to go and has asked that all may save; the stop is awaited") \
    X(GROUP_SAVING, "SAVING", "told of what comes; those that listen save and end by themselves")            \
    X(GROUP_STOPPING, "STOPPING", "told to end; the grace period runs")                                      \
    X(GROUP_KILLING, "KILLING", "killed; the kernel is awaited")                                             \
    X(GROUP_CLEANING, "CLEANING", "stopped for a new round; what the dead left behind is removed")           \
    X(GROUP_HALTED, "HALTED", "none is left after a failure; the server's word is awaited")                  \
    X(GROUP_DONE, "DONE", "all exited 0; the verdict is awaited")                                            \
    X(GROUP_OVER, "OVER", "the agent leaves")

#define GROUP_EVENTS(X)                                                                                      \
    X(GROUP_WORLD, "WORLD", "a world was formed")                                                            \
    X(GROUP_FAILURE, "FAILURE", "a worker failed by itself, or could not be started")                        \
    X(GROUP_SUCCESS, "SUCCESS", "the last worker exited 0; SAVING: it ended, in whatever way")               \
    X(GROUP_EMPTY, "EMPTY", "no process of this agent is left")                                              \
    X(GROUP_STOP, "STOP", "the server stops the round")                                                      \
    X(GROUP_VERDICT, "VERDICT", "the job is over")                                                           \
    X(GROUP_SIGNAL, "SIGNAL", "the agent was asked to end by a signal")                                      \
    X(GROUP_LOST, "LOST", "the seat in the world is gone")                                                   \
    X(GROUP_DEADLINE, "DEADLINE", "group->deadline is reached")                                              \
    X(GROUP_CLEANED, "CLEANED", "what the dead left behind is removed")

/* In the order in which they are executed. */
#define GROUP_ACTIONS(X)                                                                                     \
    X(GROUP_REPORT_FAILED, "REPORT_FAILED")                                                                  \
    X(GROUP_REPORT_DONE, "REPORT_DONE")                                                                      \
    X(GROUP_DRAIN, "DRAIN")         /* ask the server for a planned stop of all */                           \
    X(GROUP_LEAVE, "LEAVE")         /* tell the server that this agent goes with exit_code */                \
    X(GROUP_ANNOUNCE, "ANNOUNCE")   /* tell those that listen until when; `signal` and CONT to the others */ \
    X(GROUP_TERMINATE, "TERMINATE") /* send `signal` and CONT to all */                                      \
    X(GROUP_KILL, "KILL")           /* send KILL to all, until none is left */                               \
    X(GROUP_NAME_STUCK, "NAME_STUCK") /* say which processes cannot be killed */                             \
    X(GROUP_CLEAN, "CLEAN")           /* remove what the dead left behind, then CLEANED */                   \
    X(GROUP_REPORT_STOPPED, "REPORT_STOPPED")                                                                \
    X(GROUP_START, "START")   /* start the workers, then report RUNNING or FAILURE */                        \
    X(GROUP_REMIND, "REMIND") /* say that the agent is ending already */                                     \
    X(GROUP_EXIT, "EXIT")     /* leave with exit_code */

#define GROUP_ENUM(symbol, ...) symbol,
enum worker_group_state { GROUP_STATES(GROUP_ENUM) GROUP_STATE_COUNT };
enum worker_group_event_kind { GROUP_EVENTS(GROUP_ENUM) GROUP_EVENT_COUNT };
enum worker_group_action { GROUP_ACTIONS(GROUP_ENUM) GROUP_ACTION_COUNT };
#undef GROUP_ENUM

struct worker_group_event {
    enum worker_group_event_kind kind;
    int exit_code;    /* VERDICT, LOST: what to leave with */
    int signal;       /* SIGNAL */
    int64_t grace_ns; /* STOP: what workers get, all in all; 0: restart_grace_ns */
    bool planned;     /* STOP: nodes come or go, nothing failed */
};

struct worker_group {
    enum worker_group_state state;
    int64_t shutdown_grace_ns; /* after a signal to the agent */
    int64_t restart_grace_ns;  /* after anything else: the others cannot finish */
    int64_t kill_bound_ns;     /* how long the killed may take */
    int64_t clean_bound_ns;    /* how long cleaning may take */
    struct instant deadline;   /* of DRAINING, SAVING, STOPPING, KILLING, CLEANING; else never */
    struct instant kill_at;    /* SAVING: what is told to end at the deadline is killed then */
    bool listens;              /* set by the shell before each step: a live worker listens for notices */
    bool drains;               /* an elastic job: others can go on without this node */
    bool ends_together;        /* a static job on several nodes: who listens here gets time by a drain too */
    bool planned;              /* SAVING, STOPPING, KILLING: for a change of nodes */
    bool stop_asked;           /* the server waits for REPORT_STOPPED */
    bool leaving;              /* exit_code is decided */
    int exit_code;
    int signal; /* what TERMINATE sends */
};

/* Handles one event; *actions gets bit 1 << enum worker_group_action for each thing to do. An event that the
 * state does not know is -1 (MUSTER_E_STATE): nothing has changed. */
int worker_group_step(struct worker_group *group, const struct worker_group_event *event, struct instant now,
                      unsigned *actions, struct muster_error *err);
/* Whether the shell should look if any process is left. */
bool worker_group_wants_empty(const struct worker_group *group);

/* "?" for a number outside the list. */
const char *worker_group_state_name(enum worker_group_state state);
const char *worker_group_state_meaning(enum worker_group_state state);
const char *worker_group_event_name(enum worker_group_event_kind kind);
const char *worker_group_action_name(enum worker_group_action action);

#endif
