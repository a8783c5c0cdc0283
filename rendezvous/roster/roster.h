/* roster.h - the members of one job, their states, and the state machine over them.
 *
 * Pure: events and the time go in, actions come out. No clock, thread, socket or allocation inside
 * roster_step (all memory is taken by roster_create and roster_actions_init), so it runs in process, in a
 * ZeroMQ server and in a simulator, and cannot fail half-way.
 *
 *   FORMING --(enough joined)--> STARTING --(all RUNNING)--> RUNNING --(all DONE)--> FINISHING --> FINISHED
 *      ^                            |                           |                     ^
 *      |                            +-------------+-------------+                     |
 *      |                     (a failure, a node lost, a change of members)            |
 *      |                                          v                                   |
 *      +----(all stopped, restarts left)------ STOPPING ----(no restarts left)--------+
 *                                                 +--(elastic: the server leaves)--> DEPARTED
 *
 * FORMING also leads to FINISHING (too few joined in time), RUNNING (a restarted server adopts the world),
 * and DEPARTED. A verdict for another reason (a node that left, did not stop) leads from any state to
 * FINISHING.
 *
 * Static world: every node rank 0..N-1 must be there, and a rank is its slot. Elastic world: it forms with
 * max_nodes at once, with min_nodes or more when the last call is over; agents beyond that are spares and
 * wait for room. A new agent for which there is room stops the world for a larger one, an agent that
 * drains for a smaller one; both are gathered and rate-limited and cost no restart. After any stop the
 * world forms again at once if min_nodes are there. Group rank 0 is the hosting agent, except where an agent
 * was elected and keeps its rank in a world of the same size; otherwise a requested node rank is used if it
 * is free, ranks stay with their agents from round to round, also with the next server, and the rest are
 * ordered by name (node2 before node10).
 *
 * A *slot* is a place for one agent; in a static world there is one for each node rank; a *session* is one
 * route to an agent, numbered by the transport and never reused; the agent is known by its incarnation. A
 * message on a session that holds no slot is answered AGAIN ("register again"). JOIN is
 * idempotent for an incarnation: it moves the slot to the new session and repeats all that the agent may
 * have missed. A refused agent ends when it learns of it: a later JOIN of its incarnation is refused as well.
 *
 * The LEAVE of a member of a static world ends the job. An agent that only waits for the next world, or that
 * was given up and came back, leaves its slot free for another.
 *
 * Jobs that were given no id (--rdzv-id, "none") and meet at one port look alike. They are distinguished
 * by the command of their workers: an agent under a name that is in already, for another command, is of
 * another job and refused, as it is when the job of that name is over. Agents under other names are
 * admitted, since nodes of one job may differ; the hosting agent's transport logs a warning.
 *
 * No two worlds run at the same time. In a static world a rank has one incarnation, so a second world
 * cannot be complete. In an elastic one the agents hold leases: when they receive nothing from the server
 * for so long they stop their workers. The next world forms only when a running member has stopped (the
 * others cannot progress without it) or the leases of all lost members have expired. A server
 * that has just started, and may not be the job's first, waits for its last call, which is longer than a
 * lease (for a last call of 5 s or more); it forms earlier only with max_nodes agents of which none has
 * seen another server of the job, which leaves no member for another world unless there are more agents
 * than that.
 *
 * No world forms with a member whose connection is known to be down: it is back in a moment, or lost, which
 * costs nothing before a world. (At the end of the join timeout it does.)
 *
 * If the job votes about its worlds (options.votes), a world that is ready is proposed: its members and ranks
 * are fixed, and the roster stays FORMING until CHOSEN. If a member has gone by then, the round has no world,
 * and the next round is proposed. A proposal cannot be withdrawn: the voters may choose it at any time.
 *
 * A restart needs no time for the failed round to settle, so the first failure in a row is restarted at once
 * (roster_backoff_ns) in worlds of one node and of several. The next world forms when every member has
 * reported STOPPED, has left, or is lost: until then the round is STOPPING, however long that takes.
 *   - Causes: an agent reports STOPPED after all failures that it saw, on one ordered connection, and not
 *     before its post-mortem is over. All failures are in when the first cause is named.
 *   - Processes: STOPPED is reported when every process of the node's round has ended and is reaped: the
 *     kernel has taken back its memory, on GPUs too, and its ports. Its files in /dev/shm are removed before.
 *   - A node that dies with a worker cannot report STOPPED: the round waits for it until it is lost, and its
 *     loss is a cause of the same failure and costs no restart of its own.
 *   - A node that dies later, between STOPPED and the next world, or right after that, is a failure of the
 *     next round. No wait below lost_after_ns and the time to reconnect, 0.5 to 1 s, would notice it before;
 * and the restart after that failure, which is the second in a row, is held back.
 *
 * The state is soft: a restarted server has none, and the agents register theirs with it. As a rule its
 * own workers were lost with it: it stops that round and forms the next one, at the cost of a restart.
 * Round and restart count go on from the largest that was reported. If the server's own part was done
 * nothing was lost: if all others still run that round, or are done with it, the new server takes it over
 * as it is. Nodes that were done may have gone: their ranks were in the heartbeats of the former server. The
 * new server waits for all others, in an elastic world no longer than for the end of their leases. In an
 * elastic world a serving agent that gets SIGTERM costs nothing: all stop as for any other draining
 * agent, the server stays until they have, and then sends HANDOVER. Agents that received it keep their
 * slot, look for the server and report it to the next one, for which the stop has cost no restart.
 *
 * EVICT moves a node's ranks to a spare, on purpose: the node is sent GO, and drains. It is refused where
 * no spare waits, unless the asker wants a smaller world, and wherever the others could not go on. The asker
 * repeats it, with the agent's incarnation, until that agent has left and the next world runs.
 *
 * A heartbeat costs O(1); forming, stopping and the verdict cost O(1) a member; a tick examines all
 * members, and is due about once in lost_after. */
