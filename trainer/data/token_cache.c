/* token_cache.c - see token_cache.h: finding a cache, and writing the tokens of a text. */
#include "trainer/data/token_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "proto/base/buffer.h"
#include "proto/base/error.h"
#include "proto/base/io.h"
#include "proto/base/text.h"

enum { CACHE_VERSION = 3 }; /* a new version invalidates all caches; raise it if a text gets other tokens */

/* The folder of caches; NULL: neither the user nor the environment names one, or no memory. */
static char *cache_folder(const char *named)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (named && *named)
        return mem_strdup(named);
    if (cache && *cache == '/')
        return mem_printf("%s/muster/tokens", cache);
    return home && *home == '/' ? mem_printf("%s/.cache/muster/tokens", home) : NULL;
}

static uint64_t hash_number(uint64_t hash, int64_t number)
{
    return text_hash(hash, &number, sizeof number);
}

static uint64_t hash_text(uint64_t hash, const char *text)
{
    return text_hash(hash, text, strlen(text) + 1);
}

static uint64_t hash_settings(const struct corpus_options *o, const char *path)
{
    uint64_t hash = hash_number(TEXT_HASH_START, CACHE_VERSION);
    hash = hash_number(hash, (int64_t)tokenizer_fingerprint(o->tokenizer));
    hash = hash_number(hash, o->end);
    hash = hash_text(hash, o->text_key);
    hash = hash_number(hash, o->chat ? (int64_t)chat_fingerprint(o->chat) : 0);
    return hash_text(hash, path);
}

static uint64_t hash_files(uint64_t hash, const struct walk *walk)
{
    for (int i = 0; i < walk->count; i++) {
        const struct walk_file *file = &walk->file[i];
        hash = hash_text(hash, file->path);
        hash = hash_number(hash, file->bytes);
        hash = hash_number(hash, file->mtime_ns);
        hash = hash_number(hash, (int64_t)file->ends);
        hash = hash_number(hash, file->kind);
    }
    return hash;
}

/* Sets the path to FOLDER/NAME-HASH.tokens; NAME is the last part of the source's path. */
static int name_cache(struct token_cache *cache, const char *folder, const struct corpus_options *o,
                      const struct walk *walk, struct muster_error *err)
{
    char *real = realpath(o->path, NULL);
    if (!real)
        return error_errno(err, "cannot read data.path %s", o->path);
    const uint64_t settings = hash_settings(o, real);
    const char *slash = strrchr(real, '/');
    cache->key = hash_files(settings, walk);
    cache->path = mem_printf("%s/%.64s-%016llx.tokens", folder, slash && slash[1] ? slash + 1 : "data",
                             (unsigned long long)settings);
    free(real); /* allocated by realpath, not by mem.h */
    return cache->path ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory for a path");
}

/* Waits while another process makes the cache. On a file system without locks each process makes a cache, and
 * the last renamed file stays. */
static int lock_cache(struct token_cache *cache, struct muster_error *err)
{
    scope_free char *path = mem_printf("%s.lock", cache->path);
    if (!path)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    cache->lock = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (cache->lock < 0)
        return error_errno(err, "cannot write in data.cache_dir: %s", path);
    while (flock(cache->lock, LOCK_EX) < 0 && errno == EINTR)
        ;
    return 0;
}

static int open_in(struct token_cache *cache, const char *folder, const struct corpus_options *o,
                   const struct walk *walk, struct token_file *out, struct muster_error *err)
{
    if (name_cache(cache, folder, o, walk, err) < 0)
        return -1;
    const int found = token_file_open_cache(out, cache->path, cache->key, err);
    if (found <= 0)
        return found;
    if (io_make_directories(folder, 0755, err) < 0 || lock_cache(cache, err) < 0)
        return -1;
    return token_file_open_cache(out, cache->path, cache->key, err); /* another process may have made it */
}

int token_cache_open(struct token_cache *cache, const struct corpus_options *o, const struct walk *walk,
                     struct token_file *out, struct muster_error *err)
{
    const bool named = o->cache_dir && *o->cache_dir;
    scope_free char *folder = cache_folder(o->cache_dir);
    *cache = (struct token_cache)TOKEN_CACHE_NONE;
    if (!folder)
        return 1;
    const int found = open_in(cache, folder, o, walk, out, err);
    if (found >= 0 || named)
        return found;
    mem_free(take_pointer(&cache->path)); /* the user's folder cannot be written: the tokens stay in memory */
    error_clear(err);
    return 1;
}

void token_cache_close(struct token_cache *cache)
{
    if (!cache)
        return;
    if (cache->lock >= 0)
        (void)close(cache->lock); /* releases the lock */
    mem_free(cache->path);
    *cache = (struct token_cache)TOKEN_CACHE_NONE;
}

/* ---- writing the tokens of a text ---- */

enum { FLUSH_BYTES = 1 << 20, MASKED_16 = 1 << 15 };

