/* status.h - what one agent knows of itself, as a struct, and its renderings: JSON, Prometheus, a table.
 *
 * Pure: the agent fills the struct (agent_status.c), whoever was asked renders it. Names of JSON members and
 * of metrics are an interface that dashboards lean on: new ones may come, old ones stay. */
#ifndef MUSTER_LAUNCHER_STATUS_STATUS_H
#define MUSTER_LAUNCHER_STATUS_STATUS_H

#include <stdbool.h>
#include <stdint.h>

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
    int exit_code;       /* EXITED, FAILED; -1 where a signal ended it */
    int signal;          /* 0 where none did */
    int64_t step;        /* of the last beat that told one; -1: none did */
    int64_t beat_age_ns; /* since then; -1: it has not beaten */
};

struct agent_status {
    /* texts are the agent's and outlive every rendering */
    const char *version, *host, *job_id, *program, *role;
    int pid;
    int64_t uptime_ns;
    enum worker_group_state state;
    bool leaving; /* exit_code is decided */
    int exit_code;
    int node_rank; /* as asked for; -1: any */
    int min_nodes, max_nodes;
    bool formed;                     /* there is or was a world; else `world` is not filled */
    struct membership_world world;   /* the last one */
    char waiting[MUSTER_ERROR_TEXT]; /* who is still missing, or has not taken note of the end or of this
                                        node's, where this agent can tell; "" otherwise */
    struct {
        const char *coming; /* as in stop_notice.h; NULL: nothing is announced */
        int listeners;      /* workers of this node that were told and still run */
        int64_t left_ns;    /* until they are told to end */
    } notice;
    int64_t max_restarts;
    int64_t failures;                             /* of this node's workers, in all rounds */
    uint64_t file_bytes_lost, console_bytes_lost; /* of the workers' output; a file may have the latter */
    int worker_count;
    struct status_worker workers[];
};

/* A zeroed status with room for so many workers (mem_free), or NULL without memory. */
struct agent_status *status_create(int worker_count);

/* One JSON object and a newline, appended; as for all three, out remembers a failure. */
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
