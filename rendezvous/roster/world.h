/* world.h - the types shared by everything about a world: its id, the message to one agent, the events
 * that an agent gets and the reports that it sends. */
#ifndef MUSTER_RENDEZVOUS_ROSTER_WORLD_H
#define MUSTER_RENDEZVOUS_ROSTER_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/clock.h"
#include "proto/include/muster_error.h"
#include "rendezvous/failure/failure.h"
#include "rendezvous/takeover/record.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { MEMBERSHIP_NAME_LIMIT = 256, MEMBERSHIP_PROGRAM_LIMIT = 64 };

/* World id: a random epoch (one for each server process) and the number of the round. 0,0 is no world. */
struct world_id {
    uint64_t epoch;
    uint32_t round;
};

static inline bool world_id_equal(struct world_id a, struct world_id b)
{
    return a.epoch == b.epoch && a.round == b.round;
}

/* One agent's part of a formed world: O(1), never the whole roster. */
struct membership_world {
    struct world_id id;
    int group_rank, group_world_size;
    int rank_base, world_size; /* global rank of local rank 0; workers of all nodes */
    int role_rank_base, role_world_size;
    int64_t restart_count;
    char master_addr[MEMBERSHIP_NAME_LIMIT];
    uint16_t master_port;
};

/* The agent that serves the job, for display. */
struct membership_serving {
    char server[MEMBERSHIP_NAME_LIMIT]; /* its agent's name; "": none, or unknown */
    char address[64];                   /* numeric; "": unknown */
    uint16_t port;
    char reason[64]; /* why the job has this server, or none; "": it had no other */
    int voter_count; /* agents that decide about the next one; 0: unknown */
    char voters[5][MEMBERSHIP_NAME_LIMIT];
};

enum membership_event_kind {
    MEMBERSHIP_EVENT_WORLD, /* start the workers of this world; after a failure `reason` is its first cause,
                               as it was known when all had stopped */
    MEMBERSHIP_EVENT_STOP,  /* stop all workers of world `stopped`, then report STOPPED; `reason` is the cause
                             */
    MEMBERSHIP_EVENT_VERDICT,  /* the job is over: stop all workers and exit with exit_code; `failure` is its
                                  first cause */
    MEMBERSHIP_EVENT_REFUSED,  /* the server refuses this agent; reason names the differing field */
    MEMBERSHIP_EVENT_EVICTION, /* the answer to membership_evict; `reason` describes it */
    MEMBERSHIP_EVENT_GO,       /* an operator asks this agent to leave, as SIGTERM would, for `reason` */
};

/* The purpose of a planned STOP. symbol, name, meaning */
#define MEMBERSHIP_CHANGES(X)                                                                                \
    X(MEMBERSHIP_CHANGE_NONE, "", "unknown")                                                                 \
    X(MEMBERSHIP_CHANGE_JOIN, "nodes-join", "new nodes join")                                                \
    X(MEMBERSHIP_CHANGE_LEAVE, "node-leaves", "a node leaves, the others continue")                          \
    X(MEMBERSHIP_CHANGE_END, "job-stops", "the job ends with it")

#define MEMBERSHIP_CHANGE_ENUM(symbol, name, meaning) symbol,
enum membership_change { MEMBERSHIP_CHANGES(MEMBERSHIP_CHANGE_ENUM) MEMBERSHIP_CHANGE_COUNT };
#undef MEMBERSHIP_CHANGE_ENUM

/* An operator's request that a node leaves, as far as it has come. symbol, name, meaning */
#define MEMBERSHIP_EVICTIONS(X)                                                                              \
    X(EVICTION_WAITS, "waits", "the job is between two rounds: nothing was decided yet")                     \
    X(EVICTION_LEAVES, "leaves", "the node was asked to leave, or the others do not run again yet")          \
    X(EVICTION_LEFT, "left", "it has left, and the others run")                                              \
    X(EVICTION_REFUSED, "refused", "nothing was changed")

#define MEMBERSHIP_EVICTION_ENUM(symbol, name, meaning) symbol,
enum membership_eviction { MEMBERSHIP_EVICTIONS(MEMBERSHIP_EVICTION_ENUM) EVICTION_COUNT };
#undef MEMBERSHIP_EVICTION_ENUM

/* "?" for a number outside the list. */
const char *membership_eviction_name(enum membership_eviction state);

struct membership_evict {
    uint64_t number;  /* the asker's own; the answer carries the same */
    const char *node; /* its number in the world, or its agent's name */
    bool without_spare;
    struct agent_incarnation agent; /* as an answer has named it; 0,0: not yet */
};

struct membership_event {
    enum membership_event_kind kind;
    struct membership_world world;
    struct world_id stopped;
    bool planned; /* STOP: members join or leave, no failure: any end of a worker from now on is not a failure
                   */
    int64_t grace_ns; /* STOP, planned: the workers' time to save and end; else 0, the agent's own grace */
    enum membership_change change; /* STOP, planned */
    int next_nodes;   /* STOP, planned: of the next world, if no more join or leave; 0: unknown, or none */
    int failed_class; /* WORLD: 1 + enum failure_class of the first cause if the round before it failed; 0 */
    int exit_code;
    bool doubled; /* VERDICT: this agent was in no world, and another agent of its name was: a second run */
    uint64_t number; /* EVICTION, as the following */
    enum membership_eviction eviction;
    struct agent_incarnation agent; /* the agent that is to leave; 0,0: none yet */
    bool own;                       /* it is this agent; set by membership_next */
    bool failed;                    /* VERDICT: there is a failure */
    int other_count;                /* entries of others */
    int other_total;                /* including those for which others has no room */
    char reason[MUSTER_ERROR_TEXT];
    /* Large, last, and only valid if failed. */
    struct worker_failure failure;                     /* the first cause */
    struct failure_brief others[FAILURE_OTHERS_LIMIT]; /* the other failures of the round, best first */
};

enum membership_report_kind {
    MEMBERSHIP_REPORT_RUNNING, /* all workers of the world were started */
    MEMBERSHIP_REPORT_FAILED,  /* a worker failed; failure is read */
    MEMBERSHIP_REPORT_DONE,    /* all local workers exited 0 */
    MEMBERSHIP_REPORT_STOPPED, /* all local workers of the world have ended, as requested by STOP */
};

/* Empties an event, and copies one, except the large parts that it does not have. */
void membership_event_clear(struct membership_event *event);
void membership_event_copy(struct membership_event *to, const struct membership_event *from);

#ifdef __cplusplus
}
#endif
#endif
