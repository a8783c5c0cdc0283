/* write_queue.c - the queue itself; see write_queue.h and write_queue_internal.h. */
#include "launcher/output/write_queue.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "launcher/output/write_queue_internal.h"
#include "proto/base/error.h"
#include "proto/base/io.h"
#include "proto/base/mem.h"

enum { KICK_BYTES = WRITE_QUEUE_LIMIT / 4 }; /* stop waiting for write_queue_kick */

/* --- life --- */

static int init_locks(struct write_queue *o)
{
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes))
        return -1;
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC); /* a clock that Linux has */
    int failed = pthread_mutex_init(&o->lock, NULL) || pthread_cond_init(&o->filled, &attributes) ||
                 pthread_cond_init(&o->spill, NULL) || pthread_cond_init(&o->drained, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    return failed ? -1 : 0;
}

struct write_queue *write_queue_create(const struct write_queue_options *options, struct muster_error *err)
{
    struct write_queue *o = mem_realloc(NULL, 1, sizeof *o);
    if (o) /* a quiet one touches one page, not 25 */
        memset(o, 0, offsetof(struct write_queue, spool.batches));
    if (!o || init_locks(o) < 0) {
        mem_free(o);
        error_set(err, MUSTER_E_NOMEM, "no memory for a queue of output");
        return NULL;
    }
    o->references = 1;
    o->wake_fd = options->wake_fd;
    o->spool_folder =
        options->spool_folder && options->spool_limit > 0 ? mem_strdup(options->spool_folder) : NULL;
    o->spool_useless = !o->spool_folder; /* also without memory for its name */
    o->spool_fd = -1;
    o->full_since = o->spool_since = INSTANT_NEVER;
    spool_init(&o->spool, options->spool_limit);
    return o;
}

static void write_queue_free(struct write_queue *o)
{
    while (o->targets) {
        struct output_file *t = o->targets;
        o->targets = t->next;
        output_file_destroy(t);
    }
    if (o->spool_fd >= 0)
        (void)close(o->spool_fd); /* an unlinked file without further use */
    mem_free(o->spool_folder);
    buffer_free(&o->filling);
    buffer_free(&o->spilling);
    buffer_free(&o->writing);
    pthread_cond_destroy(&o->filled);
    pthread_cond_destroy(&o->spill);
    pthread_cond_destroy(&o->drained);
    pthread_mutex_destroy(&o->lock);
    mem_free(o);
}

void write_queue_unlock_and_leave(struct write_queue *o)
{
    bool last = --o->references == 0;
    pthread_mutex_unlock(&o->lock);
    if (last)
        write_queue_free(o);
}

/* The caller may write, with the lock released: the queue is not freed in that time. */
static void enter(struct write_queue *o)
{
    pthread_mutex_lock(&o->lock);
    o->references++;
}

struct output_file *write_queue_target(struct write_queue *o, const struct output_file_options *options)
{
    struct output_file *t = output_file_create(options);
    if (!t)
        return NULL;
    pthread_mutex_lock(&o->lock);
    t->next = o->targets;
    o->targets = t;
    pthread_mutex_unlock(&o->lock);
    return t;
}

void write_queue_release(struct write_queue *o, struct output_file *target)
{
    if (!target)
        return;
    enter(o);
    target->closed = o->release_asked = true;
    write_queue_pass_on(o);
    write_queue_unlock_and_leave(o);
}

/* --- room --- */

/* Whether the spool is enabled and may be used. */
static bool ask_spool(struct write_queue *o)
{
    if (o->spool_useless || (!o->spooler_started && !write_queue_start_spooler(o)))
        return false;
    o->spool_wanted = true;
    pthread_cond_signal(&o->spill);
    return true;
}

/* Whether the window has not passed yet; begins it. */
static bool in_window(struct instant *since, int64_t window_ns, struct instant now)
{
    if (since->ns == INSTANT_NEVER.ns)
        *since = now;
    return !instant_reached(now, instant_add(*since, window_ns));
}

/* Whether the files will have room soon, from their progress in the last window. */
static bool keeps_up(struct write_queue *o, struct instant now)
{
    uint64_t moved = __atomic_load_n(&o->moved, __ATOMIC_RELAXED);
    if (!instant_reached(now, o->grudge))
        return false;
    if (o->full_since.ns == INSTANT_NEVER.ns)
        o->moved_then = moved;
    if (in_window(&o->full_since, WRITE_QUEUE_WINDOW_NS, now))
        return true;
    if (moved - o->moved_then < WRITE_QUEUE_PACE)
        return false;
    o->full_since = now;
    o->moved_then = moved;
    return true;
}

