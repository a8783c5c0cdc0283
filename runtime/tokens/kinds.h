/* kinds.h - what a kind of tokenizer provides; inside of this folder. */
#ifndef MUSTER_RUNTIME_TOKENS_KINDS_H
#define MUSTER_RUNTIME_TOKENS_KINDS_H

#include "runtime/tokens/tokenizer.h"

struct tokenizer_ops {
    const char *kind;
    void (*destroy)(void *self);
    int64_t (*vocabulary)(const void *self);
    struct tokenizer_special (*special)(const void *self);
    int32_t (*find)(const void *self, const char *text);
    /* See tokenizer_cut; `most` is below length. NULL: nowhere. */
    size_t (*cut)(const void *self, const char *text, size_t length, size_t most);
    /* text is not empty */
    int (*encode)(void *self, const char *text, size_t length, struct token_list *out,
                  struct muster_error *err);
    /* ids are inside of the vocabulary */
    int (*decode)(void *self, const int32_t *tokens, size_t count, struct buffer *out,
                  struct muster_error *err);
};

/* An opened tokenizer: destroy(self) is its owner's to call. */
struct tokenizer_opened {
    const struct tokenizer_ops *ops;
    void *self;
    uint64_t fingerprint; /* of the bytes of its files */
};

int bytes_tokenizer_open(struct tokenizer_opened *out);
/* tokenizer.json at path. */
int bpe_tokenizer_open_json(const char *path, struct tokenizer_opened *out, struct muster_error *err);
/* GPT-2's pair: a JSON object of ids, and lines of merges. */
int bpe_tokenizer_open_pair(const char *vocabulary, const char *merges, struct tokenizer_opened *out,
                            struct muster_error *err);
int sentencepiece_tokenizer_open(const char *path, struct tokenizer_opened *out, struct muster_error *err);

#endif
