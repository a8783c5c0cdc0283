/* membership.h - one agent's seat in a job's world, whatever carries it.
 *
 * Three carriers, one interface: in process (--standalone, or one node: the roster runs inside this object,
 * no socket at all), server (this agent hosts the roster behind a ZeroMQ ROUTER and is a member of it too)
 * and client (a DEALER to the server's host). The agent's loop polls membership_fd and membership_deadline
 * and calls membership_next until it says 0.
 *
 * Life of a seat: open (joins) -> WORLD -> report RUNNING -> ... -> report FAILED or DONE -> STOP (then
 * report STOPPED, then the next WORLD) or VERDICT (the job is over; leave with its exit code). A STOP comes
 * to every agent that has the world, also to one that reported FAILED or DONE. The serving agent gets its
 * VERDICT last, when the others have left (bounded); until then a STOP may be all it hears. All calls are
 * from one thread; none blocks. After any call, call membership_next until it says 0 before sleeping, and
 * look at membership_deadline again.
 *
 * Server and client seats own a ZeroMQ context, which must not cross a fork: between fork and exec the child
 * calls nothing of this interface, and a process that forks without exec opens its seat after the last fork.
 * Every descriptor is close-on-exec, and all signals are blocked in the threads of a seat. In process, no
 * thread, descriptor or ZeroMQ call is made at all. */
#ifndef MUSTER_RENDEZVOUS_MEMBERSHIP_H
#define MUSTER_RENDEZVOUS_MEMBERSHIP_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/clock.h"
#include "proto/base/log.h"
#include "proto/include/muster_error.h"
#include "rendezvous/failure.h"
#include "rendezvous/secret.h"

enum membership_mode { MEMBERSHIP_IN_PROCESS, MEMBERSHIP_SERVER, MEMBERSHIP_CLIENT };

enum { MEMBERSHIP_NAME_LIMIT = 256, MEMBERSHIP_PROGRAM_LIMIT = 64 };

/* World id: a random epoch (one for each life of a server) and the number of the round. 0,0 is no world. */
struct world_id {
    uint64_t epoch;
    uint32_t round;
};

struct membership_options {
    enum membership_mode mode;
    const char *job_id;
    const char *agent_name;   /* stable over restarts of the pod: the host name, or a given name */
    int node_rank;            /* wanted rank; -1: any; a preference in an elastic world */
    int min_nodes, max_nodes; /* equal in a static world */
    bool elastic;
    int local_world_size; /* workers of this agent, >= 1 */
    const char *role;
    const char *program;  /* what its workers execute: the name, for people; NULL: nothing is said */
    uint64_t command;     /* and a hash of it with its arguments; 0: nothing is said */
    int64_t max_restarts; /* of the whole job */
    /* read by the seat that hosts the roster */
    int64_t restart_count;              /* used up by former lives of the job */
    int64_t backoff_ns, backoff_cap_ns; /* wait before a restart, doubled with each one in a row */
    int64_t exit_barrier_ns;            /* bound on the wait for others to leave; 0: 300 s */
    const char *host; /* numeric address of the server (server mode: to bind, client mode: to connect); NULL
                         in process */
    const char *host_name; /* the server's host as it was given, for messages; NULL: nothing else */
    uint16_t port;
    const struct job_keys *keys; /* of the job's secret: only who has them joins or serves; NULL: anybody.
                                    Copied, and wiped with the seat */
    const char *store_addr;      /* what workers get as MASTER_ADDR if this agent becomes group rank 0 */
    uint16_t store_port;         /* the TCPStore that this agent serves */
    int64_t join_timeout_ns;
    int64_t
        join_used_ns; /* of the first join's, before the seat was opened: by looking names up. Client only */
    int64_t last_call_ns, regroup_ns, notice_ns; /* as in roster.h; read by the server only */
    int64_t stop_timeout_ns; /* bound on STOP -> STOPPED, longer than the agents' grace; 0: 60 s. Read by the
                                server only */
    /* Of the seat that hosts the roster: a world is about to go out. Every agent that held the last one has
     * stopped its workers, and nobody has the new one yet. Once a world; on the server's thread in server
     * mode. Must be short, and must not call the seat. Returns the port of this world's store, where that is
     * another than the last; 0: it is not. NULL: nobody wants to know */
    uint16_t (*world_forms)(void *context, struct world_id id);
    void *context;
    /* Server only: a client seat that may succeed its server (membership_may_succeed). Its agent goes on as
     * the same incarnation, and the new server knows what it knew. The caller destroys it once this one is
     * open; NULL: none */
    const struct membership *heir_of;
    const struct clock *clock; /* NULL: the system's */
    const struct log_sink *log;
};

/* What one agent needs to know of a formed world: O(1), never the whole roster. */
struct membership_world {
    struct world_id id;
    int group_rank, group_world_size;
    int rank_base, world_size; /* global rank of local rank 0; workers of all nodes */
    int role_rank_base, role_world_size;
    int64_t restart_count;
    char master_addr[MEMBERSHIP_NAME_LIMIT];
    uint16_t master_port;
};

enum membership_event_kind {
    MEMBERSHIP_EVENT_WORLD, /* start the workers of this world; after a failure `reason` is its first cause,
                               as it was known when all had stopped */
    MEMBERSHIP_EVENT_STOP,  /* stop all workers of world `stopped`, then report STOPPED; `reason` says why */
    MEMBERSHIP_EVENT_VERDICT, /* the job is over: stop what runs and leave with exit_code; `failure` is its
                                 first cause */
    MEMBERSHIP_EVENT_REFUSED, /* the server does not take this agent; reason names the differing field */
};

