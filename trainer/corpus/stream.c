/* stream.c - see stream.h. */
#include "trainer/corpus/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "proto/base/error.h"

enum { GZIP_ROOM = 128 << 10 };

/* One kind of compression. */
struct stream_ops {
    const char *ending;
    int (*open)(struct stream *stream, struct muster_error *err);
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

/* ---- plain ---- */

static int open_plain(struct stream *s, struct muster_error *err)
{
    (void)s;
    (void)err;
    return 0;
}

static void close_plain(struct stream *s)
{
    (void)s;
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
        (void)gzclose(s->gz); /* it was read: what is wrong with it was reported */
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

static const struct stream_ops kinds[] = {{".gz", open_gzip, read_gzip, close_gzip},
                                          {".zst", open_zstd, read_zstd, close_zstd},
                                          {"", open_plain, read_plain, close_plain}};

static const struct stream_ops *ops_of(const char *path)
{
    const size_t length = strlen(path);
    const struct stream_ops *kind = kinds;
    for (; *kind->ending; kind++) {
        const size_t ending = strlen(kind->ending);
        if (length > ending && !strcmp(path + length - ending, kind->ending))
            break;
    }
    return kind;
}

size_t stream_ending(const char *path)
{
    return strlen(ops_of(path)->ending);
}

struct stream *stream_open(const char *path, struct muster_error *err)
{
    GUARD(guard_stream) struct stream *s = mem_calloc(1, sizeof *s);
    if (!s || !(s->path = mem_strdup(path))) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory to read %s", path);
        return NULL;
    }
    s->ops = ops_of(path);
    s->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (s->fd < 0) {
        (void)error_errno(err, "cannot read %s", path);
        return NULL;
    }
    return s->ops->open(s, err) < 0 ? NULL : take_pointer(&s);
}

ssize_t stream_read(struct stream *s, char *out, size_t size, struct muster_error *err)
{
    return s->ops->read(s, out, size, err);
}

void stream_close(struct stream *s)
{
    if (!s)
        return;
    if (s->ops)
        s->ops->close(s);
    if (s->ops && s->fd >= 0)
        (void)close(s->fd); /* only read */
    mem_free(s->path);
    mem_free(s);
}
