/* parts.h - private header of this folder: the parts of a tokenizer.json that stand around its model. The
 * normalizer changes a text, the pre_tokenizer cuts it into words, the decoder makes a text of tokens. Their
 * results equal the results of `tokenizers`; an unknown part, or an unknown field of a part, is an error that
 * names it.
 */
#ifndef MUSTER_TRAINER_TOKENS_PARTS_H
#define MUSTER_TRAINER_TOKENS_PARTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/base/guard.h"
#include "proto/include/muster_error.h"
#include "trainer/tokens/unicode.h"

/* ---- part_json.c: fields of a part; every error begins with the file ---- */

struct part_reader {
    const char *path, *section; /* "normalizer", ... */
    struct muster_error *err;
};

/* MUSTER_E_UNSUPPORTED "PATH: WHAT VALUE is not supported". Returns -1. */
int part_refuse(const struct part_reader *r, const char *what, const json_t *value);
/* MUSTER_E_INVALID "PATH: WHAT". Returns -1. */
int part_malformed(const struct part_reader *r, const char *what);
/* Whether a setting is absent, null, "" or false, and so changes no ids. */
bool part_is_nothing(const json_t *value);
/* The field `type`; "" where it is no text. */
const char *part_type(const json_t *part);
/* A field that has to be true or false. otherwise: 0 or 1 where the field may be absent, -1 where it may not.
 * -1: it is refused. */
int part_flag(const struct part_reader *r, const json_t *part, const char *key, int otherwise, bool *out);
/* A field that has to be a text; NULL: it is refused. */
const char *part_text(const struct part_reader *r, const json_t *part, const char *key);
/* A field that has to be a whole number from 0 to most. */
int part_number(const struct part_reader *r, const json_t *part, const char *key, int64_t most, int64_t *out);

/* ---- pattern.c: regular expressions ----
 *
 * An expression is translated for PCRE2, which never sees code points. Code points that the expression does
 * not distinguish are one byte, so that the classes come from our own table on every machine, and a
 * byte that is no UTF-8 is U+FFFD. Syntax that does not mean the same there is refused. */

enum pattern_flavour {
    PATTERN_ONIGURUMA, /* tokenizer.json */
    PATTERN_RUST,      /* tiktoken, Tekken */
};
enum { PATTERN_BYTES = 0x110000 }; /* places of a map */

/* Makes PCRE2's expression, ended by NUL, and the byte of each code point. Pure.
 * MUSTER_E_UNSUPPORTED: "... at byte N". */
int pattern_translate(const char *pattern, enum pattern_flavour flavour, struct buffer *out, uint8_t *map,
                      struct muster_error *err);

/* ---- find.c: matches for Split and Replace ---- */

/* Used by one thread at a time. */
struct finder;

/* A text that is looked for as it is, not empty. NULL: no memory. */
struct finder *finder_of_text(const char *text, struct muster_error *err);
/* Characters of the classes (bits of enum unicode_class), each a match. */
struct finder *finder_of_classes(unsigned classes, struct muster_error *err);
/* A regular expression, by libpcre2-8, which is loaded. MUSTER_E_NOT_FOUND: the library is missing. */
struct finder *finder_of_pattern(const char *pattern, enum pattern_flavour flavour, struct muster_error *err);
void finder_destroy(struct finder *finder); /* accepts NULL */
GUARD_DEFINE(finder, struct finder *, finder_destroy);
/* {"Regex": ...} or {"String": ...}. NULL: it is refused. */
struct finder *finder_read(const struct part_reader *r, const json_t *pattern, const json_t *part);

/* A search in one text: finder_begin first, and finder_end in any case. */
struct search {
    struct finder *finder;
    const char *text;
    size_t length, at;  /* at: end of the last match, in bytes */
    size_t count, from; /* characters of the text; the next to look from */
    size_t seen;        /* the character at text + at */
    bool matched;       /* there was a match, which ended at `from` */
    uint8_t few[192], *bytes;
};
int finder_begin(struct finder *finder, const char *text, size_t length, struct search *search,
                 struct muster_error *err);
/* 1: the next match is text[*begin .. *end), which may be empty; 0: there are no more; -1: an error. */
int finder_next(struct search *search, size_t *begin, size_t *end, struct muster_error *err);
void finder_end(struct search *search);

/* ---- normal_form.c: Unicode's normal forms. Pure. ---- */

/* Adds the normal form of a text, composed (NFC, NFKC) or not, with or without compatible decompositions.
 * Bytes that are no UTF-8 stay. out remembers a failure. */
void normal_form(bool compatible, bool composed, const char *text, size_t length, struct buffer *out);

/* ---- normalize.c: the normalizer ---- */

struct normalizer;

