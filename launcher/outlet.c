/* outlet.c - see outlet.h. Two buffers: producers fill one under the lock, the thread writes the other
 * without it, and they change places when the thread is done. */
#include "launcher/outlet.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "proto/base/buffer.h"
#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "proto/base/thread.h"

enum { STACK_BYTES = 256 * 1024, BATCH = 64 };

/* In the buffers before the bytes of each piece. */
struct record {
    int fd;
    uint32_t length; /* RECORD_CLOSE: no bytes, the descriptor is closed */
};
#define RECORD_CLOSE UINT32_MAX

struct outlet {
    pthread_mutex_t lock;
    pthread_cond_t filled, drained;
    pthread_t thread;
    bool started, closing, ended;
    bool abandoned; /* the thread is the last one here */
    bool wanted;    /* somebody waits for room */
    int last_fd;    /* where the last line went */
    const char *name;
    int wake_fd;
    struct buffer filling;                  /* under the lock */
    struct buffer writing;                  /* the thread's own */
    size_t in_hand;                         /* bytes in writing, under the lock */
    const void *open;                       /* owner of the line that has not ended */
    int64_t busy_since;                     /* ns, atomic; INT64_MAX: not in a write */
    uint64_t dropped_pieces, dropped_bytes; /* not told yet */
    struct outlet_lost lost;
};

static void wake(const struct outlet *o)
{
    uint64_t one = 1;
    ssize_t done = write(o->wake_fd, &one, sizeof one);
    (void)done; /* an eventfd refuses only where it is at its maximum: then it is readable already */
}

/* --- the thread --- */

static void refused(struct outlet *o, size_t bytes, int error)
{
    pthread_mutex_lock(&o->lock);
    bool first = !o->lost.error;
    o->lost.pieces++;
    o->lost.bytes += bytes;
    o->lost.error = error;
    pthread_mutex_unlock(&o->lock);
    if (first)
        wake(o);
}

/* One write, repeated where it was interrupted or where somebody else made the descriptor non-blocking. */
static ssize_t write_some(struct outlet *o, int fd, const struct iovec *parts, int count)
{
    for (;;) {
        __atomic_store_n(&o->busy_since, clock_now(NULL).ns, __ATOMIC_RELAXED);
        ssize_t done = writev(fd, parts, count);
        int error = errno;
        __atomic_store_n(&o->busy_since, INT64_MAX, __ATOMIC_RELAXED);
        if (done >= 0 || (error != EINTR && error != EAGAIN)) {
            errno = error;
            return done;
        }
        struct pollfd wait = {.fd = fd, .events = POLLOUT};
        __atomic_store_n(&o->busy_since, clock_now(NULL).ns, __ATOMIC_RELAXED);
        if (error == EAGAIN)
            (void)poll(&wait, 1, -1); /* interrupted or not, the write is tried again */
    }
}

/* All of the parts, in as many writes as the descriptor wants. */
static void write_parts(struct outlet *o, int fd, struct iovec *parts, int count, size_t total)
{
    while (total) {
        ssize_t done = write_some(o, fd, parts, count);
        if (done < 0) {
            refused(o, total, errno);
            return;
        }
        total -= (size_t)done;
        for (size_t left = (size_t)done; left;) {
            size_t step = left < parts->iov_len ? left : parts->iov_len;
            parts->iov_base = (char *)parts->iov_base + step;
            parts->iov_len -= step;
            left -= step;
            if (!parts->iov_len) {
                parts++;
                count--;
            }
        }
    }
}

/* Writes the records of the buffer: one alone, or several short ones for the same descriptor together. */
static void write_records(struct outlet *o)
{
    const struct buffer *b = &o->writing;
    size_t at = 0;
    while (at < b->length) {
        struct iovec parts[BATCH];
        int count = 0, fd = -1;
        size_t total = 0;
        while (at < b->length && count < BATCH) {
            struct record record;
            memcpy(&record, b->data + at, sizeof record);
            bool closes = record.length == RECORD_CLOSE;
            if (count && (closes || record.fd != fd || total + record.length > PIPE_BUF))
                break;
            if (closes) {
                at += sizeof record;
                (void)close(record.fd); /* what the file did not take was refused by write already */
                continue;
            }
            parts[count++] = (struct iovec){b->data + at + sizeof record, record.length};
            fd = record.fd;
            total += record.length;
            at += sizeof record + record.length;
        }
        write_parts(o, fd, parts, count, total);
    }
}

