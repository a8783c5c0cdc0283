/* log_record.c - see log_record.h. */
#include "launcher/output/log_record.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "proto/base/clock.h"

void log_record_time(int64_t wall_ns, char out[LOG_TIME_SIZE])
{
    time_t seconds = (time_t)(wall_ns / NS_PER_S);
    struct tm utc = {0};
    char text[LOG_TIME_SIZE];
    const unsigned ms = (unsigned)(wall_ns / NS_PER_MS % 1000);
    (void)gmtime_r(&seconds, &utc); /* fails for years that do not fit into an int: then it is 1900 */
    (void)strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc); /* four digits of a year fit */
    (void)snprintf(out, LOG_TIME_SIZE, "%.19s.%03uZ", text, ms);
}

/* line without "muster: " and "warning: ", which JSON has as a key. */
static const char *message_of(enum log_level level, const char *line)
{
    static const char name[] = "muster: ";
    if (!strncmp(line, name, sizeof name - 1))
        line += sizeof name - 1;
    const char *mark = log_level_name(level);
    size_t length = strlen(mark);
    return !strncmp(line, mark, length) && !strncmp(line + length, ": ", 2) ? line + length + 2 : line;
}

int log_record_agent(const struct log_style *style, enum log_level level, int64_t wall_ns, const char *line,
                     struct buffer *out)
{
    char time[LOG_TIME_SIZE];
    log_record_time(wall_ns, time);
    if (style->format != LOG_FORMAT_JSON)
        return buffer_printf(out, "%s%s%s\n", style->format == LOG_FORMAT_TIMED ? time : "",
                             style->format == LOG_FORMAT_TIMED ? " " : "", line);
    const char *message = message_of(level, line);
    size_t length = strlen(message);
    while (length && message[length - 1] == '\n')
        length--;
    buffer_printf(out, "{\"time\":\"%s\",\"host\":", time);
    buffer_json_string(out, style->host);
    buffer_printf(out, ",\"level\":\"%s\",\"message\":", log_level_name(level));
    buffer_json_bytes(out, message, length);
    return buffer_text(out, "}\n");
}

int log_record_head(const struct log_style *style, int stream, int rank, int local_rank, struct buffer *out)
{
    buffer_text(out, "\",\"host\":");
    buffer_json_string(out, style->host);
    return buffer_printf(out, ",\"stream\":\"%s\",\"rank\":%d,\"local_rank\":%d,\"message\":",
                         stream == 1 ? "stdout" : "stderr", rank, local_rank);
}

int log_record_worker(const struct buffer *head, const char *time, const char *data, size_t length,
                      bool partial, struct buffer *out)
{
    if (length && data[length - 1] == '\n')
        length--;
    if (!partial && length && data[length - 1] == '\r')
        length--;
    buffer_text(out, "{\"time\":\"");
    buffer_text(out, time);
    buffer_append(out, head->data, head->length);
    buffer_json_bytes(out, data, length);
    return buffer_text(out, partial ? ",\"partial\":true}\n" : "}\n");
}

/* --- events --- */

static const char *const state_names[] = {
#define EVENT_NAME(symbol, name, ...) [symbol] = (name),
    EVENT_STATES(EVENT_NAME)
#undef EVENT_NAME
};

static void put_text(struct buffer *out, const char *name, const char *text)
{
    buffer_printf(out, ", \"%s\": ", name);
    (void)buffer_json_string(out, text); /* the buffer remembers a failure */
}

static void put_number(struct buffer *out, const char *name, bool known, int64_t value)
{
    if (known)
        buffer_printf(out, ", \"%s\": %" PRId64, name, value);
    else
        buffer_printf(out, ", \"%s\": null", name);
}

/* A list of one, as torchrun has it; an agent's is empty. */
static void put_list(struct buffer *out, const char *name, bool known, int value)
{
    buffer_printf(out, known ? ", \"%s\": [%d]" : ", \"%s\": []", name, value);
}

static void put_inner(const struct event_line *line, struct buffer *out)
{
    scope_buffer inner = {0};
    buffer_printf(&inner, "{\"group_world_size\": %d", line->group_world_size);
    put_text(&inner, "entry_point", line->entry_point);
    put_list(&inner, "local_rank", line->of_worker, line->local_rank);
    put_list(&inner, "role_rank", line->of_worker, line->role_rank);
    put_list(&inner, "role_world_size", line->of_worker, line->role_world_size);
    buffer_text(&inner, "}");
    if (inner.failed)
        out->failed = true;
    else
        put_text(out, "metadata", inner.data);
}

int event_line_format(const struct event_line *line, struct buffer *out)
{
    const char *state = state_names[line->state];
    buffer_printf(out,
                  "{\"name\": \"torchelastic.worker.status.%s\", \"source\": \"%s\", \"timestamp\": %" PRId64
                  ", \"metadata\": {\"run_id\": ",
                  state, line->of_worker ? "WORKER" : "AGENT", line->wall_ns / NS_PER_S);
    (void)buffer_json_string(out, line->run_id);
    put_number(out, "global_rank", line->of_worker, line->rank);
    put_number(out, "group_rank", true, line->group_rank);
    buffer_text(out, ", \"worker_id\": ");
    buffer_printf(out, line->of_worker ? "\"%d\"" : "null", line->pid);
    put_text(out, "role", line->role);
    put_text(out, "hostname", line->host);
    put_text(out, "state", state);
    put_number(out, "total_run_time", true, line->run_ns / NS_PER_S);
    put_text(out, "rdzv_backend", line->backend);
    put_text(out, "raw_error", line->error);
    put_number(out, "agent_restarts", true, line->restarts);
    put_number(out, "duration_ms", true, line->duration_ns / NS_PER_MS);
    put_number(out, "exit_code", line->ended, line->exit_code);
    put_number(out, "worker_pid", line->of_worker, line->pid);
    put_inner(line, out);
    return buffer_text(out, "}}\n");
}
