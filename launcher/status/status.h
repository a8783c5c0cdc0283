/* status.h - the state of one agent as a struct, and its renderings: JSON, Prometheus, a table.
 *
 * Pure: the agent fills the struct (agent_status.c), the requested format is rendered from it. Names of
 * JSON members and of metrics are a stable interface for dashboards: new ones may be added, old ones stay. */
#ifndef MUSTER_LAUNCHER_STATUS_STATUS_H
#define MUSTER_LAUNCHER_STATUS_STATUS_H

#include <stdbool.h>
#include <stdint.h>

#include "launcher/policy/figures.h"
#include "launcher/policy/worker_group.h"
#include "proto/base/buffer.h"
#include "proto/base/clock.h"
#include "rendezvous/roster/world.h"

/* symbol, name */
#define STATUS_WORKER_STATES(X)                                                                              \
    X(STATUS_WORKER_ABSENT, "absent") /* not started in this round */                                        \
    X(STATUS_WORKER_RUNNING, "running")                                                                      \
    X(STATUS_WORKER_EXITED, "exited") /* by itself, with 0 */                                                \
    X(STATUS_WORKER_FAILED, "failed") /* another code, or a signal */

#define STATUS_ENUM(symbol, name) symbol,
enum status_worker_state { STATUS_WORKER_STATES(STATUS_ENUM) STATUS_WORKER_STATE_COUNT };
#undef STATUS_ENUM

struct status_worker {
    int rank, local_rank;
    int pid; /* 0: absent */
    enum status_worker_state state;
    int exit_code;       /* EXITED, FAILED; -1 if a signal ended it */
    int signal;          /* 0 if none did */
    int64_t step;        /* step of the last heartbeat with a step; -1: none */
    int64_t beat_age_ns; /* since the last heartbeat; -1: none yet */
    struct worker_figures figures;
};

/* The workers' store, where this agent serves it. */
struct status_store {
    bool there;             /* else the rest is not filled */
    uint64_t bytes, budget; /* memory of all clients, and its limit (--store-memory) */
    uint64_t keys, connections;
    uint64_t requests;    /* served, since the start */
    uint64_t closed;      /* connections, by the store itself */
    uint64_t crowded_out; /* clients that lost what they held, since the budget was used up */
};

struct agent_status {
    /* texts are the agent's and outlive every rendering */
    const char *version, *host, *job_id, *program, *role;
    int pid;
    int64_t uptime_ns;
    enum worker_group_state state;
    bool leaving; /* exit_code is decided */
    int exit_code;
    int node_rank; /* as configured; -1: any */
    int min_nodes, max_nodes;
    bool formed;                       /* there is or was a world; else `world` is not filled */
    struct membership_world world;     /* the last one */
    char waiting[MUSTER_ERROR_TEXT];   /* nodes that are missing, or have not confirmed the end or this node's
                                          stop, as far as this agent knows; "" otherwise */
    struct membership_serving serving; /* the agent that serves the job */
    struct {
        const char *coming; /* as in stop_notice.h; NULL: no notice */
        int listeners;      /* workers of this node that got the notice and still run */
        int64_t left_ns;    /* until they are sent SIGTERM */
    } notice;
    int64_t max_restarts;
    int64_t failures;                            /* failures of this node's workers, in all rounds */
    int64_t round_failures[FAILURE_CLASS_COUNT]; /* rounds of the job, by the class of their first cause */
    uint64_t file_bytes_lost,
        console_bytes_lost; /* bytes of the workers' output; a file may have lines that the console lost */
    struct status_store store;
    int worker_count;
    struct status_worker workers[];
};

/* A zeroed status with room for so many workers (mem_free), or NULL without memory. */
struct agent_status *status_create(int worker_count);

/* One JSON object and a newline, appended; as in all three, out remembers a failure. */
void status_json(const struct agent_status *status, struct buffer *out);
/* The Prometheus text format, version 0.0.4. */
void status_metrics(const struct agent_status *status, struct buffer *out);
/* For people. */
void status_table(const struct agent_status *status, struct buffer *out);
/* "pid <tab> node rank <tab> state <tab> job id", one line; control characters are '?'. */
void status_summary(const struct agent_status *status, struct buffer *out);

/* "?" for a number outside the list. */
const char *status_worker_state_name(enum status_worker_state state);

#endif