static void outlet_free(struct outlet *o)
{
    buffer_free(&o->filling);
    buffer_free(&o->writing);
    pthread_cond_destroy(&o->filled);
    pthread_cond_destroy(&o->drained);
    pthread_mutex_destroy(&o->lock);
    mem_free(o);
}

static void *outlet_thread(void *context)
{
    struct outlet *o = context;
    pthread_mutex_lock(&o->lock);
    for (;;) {
        while (!o->filling.length && !o->closing)
            pthread_cond_wait(&o->filled, &o->lock);
        if (!o->filling.length)
            break;
        struct buffer full = o->filling;
        o->filling = o->writing;
        o->writing = full;
        o->in_hand = full.length;
        bool wanted = o->wanted;
        o->wanted = false;
        pthread_mutex_unlock(&o->lock);
        if (wanted)
            wake(o);
        write_records(o);
        buffer_clear(&o->writing);
        pthread_mutex_lock(&o->lock);
        o->in_hand = 0;
    }
    o->ended = true;
    pthread_cond_broadcast(&o->drained);
    bool abandoned = o->abandoned;
    pthread_mutex_unlock(&o->lock);
    if (abandoned)
        outlet_free(o);
    return NULL;
}

/* The thread takes no signal: they are the main thread's, by signalfd. */
static bool start_thread(struct outlet *o)
{
    o->started = thread_start(&o->thread, STACK_BYTES, outlet_thread, o) == 0;
    return o->started;
}

/* --- producers --- */

struct outlet *outlet_create(const char *name, int wake_fd, struct muster_error *err)
{
    struct outlet *o = mem_calloc(1, sizeof *o);
    if (!o) {
        error_set(err, MUSTER_E_NOMEM, "no memory for the queue of %s", name);
        return NULL;
    }
    pthread_condattr_t attributes;
    pthread_mutex_init(&o->lock, NULL); /* on Linux none of these can fail */
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&o->filled, &attributes);
    pthread_cond_init(&o->drained, &attributes);
    pthread_condattr_destroy(&attributes);
    o->name = name;
    o->wake_fd = wake_fd;
    o->busy_since = INT64_MAX;
    return o;
}

/* Room for a record of length bytes at the end of filling; NULL where there is none. */
static char *reserve(struct outlet *o, int fd, size_t length, bool must)
{
    size_t need = sizeof(struct record) + length;
    if (length >= RECORD_CLOSE || (!must && o->filling.length + need > OUTLET_LIMIT))
        return NULL;
    char *out = buffer_reserve(&o->filling, need);
    if (!out) {
        o->filling.failed = false; /* no memory now is no failure for ever */
        return NULL;
    }
    struct record record = {fd, (uint32_t)length};
    memcpy(out, &record, sizeof record);
    o->filling.length += need;
    return out + sizeof record;
}

/* The line that tells of dropped ones, once there is room. */
static void tell_dropped(struct outlet *o, int fd, bool must)
{
    char line[160];
    if (!o->dropped_pieces)
        return;
    int length = snprintf(line, sizeof line,
                          "%smuster: warning: %llu lines (%llu bytes) are not shown: %s did not keep up\n",
                          o->open ? "\n" : "", (unsigned long long)o->dropped_pieces,
                          (unsigned long long)o->dropped_bytes, o->name);
    char *out = reserve(o, fd, (size_t)length, must);
    if (!out)
        return;
    memcpy(out, line, (size_t)length);
    o->dropped_pieces = o->dropped_bytes = 0;
    o->open = NULL;
}

