/* unicode.h - UTF-8, the classes of code points that tokenizers use, and the letters that stand for bytes and
 * for blanks. */
#ifndef MUSTER_TRAINER_TOKENS_UNICODE_H
#define MUSTER_TRAINER_TOKENS_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

/* Bits 16 to 23 of the classes are the category, a number below UNICODE_CATEGORIES; bits 24 to 31 the script,
 * 0: none of those in the table. */
enum unicode_class {
    UNICODE_LETTER = 1,       /* \p{L} */
    UNICODE_NUMBER = 2,       /* \p{N} */
    UNICODE_BLANK = 4,        /* \s */
    UNICODE_NUMERIC = 8,      /* Rust's char::is_numeric */
    UNICODE_WORD = 16,        /* \w of Oniguruma */
    UNICODE_RUST_WORD = 32,   /* \w of Rust */
    UNICODE_PUNCTUATION = 64, /* for Punctuation and BertPreTokenizer */
    UNICODE_CONTROL = 128,    /* removed by BertNormalizer's clean_text */
    UNICODE_NONSPACING = 256, /* removed by BertNormalizer's strip_accents */
    UNICODE_COMBINING = 512,  /* removed by StripAccents */
    UNICODE_CATEGORY_SHIFT = 16,
    UNICODE_SCRIPT_SHIFT = 24,
};

/* One character of a text. */
struct unicode_char {
    uint32_t point;
    unsigned classes; /* bits of enum unicode_class; 0 for a byte that is no UTF-8 */
    unsigned length;  /* bytes, 1 to 4 */
};

/* The character at text, which has `length` bytes, 1 or more. A byte that begins no character of UTF-8 counts
 * as one character, with point 0xFFFD. */
struct unicode_char unicode_next(const char *text, size_t length);
/* Bytes of the last character of text; 0 where length is 0. */
size_t unicode_last(const char *text, size_t length);
/* Writes the UTF-8 of a code point; returns its bytes. */
size_t unicode_write(uint32_t point, char out[4]);
/* Classes of a code point. */
unsigned unicode_classes(uint32_t point);
/* The small letter of a code point, as Rust has it; U+0130 becomes "i" and U+0307, of which the first is
 * returned. */
uint32_t unicode_lower(uint32_t point);

/* A run of code points with the same classes. */
struct unicode_run {
    uint32_t first, last;
    unsigned classes;
};
/* All runs one after the other: next with *run zeroed begins; false: there are no more. */
bool unicode_next_run(struct unicode_run *run);
/* The number of a category ("Lu") or of a script ("Han"); -1: it is not in the table. */
int unicode_category(const char *name, size_t length);
/* NULL: there is no category of this number. */
const char *unicode_category_name(int category);
int unicode_script(const char *name, size_t length);

/* ---- GPT-2's alphabet: 256 characters that stand for bytes in GPT-2's files ---- */

/* Adds the bytes of a text in that alphabet. Returns false, and adds nothing, if a character is not in the
 * alphabet. */
bool alphabet_bytes(const char *text, size_t length, struct buffer *out);

/* Writes the UTF-8 of a byte's letter; returns its length. */
size_t alphabet_letter(unsigned char byte, char out[4]);
/* Adds a text in that alphabet. out remembers a failure. */
void alphabet_letters(const char *text, size_t length, struct buffer *out);

/* ---- U+2581 for blanks, as in sentencepiece ---- */

#define NORMALIZE_MARK "\xE2\x96\x81" /* U+2581 */
enum { NORMALIZE_MARK_BYTES = 3 };

/* Whether a piece of text gets a mark in front. */
enum normalize_prefix {
    NORMALIZE_NONE,
    NORMALIZE_FIRST,  /* the text's first piece, unless it begins with a mark */
    NORMALIZE_ABSENT, /* every piece, unless it begins with a mark */
};

/* Adds the text with marks for its blanks; first: it is the text's first piece. Pure. */
void normalize_blanks(enum normalize_prefix prefix, bool first, const char *text, size_t length,
                      struct buffer *out);
bool normalize_is_mark(const char *text, size_t length);

/* ---- NFC by libunistring, for texts that become a corpus ---- */

/* Loads libunistring. Call it before normalize_compose. MUSTER_E_NOT_FOUND: the library is missing; the error
 * begins "USER needs libunistring2". */
int normalize_open(const char *user, struct muster_error *err);
/* Adds Unicode's composed form (NFC) of a text of UTF-8. */
int normalize_compose(const char *text, size_t length, struct buffer *out, struct muster_error *err);

#endif
