/* pump.h - carries the workers' output from their pipes to log files and to the console.
 *
 * A worker's stream that is only redirected does not come here: the file is the worker's own descriptor. For
 * the others, this is what happens to a byte that the worker's write accepted:
 *
 *            | slow                          | full (no space)             | stuck (no write returns)
 *   ---------+-------------------------------+-----------------------------+-----------------------------------
 *   file     | waits in a queue, then the    | lost, counted and said; the | waits in a queue, then the
 * worker (tee)    | worker waits, as for a file   | console still gets its      | waits, as for a file of its
 * own | of its own: nothing is lost   | lines, the worker goes on   | spool    | there is none: the queue of
 * an outlet (512 KiB in memory, as much again being written) is all | that stands between a worker and a
 * console console, | with a file beside it: whole  | as stuck                    | whole lines are dropped at
 * once tee      | lines are dropped when the    |                             | when the queue is full, and
 * counted; | queue is full, and counted    |                             | the file has them console, | the
 * worker waits, as it would | lost, counted and said      | the worker waits one second, then alone    |
 * writing to it itself: nothing |                             | whole lines are dropped and counted | is lost
 * |                             | until something moves again
 *
 * Supervision waits for none of them. Memory is bounded: a line of any length is passed on in pieces of 64
 * KiB. The end of a stream that stops in the middle of a line is shown after 50 ms, so that prompts and
 * progress bars live. All functions are the loop's thread's, but for pump_print and the log sink. */
#ifndef MUSTER_LAUNCHER_PUMP_H
#define MUSTER_LAUNCHER_PUMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "launcher/loop.h"
#include "proto/base/log.h"

struct pump;
struct pump_stream;

struct pump_stream_options {
    int fd;             /* the pipe's read end, non-blocking; taken, also on failure */
    int console;        /* 1 or 2: where its lines go */
    int file;           /* the log file; taken, also on failure; -1: none */
    const char *prefix; /* before each line on the console; copied; NULL: none */
    bool tail;          /* keep the last lines */
};

struct pump *pump_create(struct loop *loop, struct muster_error *err);
/* Owned by the pump until pump_close. */
struct pump_stream *pump_add(struct pump *pump, const struct pump_stream_options *options,
                             struct muster_error *err);
/* Reads what is in the pipe now, at most a pipe's usual capacity several times over if others go on writing:
 * after a worker's end this is all it ever wrote. Accepts NULL. */
void pump_drain(struct pump_stream *stream);
/* The last lines of a stream with tail; "" for NULL. */
void pump_tail(const struct pump_stream *stream, char *out, size_t size);
/* Drains, passes on an unfinished line and frees. Accepts NULL. */
void pump_close(struct pump_stream *stream);

/* Whether every stream has ended; whether one waits for room in a queue. */
bool pump_idle(const struct pump *pump);
bool pump_waits(const struct pump *pump);

/* Bytes that were dropped or refused so far. What the console lost may be in a file. */
struct pump_lost {
    uint64_t files, consoles;
};
struct pump_lost pump_lost(struct pump *pump);

/* When pump_tick is due. */
struct instant pump_deadline(const struct pump *pump);
void pump_tick(struct pump *pump, struct instant now);

/* The agent's own words: whole lines to console 1 or 2, never blocking. Any thread. */
void pump_print(struct pump *pump, int console, const char *text, size_t length);
/* A log sink's write function; context is the pump. */
void pump_log(void *context, enum log_level level, const char *line);

/* Closes every stream, waits for the console and the files as long as they move and frees. Returns the bytes
 * that were not written. Accepts NULL. */
size_t pump_destroy(struct pump *pump);

#endif
