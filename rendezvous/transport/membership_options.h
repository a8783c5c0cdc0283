/* membership_options.h - a node's parameters of its membership (read by rendezvous/membership.h and the
 * transports). */
#ifndef MUSTER_RENDEZVOUS_TRANSPORT_MEMBERSHIP_OPTIONS_H
#define MUSTER_RENDEZVOUS_TRANSPORT_MEMBERSHIP_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/clock.h"
#include "proto/base/log.h"
#include "rendezvous/roster/world.h"
#include "rendezvous/security/secret.h"

struct membership; /* rendezvous/membership.h */

/* A note from another member, unchecked. */
struct membership_note {
    int member; /* its slot, the same as long as it is a member */
    char *data; /* the taker's (mem_free) */
    size_t length;
};

enum { MEMBERSHIP_ENDPOINTS = 8 };

enum membership_mode { MEMBERSHIP_IN_PROCESS, MEMBERSHIP_SERVER, MEMBERSHIP_CLIENT };

struct membership_options {
    enum membership_mode mode;
    const char *job_id;
    const char *agent_name;   /* stable over restarts of the pod: the host name, or a given name */
    int node_rank;            /* requested rank; -1: any; a preference in an elastic world */
    int min_nodes, max_nodes; /* equal in a static world */
    bool elastic;
    int local_world_size; /* workers of this agent, >= 1 */
    const char *role;
    const char *program;  /* its workers' command: the name, for display; NULL: not given */
    uint64_t command;     /* and a hash of it with its arguments; 0: not given */
    uint64_t contents;    /* a hash of the program's file; 0: not given */
    uint64_t endpoints;   /* a hash of the list of endpoints; 0: there is none */
    int64_t max_restarts; /* for the whole job */
    /* read by the member that hosts the roster */
    int64_t restart_count;              /* used by earlier servers of the job */
    int64_t backoff_ns, backoff_cap_ns; /* from the second failure in a row to its restart; doubled */
    int64_t exit_barrier_ns;            /* bound on the wait for others to leave; 0: 300 s */
    const char *host; /* numeric address of the server: to connect to in client mode; to bind in server mode,
                         where NULL is every address; NULL in process */
    const char *host_name; /* the server's host as it was given, for messages; NULL: none */
    uint16_t port;
    int *listener; /* server mode: unless it is -1 it listens at host and port already, and is taken over,
                      after which it is -1. Lives as long as the membership; NULL: the membership listens */
    const struct job_keys *keys; /* keys of the job's secret, required to join or serve; NULL: no
                                    authentication. Copied, and wiped with the membership */
    const char *store_addr;      /* the workers' MASTER_ADDR if this agent becomes group rank 0 */
    uint16_t store_port;         /* the TCPStore that this agent serves */
    int64_t join_timeout_ns;
    int64_t join_used_ns; /* time of the first join used before the membership was opened, for name
                             resolution. Client only */
    int64_t last_call_ns, regroup_ns, notice_ns; /* as in roster.h; read by the server only */
    int64_t stop_timeout_ns; /* bound on STOP -> STOPPED, longer than the agents' grace; 0: 60 s. Read by the
                                server only */
    /* Called on the member that hosts the roster, once for each world, before it is formed. Every agent of
     * the last world has stopped its workers, and no agent has the new world yet. In server mode the server's
     * thread calls it. Must be short, and must not call the membership. Returns the port of this world's
     * store, if it differs from the last; 0: the same port. NULL: no callback */
    uint16_t (*world_forms)(void *context, struct world_id id);
    void *context;
    /* --- votes about the server of the next round --- */
    uint16_t vote_port; /* where this agent takes part in votes, and serves if it is elected; reserved by the
                           caller, who also lets the server use it. In server mode it is port */
    const char *vote_addr; /* numeric, where the others reach it; NULL: where its messages come from */
    const char *vote_host; /* numeric address to bind; NULL: every address */
    bool signpost; /* others look for the job at vote_port: it is open though this agent is no voter */
    bool store_is_workers; /* the store of this agent is served by its own worker: it does not move */
    /* Called in the agent's thread when this agent begins to serve, or does so no longer. It opens the store;
     * returns 0 and its port. NULL: no callback */
    int (*serves)(void *context, bool serves, uint16_t *store_port, struct muster_error *err);
    /* Called in the agent's thread when another agent serves the job, or none does. Must not call the
     * membership. NULL: no callback */
    void (*moved)(void *context, const struct membership_serving *serving);
    bool notes;                /* read by the member that hosts the roster: the others are to send notes */
    const struct clock *clock; /* NULL: the system's */
    const struct log_sink *log;
};

#endif
