/* token_cache.h - the file that keeps the tokens of a source: one process of the machine makes it while the
 * others wait. token_sink_* write it. */
#ifndef MUSTER_TRAINER_DATA_TOKEN_CACHE_H
#define MUSTER_TRAINER_DATA_TOKEN_CACHE_H

#include "proto/base/guard.h"
#include "trainer/data/corpus.h"
#include "trainer/data/token_file.h"
#include "trainer/data/walk.h"

struct token_cache {
    char *path; /* the file to make; NULL: no folder for it, the tokens stay in memory */
    uint64_t key;
    int lock; /* held until token_cache_close; -1: none */
};
#define TOKEN_CACHE_NONE                                                                                     \
    {                                                                                                        \
        NULL, 0, -1                                                                                          \
    }

/* Returns 0: *out has the tokens. 1: the caller has to make them, into a file with cache->path and
 * cache->key. The path of the source and the settings give the file's name. The key also depends on the
 * source's files: their sizes and times, and hashes of their first and last bytes. Error: the user named a
 * folder that cannot be written. */
int token_cache_open(struct token_cache *cache, const struct corpus_options *options, const struct walk *walk,
                     struct token_file *out, struct muster_error *err);
void token_cache_close(struct token_cache *cache); /* accepts NULL */

/* ---- the tokens of a text, written to a new file that is renamed at the end, or to memory ---- */

enum { TOKEN_SINK_MEMORY = 256 << 20 }; /* most bytes of tokens without a file */

struct token_sink_options {
    const char *path; /* the cache; NULL: memory */
    uint64_t key;
    int64_t vocabulary; /* ids are below */
    bool masked;        /* some tokens may be no targets */
};
struct token_sink;

struct token_sink *token_sink_create(const struct token_sink_options *options, struct muster_error *err);
/* Removes the new files unless token_sink_finish succeeded. Accepts NULL. */
void token_sink_destroy(struct token_sink *sink);
GUARD_DEFINE(token_sink, struct token_sink *, token_sink_destroy);

/* Errors: MUSTER_E_LIMIT, memory would hold more than TOKEN_SINK_MEMORY; the file cannot be written. */
int token_sink_add(struct token_sink *sink, const int32_t *tokens, size_t count, bool masked,
                   struct muster_error *err);
/* Ends a document; a document without a token is not counted. */
int token_sink_end_document(struct token_sink *sink, struct muster_error *err);
/* Adds to the counts of chats. */
void token_sink_count_chats(struct token_sink *sink, const struct token_file_chats *more);
/* Opens all tokens as a file of tokens. Nothing may be added afterwards. */
int token_sink_finish(struct token_sink *sink, struct token_file *out, struct muster_error *err);

#endif
