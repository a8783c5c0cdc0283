/* bpe.h - a tokenizer of words in memory: BPE or WordPiece. Words of BPE begin as bytes (GPT-2 and later
 * models) or as characters (`by_chars`: Llama 2 and other models that follow sentencepiece). */
#ifndef MUSTER_TRAINER_TOKENS_BPE_H
#define MUSTER_TRAINER_TOKENS_BPE_H

#include <stddef.h>
#include <stdint.h>

#include "proto/include/muster_error.h"
#include "trainer/tokens/kinds.h"
#include "trainer/tokens/parts.h"

/* ---- merges.c: byte pair encoding of a word ----
 *
 * A word begins as one token for each byte or character. Of all neighbours that a merge joins, the pair of
 * the lowest rank is joined, the leftmost of equal ranks, until no merge applies (Sennrich et al. 2016, as in
 * `tokenizers`). */

struct merge {
    uint64_t pair; /* left id << 32 | right id; UINT64_MAX: an empty slot */
    uint32_t rank;
    int32_t joined;
};

/* Zeroed: no merges. */
struct merges {
    struct merge *table; /* (size), a power of two */
    int64_t size, count;
};

/* The later of two merges of the same pair counts. */
int merges_add(struct merges *merges, int32_t left, int32_t right, uint32_t rank, int32_t joined,
               struct muster_error *err);
void merges_free(struct merges *merges);

/* Joins the count tokens of one word in place. Returns the number of tokens left; -1: no memory (only long
 * words need memory). */
int64_t merges_apply(const struct merges *merges, int32_t *tokens, size_t count, struct muster_error *err);

/* ---- the tokenizer ---- */

enum {
    BPE_JSON_LIMIT = 128 << 20 /* bytes of a tokenizer.json; a file with 262,144 tokens has 33 million */
};

enum bpe_model { BPE_MERGES, BPE_WORDPIECE, BPE_WHOLE_WORDS /* WordLevel */ };

struct bpe_word;

struct bpe {
    enum bpe_model model;
    struct vocabulary words; /* the model's tokens, as words have them: without the added tokens */
    struct vocabulary all;   /* tokens by their text in the file, with the added tokens */
    struct merges merges;
    /* [0]: found in the original text; [1] (`normalized`): found in the normalizer's result. */
    struct added_tokens added[2];
    struct normalizer *normalizer;
    struct pre_tokenizer pre;
    struct decoder *decoder; /* NULL: that of ByteLevel */
    bool line_in_added;      /* an added token contains a line end */
    bool whole_words;        /* a word that is a token needs no merges: ignore_merges */
    int32_t unknown;         /* token for unknown bytes or characters; TOKEN_NONE: they are left out */
    char *unknown_missing;   /* the text that should be a token for them; it is an error if one is needed */
    bool by_chars;           /* words begin as characters; the four fields below apply to these alone */
    bool byte_fallback;      /* an unknown character becomes the tokens of its bytes, if all exist */
    bool fuse_unknown;       /* adjacent unknown characters become one token */
    bool glued[256];         /* a token has this byte before a mark: words are not cut there */
    char *prefix, *suffix;   /* affixes: within a word, and at its end; NULL: none */
    int64_t longest;         /* characters of a word that WordPiece takes apart */
    int32_t bytes[256];      /* token of each byte; -1: none */
    struct tokenizer_special special;
    struct bpe_word *cache; /* words that were encoded before, with their tokens */
};

struct bpe *bpe_create(struct muster_error *err);
void bpe_destroy(struct bpe *bpe); /* accepts NULL */
GUARD_DEFINE(bpe, struct bpe *, bpe_destroy);

/* Adds a token of the model; its text is in GPT-2's alphabet of bytes, unless by_chars. */
int bpe_add_token(struct bpe *bpe, const char *text, size_t length, int64_t id, struct muster_error *err);
/* Adds the merge of rank `rank` of two such texts. MUSTER_E_INVALID: a text, or both joined, is no token. */
int bpe_add_merge(struct bpe *bpe, const char *left, size_t left_length, const char *right,
                  size_t right_length, uint32_t rank, struct muster_error *err);
/* Adds an added token; pass 1: the normalized form of its text is searched for. */
int bpe_add_added(struct bpe *bpe, const struct added_token *token, int pass, struct muster_error *err);
/* Call after the last addition. */
int bpe_finish(struct bpe *bpe, struct muster_error *err);

/* bpe_json.c: parses the text of a tokenizer.json; name is for errors. NULL on error. */
struct bpe *bpe_parse_json(const char *name, const char *text, size_t length, struct muster_error *err);
/* bpe_pair.c: parses GPT-2's pair of files: a JSON object of ids, and lines of merges. by_class: see kinds.h.
 * NULL on error. */
struct bpe *bpe_parse_pair(const char *name, const char *words, size_t words_length, const char *merges,
                           size_t merges_length, const char *by_class, struct muster_error *err);

/* tiktoken.c: parses a file of tiktoken or a tekken.json; the file's name decides which expression cuts
 * words. NULL on error. */
struct bpe *bpe_parse_tiktoken(const char *name, const char *text, size_t length, struct muster_error *err);
struct bpe *bpe_parse_tekken(const char *name, const char *text, size_t length, struct muster_error *err);
/* wordpiece.c: parses a vocab.txt. NULL on error. */
struct bpe *bpe_parse_wordpiece(const char *name, const char *text, size_t length,
                                const struct wordpiece_settings *settings, struct muster_error *err);

/* sentencepiece_bpe.c: a .model as merges of characters, for a text whose blanks are marks. *out is NULL,
 * without an error, where the library would give other ids. *prefix: a text gets a mark in front. */
int bpe_of_sentencepiece(const char *data, size_t length, struct bpe **out, bool *prefix,
                         struct muster_error *err);

/* wordpiece.c: writes the tokens of a word; returns their number, at most length, or -1: no token for a word
 * that is not known. */
int64_t wordpiece_of_word(const struct bpe *bpe, const char *text, size_t length, int32_t *tokens);

/* The functions of a tokenizer whose self is a struct bpe; by the model. */
extern const struct tokenizer_ops bpe_ops, wordpiece_ops;

#endif
