/* roster.h - who is in, out, alive and done in one job, and the state machine over them.
 *
 * Pure: events and the time go in, actions come out. No clock, thread, socket or allocation inside
 * roster_step (all memory is taken by roster_create and roster_actions_init), so it runs in process, behind a
 * ZeroMQ server and in a simulator, and cannot fail half-way.
 *
 *   JOIN    FORMING --(enough are here)--> STARTING --(all RUNNING)--> RUNNING --(all DONE)--> FINISHING
 *              ^                              |                          |                        |
 *              |                              +--(a failure, a node lost, a change of members)    +-->
 * FINISHED |                                                         v                        +--> FAILED
 *              +---(all stopped, budget left)--------------------- STOPPING --(none left)---------^
 *                                                                      +--(the server leaves)--> DEPARTED
 *
 * Static world: every node rank 0..N-1 must be there, and a rank is its slot. Elastic world: it forms with
 * max_nodes at once, with min_nodes or more when the last call is over; who is left over is a spare and waits
 * for room. A newcomer who finds room stops the world for a larger one, an agent that drains for a smaller
 * one; both are gathered and rate-limited and cost no restart. After any stop the world forms again at once
 * if min_nodes are there. Group rank 0 is the hosting agent; otherwise a wanted node rank is honoured where
 * it is free, ranks stay with their agents from round to round, and the rest is by name (node2 before
 * node10).
 *
 * A *slot* is a place for one agent; in a static world there is one for each node rank; a *session* is one
 * route to an agent, numbered by the carrier and never reused; the agent behind it is known by its
 * incarnation. A message on a session that holds no slot is answered AGAIN ("register again"). JOIN is
 * idempotent for an incarnation: it moves the slot to the new session and sends again whatever the agent may
 * have missed.
 *
 * Jobs that were given no id (--rdzv-id, "none") and meet at one port look alike. What tells them apart is
 * the command that their workers execute: an agent under a name that is in already, for another command, is
 * of another job and refused, as it is when the job of that name is over. Agents under other names are taken,
 * since nodes of one job may differ; the hosting agent's carrier warns of them.
 *
 * No two worlds work at the same time. In a static world a rank has one incarnation, so a second world cannot
 * be complete. In an elastic one the agents hold leases: when the server was not heard for so long they stop
 * their workers. A world is followed by another only when one of its working members has stopped (the others
 * get nowhere without it) or the leases of all who were lost are over. A server that has just been started,
 * and may not be the job's first, is kept by its last call, which is longer than a lease (for a last call of
 * 5 s or more); it forms earlier only with max_nodes agents none of whom has seen another server of the job,
 * which leaves no member for another world unless there are more agents than that.
 *
 * The state is soft: a server that is started again knows nothing, and the agents register with it what they
 * hold. As a rule its own workers were lost with it: it stops that round and forms the next one, at the cost
 * of a restart. Round and restart count go on from the largest that was reported. Where the server had done
 * its part nothing was lost: if all others still run that round, or are done with it, the new server takes it
 * over as it is. It waits for all of them: in an elastic world no longer than for the end of their leases. In
 * an elastic world an agent that serves and is asked to end (SIGTERM) takes nothing with it: all stop as for
 * any other that drains, the server stays until they have, and then says FAREWELL. Whoever heard that keeps
 * its place, looks for the server and tells the next one, for which the stop has cost no restart.
 *
 * A beat costs O(1); forming, stopping and the verdict cost O(1) a member; a tick looks at all members, and
 * is due about once in lost_after. */
#ifndef MUSTER_RENDEZVOUS_ROSTER_ROSTER_H
#define MUSTER_RENDEZVOUS_ROSTER_ROSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/base/clock.h"
#include "proto/include/muster_error.h"
#include "rendezvous/roster/world.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bumped with every change that an older peer would misread; part of the fingerprint. */
enum { ROSTER_PROTOCOL_VERSION = 3 };
/* Above about 10,000 connections one ROUTER is no longer enough; the tests stand for this many. */
enum { ROSTER_MEMBER_LIMIT = 4096 };
/* Of former lives of a job; more are not believed. */
enum { ROSTER_RESTARTS_LIMIT = 1000000000 };
enum { ROSTER_ROLE_LIMIT = 64, ROSTER_LOCAL_WORLD_LIMIT = 65536 };