#ifndef MUSTER_RENDEZVOUS_ROSTER_ROSTER_H
#define MUSTER_RENDEZVOUS_ROSTER_ROSTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/base/clock.h"
#include "proto/include/muster_error.h"
#include "rendezvous/roster/rank_ranges.h"
#include "rendezvous/roster/world.h"
#include "rendezvous/takeover/record.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bumped with every change that an older peer would misread; part of the fingerprint. */
enum { ROSTER_PROTOCOL_VERSION = 6 };
/* Nodes of a world; an elastic job may have as many spares, and some more (roster_slot_count). One ROUTER
 * forms a world of that many at the same cost for each as one of 1,000. */
enum { ROSTER_MEMBER_LIMIT = 16384 };
/* Most restarts by earlier servers of a job; a greater number is implausible. */
enum { ROSTER_RESTARTS_LIMIT = 1000000000 };
enum { ROSTER_ROLE_LIMIT = 64, ROSTER_LOCAL_WORLD_LIMIT = 65536 };

/* symbol, name, meaning */
#define ROSTER_JOB_STATES(X)                                                                                 \
    X(JOB_FORMING, "FORMING", "waiting for enough nodes to join")                                            \
    X(JOB_STARTING, "STARTING", "the world is out; not every agent has started its workers")                 \
    X(JOB_RUNNING, "RUNNING", "every agent's workers run or are done")                                       \
    X(JOB_STOPPING, "STOPPING", "all agents of the world are stopping their workers")                        \
    X(JOB_DEPARTED, "DEPARTED", "the server leaves; the others look for the next one")                       \
    X(JOB_FINISHING, "FINISHING", "the verdict is out; agents leave, the serving one last")                  \
    X(JOB_FINISHED, "FINISHED", "all agents have left")

/* KEEPS and ORPHANED: after a change of the server, elected or started again. The record of a world has its
 * voters and its server, not what each member did since: that is in the members' JOINs. KEEPS is needed where
 * the server was done, so that nothing was lost with it. ORPHANED also in one server's life: a node that was
 * lost and came back.
 *
 * A job of one voter (one or two nodes, without a spare) is not voted about. A majority of one is that voter
 * itself, and a new start of it has forgotten its votes. The other node cannot distinguish its end from a
 * cut. So only the agent at the endpoint may serve next. It knows no record: roster_return.c learns round,
 * restarts and members from the JOINs, and a client of such a job keeps a lease and gives up
 * (client_lease.c). */
