/* token_sink.c - see token_sink.h. */
#include "trainer/data/token_sink.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/buffer.h"
#include "proto/base/error.h"
#include "proto/base/io.h"

enum { FLUSH_BYTES = 1 << 20, MASKED_16 = 1 << 15 };

struct token_sink {
    struct token_file_header header;
    struct buffer tokens, ends; /* all of them, or what is not yet in the files */
    uint64_t last_end;
    char *path, *beside, *beside_ends; /* NULL: memory */
    int fd, fd_ends;
};

static int width_of(const struct token_sink_options *options)
{
    const int64_t narrow = options->masked ? MASKED_16 : 1 << 16;
    if (options->vocabulary <= 256 && !options->masked)
        return 1;
    return options->vocabulary <= narrow ? 2 : 4;
}

/* A file that has its name only until it is renamed or removed. */
static int create_file(char **path, int *fd, const char *beside, const char *ending, struct muster_error *err)
{
    *path = mem_printf("%s.%ld%s", beside, (long)getpid(), ending);
    if (!*path)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    *fd = io_create_new(*path, O_RDWR, 0644);
    return *fd < 0 ? error_errno(err, "cannot write token cache %s", *path) : 0;
}

struct token_sink *token_sink_create(const struct token_sink_options *options, struct muster_error *err)
{
    GUARD(guard_token_sink) struct token_sink *sink = mem_calloc(1, sizeof *sink);
    if (!sink) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for tokens");
        return NULL;
    }
    sink->fd = sink->fd_ends = -1;
    sink->header = (struct token_file_header){.magic = TOKEN_FILE_MAGIC,
                                              .key = options->key,
                                              .width = (uint32_t)width_of(options),
                                              .masked = options->masked};
    if (!options->path)
        return take_pointer(&sink);
    sink->path = mem_strdup(options->path);
    if (!sink->path) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a path");
        return NULL;
    }
    if (create_file(&sink->beside, &sink->fd, options->path, ".new", err) < 0 ||
        create_file(&sink->beside_ends, &sink->fd_ends, options->path, ".ends", err) < 0 ||
        io_write_all(sink->fd, &sink->header, sizeof sink->header, sink->beside, err) < 0)
        return NULL;
    return take_pointer(&sink);
}

static void remove_file(char *path, int fd)
{
    if (fd >= 0) {
        (void)close(fd); /* what is removed need not be complete */
        (void)unlink(path);
    }
    mem_free(path);
}

void token_sink_destroy(struct token_sink *sink)
{
    if (!sink)
        return;
    remove_file(sink->beside, sink->fd);
    remove_file(sink->beside_ends, sink->fd_ends);
    mem_free(sink->path);
    buffer_free(&sink->tokens);
    buffer_free(&sink->ends);
    mem_free(sink);
}

static int flush_to(struct buffer *from, int fd, const char *path, size_t above, struct muster_error *err)
{
    if (fd < 0 || from->length <= above)
        return 0;
    if (io_write_all(fd, from->data, from->length, path, err) < 0)
        return error_wrap(err, "token cache; data.cache_dir names another folder for it");
    buffer_clear(from);
    return 0;
}

int token_sink_add(struct token_sink *sink, const int32_t *tokens, size_t count, bool masked,
                   struct muster_error *err)
{
    const size_t width = sink->header.width;
    const uint32_t top = masked && sink->header.masked ? UINT32_C(1) << (8 * width - 1) : 0;
    if (sink->fd < 0 && sink->tokens.length + count * width > TOKEN_SINK_MEMORY)
        return error_set(err, MUSTER_E_LIMIT,
                         "more than %d MB of tokens, and no folder to keep them in: data.cache_dir names one",
                         TOKEN_SINK_MEMORY >> 20);
    char *to = buffer_reserve(&sink->tokens, count * width);
    if (!to)
        return error_set(err, MUSTER_E_NOMEM, "no memory for %zu tokens", count);
    for (size_t i = 0; i < count; i++) {
        const uint32_t value = (uint32_t)tokens[i] | top;
        memcpy(to + i * width, &value, width);
    }
    sink->tokens.length += count * width;
    sink->header.tokens += count;
    return flush_to(&sink->tokens, sink->fd, sink->beside, FLUSH_BYTES, err);
}

int token_sink_end_document(struct token_sink *sink, struct muster_error *err)
{
    if (sink->header.tokens == sink->last_end)
        return 0;
    sink->last_end = sink->header.tokens;
    sink->header.documents++;
    if (buffer_append(&sink->ends, &sink->last_end, sizeof sink->last_end) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the ends of documents");
    return flush_to(&sink->ends, sink->fd_ends, sink->beside_ends, FLUSH_BYTES, err);
}

static void finish_memory(struct token_sink *sink, struct token_file *out)
{
    *out = (struct token_file){.width = (int)sink->header.width,
                               .masked = sink->header.masked != 0,
                               .count = (int64_t)sink->header.tokens,
                               .documents = (int64_t)sink->header.documents,
                               .memory = sink->tokens.data,
                               .memory_ends = sink->ends.data};
    out->tokens = out->memory;
    out->ends = out->memory_ends;
    sink->tokens = sink->ends = (struct buffer){0};
}

/* The ends of documents, behind the tokens. */
static int append_ends(struct token_sink *sink, struct muster_error *err)
{
    if (lseek(sink->fd_ends, 0, SEEK_SET) < 0)
        return error_errno(err, "cannot read %s", sink->beside_ends);
    scope_free char *block = mem_calloc(FLUSH_BYTES, 1);
    if (!block)
        return error_set(err, MUSTER_E_NOMEM, "no memory to write a token cache");
    for (uint64_t left = sink->header.documents * sizeof(uint64_t); left > 0;) {
        const size_t bytes = left < FLUSH_BYTES ? (size_t)left : FLUSH_BYTES;
        if (io_read_all(sink->fd_ends, block, bytes, sink->beside_ends, err) < 0 ||
            io_write_all(sink->fd, block, bytes, sink->beside, err) < 0)
            return -1;
        left -= bytes;
    }
    return 0;
}

static int finish_file(struct token_sink *sink, struct token_file *out, struct muster_error *err)
{
    static const char zeros[8] = {0};
    const size_t odd = sink->header.tokens * sink->header.width % 8;
    if (buffer_append(&sink->tokens, zeros, odd ? 8 - odd : 0) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory to write a token cache");
    if (flush_to(&sink->tokens, sink->fd, sink->beside, 0, err) < 0 ||
        flush_to(&sink->ends, sink->fd_ends, sink->beside_ends, 0, err) < 0 || append_ends(sink, err) < 0)
        return -1;
    if (pwrite(sink->fd, &sink->header, sizeof sink->header, 0) != sizeof sink->header ||
        fdatasync(sink->fd) < 0)
        return error_errno(err, "cannot write token cache %s", sink->beside);
    const int fd = take_fd(&sink->fd); /* from here on the file is not removed */
    if (close(fd) < 0 || rename(sink->beside, sink->path) < 0) {
        const int reason = errno;
        (void)unlink(sink->beside);
        errno = reason;
        return error_errno(err, "cannot write token cache %s", sink->path);
    }
    const int opened = token_file_open_cache(out, sink->path, sink->header.key, err);
    return opened > 0
               ? error_set(err, MUSTER_E_IO, "token cache %s is not what was written to it", sink->path)
               : opened;
}

int token_sink_finish(struct token_sink *sink, struct token_file *out, struct muster_error *err)
{
    if (sink->path)
        return finish_file(sink, out, err);
    finish_memory(sink, out);
    return 0;
}
