/* token_sink.h - where the tokens of a text go: a cache file, written beside and renamed, or memory. */
#ifndef MUSTER_TRAINER_DATA_TOKEN_SINK_H
#define MUSTER_TRAINER_DATA_TOKEN_SINK_H

#include "proto/base/guard.h"
#include "trainer/data/token_file.h"

enum { TOKEN_SINK_MEMORY = 256 << 20 }; /* bytes of tokens that are kept without a file */

struct token_sink_options {
    const char *path; /* of the cache; NULL: memory */
    uint64_t key;
    int64_t vocabulary; /* ids are below */
    bool masked;        /* some tokens may be no targets */
};
struct token_sink;

struct token_sink *token_sink_create(const struct token_sink_options *options, struct muster_error *err);
/* Without token_sink_finish nothing is left behind. Accepts NULL. */
void token_sink_destroy(struct token_sink *sink);
GUARD_DEFINE(token_sink, struct token_sink *, token_sink_destroy);

/* Errors: MUSTER_E_LIMIT where memory would hold more than TOKEN_SINK_MEMORY; the file cannot be written. */
int token_sink_add(struct token_sink *sink, const int32_t *tokens, size_t count, bool masked,
                   struct muster_error *err);
/* A document without a token is none. */
int token_sink_end_document(struct token_sink *sink, struct muster_error *err);
/* All tokens, as a file of them; nothing is added afterwards. */
int token_sink_finish(struct token_sink *sink, struct token_file *out, struct muster_error *err);

#endif