static bool accepts_locked(struct write_queue *o, size_t bytes, bool keep, struct instant now)
{
    if (o->filling.length + sizeof(struct output_file_record) + bytes <= WRITE_QUEUE_LIMIT)
        return true;
    if (!o->late && keeps_up(o, now))
        return false;
    if (!o->late)
        o->late_since = now;
    o->grudge = o->late ? o->grudge : instant_add(now, WRITE_QUEUE_GRUDGE_NS);
    o->late = true;
    if (!keep || o->spool_late || !ask_spool(o))
        return true; /* to be refused and counted */
    if (in_window(&o->spool_since, WRITE_QUEUE_SPOOL_WINDOW_NS, now))
        return false;
    o->spool_late = true;
    return true;
}

bool write_queue_accepts(struct write_queue *o, size_t bytes, bool keep, struct instant now)
{
    pthread_mutex_lock(&o->lock);
    bool accepts = accepts_locked(o, bytes, keep, now);
    if (!accepts)
        o->wanted = true;
    pthread_mutex_unlock(&o->lock);
    return accepts;
}

struct instant write_queue_due(struct write_queue *o)
{
    pthread_mutex_lock(&o->lock);
    struct instant due = o->late ? instant_add(o->spool_since, WRITE_QUEUE_SPOOL_WINDOW_NS)
                                 : instant_add(o->full_since, WRITE_QUEUE_WINDOW_NS);
    bool waits = o->wanted;
    pthread_mutex_unlock(&o->lock);
    return waits ? due : INSTANT_NEVER;
}

/* --- pieces --- */

static void refuse_piece(struct write_queue *o, const struct write_queue_piece *piece)
{
    o->refused_bytes += piece->length;
    o->refused_lines += piece->lines;
    piece->target->put_bytes += piece->length;
    piece->target->put_lines += piece->lines;
}

/* Room for a record of length bytes at the end of filling; NULL if there is none. */
static char *reserve(struct write_queue *o, const struct write_queue_piece *piece, size_t length)
{
    size_t need = sizeof(struct output_file_record) + length;
    bool spooling = o->spilling.length || write_queue_has_spooled(o);
    bool fits = o->filling.length + need <= WRITE_QUEUE_LIMIT + (piece->urgent ? WRITE_QUEUE_URGENT : 0);
    if (!piece->keep && o->late && (spooling || !fits))
        return NULL;
    if (!fits && (!piece->must || (o->late && (o->spool_late || o->spool_useless))))
        return NULL;
    char *out = buffer_reserve(&o->filling, need);
    if (!out)
        o->filling.failed = false; /* no memory now is not a permanent failure */
    return out;
}

static bool put_locked(struct write_queue *o, const struct write_queue_piece *piece)
{
    struct output_file *t = piece->target;
    if (o->closing || t->closed)
        return false;
    bool follows = t->open == piece->owner && !piece->starts;
    size_t separator = piece->owner && t->open && !follows ? 1 : 0;
    size_t prefix = piece->owner && !piece->starts && !follows && piece->prefix ? piece->prefix_length : 0;
    size_t length = separator + prefix + piece->length;
    char *out = reserve(o, piece, length);
    if (!out)
        return false;
    struct output_file_record record = {.target = t,
                                        .bytes_before = t->put_bytes,
                                        .lines_before = t->put_lines,
                                        .length = (uint32_t)length,
                                        .lines = piece->lines,
                                        .starts = !piece->owner || !follows};
    memcpy(out, &record, sizeof record);
    out += sizeof record;
    if (separator)
        *out++ = '\n';
    if (prefix)
        memcpy(out, piece->prefix, prefix);
    memcpy(out + prefix, piece->data, piece->length);
    o->filling.length += sizeof record + length;
    t->put_bytes += length;
    t->put_lines += piece->lines;
    if (piece->owner)
        t->open = piece->ends ? NULL : piece->owner;
    if (o->spool_wanted && o->filling.length >= WRITE_QUEUE_SPILL)
        pthread_cond_signal(&o->spill);
    if (!piece->must || o->filling.length >= KICK_BYTES)
        write_queue_pass_on(o);
    return true;
}

bool write_queue_put(struct write_queue *o, const struct write_queue_piece *piece)
{
    enter(o);
    bool taken = put_locked(o, piece);
    if (!taken)
        refuse_piece(o, piece);
    write_queue_unlock_and_leave(o);
    return taken;
}

void write_queue_kick(struct write_queue *o)
{
    enter(o);
    if (o->filling.length)
        write_queue_pass_on(o);
    write_queue_unlock_and_leave(o);
}

void write_queue_drop(struct write_queue *o, const struct write_queue_piece *piece)
{
    pthread_mutex_lock(&o->lock);
    refuse_piece(o, piece);
    pthread_mutex_unlock(&o->lock);
}