/* part: its value in the file; NULL or null: nothing changes. */
struct normalizer *normalizer_read(const struct part_reader *r, const json_t *part);
/* NFC and nothing else. NULL: no memory. */
struct normalizer *normalizer_nfc(struct muster_error *err);
/* BertNormalizer with clean_text. NULL: no memory. */
struct normalizer *normalizer_bert(bool chinese, bool accents, bool lowercase, struct muster_error *err);
void normalizer_destroy(struct normalizer *normalizer); /* accepts NULL */
/* Whether the normalizer changes this text at all, as far as that is known beforehand. */
bool normalizer_changes(const struct normalizer *normalizer, const char *text, size_t length);
/* Whether it may remove the start of a text. */
bool normalizer_removes(const struct normalizer *normalizer);
/* Adds the normalized form of a text to out. */
int normalizer_apply(const struct normalizer *normalizer, const char *text, size_t length, struct buffer *out,
                     struct muster_error *err);

/* ---- split.c: known expressions, written in C. Pure. ----
 *
 * A splitter returns the length of the first word of a text, 1 to length; length is 1 or more. The next call,
 * with the text after that word, returns the next. All words together are the text. A pattern's look-ahead
 * sees the end of the text at text + length. */

typedef size_t (*splitter)(const char *text, size_t length);

/* GPT-2's: 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
size_t split_gpt2(const char *text, size_t length);
/* Each digit is a word, each run between digits too: Digits with individual_digits. */
size_t split_digits(const char *text, size_t length);
/* Runs of digits, and the runs between them: Digits without individual_digits. */
size_t split_numbers(const char *text, size_t length);
/* A word begins at each U+2581: Metaspace with split. */
size_t split_marks(const char *text, size_t length);
/* Runs of letters and what belongs to words, of blanks, and of other characters: Whitespace. */
size_t split_runs(const char *text, size_t length);
/* The splitter of a regular expression as files have it; NULL: another expression. */
splitter split_by_pattern(const char *pattern);

/* ---- pre_tokenize.c: the pre_tokenizer ---- */

enum { PRE_STEPS = 16 };

enum pre_kind {
    PRE_SPLITTER, /* every word of the splitter */
    PRE_WORDS,    /* the same without blanks */
    PRE_FIND,     /* Split, Punctuation, ...: by matches */
    PRE_BLANK,    /* a blank in front: add_prefix_space */
    PRE_MARK,     /* Metaspace: marks for blanks, and one in front */
    PRE_ALPHABET, /* bytes become GPT-2's letters */
};
enum pre_behaviour { PRE_REMOVED, PRE_ISOLATED, PRE_MERGED_BEFORE, PRE_MERGED_AFTER, PRE_CONTIGUOUS };

struct pre_step {
    enum pre_kind kind;
    splitter split;
    struct finder *finder;
    enum pre_behaviour behaviour;
    bool inverted;
    enum normalize_prefix prefix;
};

/* Zeroed: a text is one word. */
struct pre_tokenizer {
    struct pre_step step[PRE_STEPS];
    int count;
    bool bytes; /* it ends with ByteLevel: words are of bytes, and the letters of GPT-2 are left out */
};

int pre_tokenizer_read(const struct part_reader *r, const json_t *part, struct pre_tokenizer *out);
int pre_tokenizer_add(struct pre_tokenizer *p, const struct pre_step *step, struct muster_error *err);
void pre_tokenizer_free(struct pre_tokenizer *p);
/* BertPreTokenizer. */
int pre_tokenizer_add_bert(struct pre_tokenizer *p, struct muster_error *err);
/* Whether every word ends at a line end between two ASCII characters that are no blanks, in any text. */
bool pre_tokenizer_cuts_lines(const struct pre_tokenizer *p);

/* Calls word with each word of a piece of text, in order; word returns -1 to stop. first: the piece is the
 * beginning of the whole text. */
typedef int (*pre_word)(void *context, const char *text, size_t length, struct muster_error *err);
int pre_tokenize(const struct pre_tokenizer *p, bool first, const char *text, size_t length, pre_word word,
                 void *context, struct muster_error *err);

/* ---- decode.c: the decoder ---- */

struct decoder;

/* part NULL or null: tokens are joined by blanks. */
struct decoder *decoder_read(const struct part_reader *r, const json_t *part);
/* The decoder WordPiece with its usual settings. NULL: no memory. */
struct decoder *decoder_wordpiece(struct muster_error *err);
void decoder_destroy(struct decoder *decoder); /* accepts NULL */

/* Texts of tokens one after the other, and where each ends. */
struct pieces {
    struct buffer text;
    size_t *end;
    size_t count, capacity;
};
/* Adds the end of a token whose text has been added to pieces->text. A failure stays in text. */
void pieces_add(struct pieces *pieces);
void pieces_free(struct pieces *pieces);
/* Adds the text of the tokens to out; changes them. */
int decoder_apply(const struct decoder *decoder, struct pieces *tokens, struct buffer *out,
                  struct muster_error *err);

#endif
