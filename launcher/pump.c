/* pump.c - see pump.h. */
#include "launcher/pump.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/line.h"
#include "launcher/outlet.h"
#include "launcher/tail.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"

enum { READ_BYTES = 65536, DRAIN_READS = 8 };

static const int64_t flush_after_ns = 50 * NS_PER_MS, /* a person does not notice, a writer has finished */
    patience_ns = NS_PER_S;                           /* a console that took nothing for so long is stuck */

struct pump_stream {
    struct pump_stream *next;
    struct pump *pump;
    struct loop_source source;
    int file, console;
    struct outlet *outlet; /* of the console */
    char *prefix;
    struct line_splitter lines;
    struct instant flush_at; /* an unfinished line is passed on */
    bool paused;             /* waits for room */
    bool dropping;           /* the rest of a line whose beginning was dropped */
    bool ended;
    struct tail *tail;
};

struct pump {
    struct loop *loop;
    struct pump_stream *streams;
    struct outlet *consoles[3]; /* by descriptor number; 1 and 2 are one where they are the same file */
    struct outlet *files;
    struct loop_source wake;      /* an outlet has room again, or lost something */
    bool console_lost, file_lost; /* said already */
    char *chunk;                  /* READ_BYTES */
};

/* --- reading --- */

/* Whether the line goes on in a queue or is to be given up. */
static bool is_stuck(struct outlet *outlet, struct instant now)
{
    struct instant since = outlet_busy_since(outlet);
    return instant_reached(now, instant_add(since, patience_ns));
}

static void give_piece(void *context, const char *data, size_t length, bool ends)
{
    struct pump_stream *s = context;
    bool only_copy = s->file < 0;
    struct outlet_piece piece = {.fd = s->console,
                                 .owner = s,
                                 .prefix = s->prefix,
                                 .prefix_length = s->prefix ? strlen(s->prefix) : 0,
                                 .data = data,
                                 .length = length,
                                 .ends = ends,
                                 .must = only_copy && !is_stuck(s->outlet, clock_now(NULL))};
    if (s->dropping || !outlet_put(s->outlet, &piece)) {
        outlet_drop(s->outlet, &piece);
        s->dropping = !ends;
    }
}

static const struct line_sink *sink_of(struct pump_stream *s, struct line_sink *sink)
{
    *sink = (struct line_sink){.piece = give_piece, .context = s};
    return sink;
}

static void watch(struct pump_stream *s, bool reading)
{
    if (s->paused != reading)
        return;
    s->paused = !reading;
    if (!reading) /* not even for a hang-up, which would come again and again */
        loop_remove(s->pump->loop, &s->source);
    else if (loop_add(s->pump->loop, &s->source, EPOLLIN, NULL) < 0)
        s->ended = true; /* no memory in the kernel: what the worker still says is lost */
}

/* What must have room before the stream is read: its file always, the console where nothing else keeps the
 * lines. */
static bool has_room(struct pump_stream *s, struct instant now)
{
    struct pump *pump = s->pump;
    if (s->file >= 0)
        return outlet_room(pump->files, READ_BYTES) >= READ_BYTES;
    return outlet_room(s->outlet, READ_BYTES) >= READ_BYTES || is_stuck(s->outlet, now);
}

/* Passes a chunk on. The file's queue was asked for room. */
static void pass_on(struct pump_stream *s, const char *data, size_t length)
{
    struct line_sink sink;
    struct outlet_piece piece = {.fd = s->file, .data = data, .length = length, .must = true};
    if (s->file >= 0 && !outlet_put(s->pump->files, &piece))
        outlet_drop(s->pump->files, &piece); /* no memory */
    if (s->tail)
        tail_add(s->tail, data, length);
    line_feed(&s->lines, data, length, sink_of(s, &sink));
    s->flush_at = line_pending(&s->lines) ? instant_add(clock_now(NULL), flush_after_ns) : INSTANT_NEVER;
}

/* One read. 1: there may be more; 0: empty or ended. */
static int read_once(struct pump_stream *s)
{
    if (s->ended)
        return 0;
    ssize_t got;
    do
        got = read(s->source.fd, s->pump->chunk, READ_BYTES);
    while (got < 0 && errno == EINTR);
    if (got > 0) {
        pass_on(s, s->pump->chunk, (size_t)got);
        return 1;
    }
    if (got == 0 || errno != EAGAIN) {
        s->ended = true;
        if (!s->paused)
            loop_remove(s->pump->loop, &s->source);
    }
    return 0;
}