#define ROSTER_MEMBER_STATES(X)                                                                              \
    X(MEMBER_EMPTY, "EMPTY", "a free slot")                                                                  \
    X(MEMBER_JOINED, "JOINED", "joined, without a world")                                                    \
    X(MEMBER_ASSIGNED, "ASSIGNED", "was sent the world")                                                     \
    X(MEMBER_RUNNING, "RUNNING", "started its workers")                                                      \
    X(MEMBER_DONE, "DONE", "all its workers exited 0")                                                       \
    X(MEMBER_DONE_GONE, "DONE_GONE", "was done when it left or was lost")                                    \
    X(MEMBER_KEEPS, "KEEPS", "has workers of an earlier server's world, which may continue")                 \
    X(MEMBER_STOPPING, "STOPPING", "was sent a STOP")                                                        \
    X(MEMBER_STOPPED, "STOPPED", "none of its workers is left")                                              \
    X(MEMBER_ORPHANED, "ORPHANED", "came back with workers of an earlier world; was sent a STOP for them")   \
    X(MEMBER_LEAVING, "LEAVING", "has or is due the verdict, or has drained and leaves")

#define ROSTER_EVENTS(X)                                                                                     \
    X(ROSTER_JOIN, "JOIN", "an agent registers, or registers again")                                         \
    X(ROSTER_LEAVE, "LEAVE", "an agent leaves, with a LEAVE message")                                        \
    X(ROSTER_DRAIN, "DRAIN", "an agent has to leave, and requests that all may save first")                  \
    X(ROSTER_REPORT, "REPORT", "an agent's workers started, failed, finished or stopped")                    \
    X(ROSTER_BEAT, "BEAT", "an agent's loop is alive")                                                       \
    X(ROSTER_DISCONNECT, "DISCONNECT", "the transport lost the session")                                     \
    X(ROSTER_TICK, "TICK", "time has passed (roster_deadline)")                                              \
    X(ROSTER_CHOSEN, "CHOSEN", "the voters have chosen the record of the proposed world")                    \
    X(ROSTER_EVICT, "EVICT", "an operator asks at this agent that a node leaves")

#define ROSTER_ACTIONS(X)                                                                                    \
    X(ROSTER_ACCEPT, "ACCEPT", "the session holds slot `member`")                                            \
    X(ROSTER_SEND_WORLD, "WORLD", "start the workers of this world")                                         \
    X(ROSTER_SEND_STOP, "STOP", "stop the workers, report STOPPED")                                          \
    X(ROSTER_SEND_VERDICT, "VERDICT", "the job is over")                                                     \
    X(ROSTER_REFUSE, "REFUSE", "the session is refused, with the reason; the transport forgets it")          \
    X(ROSTER_AGAIN, "AGAIN", "register again: the session is unknown, or has to prove that it lives")        \
    X(ROSTER_HANDOVER, "HANDOVER", "the server leaves without a loss: wait for the next one")                \
    X(ROSTER_PROPOSE, "PROPOSE", "to the hosting agent: ask the voters for this world (roster_fill_record)") \
    X(ROSTER_SEND_EVICTION, "EVICTION", "the answer to EVICT")                                               \
    X(ROSTER_SEND_GO, "GO", "leave, as after SIGTERM")

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

struct roster_options {
    const char *job_id;
    int min_nodes, max_nodes; /* equal in a static world */
    bool elastic;
    int64_t max_restarts;    /* for the whole job; < 0: none */
    uint64_t epoch;          /* random, not 0: one for each server process */
    int64_t join_timeout_ns; /* from creation, and again from each re-forming */
    int64_t last_call_ns;    /* elastic: the wait for more than min_nodes; 0: 30 s */
    int64_t regroup_ns;    /* elastic: least time between two worlds changed by new nodes; 0: 10 s. It doubles
                              while worlds are short-lived, up to 32 times */
    int64_t notice_ns;     /* elastic: the workers' time to save before a world with new nodes; 0: 30 s */
    int64_t restart_count; /* used by earlier servers of the job */
    int64_t backoff_ns, backoff_cap_ns; /* from a failure to the restart (roster_backoff_ns); a failure of a
                                           round that had lasted longer than the cap is the first in a row */
    uint64_t jitter;                    /* random */
    int64_t lost_after_ns;              /* silence after which a node is lost; 0: 2.5 s, or more (pace.h) */
    int64_t stop_timeout_ns;            /* bound on STOP -> STOPPED; more than the agents' grace; 0: 60 s */
    bool votes;                         /* a world is proposed first, and sent out when it is chosen */
    bool continues; /* votes: the job had another server. Its members that are left are gathered for a moment,
                       and its loss has cost a restart */
    const struct voter *before; /* continues: that server; else a voter that was lost with most others, and
                                   without which the serving agent begins again; NULL: none. Copied */
    uint32_t round;             /* the least number of the next round */
    int64_t exit_barrier_ns;    /* bound on the wait for others to leave; 0: 300 s */
};

