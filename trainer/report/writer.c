/* writer.c - see report_internal.h. */
#include "trainer/report/report_internal.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/thread.h"

/* Put before the bytes of an entry. */
struct writer_head {
    int32_t file;
    bool lost; /* no memory for the entry */
    size_t length;
};

struct writer_state {
    struct writer_file file;
    int64_t lost; /* entries not written; used by the thread alone */
    bool failing; /* the last entry was not written; used by the thread alone */
    int64_t late; /* entries that found no room; guarded by the lock */
};

struct writer {
    struct writer_state files[WRITER_FILES];
    int count;
    const struct log_sink *log;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct buffer waiting; /* heads and bytes */
    size_t writing;        /* bytes that the thread has taken and not yet written */
    bool ends, ended;
};

/* ---- the thread ---- */

/* Appends an entry or nothing. */
static int append_whole(const struct writer_file *file, const char *data, size_t length,
                        struct muster_error *err)
{
    const off_t before = lseek(file->fd, 0, SEEK_END);
    if (io_write_all(file->fd, data, length, file->path, err) == 0)
        return 0;
    if (before >= 0 && ftruncate(file->fd, before) < 0)
        return error_wrap(err, "an incomplete entry is left in %s", file->path);
    return -1;
}

static void write_entry(struct writer *w, const struct writer_head *head, const char *data)
{
    struct writer_state *state = &w->files[head->file];
    struct muster_error err = {0};
    const bool failed = head->lost ? error_set(&err, MUSTER_E_NOMEM, "no memory for an entry") < 0
                        : state->file.write
                            ? state->file.write(state->file.context, data, head->length, &err) < 0
                            : append_whole(&state->file, data, head->length, &err) < 0;
    state->lost += failed;
    if (failed && !state->failing)
        log_warning(w->log, "%s; training goes on without these entries of the log", err.text);
    state->failing = failed;
}

static void write_entries(struct writer *w, const struct buffer *entries)
{
    struct writer_head head;
    for (size_t at = 0; at < entries->length; at += sizeof head + head.length) {
        memcpy(&head, entries->data + at, sizeof head);
        write_entry(w, &head, entries->data + at + sizeof head);
    }
}

static void *write_all(void *context)
{
    struct writer *w = context;
    scope_buffer taken = {0};
    (void)pthread_mutex_lock(&w->lock); /* cannot fail: initialized, and not held */
    for (;;) {
        while (!w->waiting.length && !w->ends)
            (void)pthread_cond_wait(&w->changed, &w->lock);
        if (!w->waiting.length)
            break;
        const struct buffer empty = taken;
        taken = w->waiting;
        w->waiting = empty;
        w->writing = taken.length;
        (void)pthread_mutex_unlock(&w->lock);
        write_entries(w, &taken);
        buffer_clear(&taken);
        (void)pthread_mutex_lock(&w->lock);
        w->writing = 0;
    }
    w->ended = true;
    (void)pthread_cond_broadcast(&w->changed);
    (void)pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* ---- the caller ---- */

static void writer_release(struct writer *w)
{
    buffer_free(&w->waiting);
    (void)pthread_cond_destroy(&w->changed);
    (void)pthread_mutex_destroy(&w->lock);
    mem_free(w);
}

struct writer *writer_create(const struct writer_file *files, int count, const struct log_sink *log,
                             struct muster_error *err)
{
    struct writer *w = mem_calloc(1, sizeof *w);
    pthread_condattr_t attributes;
    if (!w) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for the run's log");
        return NULL;
    }
    for (w->count = 0; w->count < count; w->count++)
        w->files[w->count].file = files[w->count];
    w->log = log;
    (void)pthread_mutex_init(&w->lock, NULL); /* these three cannot fail with glibc */
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&w->changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    const int failed = thread_start(&w->thread, 0, write_all, w);
    if (!failed)
        return w;
    writer_release(w);
    (void)thread_error(err, failed, "the thread that writes the run's log");
    return NULL;
}

void writer_put(struct writer *w, int file, const struct buffer *bytes)
{
    struct writer_state *state = &w->files[file];
    const struct writer_head head = {file, bytes->failed, bytes->failed ? 0 : bytes->length};
    if ((state->file.fd < 0 && !state->file.write) || (!bytes->length && !bytes->failed))
        return;
    (void)pthread_mutex_lock(&w->lock);
    char *at = w->writing + w->waiting.length + sizeof head + head.length > WRITER_LIMIT
                   ? NULL
                   : buffer_reserve(&w->waiting, sizeof head + head.length);
    if (at) {
        memcpy(at, &head, sizeof head);
        if (head.length)
            memcpy(at + sizeof head, bytes->data, head.length);
        w->waiting.length += sizeof head + head.length;
        (void)pthread_cond_signal(&w->changed);
    }
    w->waiting.failed = false; /* a later entry may find memory */
    const bool first = !at && state->late++ == 0;
    (void)pthread_mutex_unlock(&w->lock);
    if (first)
        log_warning(w->log,
                    "%s is not written as fast as training adds to it: entries of the log are left out",
                    state->file.path);
}

static bool wait_for_end(struct writer *w, struct instant deadline)
{
    const struct timespec until = {deadline.ns / NS_PER_S, deadline.ns % NS_PER_S};
    int late = 0;
    (void)pthread_mutex_lock(&w->lock);
    w->ends = true;
    (void)pthread_cond_broadcast(&w->changed);
    while (!w->ended && !late)
        late = pthread_cond_timedwait(&w->changed, &w->lock, &until);
    const bool ended = w->ended;
    (void)pthread_mutex_unlock(&w->lock);
    return ended;
}

static void close_file(const struct writer *w, const struct writer_state *state)
{
    const int64_t lost = state->lost + state->late;
    if (lost)
        log_warning(w->log, "%lld entries could not be written to %s", (long long)lost, state->file.path);
    if (state->file.fd >= 0 && close(state->file.fd) < 0)
        log_warning(w->log, "the last entries may be missing in %s: the file system reports an error",
                    state->file.path);
}

bool writer_destroy(struct writer *w, struct instant deadline)
{
    if (!w)
        return true;
    if (!wait_for_end(w, deadline)) {
        log_warning(w->log, "the last entries are missing in %s: its file system has stalled",
                    w->files[0].file.path);
        (void)pthread_detach(w->thread); /* cannot fail: never joined; its memory stays */
        return false;
    }
    (void)pthread_join(w->thread, NULL); /* cannot fail: started, and joined once */
    for (int i = 0; i < w->count; i++)
        close_file(w, &w->files[i]);
    writer_release(w);
    return true;
}
