/* pump.h - carries the workers' output from their pipes to log files and to the console.
 *
 * The table in logs.md defines what happens to a worker's bytes if their destination is slow (takes less
 * than 5 MB/s), full (no space) or stuck (no write returns). In short: a worker waits 100 ms at most, once
 * in five seconds; then a log file, and a console line that is in no log file, go through an unlinked
 * spool; a console line that is also in a log file is dropped; every gap is counted, with a notice at its
 * position.
 *
 * Supervision never waits for output, and memory is bounded: a line of any length is passed on in pieces
 * of 64 KiB. The end of a stream that stops in the middle of a line is shown after 50 ms, so that prompts
 * and progress bars work (not in JSON). All functions are the loop's thread's, but for pump_say,
 * pump_print and the log sink. */
#ifndef MUSTER_LAUNCHER_OUTPUT_PUMP_H
#define MUSTER_LAUNCHER_OUTPUT_PUMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "launcher/loop/loop.h"
#include "launcher/output/line.h"
#include "launcher/output/log_filter.h"
#include "launcher/output/log_record.h"
#include "launcher/output/tail.h"
#include "launcher/output/write_queue.h"
#include "proto/base/log.h"

struct pump;
struct pump_stream;

struct pump_options {
    struct loop *loop;
    struct log_style style;   /* the console's; host must outlive the pump */
    const char *spool_folder; /* "": the folder for temporary files, found at the first use; NULL: no spool */
    int64_t spool_limit;      /* bytes, each for the log files and for the console */
};

struct pump_stream_options {
    int fd;                          /* the pipe's read end, non-blocking; owned, also on failure */
    int stream;                      /* 1 or 2: its descriptor number */
    bool console;                    /* its lines are shown */
    struct output_file *file;        /* from pump_file; owned by the stream, also on failure; may be NULL */
    struct output_file *matches;     /* from pump_file: destination of lines that match; may be NULL */
    const struct log_filter *filter; /* must outlive the stream */
    const char *prefix;              /* pattern of the prefix (line.h); copied; NULL: none */
    struct line_names names;         /* role and host must outlive the stream */
    bool tail;                       /* keep the last lines */
};

struct pump *pump_create(const struct pump_options *options, struct muster_error *err);

/* A log file that this agent writes; options as for output_file_create, with fd owned, also on failure.
 * Passed to a stream, or released by pump_release. NULL: no memory. */
struct output_file *pump_file(struct pump *pump, const struct output_file_options *options,
                              struct muster_error *err);
/* Closes the file once everything is written. Accepts NULL. */
void pump_release(struct pump *pump, struct output_file *file);

/* Owned by the pump until pump_close. */
struct pump_stream *pump_add(struct pump *pump, const struct pump_stream_options *options,
                             struct muster_error *err);
/* Reads the pipe's current content, at most several times a pipe's usual capacity if other processes keep
 * writing: after a worker's end this is all its output. Accepts NULL. */
void pump_drain(struct pump_stream *stream);
/* Bytes read so far; 0 for NULL. */
uint64_t pump_bytes(const struct pump_stream *stream);
/* The last lines of a stream with tail; "" for NULL. */
void pump_tail(const struct pump_stream *stream, char *out, size_t size);
/* The next line of a stream with tail in which NCCL warns, of at least NOTABLE_TEXT bytes (tail.h); false:
 * there is none. Accepts NULL. */
bool pump_notable(struct pump_stream *stream, char *out);
/* Drains, passes on an unfinished line and frees. Accepts NULL. */
void pump_close(struct pump_stream *stream);

/* Whether every stream has ended. */
bool pump_idle(const struct pump *pump);

/* Bytes dropped or refused so far. Bytes lost on the console may be in a file. */
struct pump_lost {
    uint64_t files, consoles;
};
struct pump_lost pump_lost(struct pump *pump);

/* When pump_tick is due. */
struct instant pump_deadline(const struct pump *pump);
void pump_tick(struct pump *pump, struct instant now);

/* The agent's own lines, never blocking, any thread. pump_say: a text of one or more lines, which becomes
 * a record in the console's style and goes into the agent's log file too. pump_print: whole lines as they
 * are. */
void pump_say(struct pump *pump, enum log_level level, const char *text);
void pump_print(struct pump *pump, int console, const char *text, size_t length);
/* A log sink's write function; context is the pump. */
void pump_log(void *context, enum log_level level, const char *line);
/* Copies the output of pump_say and pump_log to this file, with times; of pump_file, owned by the pump. */
void pump_keep_log(struct pump *pump, struct output_file *file);

/* Closes every stream, waits for the console and the files as long as they make progress (30 s at most)
 * and frees. Returns the bytes that were lost. Accepts NULL. */
size_t pump_destroy(struct pump *pump);

#endif