static void stream_ready(void *context, uint32_t events)
{
    struct pump_stream *s = context;
    (void)events; /* a hang-up is an end of file once the pipe is empty */
    if (has_room(s, clock_now(NULL)))
        (void)read_once(s);
    else
        watch(s, false);
}

void pump_drain(struct pump_stream *s)
{
    /* without asking for room: it is little, and the worker's end is told now */
    for (int i = 0; s && i < DRAIN_READS && read_once(s); i++)
        ;
}

/* --- streams --- */

static void stream_free(struct pump_stream *s)
{
    line_free(&s->lines);
    mem_free(s->prefix);
    mem_free(s->tail);
    if (s->source.fd >= 0)
        (void)close(s->source.fd); /* a pipe's read end */
    mem_free(s);
}

/* The same terminal, file or pipe: one queue then, so that lines keep their order. */
static bool same_file(int a, int b)
{
    struct stat x, y;
    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

struct pump_stream *pump_add(struct pump *pump, const struct pump_stream_options *options,
                             struct muster_error *err)
{
    scope_close int fd = options->fd, file = options->file;
    struct pump_stream *s = mem_calloc(1, sizeof *s);
    bool complete = s && (!options->prefix || (s->prefix = mem_strdup(options->prefix))) &&
                    (!options->tail || (s->tail = mem_calloc(1, sizeof *s->tail)));
    if (!complete) {
        error_set(err, MUSTER_E_NOMEM, "no memory for a worker's output");
    } else {
        s->source = (struct loop_source){.fd = fd, .ready = stream_ready, .context = s};
        complete = loop_add(pump->loop, &s->source, EPOLLIN, err) == 0;
    }
    if (!complete) {
        if (s)
            s->source.fd = -1; /* closed by its guard */
        if (s)
            stream_free(s);
        return NULL;
    }
    s->source.fd = take_fd(&fd);
    s->file = take_fd(&file);
    s->pump = pump;
    s->console = options->console;
    s->outlet = pump->consoles[options->console];
    s->flush_at = INSTANT_NEVER;
    s->next = pump->streams;
    pump->streams = s;
    return s;
}

void pump_tail(const struct pump_stream *s, char *out, size_t size)
{
    if (s && s->tail)
        tail_text(s->tail, out, size);
    else if (size)
        *out = '\0';
}

void pump_close(struct pump_stream *s)
{
    struct line_sink sink;
    if (!s)
        return;
    pump_drain(s);
    line_flush(&s->lines, sink_of(s, &sink));
    outlet_forget(s->outlet, s);
    if (!s->ended && !s->paused)
        loop_remove(s->pump->loop, &s->source);
    struct pump_stream **link = &s->pump->streams;
    while (*link != s)
        link = &(*link)->next;
    *link = s->next;
    outlet_close(s->pump->files, s->file);
    stream_free(s);
}

/* --- time and outlets --- */

bool pump_idle(const struct pump *pump)
{
    const struct pump_stream *s = pump->streams;
    while (s && s->ended)
        s = s->next;
    return !s;
}

bool pump_waits(const struct pump *pump)
{
    const struct pump_stream *s = pump->streams;
    while (s && (s->ended || !s->paused))
        s = s->next;
    return s;
}

struct instant pump_deadline(const struct pump *pump)
{
    struct instant next = INSTANT_NEVER;
    for (const struct pump_stream *s = pump->streams; s; s = s->next) {
        next = instant_min(next, s->flush_at);
        if (s->paused && !s->ended && s->file < 0)
            next = instant_min(next, instant_add(outlet_busy_since(s->outlet), patience_ns));
    }
    return next;
}

void pump_tick(struct pump *pump, struct instant now)
{
    for (struct pump_stream *s = pump->streams; s; s = s->next) {
        struct line_sink sink;
        if (instant_reached(now, s->flush_at)) {
            line_flush(&s->lines, sink_of(s, &sink));
            s->flush_at = INSTANT_NEVER;
        }
        if (s->paused && !s->ended && has_room(s, now))
            watch(s, true);
    }
}

struct pump_lost pump_lost(struct pump *pump)
{
    struct pump_lost lost = {0};
    if (pump->files)
        lost.files = outlet_lost(pump->files).bytes;
    for (int console = STDOUT_FILENO; console <= STDERR_FILENO; console++)
        if (pump->consoles[console] &&
            (console == STDOUT_FILENO || pump->consoles[console] != pump->consoles[STDOUT_FILENO]))
            lost.consoles += outlet_lost(pump->consoles[console]).bytes;
    return lost;
}

static void say_lost(struct pump *pump, struct outlet *outlet, const char *what, bool *said)
{
    struct outlet_lost lost = outlet_lost(outlet);
    if (*said || !lost.error)
        return;
    *said = true;
    char line[200], reason[100];
    int length = snprintf(line, sizeof line, "muster: warning: %s cannot be written: %s\n", what,
                          strerror_r(lost.error, reason, sizeof reason));
    pump_print(pump, STDERR_FILENO, line, (size_t)length);
}

static void outlets_ready(void *context, uint32_t events)
{
    struct pump *pump = context;
    uint64_t count;
    (void)events;
    ssize_t got = read(pump->wake.fd, &count, sizeof count);
    (void)got; /* the outlets say what it was */
    say_lost(pump, pump->files, "a log file of the workers", &pump->file_lost);
    say_lost(pump, pump->consoles[STDOUT_FILENO], "the console", &pump->console_lost);
    pump_tick(pump, clock_now(NULL));
}

void pump_print(struct pump *pump, int console, const char *text, size_t length)
{
    struct outlet_piece piece = {.fd = console, .owner = pump, .data = text, .length = length, .ends = true};
    if (!outlet_put(pump->consoles[console], &piece))
        outlet_drop(pump->consoles[console], &piece);
}

void pump_log(void *context, enum log_level level, const char *line)
{
    char out[1100];
    (void)level; /* stands in the line */
    int length = snprintf(out, sizeof out, "%s\n", line);
    if (length > 0 && length < (int)sizeof out)
        pump_print(context, STDERR_FILENO, out, (size_t)length);
}

/* --- life --- */

/* Standard output first: where it is stuck, standard error can tell. */
static size_t finish_consoles(struct pump *pump)
{
    if (pump->consoles[2] == pump->consoles[1])
        return outlet_finish(pump->consoles[1], patience_ns);
    char line[160];
    uint64_t lost = pump->consoles[1] ? outlet_lost(pump->consoles[1]).bytes : 0;
    size_t left = outlet_finish(pump->consoles[1], patience_ns);
    if (left) { /* nobody reads standard output any more, so its own line of dropped ones is stuck in it */
        int length =
            snprintf(line, sizeof line,
                     "muster: warning: standard output is stuck: %llu bytes of the workers are not shown\n",
                     (unsigned long long)(lost + left));
        pump_print(pump, STDERR_FILENO, line, (size_t)length);
    }
    return left + outlet_finish(pump->consoles[2], patience_ns);
}

/* The files first: what did not get there can still be told on the console. */
static size_t finish_outlets(struct pump *pump)
{
    char line[120];
    uint64_t lost = pump->files ? outlet_lost(pump->files).bytes : 0;
    size_t left = outlet_finish(pump->files, patience_ns);
    if (lost + left) {
        int length = snprintf(line, sizeof line,
                              "muster: warning: %llu bytes of the workers are missing in the log files\n",
                              (unsigned long long)(lost + left));
        pump_print(pump, STDERR_FILENO, line, (size_t)length);
    }
    return left + finish_consoles(pump);
}

struct pump *pump_create(struct loop *loop, struct muster_error *err)
{
    scope_free struct pump *pump = mem_calloc(1, sizeof *pump);
    scope_free char *chunk = mem_calloc(READ_BYTES, 1);
    if (!pump || !chunk) {
        error_set(err, MUSTER_E_NOMEM, "no memory for the workers' output");
        return NULL;
    }
    scope_close int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake < 0) {
        error_errno(err, "eventfd");
        return NULL;
    }
    pump->loop = loop;
    pump->wake = (struct loop_source){.fd = wake, .ready = outlets_ready, .context = pump};
    bool complete =
        (pump->consoles[1] = outlet_create("the console", wake, err)) &&
        (pump->consoles[2] = same_file(1, 2) ? pump->consoles[1] : outlet_create("the console", wake, err)) &&
        (pump->files = outlet_create("the log files", wake, err)) &&
        loop_add(loop, &pump->wake, EPOLLIN, err) == 0;
    if (!complete) {
        (void)finish_outlets(pump); /* nothing was put in */
        return NULL;
    }
    pump->chunk = take_pointer(&chunk);
    (void)take_fd(&wake);
    return take_pointer(&pump);
}

size_t pump_destroy(struct pump *pump)
{
    if (!pump)
        return 0;
    while (pump->streams)
        pump_close(pump->streams);
    size_t left = finish_outlets(pump);
    loop_remove(pump->loop, &pump->wake);
    if (!left)
        (void)close(pump->wake.fd); /* an outlet that hangs may still write to it */
    mem_free(pump->chunk);
    mem_free(pump);
    return left;
}