/* symbol, name, meaning */
#define ROSTER_JOB_STATES(X)                                                                                 \
    X(JOB_FORMING, "FORMING", "waiting for enough nodes to join")                                            \
    X(JOB_STARTING, "STARTING", "the world is out; not every agent has started its workers")                 \
    X(JOB_RUNNING, "RUNNING", "every agent's workers run or are done")                                       \
    X(JOB_STOPPING, "STOPPING", "every agent of the world stops its workers")                                \
    X(JOB_DEPARTED, "DEPARTED", "the server leaves; the others look for the next one")                       \
    X(JOB_FINISHING, "FINISHING", "the verdict is out; agents leave, the serving one last")                  \
    X(JOB_FINISHED, "FINISHED", "everybody left; the job succeeded")                                         \
    X(JOB_FAILED, "FAILED", "everybody left; the job failed")

#define ROSTER_MEMBER_STATES(X)                                                                              \
    X(MEMBER_EMPTY, "EMPTY", "nobody sits here")                                                             \
    X(MEMBER_JOINED, "JOINED", "in, without a world")                                                        \
    X(MEMBER_ASSIGNED, "ASSIGNED", "was sent the world")                                                     \
    X(MEMBER_RUNNING, "RUNNING", "started its workers")                                                      \
    X(MEMBER_DONE, "DONE", "all its workers exited 0")                                                       \
    X(MEMBER_DONE_GONE, "DONE_GONE", "was done when it left or was lost")                                    \
    X(MEMBER_KEEPS, "KEEPS", "has workers of a former server's world, which may go on")                      \
    X(MEMBER_STOPPING, "STOPPING", "was told to stop its workers")                                           \
    X(MEMBER_STOPPED, "STOPPED", "none of its workers is left")                                              \
    X(MEMBER_STRAY, "STRAY", "came back with workers of a world that is over; was told to stop them")        \
    X(MEMBER_LEAVING, "LEAVING", "has or is due the verdict, or has drained and goes")

#define ROSTER_EVENTS(X)                                                                                     \
    X(ROSTER_JOIN, "JOIN", "an agent registers, or registers again")                                         \
    X(ROSTER_LEAVE, "LEAVE", "an agent goes, with a word")                                                   \
    X(ROSTER_DRAIN, "DRAIN", "an agent is to go, and asks that all may save first")                          \
    X(ROSTER_REPORT, "REPORT", "what became of an agent's workers")                                          \
    X(ROSTER_BEAT, "BEAT", "an agent's loop is alive")                                                       \
    X(ROSTER_DISCONNECT, "DISCONNECT", "the carrier lost the session")                                       \
    X(ROSTER_TICK, "TICK", "time has passed (roster_deadline)")

#define ROSTER_ACTIONS(X)                                                                                    \
    X(ROSTER_ACCEPT, "ACCEPT", "the session holds slot `member`")                                            \
    X(ROSTER_SEND_WORLD, "WORLD", "start the workers of this world")                                         \
    X(ROSTER_SEND_STOP, "STOP", "stop the workers, report STOPPED")                                          \
    X(ROSTER_SEND_VERDICT, "VERDICT", "the job is over")                                                     \
    X(ROSTER_REFUSE, "REFUSE", "the session is not wanted, and why; the carrier forgets it")                 \
    X(ROSTER_AGAIN, "AGAIN", "the session is unknown: register again")                                       \
    X(ROSTER_FAREWELL, "FAREWELL", "the server leaves, and nothing is lost: wait for the next one")