/* What a planned STOP is for. symbol, name, meaning */
#define MEMBERSHIP_CHANGES(X)                                                                                \
    X(MEMBERSHIP_CHANGE_NONE, "", "it is not told")                                                          \
    X(MEMBERSHIP_CHANGE_JOIN, "nodes-join", "newcomers are taken in")                                        \
    X(MEMBERSHIP_CHANGE_LEAVE, "node-leaves", "a node goes, the others go on")                               \
    X(MEMBERSHIP_CHANGE_END, "job-stops", "the job ends with it")

#define MEMBERSHIP_CHANGE_ENUM(symbol, name, meaning) symbol,
enum membership_change { MEMBERSHIP_CHANGES(MEMBERSHIP_CHANGE_ENUM) MEMBERSHIP_CHANGE_COUNT };
#undef MEMBERSHIP_CHANGE_ENUM

struct membership_event {
    enum membership_event_kind kind;
    struct membership_world world;
    struct world_id stopped;
    bool planned; /* STOP: members come or go, nothing failed: how workers end from now on is no failure */
    int64_t grace_ns; /* STOP, planned: what workers get to save and end; else 0, the agent's own grace */
    enum membership_change change; /* STOP, planned */
    int next_nodes; /* STOP, planned: of the next world, if no more come or go; 0: not known, or none */
    int exit_code;
    bool failed;     /* VERDICT: there is a failure */
    int other_count; /* of others */
    int other_total; /* also those that others has no room for */
    char reason[MUSTER_ERROR_TEXT];
    /* Large, last, and only to be read where failed. */
    struct worker_failure failure;                     /* the first cause */
    struct failure_brief others[FAILURE_OTHERS_LIMIT]; /* what else failed in the round, best first */
};

enum membership_report_kind {
    MEMBERSHIP_REPORT_RUNNING, /* all workers of the world were started */
    MEMBERSHIP_REPORT_FAILED,  /* a worker failed; failure is read */
    MEMBERSHIP_REPORT_DONE,    /* all local workers exited 0 */
    MEMBERSHIP_REPORT_STOPPED, /* all local workers of the world are gone, as STOP asked */
};

struct membership;

/* Joins. The object is owned by the caller; options are copied. */
struct membership *membership_open(const struct membership_options *options, struct muster_error *err);
/* Readable when membership_next may have something; -1 where the carrier needs none (in process). Edge or
 * level: always drain with membership_next until it returns 0. */
int membership_fd(const struct membership *m);
/* When membership_next must be called even if the descriptor is silent. */
struct instant membership_deadline(const struct membership *m);
/* 1: event is filled; 0: nothing now; -1: the seat is lost (MUSTER_E_TIMEOUT while joining, MUSTER_E_PEER
 * where the server is gone: exit with EXIT_CODE_NODE; MUSTER_E_REFUSED where it does not go together with
 * this node: exit with EXIT_CODE_FAILURE), err says why: stop the workers. */
int membership_next(struct membership *m, struct membership_event *event, struct muster_error *err);
/* Reports about world id; an id that is not the current one is ignored (it is stale by definition). failure
 * is read for FAILED only. */
int membership_report(struct membership *m, struct world_id id, enum membership_report_kind kind,
                      const struct worker_failure *failure, struct muster_error *err);
/* The agent is to go, with exit_code: all agents are sent a planned STOP, so that everybody's workers can
 * save within grace_ns. When ours have ended the agent leaves (membership_leave) instead of reporting
 * STOPPED; the others of an elastic world go on, those of a static one get their verdict. Where the serving
 * agent of an elastic world goes on SIGTERM its server stays until the others have stopped
 * (membership_part), and they wait for it to come back; with another code they get their
 * verdict. A drain may stay unanswered. Not for a seat in process. */
int membership_drain(struct membership *m, int exit_code, int64_t grace_ns, struct muster_error *err);
/* While the world forms, who is waited for, for people ("" where nothing is known); NUL-terminated. */
void membership_progress(const struct membership *m, char *out, size_t size);
/* Whether there is a report that the server has not taken note of yet. */
bool membership_has_news(const struct membership *m);
/* Of a client seat: how long the server was not heard, if long enough to miss it; else 0. */
int64_t membership_silence_ns(const struct membership *m);
/* Of a client seat: whether this agent might serve the job now, if it were the one to do so: the server was
 * not heard for long enough to be lost, there are no workers of its last world here, a restart is left, and
 * it did not stand still itself when the server went, so that the job is known not to be over.
 */
bool membership_may_succeed(const struct membership *m);
/* Of a client seat: its server's name stands for this numeric address now. */
int membership_move(struct membership *m, const char *host, struct muster_error *err);
/* Leaves with a word (TERM): the others are told at once. exit_code is what this agent will exit with. */
int membership_leave(struct membership *m, int exit_code, struct muster_error *err);
/* Begins to close: the seat gives nothing out any more. The serving agent's, once there is a verdict or it
 * has left, waits linger_ns for the others to leave; where it left an elastic world on SIGTERM, from when
 * they have stopped, which has a bound of its own. Does not block; membership_fd becomes readable when that
 * is over. */
void membership_part(struct membership *m, int64_t linger_ns);
/* After that: how many others are waited for; 0: none, or no longer. */
int membership_parting(const struct membership *m);
/* Closes without blocking longer than linger_ns for messages in flight, and, without membership_part before,
 * for what that begins. After a verdict the server is told; without verdict or leave the seat vanishes, as if
 * the agent had died. Accepts NULL. */
void membership_destroy(struct membership *m, int64_t linger_ns);

#endif
