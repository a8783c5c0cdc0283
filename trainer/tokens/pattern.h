/* pattern.h - parts of pattern_translate: the text that is read, the sets of characters in it, and the bytes
 * that stand for code points. */
#ifndef MUSTER_TRAINER_TOKENS_PATTERN_H
#define MUSTER_TRAINER_TOKENS_PATTERN_H

#include "proto/base/error.h"
#include "trainer/tokens/parts.h"
#include "trainer/tokens/point_set.h"

/* ---- the text ---- */

struct pattern_text {
    const unsigned char *begin, *at;
    enum pattern_flavour flavour;
    struct muster_error *err;
};

/* MUSTER_E_UNSUPPORTED: "WHAT at byte N is not supported". Returns -1, as the next function does. */
int pattern_refuse(const struct pattern_text *t, const char *what);
int pattern_no_memory(const struct pattern_text *t);

/* ---- pattern_class.c: characters, escapes and [...]. Errors are set, and the functions return -1. ---- */

bool pattern_digit(unsigned char c);
bool pattern_letter(uint32_t c); /* of ASCII */
/* The code point at t->at, which is moved after it. */
uint32_t pattern_take_point(struct pattern_text *t);
/* An escape; t->at is after the backslash. Returns 1 and *point, or 0 and a set, or -1. */
int pattern_take_escape(struct pattern_text *t, uint32_t *point, struct point_set *s);
/* [...]; t->at is at the bracket. s is empty. */
int pattern_take_class(struct pattern_text *t, bool ignores_case, struct point_set *s);
/* Adds the characters of \w. */
int pattern_add_words(struct pattern_text *t, struct point_set *s);
/* Adds the other case of each letter. inverted: the set is to be inverted afterwards. */
int pattern_fold(struct pattern_text *t, struct point_set *s, bool inverted);

/* ---- pattern_bytes.c: bytes for code points ---- */

enum { PATTERN_SETS = 192, PATTERN_WORDS = PATTERN_SETS / 64 }; /* different sets of an expression */

/* Code points that the same sets have are one byte. */
struct pattern_bytes {
    int count;                            /* of bytes in use */
    uint64_t in_sets[256][PATTERN_WORDS]; /* bit S: the code points of this byte are in set S */
};

/* Fills the map, PATTERN_BYTES places, and the bytes. The sets are in order. */
int pattern_bytes_fill(const struct pattern_text *t, const struct point_set *sets, int count, uint8_t *map,
                       struct pattern_bytes *bytes);
/* Writes a set as a class of bytes. out remembers a failure. */
void pattern_bytes_write(const struct pattern_bytes *bytes, int set, struct buffer *out);

#endif
