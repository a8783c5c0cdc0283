/* normalize.h - what a tokenizer.json does to a text before it is cut: Unicode's composed form (NFC, by
 * libunistring, but for marks that `tokenizers` does not know), and blanks written as U+2581 with one in
 * front, as sentencepiece has them. */
#ifndef MUSTER_TRAINER_TOKENS_NORMALIZE_H
#define MUSTER_TRAINER_TOKENS_NORMALIZE_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

#define NORMALIZE_MARK "\xE2\x96\x81" /* U+2581 */
enum { NORMALIZE_MARK_BYTES = 3 };

/* Whether a piece of text gets a mark in front. */
enum normalize_prefix {
    NORMALIZE_NONE,
    NORMALIZE_FIRST,  /* the text's first piece, unless it begins with one */
    NORMALIZE_ABSENT, /* every piece, unless it begins with one */
    NORMALIZE_ALWAYS, /* every piece */
};

/* NFC: loads libunistring; MUSTER_E_NOT_FOUND where it is missing: "USER needs libunistring2 ...". Before the
 * two functions that follow. */
int normalize_open(const char *user, struct muster_error *err);
/* Adds the composed form of a text of UTF-8, as Unicode has it. */
int normalize_compose(const char *text, size_t length, struct buffer *out, struct muster_error *err);
/* Adds the composed form of `tokenizers`; bytes that are no UTF-8 stay. */
int normalize_nfc(const char *text, size_t length, struct buffer *out, struct muster_error *err);

/* Adds the text with marks for its blanks; first: it is the text's first piece. Pure. */
void normalize_blanks(enum normalize_prefix prefix, bool first, const char *text, size_t length,
                      struct buffer *out);
bool normalize_is_mark(const char *text, size_t length);

#endif
