/* pump_internal.h - shared by pump.c (destinations), pump_stream.c (sources) and pump_format.c (lines). */
#ifndef MUSTER_LAUNCHER_OUTPUT_PUMP_INTERNAL_H
#define MUSTER_LAUNCHER_OUTPUT_PUMP_INTERNAL_H

#include "launcher/output/pump.h"
#include "launcher/output/tail.h"

enum { PUMP_READ_BYTES = 65536 }; /* a pipe's usual capacity */

struct pump_stream {
    struct pump_stream *next, **link; /* link: what points here */
    struct pump *pump;
    int fd, stream;
    bool console, ended;
    struct output_file *file, *matches, *shown; /* shown: the console */
    struct write_queue *outlet;                 /* the console's */
    const struct log_filter *filter;
    uint64_t bytes;          /* read so far */
    size_t read_bytes;       /* fewer if prefixes make short lines long */
    bool has_tail;           /* its last lines are kept, */
    struct tail *tail;       /* from its first bytes on */
    struct notable *notable; /* the same */

    char *pattern; /* the prefix's */
    struct line_names names;
    bool timed; /* the prefix changes with the time */
    struct buffer prefix, head;
    struct line_splitter lines;
    struct instant flush_at; /* an unfinished line is passed on */
    struct instant state_at; /* JSON: a state of a progress line was passed on last */
    bool last;               /* the next bytes are the last of the stream */
    bool middle;             /* the middle of a line: the next piece continues it */
    bool matching;           /* the line matched a filter */
    bool dropping;           /* the rest of a line whose beginning was refused */
};

struct pump {
    struct loop *loop;
    struct log_style style;
    struct pump_stream *streams;
    struct write_queue *consoles[3]; /* by descriptor number; 1 and 2 are equal if they are the same file */
    struct output_file *shown[3];
    struct write_queue *files;
    struct output_file *log;                 /* agent.log; atomic */
    struct loop_source wake, streams_source; /* a write queue has room or lost data; a stream is readable */
    bool watched, paused;
    struct instant flush_at;                      /* the earliest of the streams' */
    bool console_lost, file_lost, without_thread; /* reported already */
    char *chunk;                                  /* PUMP_READ_BYTES */
    /* bytes of the current stream */
    struct buffer block, matched;
    uint32_t block_lines, matched_lines;
    bool block_starts, matched_starts;
    char time[LOG_TIME_SIZE];
};

/* --- pump_stream.c --- */

/* The ready function of streams_source; context is the pump. */
void pump_streams_ready(void *context, uint32_t events);
/* Whether streams are read: not while a queue is full. */
void pump_pause_streams(struct pump *pump, bool paused);
/* Passes on unfinished lines without news for a while; sets flush_at. */
void pump_flush_streams(struct pump *pump, struct instant now);

/* --- pump_format.c --- */

/* Computes the constant parts of each line. -1: no memory. */
int pump_format_prepare(struct pump_stream *s, bool json);
/* Formats the next bytes of a stream as lines for the console and for the matches. */
void pump_format(struct pump_stream *s, const char *data, size_t length);
/* Passes on the current part of a line that has not ended; in JSON the latest state of a progress line. */
void pump_format_flush(struct pump_stream *s);
/* The same, and there is no more input. */
void pump_format_end(struct pump_stream *s);

#endif