#define ROSTER_ENUM(symbol, name, meaning) symbol,
enum roster_job_state { ROSTER_JOB_STATES(ROSTER_ENUM) JOB_STATE_COUNT };
enum roster_member_state { ROSTER_MEMBER_STATES(ROSTER_ENUM) MEMBER_STATE_COUNT };
enum roster_event_kind { ROSTER_EVENTS(ROSTER_ENUM) ROSTER_EVENT_COUNT };
enum roster_action_kind { ROSTER_ACTIONS(ROSTER_ENUM) ROSTER_ACTION_COUNT };
#undef ROSTER_ENUM

/* Printable names; "?" for a number outside the list. */
const char *roster_job_state_name(enum roster_job_state state);
const char *roster_member_state_name(enum roster_member_state state);
const char *roster_event_name(enum roster_event_kind kind);
const char *roster_action_name(enum roster_action_kind kind);
const char *roster_report_name(enum membership_report_kind kind);

struct roster_incarnation {
    uint64_t high, low; /* 128 random bits, fresh for every start of an agent; 0,0 is none */
};

struct roster_options {
    const char *job_id;
    int min_nodes, max_nodes; /* equal in a static world */
    bool elastic;
    int64_t max_restarts;    /* of the whole job; < 0: none */
    uint64_t epoch;          /* random, not 0: one for each life of a server */
    int64_t join_timeout_ns; /* from creation, and again from each re-forming */
    int64_t last_call_ns;    /* elastic: the wait for more than min_nodes; 0: 30 s */
    int64_t regroup_ns;      /* elastic: the least time between two worlds that newcomers change; 0: 10 s. It
                                doubles while worlds live short, up to 32 times */
    int64_t notice_ns;       /* elastic: what workers get to save before a newcomer's world; 0: 30 s */
    int64_t restart_count;   /* used up by former lives of the job */
    int64_t backoff_ns, backoff_cap_ns; /* wait before a restart (backoff.h); a round that lasted longer than
                                           the cap begins a new streak */
    uint64_t jitter;                    /* random */
    int64_t lost_after_ns;              /* silence after which a node is lost; 0: 2.5 s */
    int64_t stop_timeout_ns;            /* bound on STOP -> STOPPED; more than the agents' grace; 0: 60 s */
    int64_t exit_barrier_ns;            /* bound on the wait for others to leave; 0: 300 s */
};

/* What an agent says of itself in JOIN. Texts are read during the call only. */
struct roster_join {
    int protocol_version;
    const char *job_id;
    int min_nodes, max_nodes;
    bool elastic; /* the mode */
    const char *agent_name;
    int node_rank; /* -1: the lowest free one; a preference in an elastic world */
    struct roster_incarnation incarnation;
    int local_world_size;
    const char *role;
    uint64_t command;    /* a hash of what its workers execute; 0: not said */
    const char *program; /* its name, for people; NULL: "" */
    const char *store_addr;
    uint16_t store_port;
    bool local;           /* set by the carrier, never read from the wire: the agent that hosts this roster */
    struct world_id held; /* the world whose workers it still has; 0,0: none */
    bool held_done;       /* they have all exited 0 */
    struct world_id last; /* the last world it had, and how many nodes that has; 0,0: none */
    int last_nodes;
    int last_rank;         /* its group rank there */
    bool server_done;      /* its server said that its own workers of that world have all exited 0 */
    bool server_left;      /* elastic: its server has said FAREWELL, when all had stopped */
    int64_t restart_count; /* of that world, or what FAREWELL said */
    uint64_t epoch;        /* of the server that accepted it last; 0: none has */
};

struct roster_event {
    enum roster_event_kind kind;
    uint64_t session;               /* all but TICK; not 0 */
    int member;                     /* the slot that ACCEPT gave to the session; all but JOIN and TICK */
    const struct roster_join *join; /* JOIN */
    struct {                        /* REPORT */
        struct world_id id;
        enum membership_report_kind kind;
        uint64_t sequence; /* counts an incarnation's reports from 1; one that was seen is dropped */
        const struct worker_failure *failure; /* FAILED */
    } report;
    int exit_code;    /* LEAVE, DRAIN: what the agent will exit with */
    int64_t grace_ns; /* DRAIN: what the agent can wait for its workers; >= 0 */
};

