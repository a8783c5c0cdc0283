/* corpus.h - a source of data as a stream of tokens with documents in it: the token shards of a path, or its
 * texts, tokenized once. */
#ifndef MUSTER_TRAINER_DATA_CORPUS_H
#define MUSTER_TRAINER_DATA_CORPUS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/base/guard.h"
#include "proto/include/muster_error.h"
#include "trainer/chat/chat.h"
#include "trainer/data/token_file.h"
#include "trainer/tokens/tokenizer.h"

/* Called every few megabytes: `bytes` of the `of` bytes of a source's texts are tokenized. */
struct data_progress {
    void (*take)(void *context, const char *path, int64_t bytes, int64_t of);
    void *context;
};

struct corpus_options {
    const char *path;
    struct tokenizer *tokenizer;          /* for texts; used by corpus_open alone */
    const char *text_key;                 /* key of the text in JSON lines */
    struct chat *chat;                    /* template of chats; NULL: chats are refused */
    int32_t end;                          /* token added after each document of a text; TOKEN_NONE: none */
    const char *cache_dir;                /* folder for token caches; "" or NULL: the user's cache folder */
    const struct data_progress *progress; /* called while texts are tokenized; may be NULL */
    struct buffer *identity;              /* gets the source's files (identity.h) */
    const char *identity_name;            /* name of the source in identity */
    struct buffer *notes;                 /* gets a line if files of a folder are left out; may be NULL */
};
struct corpus;

struct corpus *corpus_open(const struct corpus_options *options, struct muster_error *err);
void corpus_destroy(struct corpus *corpus); /* accepts NULL */
GUARD_DEFINE(corpus, struct corpus *, corpus_destroy);

int corpus_files(const struct corpus *corpus);
int64_t corpus_tokens(const struct corpus *corpus);
/* -1: unknown, since a token shard has no index of its documents. */
int64_t corpus_documents(const struct corpus *corpus);
/* Whether tokens may have TOKEN_MASK. */
bool corpus_masked(const struct corpus *corpus);
/* Counts of chats among the texts. */
struct token_file_chats corpus_chats(const struct corpus *corpus);
/* Reads tokens from..from + count - 1; the corpus has them all. Tokens that are no targets have TOKEN_MASK
 * (token_file.h). */
void corpus_read(const struct corpus *corpus, int64_t from, int64_t count, int32_t *out);
/* Where document i begins and ends. */
void corpus_document(const struct corpus *corpus, int64_t i, int64_t *begin, int64_t *end);

#endif
