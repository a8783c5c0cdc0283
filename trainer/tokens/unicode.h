/* unicode.h - UTF-8, the classes of code points that pre-tokenizers use, and the forms that a tokenizer.json
 * gives a text before it is cut. */
#ifndef MUSTER_TRAINER_TOKENS_UNICODE_H
#define MUSTER_TRAINER_TOKENS_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

enum unicode_class {
    UNICODE_LETTER = 1,  /* \p{L} */
    UNICODE_NUMBER = 2,  /* \p{N} */
    UNICODE_BLANK = 4,   /* \s */
    UNICODE_NUMERIC = 8, /* Rust's char::is_numeric */
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

/* ---- GPT-2's alphabet: 256 characters that stand for bytes in GPT-2's files ---- */

/* Adds the bytes of a text in that alphabet. Returns false, and adds nothing, if a character is not in the
 * alphabet. */
bool alphabet_bytes(const char *text, size_t length, struct buffer *out);

/* ---- normalization: NFC, and U+2581 for blanks as in sentencepiece ---- */

#define NORMALIZE_MARK "\xE2\x96\x81" /* U+2581 */
enum { NORMALIZE_MARK_BYTES = 3 };

/* Whether a piece of text gets a mark in front. */
enum normalize_prefix {
    NORMALIZE_NONE,
    NORMALIZE_FIRST,  /* the text's first piece, unless it begins with a mark */
    NORMALIZE_ABSENT, /* every piece, unless it begins with a mark */
    NORMALIZE_ALWAYS, /* every piece */
};

/* Loads libunistring. Call it before normalize_compose and normalize_nfc. MUSTER_E_NOT_FOUND: the library is
 * missing; the error begins "USER needs libunistring2". */
int normalize_open(const char *user, struct muster_error *err);
/* Adds Unicode's composed form (NFC) of a text of UTF-8. */
int normalize_compose(const char *text, size_t length, struct buffer *out, struct muster_error *err);
/* Adds the composed form that `tokenizers` makes: some newer marks are not composed, and bytes that are no
 * UTF-8 stay. */
int normalize_nfc(const char *text, size_t length, struct buffer *out, struct muster_error *err);

/* Adds the text with marks for its blanks; first: it is the text's first piece. Pure. */
void normalize_blanks(enum normalize_prefix prefix, bool first, const char *text, size_t length,
                      struct buffer *out);
bool normalize_is_mark(const char *text, size_t length);

#endif
