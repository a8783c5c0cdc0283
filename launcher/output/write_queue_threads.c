/* write_queue_threads.c - the two threads of a write queue; see write_queue.h and write_queue_internal.h.
 *
 * The writer takes the oldest data: the spool's first batch, else the spooler's current batch, else
 * `filling`. The spooler moves `filling` to disk while the queue is late. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "launcher/output/write_queue_internal.h"
#include "proto/base/thread.h"

enum { STACK_BYTES = 256 * 1024 };

static const int64_t space_after_ns = NS_PER_S; /* a disk that was full is tried again */

static void wake(const struct write_queue *o)
{
    uint64_t one = 1;
    ssize_t done = write(o->wake_fd, &one, sizeof one);
    (void)done; /* an eventfd refuses only at its maximum: then it is readable already */
}

/* With the lock: waiting producers may check again. */
static void tell_room(struct write_queue *o)
{
    if (o->wanted)
        wake(o);
    o->wanted = false;
}

/* --- writing --- */

/* A full disk gets space when files are removed: until then output waits in the queue and the spool. False
 * at the end of the run, and where this is not the writer: there is other work to do. */
static bool await_space(struct write_queue *o)
{
    struct timespec until = instant_timespec(instant_add(clock_now(NULL), space_after_ns));
    pthread_mutex_lock(&o->lock);
    int late = 0;
    while (!o->closing && !o->writing_here && !late)
        late = pthread_cond_timedwait(&o->filled, &o->lock, &until);
    bool waited = !o->closing && !o->writing_here;
    pthread_mutex_unlock(&o->lock);
    return waited;
}

/* Or who put a piece, and has other work to do. */
static bool is_writer(struct write_queue *o)
{
    pthread_mutex_lock(&o->lock);
    bool here = o->writing_here;
    pthread_mutex_unlock(&o->lock);
    return !here;
}

/* Whether a write that failed is worth another try. */
static bool may_retry(struct write_queue *o, int fd, int error)
{
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    if (error == EINTR)
        return true;
    if (error == EAGAIN) { /* another process made the descriptor non-blocking */
        if (poll(&room, 1, is_writer(o) ? -1 : (int)(WRITE_QUEUE_WINDOW_NS / NS_PER_MS)) || is_writer(o))
            return true; /* interrupted or not, the write is tried again */
    }
    if (__atomic_exchange_n(&o->error, error, __ATOMIC_RELAXED) != error)
        wake(o);
    return (error == ENOSPC || error == EDQUOT) && await_space(o);
}

static void advance(struct iovec **parts, int *count, size_t done)
{
    while (done) {
        size_t step = done < (*parts)->iov_len ? done : (*parts)->iov_len;
        (*parts)->iov_base = (char *)(*parts)->iov_base + step;
        (*parts)->iov_len -= step;
        done -= step;
        if (!(*parts)->iov_len) {
            (*parts)++;
            (*count)--;
        }
    }
}

static size_t write_parts(void *context, int fd, struct iovec *parts, int count)
{
    struct write_queue *o = context;
    size_t total = 0;
    while (count) {
        ssize_t done = count == 1 ? write(fd, parts->iov_base, parts->iov_len) : writev(fd, parts, count);
        if (done < 0 && may_retry(o, fd, errno))
            continue;
        if (done < 0)
            break;
        total += (size_t)done;
        (void)__atomic_add_fetch(&o->moved, (uint64_t)done, __ATOMIC_RELAXED);
        advance(&parts, &count, (size_t)done);
    }
    return total;
}

static void write_records(struct write_queue *o, const struct buffer *b)
{
    struct output_file_port port = {write_parts, o};
    struct output_file_batch batch = {0};
    bool much = b->length >= WRITE_QUEUE_LIMIT / 4;
    for (size_t at = 0; at < b->length;) {
        struct output_file_record record;
        memcpy(&record, b->data + at, sizeof record);
        at += sizeof record;
        if (much)
            output_file_expect_much(record.target);
        output_file_take(&batch, &port, &record, b->data + at);
        at += record.length;
    }
    output_file_flush(&batch, &port);
}

/* --- the writer --- */

bool write_queue_has_spooled(const struct write_queue *o)
{
    return o->spool_fd >= 0 && !spool_is_empty(&o->spool);
}

