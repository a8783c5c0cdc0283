/* kinds.h - private header of this folder: the functions that a kind of tokenizer provides, and the tables of
 * tokens that the kinds share. */
#ifndef MUSTER_TRAINER_TOKENS_KINDS_H
#define MUSTER_TRAINER_TOKENS_KINDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"
#include "trainer/tokens/tokenizer.h"

/* ---- vocabulary.c: texts of tokens and their ids, found by text and by id ---- */

enum { VOCABULARY_LIMIT = 1 << 22 }; /* ids */

struct vocabulary_entry {
    uint64_t at; /* offset of the text in texts, in bytes */
    int32_t length;
    int32_t id;
};

/* Zeroed: empty. */
struct vocabulary {
    struct buffer texts;
    struct vocabulary_entry *by_id; /* (size); length -1: no token has the id */
    int64_t size, by_id_capacity;
    int32_t *table; /* (table_size), a power of two: ids by hash of the text; -1: empty */
    int64_t table_size, count;
};

/* A second id for the same text is added too; vocabulary_find returns the later id. Errors: no memory, an id
 * outside of 0 .. VOCABULARY_LIMIT - 1, an id that already has another text. */
int vocabulary_add(struct vocabulary *vocabulary, const char *text, size_t length, int64_t id,
                   struct muster_error *err);
/* The id of a text; -1: no token has this text. */
int32_t vocabulary_find(const struct vocabulary *vocabulary, const char *text, size_t length);
/* The text of an id, not ended by NUL; NULL: no token has the id. */
const char *vocabulary_text(const struct vocabulary *vocabulary, int64_t id, size_t *length);
void vocabulary_free(struct vocabulary *vocabulary);

/* A hash of short texts, for tables in memory. */
uint64_t vocabulary_hash(const char *text, size_t length);

/* ---- vocabulary.c: added tokens ("<|endoftext|>"), found in a text before it is cut into words ---- */

struct added_token {
    char *text;
    size_t length;
    int32_t id;
    bool takes_before, takes_after; /* the token includes blanks next to it: lstrip, rstrip */
    bool single_word;               /* not next to a letter, a digit or a mark */
};

/* Zeroed: no tokens. */
struct added_tokens {
    struct added_token *item; /* (count); sorted by added_finish */
    size_t count;
    uint32_t first[257]; /* tokens that begin with byte b: first[b] .. first[b + 1] - 1, longest first */
    int only;            /* first byte of all tokens; -1: they differ, or there are no tokens */
};

int added_add(struct added_tokens *added, const char *text, size_t length, const struct added_token *like,
              struct muster_error *err);
/* Whether a token of the table has the id. */
bool added_has(const struct added_tokens *added, int32_t id);
/* Call after the last added_add and before the first added_find; further calls are allowed. */
void added_finish(struct added_tokens *added);
void added_free(struct added_tokens *added);

/* Zeroed: before the first match. */
struct added_match {
    const struct added_token *token;
    size_t begin, end; /* the text that the token takes */
    size_t next; /* the search goes on from here: as in `tokenizers`, blanks that a token takes after itself
                    are found once more where they are tokens themselves */
};
/* The first added token after the last match; of several at one place, the longest. false: the text has none,
 * and the match is unchanged. */
bool added_find(const struct added_tokens *added, const char *text, size_t length, struct added_match *match);

/* ---- a kind of tokenizer ---- */

struct tokenizer_ops {
    const char *kind;
    void (*destroy)(void *self);
    int64_t (*vocabulary)(const void *self);
    struct tokenizer_special (*special)(const void *self);
    int32_t (*find)(const void *self, const char *text);
    /* See tokenizer_cut; `most` is below length. NULL: a text is never cut. */
    size_t (*cut)(const void *self, const char *text, size_t length, size_t most);
    /* text is not empty. */
    int (*encode)(void *self, const char *text, size_t length, struct token_list *out,
                  struct muster_error *err);
    /* Makes a text an added token. With id TOKEN_NONE it keeps the id of its text, or gets the next free id.
     * Returns 1: added; 0: it was an added token before; -1: MUSTER_E_INVALID, the text has another id or the
     * id has another text. Call finish_added after the last token. NULL: this kind reads no files. */
    int (*add)(void *self, const struct added_token *token, bool normalized, struct muster_error *err);
    void (*finish_added)(void *self);
    /* All ids are inside of the vocabulary. */
    int (*decode)(void *self, const int32_t *tokens, size_t count, struct buffer *out,
                  struct muster_error *err);
    /* See tokenizer_bytes; the id is inside of the vocabulary. */
    int64_t (*bytes)(void *self, int32_t token);
};

