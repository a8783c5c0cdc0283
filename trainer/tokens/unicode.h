/* unicode.h - UTF-8 and the classes of code points that pre-tokenizers ask for. Pure. */
#ifndef MUSTER_TRAINER_TOKENS_UNICODE_H
#define MUSTER_TRAINER_TOKENS_UNICODE_H

#include <stddef.h>
#include <stdint.h>

enum unicode_class {
    UNICODE_LETTER = 1,  /* \p{L} */
    UNICODE_NUMBER = 2,  /* \p{N} */
    UNICODE_BLANK = 4,   /* \s */
    UNICODE_NUMERIC = 8, /* Rust's char::is_numeric */
};

/* One character of a text. */
struct unicode_char {
    uint32_t point;
    unsigned classes; /* of enum unicode_class; 0 for a byte that is no UTF-8 */
    unsigned length;  /* bytes, 1 to 4 */
};

/* The character at text, of which `length` bytes, 1 or more, are there. A byte that begins no character of
 * UTF-8 is one by itself, with point 0xFFFD. */
struct unicode_char unicode_next(const char *text, size_t length);
/* Bytes that the last character of text has; 0 where length is 0. */
size_t unicode_last(const char *text, size_t length);
/* Writes the UTF-8 of a code point; returns its bytes. */
size_t unicode_write(uint32_t point, char out[4]);
/* Classes of a code point. */
unsigned unicode_classes(uint32_t point);

#endif
