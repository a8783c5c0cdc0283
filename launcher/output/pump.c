/* pump.c - destinations of output, the agent's own lines, creation and close of the whole: see pump.h.
 * pump_stream.c has the streams. */
#include "launcher/output/pump.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/output/pump_internal.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "proto/base/thread.h"

static const int64_t console_patience_ns = NS_PER_S, /* limit without progress, at the end */
    file_patience_ns = 5 * NS_PER_S, finish_limit_ns = 30 * NS_PER_S;

/* --- files --- */

struct output_file *pump_file(struct pump *pump, const struct output_file_options *options,
                              struct muster_error *err)
{
    struct output_file *file = write_queue_target(pump->files, options);
    if (!file) {
        (void)close(options->fd); /* nothing was written */
        error_set(err, MUSTER_E_NOMEM, "no memory for a log file");
    }
    return file;
}

void pump_release(struct pump *pump, struct output_file *file)
{
    write_queue_release(pump->files, file);
}

/* --- time and write queues --- */

struct instant pump_deadline(const struct pump *pump)
{
    struct instant next = pump->flush_at;
    if (!pump->paused)
        return next;
    next = instant_min(next, write_queue_due(pump->files));
    next = instant_min(next, write_queue_due(pump->consoles[1]));
    return instant_min(next, write_queue_due(pump->consoles[2]));
}

void pump_tick(struct pump *pump, struct instant now)
{
    if (instant_reached(now, pump->flush_at))
        pump_flush_streams(pump, now);
    pump_pause_streams(pump, false); /* a queue without room reports it at once */
}

struct pump_lost pump_lost(struct pump *pump)
{
    struct pump_lost lost = {0};
    if (pump->files)
        lost.files = write_queue_lost(pump->files).bytes;
    for (int console = STDOUT_FILENO; console <= STDERR_FILENO; console++)
        if (pump->consoles[console] &&
            (console == STDOUT_FILENO || pump->consoles[console] != pump->consoles[STDOUT_FILENO]))
            lost.consoles += write_queue_lost(pump->consoles[console]).bytes;
    return lost;
}

static void log_lost(struct pump *pump, const struct write_queue_lost *lost, const char *what, bool *logged)
{
    if (*logged || !lost->error)
        return;
    *logged = true;
    char line[200], reason[100];
    (void)snprintf(line, sizeof line, "muster: warning: %s cannot be written: %s%s", what,
                   strerror_r(lost->error, reason, sizeof reason),
                   lost->error == ENOSPC || lost->error == EDQUOT ? "; new output waits until there is space"
                                                                  : "");
    pump_say(pump, LOG_LEVEL_WARNING, line);
}

static void log_no_thread(struct pump *pump, const struct write_queue_lost *lost)
{
    struct muster_error why = {0};
    if (pump->without_thread || !lost->no_thread)
        return;
    pump->without_thread = true;
    (void)thread_error(&why, lost->no_thread, "a thread that writes output");
    (void)error_wrap(&why, "muster: warning");
    char line[MUSTER_ERROR_TEXT + 64];
    (void)snprintf(line, sizeof line, "%s: the agent writes itself, and waits where that is slow", why.text);
    pump_say(pump, LOG_LEVEL_WARNING, line);
}

static void outlets_ready(void *context, uint32_t events)
{
    struct pump *pump = context;
    uint64_t count;
    (void)events;
    ssize_t got = read(pump->wake.fd, &count, sizeof count);
    (void)got; /* the write queues report which one it was */
    const struct write_queue_lost files = write_queue_lost(pump->files),
                                  out = write_queue_lost(pump->consoles[STDOUT_FILENO]),
                                  error = write_queue_lost(pump->consoles[STDERR_FILENO]);
    log_lost(pump, &files, "a log file", &pump->file_lost);
    log_lost(pump, &out, "the console", &pump->console_lost);
    log_no_thread(pump, &files);
    log_no_thread(pump, &out);
    log_no_thread(pump, &error);
    pump_tick(pump, clock_now(NULL));
}

/* --- the agent's own lines --- */

