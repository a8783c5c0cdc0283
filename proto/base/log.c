/* log.c - see log.h. */
#include "proto/base/log.h"

#include "proto/base/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { LINE_LIMIT = 1024 };

static const char *const names[] = {"debug", "info", "warning", "error", "off"};

const char *log_level_name(enum log_level level)
{
    return (unsigned)level < sizeof names / sizeof *names ? names[level] : "unknown";
}

int log_level_parse(const char *text)
{
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (!strcasecmp(text, names[i]))
            return i;
    if (!strcasecmp(text, "warn"))
        return LOG_LEVEL_WARNING;
    if (!strcasecmp(text, "critical") || !strcasecmp(text, "fatal"))
        return LOG_LEVEL_ERROR;
    return -1;
}

void log_write(const struct log_sink *sink, enum log_level level, const char *format, ...)
{
    if (!sink || !sink->write || level < sink->threshold)
        return;
    int kept = errno;
    char line[LINE_LIMIT];
    const char *mark = level == LOG_LEVEL_WARNING ? "warning: " : level == LOG_LEVEL_ERROR ? "error: " : "";
    int used = snprintf(line, sizeof line, "%s%s%s", sink->who ? sink->who : "", sink->who ? ": " : "", mark);
    if (used < 0 || used >= (int)sizeof line)
        used = 0;
    va_list args;
    va_start(args, format);
    int more = vsnprintf(line + used, sizeof line - (size_t)used, format, args);
    va_end(args);
    if (more >= (int)sizeof line - used)
        memcpy(line + sizeof line - 4, "...", 4);
    text_make_plain(line + used, NULL);
    sink->write(sink->context, level, line);
    errno = kept;
}

void log_write_to_fd(void *context, enum log_level level, const char *line)
{
    char out[LINE_LIMIT + 1];
    (void)level; /* keep it in the line */
    int length = snprintf(out, sizeof out, "%s\n", line);
    if (length < 0)
        return;
    if (length > (int)sizeof out - 1)
        length = (int)sizeof out - 1;
    /* one write, so that lines of several threads and processes do not mix; a log line that cannot be
     * written is lost */
    ssize_t done = write(*(const int *)context, out, (size_t)length);
    (void)done;
}