/* The oldest batch of the spool into `writing`; releases the lock while it reads. */
static void take_spooled(struct write_queue *o)
{
    struct spool_batch batch;
    bool found = spool_oldest(&o->spool, &batch);
    pthread_mutex_unlock(&o->lock);
    char *data = found ? buffer_reserve(&o->writing, batch.length) : NULL;
    bool read = data && spool_read(o->spool_fd, batch.offset, data, batch.length) == 0;
    pthread_mutex_lock(&o->lock);
    if (!data)
        o->writing.failed = false;
    /* if it was dropped while it was read, or cannot be read, the next one reports the gap */
    bool there = found && spool_take(&o->spool, batch.id);
    if (there && read)
        o->writing.length += batch.length;
    else if (there)
        o->spool.dropped += batch.length;
    if (!write_queue_has_spooled(o) && !o->spill_busy) {
        o->truncate = true;
        pthread_cond_signal(&o->spill);
    }
}

static bool has_work(const struct write_queue *o)
{
    return write_queue_has_spooled(o) || (o->spilling.length && !o->spill_taken) || o->filling.length;
}

/* With the lock, which it releases while it writes. False: there is nothing. */
static bool write_oldest(struct write_queue *o)
{
    if (!has_work(o))
        return false;
    if (write_queue_has_spooled(o))
        take_spooled(o);
    else if (o->spilling.length && !o->spill_taken) {
        /* The spooler's current batch, in which it may hang. Both only read it. */
        o->spill_taken = o->spill_reading = true;
        pthread_mutex_unlock(&o->lock);
        write_records(o, &o->spilling);
        pthread_mutex_lock(&o->lock);
        o->spill_reading = false;
        if (!o->spill_busy) {
            buffer_clear(&o->spilling);
            o->spill_taken = false;
            pthread_cond_signal(&o->spill);
        }
        return true;
    } else {
        /* Everything was passed to the writer: the files keep up. */
        struct buffer full = o->filling;
        o->filling = o->writing;
        o->writing = full;
        /* it was a moment without CPU time, not a slow file: producers may wait for it again */
        if (o->late &&
            !instant_reached(clock_now(NULL), instant_add(o->late_since, 2 * WRITE_QUEUE_WINDOW_NS)))
            o->grudge = (struct instant){0};
        o->late = o->spool_late = o->spool_wanted = false;
        o->full_since = o->spool_since = INSTANT_NEVER;
        tell_room(o);
    }
    pthread_mutex_unlock(&o->lock);
    write_records(o, &o->writing);
    buffer_clear(&o->writing);
    pthread_mutex_lock(&o->lock);
    return true;
}

/* Without the lock: closing a file on NFS writes it. */
static void close_targets(struct write_queue *o)
{
    for (struct output_file **link = &o->targets; *link;) {
        struct output_file *t = *link;
        if (!t->closed || t->put_bytes != t->seen_bytes) {
            link = &t->next;
            continue;
        }
        *link = t->next;
        o->closed_bytes += t->lost_bytes;
        o->closed_lines += t->lost_lines;
        o->closed_gap_bytes += t->gap_bytes;
        o->closed_gap_lines += t->gap_lines;
        pthread_mutex_unlock(&o->lock);
        output_file_destroy(t);
        pthread_mutex_lock(&o->lock);
        link = &o->targets; /* others may have been added at its beginning */
    }
}

/* Writes until nothing is queued or to be closed. With the lock, which it releases while it writes. True: it
 * was closing before the last look. */
static bool write_all(struct write_queue *o)
{
    for (;;) {
        if (write_oldest(o))
            continue;
        o->release_asked = false;
        bool closing = o->closing;
        /* Nothing is queued: bytes that a file has not received were refused or dropped, and get their notice
         * now. With the lock, which it releases while it writes; only this thread takes files out of the
         * list. */
        struct output_file_port port = {write_parts, o};
        for (struct output_file *t = o->targets; t; t = t->next) {
            t->due_bytes = t->put_bytes;
            t->due_lines = t->put_lines;
        }
        for (struct output_file *t = o->targets; t; t = t->next) {
            pthread_mutex_unlock(&o->lock);
            output_file_settle(t, &port);
            pthread_mutex_lock(&o->lock);
        }
        close_targets(o);
        if (!has_work(o) && !o->release_asked)
            return closing;
    }
}

