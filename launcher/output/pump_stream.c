/* pump_stream.c - reads the workers' pipes, as far as there is room for the output; see pump.h. They have
 * an epoll of their own: while a queue is full, the loop does not poll it, which pauses all of them by one
 * call. */
#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "launcher/output/pump_internal.h"
#include "launcher/output/tail.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"

enum { DRAIN_READS = 5, TURN_EVENTS = 64 };

static const int64_t flush_after_ns =
    50 * NS_PER_MS; /* unnoticeable to a person, long enough for a writer to finish */
static const int64_t state_every_ns = NS_PER_S; /* a progress bar writes up to hundreds of states a second */

/* --- reading --- */

/* Whether there is room for the next read; false: wait. */
static bool has_room(struct pump_stream *s, struct instant now)
{
    struct pump *pump = s->pump;
    bool filed = s->file || s->matches;
    if (filed && !write_queue_accepts(pump->files, PUMP_READ_BYTES, true, now))
        return false;
    return !s->console || write_queue_accepts(s->outlet, PUMP_READ_BYTES, !s->file, now);
}

static void pass_on(struct pump_stream *s, const char *data, size_t length)
{
    struct pump *pump = s->pump;
    struct write_queue_piece piece = {
        .target = s->file, .data = data, .length = length, .keep = true, .must = true};
    if (s->file)
        (void)write_queue_put(pump->files, &piece); /* if it is refused it is counted */
    if (s->has_tail && !s->tail)
        s->tail = mem_calloc(1, sizeof *s->tail); /* without memory a report has no last lines */
    if (s->has_tail && !s->notable)
        s->notable = mem_calloc(1, sizeof *s->notable);
    if (s->tail)
        tail_add(s->tail, data, length);
    if (s->notable)
        notable_add(s->notable, data, length);
    if (!s->console && !s->matches)
        return;
    pump_format(s, data, length);
    struct instant flush_at = instant_add(clock_now(NULL), flush_after_ns);
    if (!s->lines.states)
        s->flush_at = line_pending(&s->lines) ? flush_at : INSTANT_NEVER;
    else if (!line_has_state(&s->lines))
        s->flush_at = INSTANT_NEVER;
    else if (s->flush_at.ns == INSTANT_NEVER.ns) { /* later states do not put it off */
        struct instant next = instant_add(s->state_at, state_every_ns);
        s->flush_at = instant_reached(flush_at, next) ? flush_at : next;
    }
    pump->flush_at = instant_min(pump->flush_at, s->flush_at);
}

static void end_stream(struct pump_stream *s)
{
    if (!s->ended)
        (void)epoll_ctl(s->pump->streams_source.fd, EPOLL_CTL_DEL, s->fd, NULL); /* it is in the set */
    s->ended = true;
}

/* One read. 1: there may be more; 0: empty or ended. */
static int read_once(struct pump_stream *s)
{
    ssize_t got;
    if (s->ended)
        return 0;
    do
        got = read(s->fd, s->pump->chunk, s->read_bytes);
    while (got < 0 && errno == EINTR);
    if (got > 0) {
        s->bytes += (uint64_t)got;
        pass_on(s, s->pump->chunk, (size_t)got);
        return 1;
    }
    if (got == 0 || errno != EAGAIN)
        end_stream(s);
    return 0;
}

void pump_pause_streams(struct pump *pump, bool paused)
{
    if (pump->paused == paused)
        return;
    /* not removed: adding an epoll to another one costs a walk over all its descriptors */
    if (loop_modify(pump->loop, &pump->streams_source, paused ? 0 : EPOLLIN, NULL) == 0)
        pump->paused = paused;
}

static void kick(struct pump *pump)
{
    write_queue_kick(pump->files);
    write_queue_kick(pump->consoles[1]);
    if (pump->consoles[2] != pump->consoles[1])
        write_queue_kick(pump->consoles[2]);
}

void pump_streams_ready(void *context, uint32_t events)
{
    struct pump *pump = context;
    struct epoll_event ready[TURN_EVENTS];
    (void)events;
    int count =
        epoll_wait(pump->streams_source.fd, ready, TURN_EVENTS, 0); /* interrupted: it is readable again */
    struct instant now = clock_now(NULL);
    for (int i = 0; i < count && !pump->paused; i++) {
        struct pump_stream *s = ready[i].data.ptr;
        if (has_room(s, now))
            (void)read_once(s); /* a hang-up is an end of file once the pipe is empty */
        else
            pump_pause_streams(pump, true);
    }
    kick(pump);
}

