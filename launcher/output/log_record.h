/* log_record.h - pure: one line of the console or of agent.log as text, as text with a time, or as JSON;
 * below it event lines.
 *
 * The JSON schema, one object a line, keys always in this order:
 *   a worker's line  {"time", "host", "stream": "stdout" | "stderr", "rank", "local_rank", "message",
 *                     "partial": true if the line was too long for one record and continues in the next}
 *   the agent's      {"time", "host", "level": "debug" | "info" | "warning" | "error", "message"}
 * time is RFC 3339 in UTC with milliseconds; message has no newline at its end (the failure report has
 * some inside) and U+FFFD for each byte that is not UTF-8. */
#ifndef MUSTER_LAUNCHER_OUTPUT_LOG_RECORD_H
#define MUSTER_LAUNCHER_OUTPUT_LOG_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/base/log.h"

/* In the order of --log-format's words. */
enum log_format { LOG_FORMAT_TEXT, LOG_FORMAT_TIMED, LOG_FORMAT_JSON };

enum { LOG_TIME_SIZE = sizeof "2026-11-21T16:45:44.123Z" };

struct log_style {
    enum log_format format;
    const char *host;
};

/* wall_ns: clock_wall_ns. */
void log_record_time(int64_t wall_ns, char out[LOG_TIME_SIZE]);

/* A line of the agent, "muster: warning: text" as a log sink gets it, with its newline, appended. JSON
 * leaves out the name and the level before the text. */
int log_record_agent(const struct log_style *style, enum log_level level, int64_t wall_ns, const char *line,
                     struct buffer *out);

/* The constant part of the JSON records of one stream; stream: 1 or 2. */
int log_record_head(const struct log_style *style, int stream, int rank, int local_rank, struct buffer *out);
/* One JSON record with its newline. data may end in "\n", "\r" or "\r\n", which is left out; partial: the
 * line continues. */
int log_record_worker(const struct buffer *head, const char *time, const char *data, size_t length,
                      bool partial, struct buffer *out);

/* --- events ---
 *
 * pure: events of workers and of the agent, as one JSON line each, in the format of
 * torchrun's events (torchelastic.worker.status.<STATE>), so that their readers can read ours.
 *
 *   {"name": "torchelastic.worker.status.FAILED", "source": "WORKER", "timestamp": <s since 1970>,
 *    "metadata": {"run_id", "global_rank", "group_rank", "worker_id", "role", "hostname", "state",
 *                 "total_run_time" (s), "rdzv_backend", "raw_error", "agent_restarts", "duration_ms",
 *                 "exit_code", "worker_pid", "metadata": JSON text of {"group_world_size", "entry_point",
 *                 "local_rank", "role_rank", "role_world_size"}}}
 * Fields are only ever added. A field that does not apply is null: ranks and pid of an agent's event,
 * raw_error and exit_code if there was no failure or end. */

/* symbol, name, subject and time */
#define EVENT_STATES(X)                                                                                      \
    X(EVENT_RENDEZVOUS, "RENDEZVOUS", "agent: a world was formed; duration since it was waited for")         \
    X(EVENT_START, "START", "agent: its workers were started; duration of starting them")                    \
    X(EVENT_NOTICE, "NOTICE", "agent: its workers got a stop notice; duration: the time that they have")     \
    X(EVENT_SERVER, "SERVER",                                                                                \
      "agent: another node serves the job, or none does; raw_error has which and why")                       \
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
    /* events of a worker */
    int rank, local_rank, role_rank, role_world_size, pid;
};

/* With its newline, appended. */
int event_line_format(const struct event_line *line, struct buffer *out);

#endif
