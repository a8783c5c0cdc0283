/* stream.c - see stream.h. */
#include "trainer/data/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "proto/base/error.h"
#include "proto/base/io.h"
#include "proto/base/mem.h"
#include "proto/base/temporary.h"

enum { GZIP_ROOM = 128 << 10, UNPACKED_AT_ONCE = 1 << 20 };

/* A kind of compression. */
struct stream_ops {
    const char *ending, *begins;
    size_t begin;
    int (*open)(struct stream *stream, struct muster_error *err); /* NULL: nothing to open or close */
    ssize_t (*read)(struct stream *stream, char *out, size_t size, struct muster_error *err);
    void (*close)(struct stream *stream);
};

struct stream {
    const struct stream_ops *ops;
    char *path;
    int fd;
    gzFile gz;
    ZSTD_DStream *zstd;
    char *room; /* compressed bytes */
    ZSTD_inBuffer in;
    size_t frame_left; /* 0: at the end of a frame */
};

static ssize_t read_plain(struct stream *s, char *out, size_t size, struct muster_error *err)
{
    ssize_t got;
    do
        got = read(s->fd, out, size);
    while (got < 0 && errno == EINTR);
    return got < 0 ? error_errno(err, "cannot read %s", s->path) : got;
}

/* ---- gzip ---- */

static int open_gzip(struct stream *s, struct muster_error *err)
{
    s->gz = gzdopen(s->fd, "rb");
    if (!s->gz || gzbuffer(s->gz, GZIP_ROOM) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory to read %s", s->path);
    s->fd = -1; /* gzclose closes it */
    return 0;
}

static ssize_t read_gzip(struct stream *s, char *out, size_t size, struct muster_error *err)
{
    const int got = gzread(s->gz, out, (unsigned)(size < INT_MAX ? size : INT_MAX));
    int code = Z_OK;
    const char *reason = gzerror(s->gz, &code);
    if (got >= 0 && (got > 0 || code == Z_OK || code == Z_STREAM_END))
        return got;
    return error_set(err, MUSTER_E_INVALID, "%s is damaged or cut off: gzip: %s", s->path,
                     code == Z_BUF_ERROR ? "unexpected end" : reason);
}

static void close_gzip(struct stream *s)
{
    if (s->gz)
        (void)gzclose(s->gz); /* gzread has reported all errors */
}

/* ---- zstd ---- */

static int open_zstd(struct stream *s, struct muster_error *err)
{
    s->zstd = ZSTD_createDStream();
    s->room = mem_calloc(ZSTD_DStreamInSize(), 1);
    return s->zstd && s->room ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory to read %s", s->path);
}

static ssize_t read_zstd(struct stream *s, char *out, size_t size, struct muster_error *err)
{
    ZSTD_outBuffer to = {out, size, 0};
    while (to.pos == 0) {
        if (s->in.pos == s->in.size) {
            const ssize_t got = read_plain(s, s->room, ZSTD_DStreamInSize(), err);
            if (got < 0)
                return -1;
            if (got == 0 && s->frame_left)
                return error_set(err, MUSTER_E_INVALID, "%s is cut off: zstd: a frame has no end", s->path);
            if (got == 0)
                return 0;
            s->in = (ZSTD_inBuffer){s->room, (size_t)got, 0};
        }
        s->frame_left = ZSTD_decompressStream(s->zstd, &to, &s->in);
        if (ZSTD_isError(s->frame_left))
            return error_set(err, MUSTER_E_INVALID, "%s is damaged: zstd: %s", s->path,
                             ZSTD_getErrorName(s->frame_left));
    }
    return (ssize_t)to.pos;
}

static void close_zstd(struct stream *s)
{
    (void)ZSTD_freeDStream(s->zstd); /* accepts NULL; it cannot fail */
    mem_free(s->room);
}

/* ---- all ---- */

static const struct stream_ops kinds[] = {{".gz", "\x1F\x8B", 2, open_gzip, read_gzip, close_gzip},
                                          {".zst", "\x28\xB5\x2F\xFD", 4, open_zstd, read_zstd, close_zstd},
                                          {"", "", 0, NULL, read_plain, NULL}};

/* By the first bytes (4), which may be NULL, else by the name. */
static const struct stream_ops *ops_of(const char *path, const char *start)
{
    const size_t length = strlen(path);
    const struct stream_ops *kind = kinds;
    for (; *kind->ending; kind++)
        if (start && !memcmp(start, kind->begins, kind->begin))
            return kind;
    for (kind = kinds; *kind->ending; kind++) {
        const size_t ending = strlen(kind->ending);
        if (length > ending && !strcmp(path + length - ending, kind->ending))
            break;
    }
    return kind;
}

struct stream *stream_open(const char *path, struct muster_error *err)
{
    GUARD(guard_stream) struct stream *s = mem_calloc(1, sizeof *s);
    if (!s || !(s->path = mem_strdup(path))) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory to read %s", path);
        return NULL;
    }
    char start[4];
    s->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (s->fd >= 0)
        s->ops = ops_of(path, pread(s->fd, start, sizeof start, 0) == sizeof start ? start : NULL);
    if (s->fd < 0) {
        (void)error_errno(err, "cannot read %s", path);
        return NULL;
    }
    return s->ops->open && s->ops->open(s, err) < 0 ? NULL : take_pointer(&s);
}

ssize_t stream_read(struct stream *s, char *out, size_t size, struct muster_error *err)
{
    return s->ops->read(s, out, size, err);
}

void stream_close(struct stream *s)
{
    if (!s)
        return;
    if (s->ops && s->ops->close)
        s->ops->close(s);
    if (s->ops && s->fd >= 0)
        (void)close(s->fd); /* cannot lose data: the file was only read */
    mem_free(s->path);
    mem_free(s);
}

/* ---- a packed file in memory ---- */

/* A file without a name in the folder for temporary files. */
static int open_nameless(struct muster_error *err)
{
    struct temporary_folder folder;
    temporary_folder_find(&folder);
    scope_free char *path = mem_printf("%s/muster-unpacked-XXXXXX", folder.path);
    if (!path)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    const int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return error_errno(err, "cannot write in %s, where a packed file is unpacked; TMPDIR names a folder",
                           folder.path);
    (void)unlink(path); /* the descriptor keeps the file */
    return fd;
}

static int unpack(const char *path, int to, struct muster_error *err)
{
    GUARD(guard_stream) struct stream *stream = stream_open(path, err);
    scope_free char *room = mem_calloc(UNPACKED_AT_ONCE, 1);
    ssize_t got;
    if (!stream || !room)
        return stream ? error_set(err, MUSTER_E_NOMEM, "no memory to read %s", path) : -1;
    while ((got = stream_read(stream, room, UNPACKED_AT_ONCE, err)) > 0)
        if (io_write_all(to, room, (size_t)got, "a temporary file", err) < 0)
            return error_wrap(err, "%s is unpacked for reading, in the folder that TMPDIR names", path);
    return (int)got;
}

int stream_map(struct mapping *mapping, const struct walk_file *file, struct muster_error *err)
{
    if (!file->packed)
        return mapping_open(mapping, file->path, err);
    scope_close int fd = open_nameless(err);
    *mapping = (struct mapping){0};
    return fd < 0 || unpack(file->path, fd, err) < 0 ? -1 : mapping_of_fd(mapping, fd, file->path, err);
}