void pump_drain(struct pump_stream *s)
{
    /* without asking for room: it is little, and the worker's end is reported now */
    for (int i = 0; s && i < DRAIN_READS && read_once(s); i++)
        ;
    if (s)
        kick(s->pump);
}

/* --- streams --- */

static void stream_free(struct pump_stream *s)
{
    if (!s)
        return;
    line_free(&s->lines);
    buffer_free(&s->head);
    buffer_free(&s->prefix);
    mem_free(s->tail);
    mem_free(s->notable);
    mem_free(s->pattern);
    if (s->fd >= 0)
        (void)close(s->fd); /* a pipe's read end */
    mem_free(s);
}

static struct pump_stream *make_stream(struct pump *pump, const struct pump_stream_options *options)
{
    struct pump_stream *s = mem_calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->pump = pump;
    s->fd = -1;
    s->stream = options->stream;
    s->console = options->console;
    s->outlet = pump->consoles[options->stream];
    s->shown = pump->shown[options->stream];
    s->matches = options->matches;
    s->filter = options->filter;
    s->pattern = options->prefix ? mem_strdup(options->prefix) : NULL;
    s->names = options->names;
    s->timed = s->pattern && line_prefix_has_time(s->pattern);
    s->read_bytes = PUMP_READ_BYTES;
    s->flush_at = INSTANT_NEVER;
    s->has_tail = options->tail;
    bool json = pump->style.format == LOG_FORMAT_JSON;
    bool complete = (!options->prefix || s->pattern) && pump_format_prepare(s, json) == 0;
    if (complete)
        return s;
    stream_free(s);
    return NULL;
}

struct pump_stream *pump_add(struct pump *pump, const struct pump_stream_options *options,
                             struct muster_error *err)
{
    scope_close int fd = options->fd;
    struct pump_stream *s = make_stream(pump, options);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = s};
    int added = s ? epoll_ctl(pump->streams_source.fd, EPOLL_CTL_ADD, fd, &event) : -1;
    if (added < 0) {
        if (s)
            error_errno(err, "cannot watch the output of a worker");
        else
            error_set(err, MUSTER_E_NOMEM, "no memory for a worker's output");
        stream_free(s);
        pump_release(pump, options->file);
        return NULL;
    }
    s->fd = take_fd(&fd);
    s->file = options->file;
    s->next = pump->streams;
    s->link = &pump->streams;
    if (s->next)
        s->next->link = &s->next;
    pump->streams = s;
    return s;
}

uint64_t pump_bytes(const struct pump_stream *s)
{
    return s ? s->bytes : 0;
}

bool pump_notable(struct pump_stream *s, char *out)
{
    return s && s->notable && notable_take(s->notable, out);
}

void pump_close(struct pump_stream *s)
{
    if (!s)
        return;
    struct pump *pump = s->pump;
    pump_drain(s);
    pump_format_end(s);
    kick(pump);
    write_queue_forget(s->outlet, s->shown, s);
    if (s->matches)
        write_queue_forget(pump->files, s->matches, s);
    end_stream(s);
    *s->link = s->next;
    if (s->next)
        s->next->link = s->link;
    write_queue_release(pump->files, s->file);
    stream_free(s);
}

/* --- time --- */

bool pump_idle(const struct pump *pump)
{
    const struct pump_stream *s = pump->streams;
    while (s && s->ended)
        s = s->next;
    return !s;
}

void pump_flush_streams(struct pump *pump, struct instant now)
{
    pump->flush_at = INSTANT_NEVER;
    for (struct pump_stream *s = pump->streams; s; s = s->next) {
        if (instant_reached(now, s->flush_at)) {
            /* The line has had no news for a while. Its end may be in the pipe, which was not read while a
             * queue was full. */
            s->flush_at = INSTANT_NEVER;
            if (!has_room(s, now))
                s->flush_at = instant_add(now, flush_after_ns);
            else if (!read_once(s) || s->lines.states) /* a progress bar always has more */
                pump_format_flush(s);
        }
        pump->flush_at = instant_min(pump->flush_at, s->flush_at);
    }
    kick(pump);
}