static void print(struct pump *pump, struct write_queue *outlet, struct output_file *target, const char *text,
                  size_t length)
{
    struct write_queue_piece piece = {.target = target,
                                      .owner = pump,
                                      .data = text,
                                      .length = length,
                                      .lines = 1,
                                      .starts = true,
                                      .ends = true,
                                      .keep = true,
                                      .urgent = true};
    (void)write_queue_put(outlet, &piece); /* if it is refused it is counted */
}

void pump_print(struct pump *pump, int console, const char *text, size_t length)
{
    print(pump, pump->consoles[console], pump->shown[console], text, length);
}

/* agent.log has times in both cases. */
static int record_for_log(const struct pump *pump, enum log_level level, const char *text, struct buffer *out)
{
    static const struct log_style timed = {.format = LOG_FORMAT_TIMED};
    bool json = pump->style.format == LOG_FORMAT_JSON;
    return log_record_agent(json ? &pump->style : &timed, level, clock_wall_ns(), text, out);
}

void pump_say(struct pump *pump, enum log_level level, const char *text)
{
    scope_buffer record = {0};
    if (log_record_agent(&pump->style, level, clock_wall_ns(), text, &record) == 0)
        pump_print(pump, STDERR_FILENO, record.data, record.length);
    struct output_file *file = __atomic_load_n(&pump->log, __ATOMIC_ACQUIRE);
    buffer_clear(&record);
    if (file && record_for_log(pump, level, text, &record) == 0)
        print(pump, pump->files, file, record.data, record.length);
}

void pump_log(void *context, enum log_level level, const char *line)
{
    pump_say(context, level, line);
}

void pump_tail(const struct pump_stream *s, char *out, size_t size)
{
    if (s && s->tail)
        tail_text(s->tail, out, size);
    else if (size)
        *out = '\0';
}

void pump_keep_log(struct pump *pump, struct output_file *file)
{
    __atomic_store_n(&pump->log, file, __ATOMIC_RELEASE);
}

/* --- life --- */

/* Standard output first: if it is stuck, the notice can go to standard error. */
static size_t finish_consoles(struct pump *pump, struct instant limit)
{
    struct write_queue_lost out = {0}, error = {0};
    bool one = pump->consoles[1] == pump->consoles[2];
    bool ended = one || write_queue_finish(pump->consoles[1], console_patience_ns, limit, &out);
    if (!ended || (out.error && out.bytes)) { /* it cannot report itself */
        char line[160];
        (void)snprintf(line, sizeof line,
                       "muster: warning: standard output %s: %llu bytes of the workers are not shown",
                       ended ? "cannot be written" : "is stuck", (unsigned long long)out.bytes);
        pump_say(pump, LOG_LEVEL_WARNING, line);
    }
    (void)write_queue_finish(pump->consoles[2], console_patience_ns, limit,
                             &error); /* no destination for a notice */
    return out.bytes + error.bytes;
}

/* Into agent.log, since the console may not have been read. */
static void note_unshown(struct pump *pump)
{
    struct write_queue_lost lost =
        pump->log ? write_queue_lost(pump->consoles[1]) : (struct write_queue_lost){0};
    if (pump->log && pump->consoles[2] != pump->consoles[1]) {
        struct write_queue_lost more = write_queue_lost(pump->consoles[2]);
        lost.lines += more.lines;
        lost.bytes += more.bytes;
    }
    struct output_file *log = pump->log;
    pump->log = NULL; /* no more records */
    if (!lost.bytes)
        return;
    char line[160];
    scope_buffer record = {0};
    (void)snprintf(line, sizeof line,
                   "muster: warning: %llu lines (%llu bytes) were not shown on the console",
                   (unsigned long long)lost.lines, (unsigned long long)lost.bytes);
    if (record_for_log(pump, LOG_LEVEL_WARNING, line, &record) == 0)
        print(pump, pump->files, log, record.data, record.length);
}

/* The files first: the console can still report bytes that they lost. */
static size_t finish_outlets(struct pump *pump)
{
    struct instant limit = instant_add(clock_now(NULL), finish_limit_ns);
    struct write_queue_lost files = {0};
    note_unshown(pump);
    (void)write_queue_finish(pump->files, file_patience_ns, limit, &files);
    if (files.bytes) {
        char line[120];
        (void)snprintf(line, sizeof line,
                       "muster: warning: %llu bytes of the workers are missing in the log files",
                       (unsigned long long)files.bytes);
        pump_say(pump, LOG_LEVEL_WARNING, line);
    }
    return files.bytes + finish_consoles(pump, limit);
}