struct roster_action {
    enum roster_action_kind kind;
    uint64_t session;
    int member;         /* -1 where the session holds no slot; of a superseded agent the slot that it lost */
    const char *reason; /* REFUSE; valid until the next roster_step */
};

/* What one step asks for, in order. */
struct roster_actions {
    struct roster_action *items;
    size_t count, capacity;
};

struct roster;

struct roster *roster_create(const struct roster_options *options, struct instant now,
                             struct muster_error *err);
void roster_destroy(struct roster *roster);

/* The number of slots: max_nodes, and in an elastic world as many spares and a few more. */
int roster_slot_count(const struct roster *roster);

/* Room for the actions of any one step of a roster of so many slots. */
int roster_actions_init(struct roster_actions *actions, int slots, struct muster_error *err);
void roster_actions_free(struct roster_actions *actions);

/* Handles one event. out is emptied first. A peer that breaks the protocol, or a pair (state, event) that the
 * tables do not know, is -1 (MUSTER_E_STATE or MUSTER_E_INVALID): nothing has changed, and the caller logs it
 * and goes on. */
int roster_step(struct roster *roster, const struct roster_event *event, struct instant now,
                struct roster_actions *out, struct muster_error *err);

/* When a TICK is due; INSTANT_NEVER where nothing is waited for. */
struct instant roster_deadline(const struct roster *roster);

/* Fills the event that a WORLD, STOP, VERDICT or REFUSE action stands for (before the next step). */
void roster_fill_event(const struct roster *roster, const struct roster_action *action,
                       struct membership_event *event);

/* The hosting agent's store is at this port now. Right after the step that formed a world, before its actions
 * are carried out: it is that world's. */
void roster_move_store(struct roster *roster, uint16_t port);

/* Of a member that runs another command than the hosting agent, in a job without an id of its own: what to
 * say of it. Whether there is anything. */
bool roster_describe_stranger(const struct roster *roster, int member, char *out, size_t size);

/* Of a join that the last step refused (REFUSE of member -1): the agent and why. */
void roster_describe_refused(const struct roster *roster, char *out, size_t size);

/* For status, carriers and tests. */
enum roster_job_state roster_state(const struct roster *roster);
enum roster_member_state roster_member_state(const struct roster *roster, int member);
struct world_id roster_world_id(const struct roster *roster);
int64_t roster_restart_count(const struct roster *roster);
uint64_t roster_epoch(const struct roster *roster);
/* How long an agent's workers may run after a beat of its that was answered; 0: without end (static). */
int64_t roster_lease_ns(const struct roster *roster);
/* The last report of the slot's incarnation that was seen. */
uint64_t roster_report_sequence(const struct roster *roster, int member);
/* While the world forms, who is waited for ("37 of 64 nodes, missing ranks 4, 9-11"); while there is one,
 * what newcomers and spares wait for; "" otherwise. */
void roster_describe_progress(const struct roster *roster, char *out, size_t size);
/* The world that is out, if the hosting agent's part of it is done; else 0,0. Agents remember it: they can do
 * without a server that is lost then. Never said in an elastic world whose last call is too short (below 4.5
 * s) to keep a new server from forming another one meanwhile. */
struct world_id roster_server_done(const struct roster *roster);
/* The caller stood still for so long that the others' silence means nothing: they get the full time again. */
void roster_wake(struct roster *roster, struct instant now);
/* Whether the server must outlive its agent, which has left: the others are still stopping. It ends in time.
 */
bool roster_holds_server(const struct roster *roster);
/* How many but the hosting agent still hold a seat. */
int roster_remote_count(const struct roster *roster);
static inline bool roster_has_remote(const struct roster *roster)
{
    return roster_remote_count(roster) > 0;
}
/* One line: "RUNNING round 1 restarts 1/3: 0=RUNNING 1=DONE". */
int roster_format(const struct roster *roster, struct buffer *out);

#ifdef __cplusplus
}
#endif
#endif