/* An opened tokenizer; its owner calls destroy(self). */
struct tokenizer_opened {
    const struct tokenizer_ops *ops;
    void *self;
    uint64_t fingerprint; /* hash of the bytes of its files */
};

/* Opens a tokenizer.json. */
int bpe_tokenizer_open_json(const char *path, struct tokenizer_opened *out, struct muster_error *err);
/* Opens GPT-2's pair: a JSON object of ids, and lines of merges. by_class: class of `transformers` whose
 * rules cut words, NULL: GPT-2's. prefix_blank: a blank is put in front of a text. */
int bpe_tokenizer_open_pair(const char *vocabulary, const char *merges, const char *by_class,
                            bool prefix_blank, struct tokenizer_opened *out, struct muster_error *err);
/* Opens a file of tiktoken, or a tekken.json. */
int ranked_tokenizer_open(const char *path, bool tekken, struct tokenizer_opened *out,
                          struct muster_error *err);
/* Whether these bytes begin a file of tiktoken; Llama 3's tokenizer.model is such a file. */
bool tiktoken_begins(const char *text, size_t length);

/* BERT's settings in tokenizer_config.json, with the values of BertTokenizer where it lacks them. */
struct wordpiece_settings {
    bool lowercase, chinese, accents; /* do_lower_case, tokenize_chinese_chars, strip_accents */
};
/* Opens a vocab.txt. */
int wordpiece_tokenizer_open(const char *path, const struct wordpiece_settings *settings,
                             struct tokenizer_opened *out, struct muster_error *err);

/* Opens a .model file. every_piece: each piece of text between added tokens gets the model's blank in front;
 * else the beginning of the text alone does. */
int sentencepiece_tokenizer_open(const char *path, bool every_piece, struct tokenizer_opened *out,
                                 struct muster_error *err);

/* ---- companions.c: the JSON files next to a tokenizer's own in Hugging Face's folders ---- */

/* tokenizer_config.json, special_tokens_map.json, added_tokens.json. NULL: there is no such file. */
struct companions {
    json_t *config, *map, *added;
};

/* Reads the files in the folder of the tokenizer's file at path; call companions_free in any case.
 * MUSTER_E_INVALID: a file is no JSON object. */
int companions_read(struct companions *companions, const char *path, struct muster_error *err);
void companions_free(struct companions *companions);

/* Adds tokenizer_class, without a final "Fast", to out; nothing where no file names a class. */
int companions_class(const struct companions *companions, struct buffer *out, struct muster_error *err);
/* A flag of tokenizer_config.json; `otherwise` where the file lacks it. */
bool companions_flag(const struct companions *companions, const char *key, bool otherwise);

/* Adds the tokens of these files to the tokenizer: first the tokens of added_tokens_decoder in
 * tokenizer_config.json, or else of added_tokens.json; then special tokens by their names, with a new id
 * where the files give none. *hash changes with each new token. path is for errors. */
int companions_add_tokens(const struct companions *companions, const char *path,
                          const struct tokenizer_opened *tokenizer, uint64_t *hash, struct muster_error *err);

/* Sets the ids in special that these files name: bos_token, eos_token, ... Without an eos_token, eos is a
 * token whose text usually ends a document; pad, cls, sep and mask may be BERT's. */
void companions_special(const struct companions *companions, const struct tokenizer_opened *tokenizer,
                        struct tokenizer_special *special);

#endif
