/* kinds.h - what a kind of tokenizer provides; inside of this folder. */
#ifndef MUSTER_TRAINER_TOKENS_KINDS_H
#define MUSTER_TRAINER_TOKENS_KINDS_H

#include "trainer/tokens/added.h"
#include "trainer/tokens/tokenizer.h"

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
    /* Adds a token that is found in a text as it stands (added.h); an id of TOKEN_NONE: the one that its text
     * has, or the next one. 1: added, 0: it was one before, -1: MUSTER_E_INVALID, its text has another id or
     * its id another text. finish_added comes behind the last. NULL: of a kind that no file comes with. */
    int (*add)(void *self, const struct added_token *token, bool normalized, struct muster_error *err);
    void (*finish_added)(void *self);
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
/* GPT-2's pair: a JSON object of ids, and lines of merges. by_class: the class of `transformers` whose rules
 * cut words, NULL: GPT-2's; prefix_blank: a blank goes in front of a text. */
int bpe_tokenizer_open_pair(const char *vocabulary, const char *merges, const char *by_class,
                            bool prefix_blank, struct tokenizer_opened *out, struct muster_error *err);
/* every_piece: what stands between added tokens gets the model's blank in front, as the text's begin does. */
int sentencepiece_tokenizer_open(const char *path, bool every_piece, struct tokenizer_opened *out,
                                 struct muster_error *err);

#endif
