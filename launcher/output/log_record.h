/* log_record.h - pure: one line of the console or of agent.log as text, as text with a time, or as JSON.
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

#endif