static bool put_locked(struct outlet *o, const struct outlet_piece *piece)
{
    if ((!o->started && !start_thread(o)) || o->closing)
        return false;
    if (piece->owner)
        tell_dropped(o, piece->fd, piece->must);
    bool follows = !piece->owner || o->open == piece->owner;
    size_t separator = piece->owner && o->open && !follows ? 1 : 0;
    size_t prefix = follows || !piece->prefix ? 0 : piece->prefix_length;
    char *out = reserve(o, piece->fd, separator + prefix + piece->length, piece->must);
    if (!out)
        return false;
    if (separator)
        *out++ = '\n';
    if (prefix)
        memcpy(out, piece->prefix, prefix);
    memcpy(out + prefix, piece->data, piece->length);
    if (piece->owner) {
        o->open = piece->ends ? NULL : piece->owner;
        o->last_fd = piece->fd;
    }
    pthread_cond_signal(&o->filled);
    return true;
}

bool outlet_put(struct outlet *o, const struct outlet_piece *piece)
{
    pthread_mutex_lock(&o->lock);
    bool taken = put_locked(o, piece);
    if (!taken)
        o->wanted = true;
    pthread_mutex_unlock(&o->lock);
    return taken;
}

void outlet_drop(struct outlet *o, const struct outlet_piece *piece)
{
    pthread_mutex_lock(&o->lock);
    o->dropped_pieces++;
    o->dropped_bytes += piece->length;
    o->lost.pieces++;
    o->lost.bytes += piece->length;
    pthread_mutex_unlock(&o->lock);
}

void outlet_forget(struct outlet *o, const void *owner)
{
    pthread_mutex_lock(&o->lock);
    if (o->open == owner)
        o->open = o; /* which owns no piece */
    pthread_mutex_unlock(&o->lock);
}

size_t outlet_room(struct outlet *o, size_t wanted)
{
    pthread_mutex_lock(&o->lock);
    size_t room = o->filling.length < OUTLET_LIMIT ? OUTLET_LIMIT - o->filling.length : 0;
    if (room < wanted)
        o->wanted = true;
    pthread_mutex_unlock(&o->lock);
    return room;
}

void outlet_close(struct outlet *o, int fd)
{
    if (fd < 0)
        return;
    pthread_mutex_lock(&o->lock);
    char *out = o->started && !o->closing ? reserve(o, fd, 0, true) : NULL;
    if (out) {
        struct record record = {fd, RECORD_CLOSE};
        memcpy(out - sizeof record, &record, sizeof record);
        pthread_cond_signal(&o->filled);
    }
    bool idle = !o->started;
    pthread_mutex_unlock(&o->lock);
    if (!out && idle)
        (void)close(fd); /* nothing was ever put; without memory for a record it closes at our end */
}

struct instant outlet_busy_since(struct outlet *o)
{
    return (struct instant){__atomic_load_n(&o->busy_since, __ATOMIC_RELAXED)};
}

struct outlet_lost outlet_lost(struct outlet *o)
{
    pthread_mutex_lock(&o->lock);
    struct outlet_lost lost = o->lost;
    pthread_mutex_unlock(&o->lock);
    return lost;
}

/* Waits until the thread has ended or hangs; with the lock. */
static void await_end(struct outlet *o, int64_t patience_ns)
{
    while (o->started && !o->ended) {
        struct instant now = clock_now(NULL), limit = instant_add(outlet_busy_since(o), patience_ns);
        if (instant_reached(now, limit))
            return;
        struct timespec until = instant_timespec(instant_min(limit, instant_add(now, patience_ns)));
        (void)pthread_cond_timedwait(&o->drained, &o->lock, &until); /* late or not, we look again */
    }
}

size_t outlet_finish(struct outlet *o, int64_t patience_ns)
{
    if (!o)
        return 0;
    pthread_mutex_lock(&o->lock);
    if (o->started)
        tell_dropped(o, o->last_fd, true);
    o->closing = true;
    pthread_cond_signal(&o->filled);
    await_end(o, patience_ns);
    bool started = o->started, ended = !started || o->ended;
    size_t left = ended ? 0 : o->filling.length + o->in_hand;
    if (!ended) {
        pthread_detach(o->thread);
        o->abandoned = true;
    }
    pthread_mutex_unlock(&o->lock);
    if (!ended)
        return left;
    if (started)
        pthread_join(o->thread, NULL);
    outlet_free(o);
    return 0;
}
