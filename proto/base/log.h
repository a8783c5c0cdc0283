/* log.h - the log sink. Libraries never print: they write records to the caller's sink. */
#ifndef MUSTER_PROTO_BASE_LOG_H
#define MUSTER_PROTO_BASE_LOG_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARNING, LOG_LEVEL_ERROR, LOG_LEVEL_OFF };

struct log_sink {
    /* One line "name: warning: text" without newline, NUL-terminated, at most 1,023 bytes; may be called
     * from any thread, must not block on the caller's locks. */
    void (*write)(void *context, enum log_level level, const char *line);
    void *context;
    enum log_level threshold; /* records below it are not formatted */
    const char *who;          /* printed before each line, e.g. "muster" or "rank 3"; NULL for nothing */
};

/* sink may be NULL: no effect. A line longer than 1,024 bytes is cut and ends in "...". It stays one line:
 * it may contain text of a peer or a program, so control characters become "?". */
void log_write(const struct log_sink *sink, enum log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define log_debug(sink, ...)   log_write(sink, LOG_LEVEL_DEBUG, __VA_ARGS__)
#define log_info(sink, ...)    log_write(sink, LOG_LEVEL_INFO, __VA_ARGS__)
#define log_warning(sink, ...) log_write(sink, LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_error(sink, ...)   log_write(sink, LOG_LEVEL_ERROR, __VA_ARGS__)

/* A sink's write function that puts "name: level: line\n" on the descriptor in *(int *)context with a
 * single write(2). */
void log_write_to_fd(void *context, enum log_level level, const char *line);

/* "debug", "info", "warning", "error"; -1 if the text names no level (also takes torchrun's LOGLEVEL
 * spellings). */
int log_level_parse(const char *text);
const char *log_level_name(enum log_level level);

#ifdef __cplusplus
}
#endif
#endif
