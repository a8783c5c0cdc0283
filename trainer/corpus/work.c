/* work.c - see prepare_internal.h: threads, and files of the work folder. */
#include "trainer/corpus/prepare_internal.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/thread.h"
#include "trainer/corpus/prepare_internal.h"

struct crew {
    const struct workers_job *job;
    pthread_mutex_t lock; /* guards the fields below */
    int next;
    struct muster_error err;
};

/* The next item; -1: none is left, or an item failed. */
static int take_item(struct crew *crew)
{
    (void)pthread_mutex_lock(&crew->lock); /* cannot fail: initialized, and not held */
    const int item = crew->err.code || crew->next == crew->job->items ? -1 : crew->next++;
    (void)pthread_mutex_unlock(&crew->lock);
    return item;
}

static void keep_error(struct crew *crew, const struct muster_error *err)
{
    (void)pthread_mutex_lock(&crew->lock);
    if (!crew->err.code)
        crew->err = *err;
    (void)pthread_mutex_unlock(&crew->lock);
}

static void *work(void *context)
{
    struct crew *crew = context;
    const struct workers_job *job = crew->job;
    struct muster_error err = {0};
    void *room = job->open(job->context, &err);
    int item, result = room ? 0 : -1;
    while (!result && (item = take_item(crew)) >= 0)
        result = job->run(job->context, room, item, &err);
    if (result < 0)
        keep_error(crew, &err);
    job->close(room);
    return NULL;
}

int workers_run(const struct workers_job *job, struct muster_error *err)
{
    struct crew crew = {.job = job};
    const int threads = job->threads < job->items ? job->threads : job->items;
    scope_free pthread_t *thread = mem_calloc((size_t)threads + 1, sizeof *thread);
    int started = 0;
    if (!thread || pthread_mutex_init(&crew.lock, NULL) != 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for %d threads", threads);
    for (; started < threads; started++) {
        const int failed = thread_start(&thread[started], 0, work, &crew);
        if (failed && !started) {
            (void)pthread_mutex_destroy(&crew.lock);
            return thread_error(err, failed, "a thread that prepares text");
        }
        if (failed)
            break; /* the threads that were started do the work */
    }
    for (int i = 0; i < started; i++)
        (void)pthread_join(thread[i], NULL); /* cannot fail: started, and joined once */
    (void)pthread_mutex_destroy(&crew.lock);
    if (crew.err.code && err)
        *err = crew.err;
    return crew.err.code ? -1 : 0;
}

/* ---- the work folder ---- */

char *prepare_path(const struct prepare *p, const char *name)
{
    return mem_printf("%s/%s", p->work, name);
}

int new_file_open(struct new_file *file, char *path, struct muster_error *err)
{
    *file = (struct new_file){.path = path, .fd = -1};
    file->temporary = path ? mem_printf("%s.new", path) : NULL;
    if (!file->temporary)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    file->fd = io_create_new(file->temporary, O_WRONLY, 0644);
    return file->fd < 0 ? error_errno(err, "cannot write %s", file->temporary) : 0;
}

int new_file_flush(struct new_file *file, size_t above, struct muster_error *err)
{
    if (file->held.failed)
        return error_set(err, MUSTER_E_NOMEM, "no memory to write %s", file->temporary);
    if (file->held.length <= above)
        return 0;
    if (io_write_all(file->fd, file->held.data, file->held.length, file->temporary, err) < 0)
        return -1;
    buffer_clear(&file->held);
    return 0;
}

int new_file_finish(struct new_file *file, const void *header, size_t length, struct muster_error *err)
{
    if (new_file_flush(file, 0, err) < 0)
        return -1;
    if ((length && pwrite(file->fd, header, length, 0) != (ssize_t)length) || fdatasync(file->fd) < 0)
        return error_errno(err, "cannot write %s", file->temporary);
    const int fd = take_fd(&file->fd); /* new_file_close no longer removes the file */
    return close(fd) < 0 || rename(file->temporary, file->path) < 0
               ? error_errno(err, "cannot write %s", file->path)
               : 0;
}

void new_file_close(struct new_file *file)
{
    if (file->fd >= 0) {
        (void)close(file->fd); /* write errors do not matter: the file is removed */
        (void)unlink(file->temporary);
    }
    mem_free(file->path);
    mem_free(file->temporary);
    buffer_free(&file->held);
    *file = (struct new_file){.fd = -1};
}
