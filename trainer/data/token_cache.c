/* token_cache.c - see token_cache.h. */
#include "trainer/data/token_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/io.h"
#include "proto/base/text.h"

enum { CACHE_VERSION = 2 }; /* of the tokens of an unchanged text: another one makes all caches anew */

/* The folder of caches; NULL with *named false: there is no such folder. */
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

/* FOLDER/NAME-HASH.tokens, by the last part of the source's path. */
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
    free(real); /* of realpath */
    return cache->path ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory for a path");
}

/* Waits while another process makes the cache. A file system without locks: each makes its own, and the last
 * one stays. */
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
    return token_file_open_cache(out, cache->path, cache->key, err); /* made meanwhile */
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
        (void)close(cache->lock); /* which ends the lock */
    mem_free(cache->path);
    *cache = (struct token_cache)TOKEN_CACHE_NONE;
}