static void *writer_thread(void *context)
{
    struct write_queue *o = context;
    pthread_mutex_lock(&o->lock);
    o->writer_tid = gettid();
    while (!write_all(o))
        if (!o->closing)
            pthread_cond_wait(&o->filled, &o->lock);
    o->writer_ended = true;
    pthread_cond_broadcast(&o->drained);
    write_queue_unlock_and_leave(o);
    return NULL;
}

/* --- the spooler --- */

/* Writes `spilling` into the ring; without the lock. */
static bool store(struct write_queue *o, int64_t *offset)
{
    if (o->spool_fd < 0)
        o->spool_fd = spool_open(o->spool_folder); /* the writer requests it only when there is a batch */
    bool useless = o->spool_fd < 0, stored = false, again = !useless;
    while (again && !stored) {
        pthread_mutex_lock(&o->lock);
        again = spool_place(&o->spool, o->spilling.length, offset);
        pthread_mutex_unlock(&o->lock);
        if (!again)
            break;
        stored = spool_write(o->spool_fd, *offset, o->spilling.data, o->spilling.length) == 0;
        bool full = !stored && (errno == ENOSPC || errno == EDQUOT);
        pthread_mutex_lock(&o->lock);
        again = full && spool_shrink(&o->spool, *offset, o->spilling.length);
        pthread_mutex_unlock(&o->lock);
    }
    pthread_mutex_lock(&o->lock);
    o->spool_useless = useless;
    o->spool_wanted &= !useless;
    pthread_mutex_unlock(&o->lock);
    return stored;
}

/* With the lock, which it releases while it writes. Data without room is lost, and the writer detects the
 * gap. */
static void spill(struct write_queue *o)
{
    struct buffer full = o->filling;
    o->filling = o->spilling;
    o->spilling = full;
    o->spill_busy = true;
    o->spool_late = false;
    o->spool_since = INSTANT_NEVER;
    tell_room(o);
    pthread_mutex_unlock(&o->lock);
    int64_t offset;
    bool stored = store(o, &offset);
    pthread_mutex_lock(&o->lock);
    o->spill_busy = false;
    if (o->spool_useless && !o->spill_taken) {
        /* it stays in memory, and is the last on this path */
    } else if (stored && !o->spill_taken) {
        spool_add(&o->spool, offset, o->spilling.length);
    } else if (!o->spill_taken) {
        o->spool.dropped += o->spilling.length;
    }
    if (!o->spill_reading && (o->spill_taken || !o->spool_useless)) {
        buffer_clear(&o->spilling);
        o->spill_taken = false;
    }
    pthread_cond_signal(&o->filled);
}

/* Frees the disk space; only this thread adds to the ring. */
static void cut(struct write_queue *o)
{
    o->truncate = false;
    if (o->spool_fd < 0 || write_queue_has_spooled(o))
        return;
    pthread_mutex_unlock(&o->lock);
    bool done = ftruncate(o->spool_fd, 0) == 0;
    pthread_mutex_lock(&o->lock);
    if (done)
        spool_reset(&o->spool);
}

static void *spooler_thread(void *context)
{
    struct write_queue *o = context;
    pthread_mutex_lock(&o->lock);
    while (!o->spooler_stops) {
        if (o->truncate)
            cut(o);
        else if (o->spool_wanted && o->filling.length >= WRITE_QUEUE_SPILL && !o->spilling.length)
            spill(o);
        else
            pthread_cond_wait(&o->spill, &o->lock);
    }
    write_queue_unlock_and_leave(o);
    return NULL;
}

/* --- starting --- */

/* 0, or why there is no thread. */
static int start(struct write_queue *o, bool *started, void *(*run)(void *))
{
    const int failed = *started ? 0 : thread_start(NULL, STACK_BYTES, run, o);
    if (!failed && !*started) {
        *started = true;
        o->references++;
    }
    return failed;
}

/* Asked for again with each piece: threads of others may have ended by then. */
void write_queue_pass_on(struct write_queue *o)
{
    if (o->writing_here)
        return; /* who does looks again before it ends */
    const int failed = start(o, &o->writer_started, writer_thread);
    if (!failed) {
        pthread_cond_signal(&o->filled);
        return;
    }
    o->writing_here = true;
    (void)write_all(o); /* closing or not */
    o->writing_here = false;
    if (!o->no_thread) {
        o->no_thread = failed;
        wake(o);
    }
    pthread_cond_broadcast(&o->drained);
}

bool write_queue_start_spooler(struct write_queue *o)
{
    return start(o, &o->spooler_started, spooler_thread) == 0;
}