struct token_sink {
    struct token_file_header header;
    struct buffer tokens, ends; /* not yet written to the files; all of them without files */
    uint64_t last_end;
    char *path, *new_path, *ends_path; /* NULL: memory */
    int fd, fd_ends;
};

static int width_of(const struct token_sink_options *options)
{
    const int64_t narrow = options->masked ? MASKED_16 : 1 << 16;
    if (options->vocabulary <= 256 && !options->masked)
        return 1;
    return options->vocabulary <= narrow ? 2 : 4;
}

/* Creates a new file with a temporary name. */
static int create_file(char **path, int *fd, const char *base, const char *ending, struct muster_error *err)
{
    *path = mem_printf("%s.%ld%s", base, (long)getpid(), ending);
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
    if (create_file(&sink->new_path, &sink->fd, options->path, ".new", err) < 0 ||
        create_file(&sink->ends_path, &sink->fd_ends, options->path, ".ends", err) < 0 ||
        io_write_all(sink->fd, &sink->header, sizeof sink->header, sink->new_path, err) < 0)
        return NULL;
    return take_pointer(&sink);
}

static void remove_file(char *path, int fd)
{
    if (fd >= 0) {
        (void)close(fd); /* write errors do not matter: the file is removed */
        (void)unlink(path);
    }
    mem_free(path);
}

void token_sink_destroy(struct token_sink *sink)
{
    if (!sink)
        return;
    remove_file(sink->new_path, sink->fd);
    remove_file(sink->ends_path, sink->fd_ends);
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
    return flush_to(&sink->tokens, sink->fd, sink->new_path, FLUSH_BYTES, err);
}

int token_sink_end_document(struct token_sink *sink, struct muster_error *err)
{
    if (sink->header.tokens == sink->last_end)
        return 0;
    sink->last_end = sink->header.tokens;
    sink->header.documents++;
    if (buffer_append(&sink->ends, &sink->last_end, sizeof sink->last_end) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the ends of documents");
    return flush_to(&sink->ends, sink->fd_ends, sink->ends_path, FLUSH_BYTES, err);
}

void token_sink_count_chats(struct token_sink *sink, const struct token_file_chats *more)
{
    sink->header.chats.chats += more->chats;
    sink->header.chats.empty_turns += more->empty_turns;
    sink->header.chats.unasked += more->unasked;
    sink->header.chats.in_parts += more->in_parts;
}

static void finish_memory(struct token_sink *sink, struct token_file *out)
{
    *out = (struct token_file){.width = (int)sink->header.width,
                               .masked = sink->header.masked != 0,
                               .count = (int64_t)sink->header.tokens,
                               .documents = (int64_t)sink->header.documents,
                               .memory = sink->tokens.data,
                               .memory_ends = sink->ends.data,
                               .chats = sink->header.chats};
    out->tokens = out->memory;
    out->ends = out->memory_ends;
    sink->tokens = sink->ends = (struct buffer){0};
}

/* Appends the ends of documents to the tokens. */
static int append_ends(struct token_sink *sink, struct muster_error *err)
{
    if (lseek(sink->fd_ends, 0, SEEK_SET) < 0)
        return error_errno(err, "cannot read %s", sink->ends_path);
    scope_free char *block = mem_calloc(FLUSH_BYTES, 1);
    if (!block)
        return error_set(err, MUSTER_E_NOMEM, "no memory to write a token cache");
    for (uint64_t left = sink->header.documents * sizeof(uint64_t); left > 0;) {
        const size_t bytes = left < FLUSH_BYTES ? (size_t)left : FLUSH_BYTES;
        if (io_read_all(sink->fd_ends, block, bytes, sink->ends_path, err) < 0 ||
            io_write_all(sink->fd, block, bytes, sink->new_path, err) < 0)
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
    if (flush_to(&sink->tokens, sink->fd, sink->new_path, 0, err) < 0 ||
        flush_to(&sink->ends, sink->fd_ends, sink->ends_path, 0, err) < 0 || append_ends(sink, err) < 0)
        return -1;
    if (pwrite(sink->fd, &sink->header, sizeof sink->header, 0) != sizeof sink->header ||
        fdatasync(sink->fd) < 0)
        return error_errno(err, "cannot write token cache %s", sink->new_path);
    const int fd = take_fd(&sink->fd); /* token_sink_destroy no longer removes the file */
    if (close(fd) < 0 || rename(sink->new_path, sink->path) < 0) {
        const int reason = errno;
        (void)unlink(sink->new_path);
        errno = reason;
        return error_errno(err, "cannot write token cache %s", sink->path);
    }
    const int opened = token_file_open_cache(out, sink->path, sink->header.key, err);
    return opened > 0
               ? error_set(err, MUSTER_E_IO, "token cache %s differs from the written bytes", sink->path)
               : opened;
}

int token_sink_finish(struct token_sink *sink, struct token_file *out, struct muster_error *err)
{
    if (sink->path)
        return finish_file(sink, out, err);
    finish_memory(sink, out);
    return 0;
}