static int make_outlets(struct pump *pump, const struct pump_options *options, struct muster_error *err)
{
    struct write_queue_options outlet = {pump->wake.fd, options->spool_folder, options->spool_limit};
    struct output_file_options console = {.fd = STDOUT_FILENO, .name = "the console", .style = &pump->style};
    pump->files = write_queue_create(&outlet, err);
    pump->consoles[1] = pump->files ? write_queue_create(&outlet, err) : NULL;
    /* The same terminal, file or pipe: one queue, so that lines keep their order. */
    struct stat x, y;
    bool one = fstat(STDOUT_FILENO, &x) == 0 && fstat(STDERR_FILENO, &y) == 0 && x.st_dev == y.st_dev &&
               x.st_ino == y.st_ino;
    pump->consoles[2] = one ? pump->consoles[1] : pump->consoles[1] ? write_queue_create(&outlet, err) : NULL;
    if (!pump->consoles[2])
        return -1;
    pump->shown[1] = write_queue_target(pump->consoles[1], &console);
    console.fd = STDERR_FILENO;
    pump->shown[2] = one ? pump->shown[1] : write_queue_target(pump->consoles[2], &console);
    return pump->shown[1] && pump->shown[2] ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory for the console");
}

static int watch_sources(struct pump *pump, struct muster_error *err)
{
    int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), streams = epoll_create1(EPOLL_CLOEXEC);
    pump->wake = (struct loop_source){.fd = wake, .ready = outlets_ready, .context = pump};
    pump->streams_source = (struct loop_source){.fd = streams, .ready = pump_streams_ready, .context = pump};
    if (wake < 0 || streams < 0)
        return error_errno(err, "eventfd or epoll for the workers' output");
    if (loop_add(pump->loop, &pump->wake, EPOLLIN, err) < 0)
        return -1;
    pump->watched = true;
    return loop_add(pump->loop, &pump->streams_source, EPOLLIN, err);
}

static void pump_free(struct pump *pump, bool keep_wake)
{
    if (pump->watched) {
        loop_remove(pump->loop, &pump->wake);
        loop_remove(pump->loop, &pump->streams_source);
    }
    if (pump->wake.fd >= 0 && !keep_wake)
        (void)close(pump->wake.fd); /* an eventfd */
    if (pump->streams_source.fd >= 0)
        (void)close(pump->streams_source.fd); /* an epoll */
    buffer_free(&pump->block);
    buffer_free(&pump->matched);
    mem_free(pump->chunk);
    mem_free(pump);
}

struct pump *pump_create(const struct pump_options *options, struct muster_error *err)
{
    struct pump *pump = mem_calloc(1, sizeof *pump);
    if (!pump) {
        error_set(err, MUSTER_E_NOMEM, "no memory for the workers' output");
        return NULL;
    }
    pump->loop = options->loop;
    pump->style = options->style;
    pump->flush_at = INSTANT_NEVER;
    pump->wake.fd = pump->streams_source.fd = -1;
    pump->chunk = mem_realloc(NULL, PUMP_READ_BYTES, 1); /* not cleared: a quiet worker's costs nothing */
    if (!pump->chunk)
        error_set(err, MUSTER_E_NOMEM, "no memory for the workers' output");
    if (pump->chunk && watch_sources(pump, err) == 0 && make_outlets(pump, options, err) == 0)
        return pump;
    /* The pump could not be made: parts may be missing, and nothing was queued. */
    struct write_queue_lost none;
    const struct instant now = clock_now(NULL);
    (void)write_queue_finish(pump->files, 0, now, &none);
    (void)write_queue_finish(pump->consoles[1], 0, now, &none);
    if (pump->consoles[2] != pump->consoles[1])
        (void)write_queue_finish(pump->consoles[2], 0, now, &none);
    pump_free(pump, false);
    return NULL;
}

size_t pump_destroy(struct pump *pump)
{
    if (!pump)
        return 0;
    while (pump->streams)
        pump_close(pump->streams);
    size_t left = finish_outlets(pump);
    pump_free(pump, left > 0); /* a write queue that hangs may still write to the eventfd */
    return left;
}
