/* corpus.h - one source of data as a stream of tokens with documents in it: the token shards of a path, or
 * its texts, tokenized once. */
#ifndef MUSTER_TRAINER_DATA_CORPUS_H
#define MUSTER_TRAINER_DATA_CORPUS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/base/guard.h"
#include "proto/include/muster_error.h"
#include "trainer/tokens/tokenizer.h"

/* Gets, every few megabytes, how many of all bytes of a source's texts are tokenized. */
struct data_progress {
    void (*take)(void *context, const char *path, int64_t bytes, int64_t of);
    void *context;
};

struct corpus_options {
    const char *path;
    struct tokenizer *tokenizer;          /* of texts; used while the corpus is opened */
    const char *text_key;                 /* of JSON lines */
    int32_t end;                          /* token behind every document of a text; TOKEN_NONE: nothing */
    const char *cache_dir;                /* of token caches; "" or NULL: the user's cache folder */
    const struct data_progress *progress; /* of tokenizing; may be NULL */
    struct buffer *identity;              /* its files are added here (identity.h), ... */
    const char *identity_name;            /* ... under this name */
    struct buffer *notes;                 /* what was left out of a folder, a line each; may be NULL */
};
struct corpus;

struct corpus *corpus_open(const struct corpus_options *options, struct muster_error *err);
void corpus_destroy(struct corpus *corpus); /* accepts NULL */
GUARD_DEFINE(corpus, struct corpus *, corpus_destroy);

int corpus_files(const struct corpus *corpus);
int64_t corpus_tokens(const struct corpus *corpus);
/* -1: some token shard has no index, and does not say where documents end. */
int64_t corpus_documents(const struct corpus *corpus);
/* Whether tokens may have TOKEN_MASK. */
bool corpus_masked(const struct corpus *corpus);
/* Tokens from..from + count - 1, all of them there; TOKEN_MASK of token_file.h in those that are no
 * targets. */
void corpus_read(const struct corpus *corpus, int64_t from, int64_t count, int32_t *out);
/* Where document i begins and ends. */
void corpus_document(const struct corpus *corpus, int64_t i, int64_t *begin, int64_t *end);

#endif
