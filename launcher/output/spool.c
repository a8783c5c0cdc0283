/* spool.c - see spool.h. */
#include "launcher/output/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "proto/base/temporary.h"

void spool_init(struct spool *s, int64_t limit)
{
    s->limit = s->capacity = limit;
    s->extent = 0;
    s->next_id = s->first_id = s->dropped = 0;
}

bool spool_is_empty(const struct spool *s)
{
    return s->first_id == s->next_id;
}

static struct spool_batch *batch_of(struct spool *s, uint64_t id)
{
    return &s->batches[id % SPOOL_BATCHES];
}

static int64_t end_of(const struct spool_batch *batch)
{
    return batch->offset + (int64_t)batch->length;
}

static void drop_oldest(struct spool *s)
{
    s->dropped += batch_of(s, s->first_id)->length;
    s->first_id++;
}

/* Drops the oldest batches that reach into [from, to). They are ordered by age, so that the first that
 * does not reach into it ends the loop. */
static void drop_between(struct spool *s, int64_t from, int64_t to)
{
    while (!spool_is_empty(s)) {
        const struct spool_batch *oldest = batch_of(s, s->first_id);
        if (oldest->offset >= to || end_of(oldest) <= from)
            return;
        drop_oldest(s);
    }
}

bool spool_place(struct spool *s, size_t length, int64_t *offset)
{
    if ((int64_t)length > s->capacity)
        return false;
    int64_t at = spool_is_empty(s) ? 0 : end_of(batch_of(s, s->next_id - 1));
    if (at + (int64_t)length > s->capacity) {
        drop_between(s, at,
                     INT64_MAX); /* the rest of the last lap: older than the beginning of the next one */
        at = 0;
    }
    drop_between(s, at, at + (int64_t)length);
    if (s->next_id - s->first_id == SPOOL_BATCHES)
        drop_oldest(s);
    *offset = at;
    return true;
}

void spool_add(struct spool *s, int64_t offset, size_t length)
{
    *batch_of(s, s->next_id) = (struct spool_batch){s->next_id, offset, length};
    s->next_id++;
    s->extent = offset + (int64_t)length > s->extent ? offset + (int64_t)length : s->extent;
}

bool spool_shrink(struct spool *s, int64_t offset, size_t length)
{
    /* if there was no room even over existing bytes (a copy-on-write disk), only the part before */
    int64_t size = offset + (int64_t)length > s->extent ? s->extent : offset;
    bool smaller = size < s->capacity;
    s->capacity = smaller ? size : s->capacity;
    return smaller;
}

bool spool_oldest(const struct spool *s, struct spool_batch *batch)
{
    if (spool_is_empty(s))
        return false;
    *batch = s->batches[s->first_id % SPOOL_BATCHES];
    return true;
}

bool spool_take(struct spool *s, uint64_t id)
{
    if (spool_is_empty(s) || s->first_id != id)
        return false;
    s->first_id++;
    return true;
}

void spool_reset(struct spool *s)
{
    s->capacity = s->limit;
    s->extent = 0;
}

int spool_open(const char *folder)
{
    struct temporary_folder temporary;
    if (!*folder) {
        temporary_folder_find(&temporary);
        folder = temporary.path;
    }
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0)
        return fd;
    char path[4096]; /* a file system without O_TMPFILE */
    int length = snprintf(path, sizeof path, "%s/muster_spool_XXXXXX", folder);
    if (length < 0 || length >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        (void)unlink(path); /* if it cannot be removed it stays, and is used all the same */
    return fd;
}

int spool_write(int fd, int64_t offset, const char *data, size_t length)
{
    while (length) {
        ssize_t done = pwrite(fd, data, length, offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return -1;
        data += done;
        offset += done;
        length -= (size_t)done;
    }
    return 0;
}

int spool_read(int fd, int64_t offset, char *data, size_t length)
{
    while (length) {
        ssize_t done = pread(fd, data, length, offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done == 0)
            errno = EIO; /* shorter than the written data */
        if (done <= 0)
            return -1;
        data += done;
        offset += done;
        length -= (size_t)done;
    }
    return 0;
}
