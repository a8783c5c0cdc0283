/* bpe.h - a BPE tokenizer in memory: what its files hold, and the encoding by it. Words begin as bytes (GPT-2
 * and later ones) or as characters (`by_chars`: Llama 2 and others that follow sentencepiece). */
#ifndef MUSTER_TRAINER_TOKENS_BPE_H
#define MUSTER_TRAINER_TOKENS_BPE_H

#include "trainer/tokens/added.h"
#include "trainer/tokens/kinds.h"
#include "trainer/tokens/merges.h"
#include "trainer/tokens/normalize.h"
#include "trainer/tokens/split.h"
#include "trainer/tokens/vocabulary.h"

enum {
    BPE_SPLITTERS = 8,
    BPE_JSON_LIMIT = 128 << 20 /* bytes of a tokenizer.json: those of 262,144 tokens have 33 million */
};

struct bpe_word;

struct bpe {
    struct vocabulary words; /* by the bytes of a token, as merges see them: without the added tokens */
    struct vocabulary all;   /* by the text in the file, added tokens included */
    struct merges merges;
    /* Found in the text as it stands, and then in what is left, after the normalizer (`normalized`). */
    struct added_tokens added[2];
    bool nfc;                           /* the normalizer: first this, */
    bool marks_early;                   /* then marks for blanks, */
    enum normalize_prefix early_prefix; /* and in front of each piece */
    bool marks;                         /* the pre_tokenizer Metaspace does that behind the added tokens */
    enum normalize_prefix prefix;
    splitter splitters[BPE_SPLITTERS]; /* each cuts what the one before it left; the last word is encoded */
    int splitter_count;
    bool prefix_blank;  /* a piece between added tokens begins with a blank: add_prefix_space */
    bool line_in_added; /* an added token has a line's end in it */
    bool whole_words;   /* a word that is a token needs no merges: ignore_merges */
    int32_t unknown;    /* for a byte or character that is no token; TOKEN_NONE: such ones are left out */
    bool by_chars;      /* of these: */
    bool byte_fallback; /* a character that is no token becomes those of its bytes, if there are all */
    bool fuse_unknown;  /* unknown ones beside each other are one */
    bool glued[256];    /* a token has this byte before a mark: words are not cut there */
    int32_t bytes[256]; /* the token of each byte; -1: none */
    struct tokenizer_special special;
    struct bpe_word *cache; /* words seen, with their tokens */
};

struct bpe *bpe_create(struct muster_error *err);
void bpe_destroy(struct bpe *bpe); /* accepts NULL */
GUARD_DEFINE(bpe, struct bpe *, bpe_destroy);

/* A token of the model; unless by_chars, in the alphabet that GPT-2 writes bytes in. */
int bpe_add_token(struct bpe *bpe, const char *text, size_t length, int64_t id, struct muster_error *err);
/* The merge of rank `rank` of two such texts. MUSTER_E_INVALID where they or what they join to are no
 * tokens. */
int bpe_add_merge(struct bpe *bpe, const char *left, size_t left_length, const char *right,
                  size_t right_length, uint32_t rank, struct muster_error *err);
/* An added token; pass 1: its text is looked for as the normalizer leaves it. */
int bpe_add_added(struct bpe *bpe, const struct added_token *token, int pass, struct muster_error *err);
/* After the last addition. */
int bpe_finish(struct bpe *bpe, struct muster_error *err);

/* bpe_json.c: the text of a tokenizer.json; name is for errors. NULL on error. */
struct bpe *bpe_parse_json(const char *name, const char *text, size_t length, struct muster_error *err);
/* bpe_pair.c: GPT-2's pair: a JSON object of ids, and lines of merges. by_class: see kinds.h. */
struct bpe *bpe_parse_pair(const char *name, const char *words, size_t words_length, const char *merges,
                           size_t merges_length, const char *by_class, struct muster_error *err);

/* The functions of a tokenizer whose self is a struct bpe. */
extern const struct tokenizer_ops bpe_ops;

#endif