/* An agent's description of itself in JOIN. Texts are read during the call only. */
struct roster_join {
    int protocol_version;
    const char *job_id;
    int min_nodes, max_nodes;
    bool elastic; /* the mode */
    const char *agent_name;
    int node_rank; /* -1: the lowest free one; a preference in an elastic world */
    struct agent_incarnation incarnation;
    int local_world_size;
    const char *role;
    uint64_t command;    /* a hash of its workers' command; 0: not given */
    const char *program; /* its name, for display; NULL: "" */
    uint64_t contents;   /* a hash of the program's file; 0: not given */
    uint64_t endpoints;  /* a hash of its list of endpoints; 0: it has none */
    const char *store_addr;
    uint16_t store_port;
    const char *vote_addr; /* where it takes part in votes, numeric; NULL: unknown */
    uint16_t vote_port;
    bool local; /* set by the transport, never read from the wire: the agent that hosts this roster */
    struct world_id held; /* the world of its present workers; 0,0: none */
    bool held_done;       /* they have all exited 0 */
    struct world_id last; /* the last world it had, and its number of nodes; 0,0: none */
    int last_nodes;
    int last_rank;           /* its group rank there */
    bool server_done;        /* its server reported that its own workers of that world have all exited 0 */
    struct rank_ranges done; /* server_done: the server's roster_done_ranks; empty: unknown */
    bool server_left;        /* elastic: its server has sent HANDOVER, when all had stopped */
    bool lapsed;             /* elastic: the lease of that world has ended: the others may have another one */
    int64_t restart_count;   /* from that world, or from HANDOVER */
    uint64_t epoch;          /* epoch of the server that accepted it last; 0: none has */
    uint64_t proof;          /* from the last AGAIN; 0: none */
};

struct roster_event {
    enum roster_event_kind kind;
    uint64_t session;               /* all but TICK and CHOSEN; not 0 */
    int member;                     /* the slot that ACCEPT gave to the session; all but JOIN, TICK, CHOSEN */
    const struct roster_join *join; /* JOIN */
    uint64_t number; /* JOIN: grows with each of an incarnation's; an older one than the newest, of a
                        connection that was closed, is dropped. 0: unknown */
    struct {         /* REPORT */
        struct world_id id;
        enum membership_report_kind kind;
        uint64_t sequence; /* counts an incarnation's reports from 1; a repeated one is dropped */
        const struct worker_failure *failure; /* FAILED */
    } report;
    int missing;   /* BEAT: 1 + the rank of a worker of the agent that has lost a peer, of which no failure is
                      known; 0: none */
    int ended;     /* BEAT: 1 + the rank of a worker of the agent that has exited 0 while others of it run; 0:
                      none */
    int exit_code; /* LEAVE, DRAIN: the agent's exit code */
    int64_t grace_ns;                     /* DRAIN: how long the agent can wait for its workers; >= 0 */
    const struct membership_evict *evict; /* EVICT */
};

struct roster_action {
    enum roster_action_kind kind;
    uint64_t session;
    int member;         /* -1 if the session holds no slot; of a superseded agent the slot that it lost */
    const char *reason; /* REFUSE; valid until the next roster_step */
    /* AGAIN: the next JOIN carries it, if it is to take the rank of another start of its name. So no JOIN
     * takes the rank that arrives when its agent has ended. 0: none is needed. */
    uint64_t proof;
};

/* The actions of one step, in order. */
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
int roster_slots(bool elastic, int max_nodes);
/* The incarnation of a slot's agent, or of its last one. */
struct agent_incarnation roster_incarnation(const struct roster *roster, int member);

/* Room for the actions of any one step of a roster of so many slots. */
int roster_actions_init(struct roster_actions *actions, int slots, struct muster_error *err);
void roster_actions_free(struct roster_actions *actions);

/* Handles one event. out is emptied first. A protocol violation, or a pair (state, event) without a cell,
 * is -1 (MUSTER_E_STATE or MUSTER_E_INVALID): nothing has changed, and the caller logs it and continues. */
int roster_step(struct roster *roster, const struct roster_event *event, struct instant now,
                struct roster_actions *out, struct muster_error *err);

/* When a TICK is due; INSTANT_NEVER if none is. */
struct instant roster_deadline(const struct roster *roster);

/* Fills the event of a WORLD, STOP, VERDICT, REFUSE, EVICTION or GO action (before the next step). */
void roster_fill_event(const struct roster *roster, const struct roster_action *action,
                       struct membership_event *event);

