/* event_line.h - pure: events of workers and of the agent, as one JSON line each, in the format of
 * torchrun's events (torchelastic.worker.status.<STATE>), so that their readers can read ours.
 *
 *   {"name": "torchelastic.worker.status.FAILED", "source": "WORKER", "timestamp": <s since 1970>,
 *    "metadata": {"run_id", "global_rank", "group_rank", "worker_id", "role", "hostname", "state",
 *                 "total_run_time" (s), "rdzv_backend", "raw_error", "agent_restarts", "duration_ms",
 *                 "exit_code", "worker_pid", "metadata": JSON text of {"group_world_size", "entry_point",
 *                 "local_rank", "role_rank", "role_world_size"}}}
 * Fields are only ever added. A field that does not apply is null: ranks and pid of an agent's event,
 * raw_error and exit_code if there was no failure or end. */
#ifndef MUSTER_LAUNCHER_OUTPUT_EVENT_LINE_H
#define MUSTER_LAUNCHER_OUTPUT_EVENT_LINE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/buffer.h"

/* symbol, name, subject and time */
#define EVENT_STATES(X)                                                                                      \
    X(EVENT_RENDEZVOUS, "RENDEZVOUS", "agent: a world was formed; duration since it was waited for")         \
    X(EVENT_START, "START", "agent: its workers were started; duration of starting them")                    \
    X(EVENT_NOTICE, "NOTICE", "agent: its workers got a stop notice; duration: the time that they have")     \
    X(EVENT_SUCCEEDED, "SUCCEEDED", "worker: it exited 0; agent: it exits with 0")                           \
    X(EVENT_FAILED, "FAILED", "worker: it failed by itself; agent: it exits with another code")              \
    X(EVENT_TERMINATED, "TERMINATED", "worker: it ended after the launcher stopped it")

enum event_state {
#define EVENT_ENUM(symbol, ...) symbol,
    EVENT_STATES(EVENT_ENUM)
#undef EVENT_ENUM
        EVENT_STATE_COUNT
};

struct event_line {
    enum event_state state;
    bool of_worker; /* else of the agent */
    int64_t wall_ns, run_ns, duration_ns;
    const char *run_id, *role, *host, *backend, *entry_point;
    const char *error; /* NULL: none */
    int64_t restarts;
    int group_rank, group_world_size;
    bool ended; /* exit_code is valid: that of a process, -n for signal n */
    int exit_code;
    /* of a worker */
    int rank, local_rank, role_rank, role_world_size, pid;
};

/* With its newline, appended. */
int event_line_format(const struct event_line *line, struct buffer *out);

#endif
