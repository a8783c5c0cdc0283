/* log_record.c - see log_record.h. */
#include "launcher/output/log_record.h"

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