/* After PROPOSE, or while there is a world: the record of that world, without ballot. Its voters are spread
 * over the ranks of the nodes that are here, from the serving agent's on; if these are two, the first spare
 * is the third voter. */
void roster_fill_record(const struct roster *roster, struct world_record *record);

/* Whether the running world has better voters than the record that is known: a voter has gone, whose workers
 * were done or which was a spare, or there can be more voters again. Then `record` has them, as after
 * roster_fill_record. */
bool roster_revise_record(const struct roster *roster, const struct world_record *known,
                          struct world_record *record);

/* The hosting agent's store is at this port now. Right after the step that formed a world, before its actions
 * are carried out: it is that world's. */
void roster_move_store(struct roster *roster, uint16_t port);

/* For a member that runs another command than the hosting agent, in a job without an id of its own, or the
 * same command with another program file: the warning's text. Whether there is one. */
bool roster_describe_other_program(const struct roster *roster, int member, char *out, size_t size);

/* The same for a member of an elastic job that has another number of workers. */
bool roster_describe_other_size(const struct roster *roster, int member, char *out, size_t size);

/* The same for a member that has another list of endpoints. */
bool roster_describe_other_endpoints(const struct roster *roster, int member, char *out, size_t size);

/* Describes a join that the last step refused (REFUSE of member -1): the agent and the reason. */
void roster_describe_refused(const struct roster *roster, char *out, size_t size);

/* For status, transports and tests. */
enum roster_job_state roster_state(const struct roster *roster);
enum roster_member_state roster_member_state(const struct roster *roster, int member);
struct world_id roster_world_id(const struct roster *roster);
int64_t roster_restart_count(const struct roster *roster);
/* The exit code of the verdict; 0 before there is one. */
int roster_verdict_code(const struct roster *roster);
uint64_t roster_epoch(const struct roster *roster);
/* How long an agent's workers may run after its last answered heartbeat; 0: without limit (static). */
int64_t roster_lease_ns(const struct roster *roster);
/* The last report received from the slot's incarnation. */
uint64_t roster_report_sequence(const struct roster *roster, int member);
/* While the world forms, the missing nodes ("37 of 64 nodes, missing ranks 4, 9-11"); while there is one,
 * what new nodes and spares wait for; "" otherwise. */
void roster_describe_progress(const struct roster *roster, char *out, size_t size);
/* The current world, if the hosting agent's part of it is done, or it has none; else 0,0. Agents remember it:
 * they do not need a server that is lost then. Always 0,0 in an elastic world whose last call is too short
 * (below 4.5 s) to keep a new server from forming another world. */
struct world_id roster_server_done(const struct roster *roster);
/* Whether the hosting agent has workers of the current world, which are lost with the server. */
bool roster_server_works(const struct roster *roster);
/* The nodes of that world whose workers have all exited 0, the hosting agent's among them. Empty: there is no
 * such world, or the nodes are too scattered. O(1), but for the first call after a change. */
const struct rank_ranges *roster_done_ranks(struct roster *roster);
/* The caller was suspended for so long that the others' silence means nothing: they get the full time
 * again, also members whose connections turn out to have ended. */
void roster_wake(struct roster *roster, struct instant now);
/* Whether the server must outlive its agent, which has left: the others are still stopping. It ends in
 * time. */
bool roster_holds_server(const struct roster *roster);
/* When a node was lost the last time, in a job that has ended well since: it may live, and look for its
 * server. INSTANT_NEVER: none was. */
struct instant roster_last_missed(const struct roster *roster);
/* How many members besides the hosting agent there are. */
int roster_remote_count(const struct roster *roster);
static inline bool roster_has_remote(const struct roster *roster)
{
    return roster_remote_count(roster) > 0;
}
/* One line: "RUNNING round 1 restarts 1/3: 0=RUNNING 1=DONE". */
int roster_format(const struct roster *roster, struct buffer *out);

/* From the failure to the streak-th restart in a row (from 1), if all have stopped by then: the first is at
 * once; the second waits base_ns, which doubles with each further one, at most cap_ns, and then a quarter
 * more or less by jitter, so that jobs that failed together do not restart together. Equal arguments give
 * equal waits. base_ns 0: no wait. */
int64_t roster_backoff_ns(int64_t base_ns, int64_t cap_ns, int64_t streak, uint64_t jitter);

#ifdef __cplusplus
}
#endif
#endif