void write_queue_forget(struct write_queue *o, struct output_file *target, const void *owner)
{
    pthread_mutex_lock(&o->lock);
    if (target->open == owner)
        target->open = o; /* which owns no piece */
    pthread_mutex_unlock(&o->lock);
}

/* --- the end --- */

static struct write_queue_lost lost_locked(const struct write_queue *o, bool all)
{
    struct write_queue_lost lost = {.bytes = o->closed_bytes,
                                    .lines = o->closed_lines,
                                    .error = __atomic_load_n(&o->error, __ATOMIC_RELAXED),
                                    .no_thread = o->no_thread};
    uint64_t gap_bytes = o->closed_gap_bytes, gap_lines = o->closed_gap_lines;
    for (const struct output_file *t = o->targets; t; t = t->next) {
        uint64_t unseen = t->put_lines - __atomic_load_n(&t->seen_lines, __ATOMIC_RELAXED);
        lost.bytes += all ? t->put_bytes - __atomic_load_n(&t->written_bytes, __ATOMIC_RELAXED)
                          : __atomic_load_n(&t->lost_bytes, __ATOMIC_RELAXED);
        lost.lines += __atomic_load_n(&t->lost_lines, __ATOMIC_RELAXED) + (all ? unseen : 0);
        gap_bytes += __atomic_load_n(&t->gap_bytes, __ATOMIC_RELAXED);
        gap_lines += __atomic_load_n(&t->gap_lines, __ATOMIC_RELAXED);
    }
    if (all)
        return lost;
    /* the writer detects gaps when it reaches them; if it hangs it has not, so count their causes */
    uint64_t causes = o->refused_bytes + o->spool.dropped;
    lost.bytes += causes > gap_bytes ? causes - gap_bytes : 0;
    lost.lines += o->refused_lines - (gap_lines < o->refused_lines ? gap_lines : o->refused_lines);
    return lost;
}

struct write_queue_lost write_queue_lost(struct write_queue *o)
{
    pthread_mutex_lock(&o->lock);
    struct write_queue_lost lost = lost_locked(o, false);
    pthread_mutex_unlock(&o->lock);
    return lost;
}

/* Whether the writer is runnable but gets no CPU time: then the machine is slow, and nothing is stuck.
 * With the lock, so that it has not ended. */
static bool writer_starves(const struct write_queue *o)
{
    enum { STAT_LIMIT = 4096 };
    char path[64];
    scope_buffer stat = {0};
    if (o->writing_here)
        return false;
    if (!o->writer_tid)
        return true;                                                                  /* it has not begun */
    (void)snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)o->writer_tid); /* fits */
    if (io_read_file(path, STAT_LIMIT, &stat, NULL) < 0 || !stat.data)
        return false;
    const char *name_end = strrchr(stat.data, ')');
    return name_end && !strncmp(name_end, ") R", 3);
}

/* Waits until the writer has ended or makes no progress; with the lock. */
static void await_end(struct write_queue *o, int64_t patience_ns, struct instant limit)
{
    uint64_t moved = __atomic_load_n(&o->moved, __ATOMIC_RELAXED);
    struct instant end = instant_add(clock_now(NULL), patience_ns);
    while (o->writing_here || (o->writer_started && !o->writer_ended)) {
        struct instant now = clock_now(NULL);
        uint64_t later = __atomic_load_n(&o->moved, __ATOMIC_RELAXED);
        if (later != moved)
            end = instant_add(now, patience_ns);
        moved = later;
        if (!instant_reached(now, limit) && instant_reached(now, end) && writer_starves(o))
            end = instant_add(now, patience_ns);
        if (instant_reached(now, instant_min(end, limit)))
            return;
        struct timespec until = instant_timespec(instant_min(end, limit));
        (void)pthread_cond_timedwait(&o->drained, &o->lock, &until); /* late or not, check again */
    }
}

bool write_queue_finish(struct write_queue *o, int64_t patience_ns, struct instant limit,
                        struct write_queue_lost *lost)
{
    *lost = (struct write_queue_lost){0};
    if (!o)
        return true;
    pthread_mutex_lock(&o->lock);
    o->closing = true;
    if (o->writer_started)
        pthread_cond_broadcast(&o->filled);
    else if (o->no_thread)
        write_queue_pass_on(o); /* files that are released are closed */
    await_end(o, patience_ns, limit);
    bool ended = !o->writing_here && (!o->writer_started || o->writer_ended);
    *lost = lost_locked(o, true);
    o->spooler_stops = true;
    pthread_cond_signal(&o->spill);
    write_queue_unlock_and_leave(o);
    return ended;
}
