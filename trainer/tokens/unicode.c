/* unicode.c - see unicode.h.
 *
 * The classes are a table made from `tokenizers`, not a call of libunistring (which normalizes texts below).
 * Debian 12's libunistring is not slower (24 against 31 ns a character), but it knows an earlier version of
 * Unicode: 10,062 code points have other classes, and the ids of a text would depend on the installed
 * library. */
#include "trainer/tokens/unicode.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/library.h"

struct range {
    uint32_t first, last;
    unsigned classes;
};
static const struct range ranges[] = {
#include "trainer/tokens/unicode_table.inc"
};
enum { RANGES = sizeof ranges / sizeof *ranges, REPLACEMENT = 0xFFFD };

unsigned unicode_classes(uint32_t point)
{
    size_t low = 0, high = RANGES;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (point > ranges[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    return low < RANGES && point >= ranges[low].first ? ranges[low].classes : 0;
}

static unsigned ascii_classes(unsigned c)
{
    if ((c | 32) - 'a' < 26)
        return UNICODE_LETTER;
    if (c - '0' < 10)
        return UNICODE_NUMBER | UNICODE_NUMERIC;
    return c == ' ' || c - '\t' < 5 ? UNICODE_BLANK : 0;
}

static bool follows(unsigned char c)
{
    return (c & 0xC0) == 0x80;
}

/* Follows table 3-7 of the Unicode standard, well-formed sequences. Returns the code point, or REPLACEMENT
 * with length 1. */
static uint32_t decode(const unsigned char *s, size_t n, unsigned *length)
{
    const unsigned c = s[0];
    *length = 1;
    if (c >= 0xC2 && c <= 0xDF && n > 1 && follows(s[1])) {
        *length = 2;
        return (c & 31) << 6 | (s[1] & 63U);
    }
    if (c >= 0xE0 && c <= 0xEF && n > 2 && follows(s[1]) && follows(s[2]) && !(c == 0xE0 && s[1] < 0xA0) &&
        !(c == 0xED && s[1] > 0x9F)) {
        *length = 3;
        return (c & 15) << 12 | (s[1] & 63U) << 6 | (s[2] & 63U);
    }
    if (c >= 0xF0 && c <= 0xF4 && n > 3 && follows(s[1]) && follows(s[2]) && follows(s[3]) &&
        !(c == 0xF0 && s[1] < 0x90) && !(c == 0xF4 && s[1] > 0x8F)) {
        *length = 4;
        return (c & 7) << 18 | (s[1] & 63U) << 12 | (s[2] & 63U) << 6 | (s[3] & 63U);
    }
    return REPLACEMENT;
}

struct unicode_char unicode_next(const char *text, size_t length)
{
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] < 0x80)
        return (struct unicode_char){s[0], ascii_classes(s[0]), 1};
    struct unicode_char found = {.length = 1};
    found.point = decode(s, length, &found.length);
    found.classes = found.length > 1 ? unicode_classes(found.point) : 0;
    return found;
}

size_t unicode_last(const char *text, size_t length)
{
    for (size_t bytes = 2; bytes <= 4 && bytes <= length; bytes++)
        if (unicode_next(text + length - bytes, bytes).length == bytes)
            return bytes;
    return length > 0;
}

size_t unicode_write(uint32_t point, char out[4])
{
    if (point < 0x80) {
        out[0] = (char)point;
        return 1;
    }
    const size_t length = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    static const unsigned char leads[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = length - 1; i > 0; i--, point >>= 6)
        out[i] = (char)(0x80 | (point & 63));
    out[0] = (char)(leads[length] | point);
    return length;
}

/* ---- GPT-2's alphabet ---- */

enum { MOVED = 68 }; /* bytes with a character from U+0100 on: 0-32, 127-160, 173 */

/* The byte that a character of the alphabet stands for: printable bytes are their own characters, the others
 * are U+0100 and up. -1: the character is not in the alphabet. */
static int byte_of(uint32_t point)
{
    if (point < 256) {
        const bool printable =
            (point >= 33 && point <= 126) || (point >= 161 && point <= 172) || point >= 174;
        return printable ? (int)point : -1;
    }
    if (point >= 256 + MOVED)
        return -1;
    const uint32_t at = point - 256; /* index into the moved bytes */
    return at < 33 ? (int)at : at < 67 ? (int)(127 + at - 33) : 173;
}

bool alphabet_bytes(const char *text, size_t length, struct buffer *out)
{
    const size_t before = out->length;
    for (size_t at = 0; at < length;) {
        const struct unicode_char c = unicode_next(text + at, length - at);
        const int byte = c.length == 1 && c.point > 127 ? -1 : byte_of(c.point);
        if (byte < 0) {
            out->length = before;
            return false;
        }
        (void)buffer_append(out, &(char){(char)byte}, 1); /* a failure stays in the buffer */
        at += c.length;
    }
    return true;
}

/* ---- normalization ---- */

/* Functions as uninorm.h declares them; the build does not need that header. */
struct uninorm;
struct uninorm_calls {
    uint8_t *(*normalize)(const struct uninorm *form, const uint8_t *text, size_t length, uint8_t *room,
                          size_t *result);
    const struct uninorm *nfc; /* address of the library's table */
};

static const struct library_function functions[] = {
    {"u8_normalize", offsetof(struct uninorm_calls, normalize), false, NULL},
    {"uninorm_nfc", offsetof(struct uninorm_calls, nfc), false, NULL},
};
/* Debian 12 has so.2, Debian 13 so.5. */
static const char *const files[] = {"libunistring.so.2", "libunistring.so.5"};

static struct uninorm_calls calls; /* never changes once it is filled */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int normalize_open(const char *user, struct muster_error *err)
{
    char needs[160];
    (void)snprintf(needs, sizeof needs, "%s needs libunistring2 (or libunistring5)", user);
    struct library library = {files[1], needs, functions, sizeof functions / sizeof *functions};
    (void)pthread_mutex_lock(&lock); /* cannot fail: initialized, and not held */
    int result = library_load(&library, &calls, NULL, NULL);
    library.file = files[0];
    if (result < 0)
        result = library_load(&library, &calls, NULL, err);
    (void)pthread_mutex_unlock(&lock);
    return result;
}

/* Marks that Unicode added after version 9, the version of the tables of `tokenizers`, which neither reorders
 * nor composes across them. The list is a comparison of all code points with Unicode 14, and the lists of
 * additions in 15 and 16. */
static bool is_later_mark(uint32_t point)
{
    static const uint32_t ranges[][2] = {
        {0x7FD, 0x7FD},     {0x897, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},
        {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},
        {0xA82C, 0xA82C},   {0x10D24, 0x10D27}, {0x10D69, 0x10D6D}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF},
        {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E},
        {0x11839, 0x1183A}, {0x11930, 0x11930}, {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0},
        {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45},
        {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE},
        {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}, {0x1E5EE, 0x1E5EF}};
    size_t low = 0, high = sizeof ranges / sizeof *ranges;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (ranges[middle][1] < point)
            low = middle + 1;
        else
            high = middle;
    }
    return low < sizeof ranges / sizeof *ranges && ranges[low][0] <= point;
}

/* Bytes from the start that are composed together: up to a later mark or a byte that is no UTF-8. *stop:
 * bytes of that mark or byte, 0 at the end of the text. */
static size_t composed_run(const char *text, size_t length, size_t *stop)
{
    size_t at = 0;
    *stop = 0;
    while (at < length) {
        const struct unicode_char c = unicode_next(text + at, length - at);
        if ((c.length == 1 && (unsigned char)text[at] >= 0x80) || is_later_mark(c.point)) {
            *stop = c.length;
            break;
        }
        at += c.length;
    }
    return at;
}

int normalize_compose(const char *text, size_t length, struct buffer *out, struct muster_error *err)
{
    size_t result = 0;
    uint8_t *composed = calls.normalize(calls.nfc, (const uint8_t *)text, length, NULL, &result);
    if (!composed)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the NFC of a text of %zu bytes", length);
    const int failed = buffer_append(out, (const char *)composed, result);
    free(composed); /* the library's, not of mem.h */
    return failed < 0 ? error_set(err, MUSTER_E_NOMEM, "no memory for the NFC of a text of %zu bytes", length)
                      : 0;
}

int normalize_nfc(const char *text, size_t length, struct buffer *out, struct muster_error *err)
{
    while (length) {
        size_t stop;
        const size_t run = composed_run(text, length, &stop);
        if (run && normalize_compose(text, run, out, err) < 0)
            return -1;
        if (stop && buffer_append(out, text + run, stop) < 0)
            return error_set(err, MUSTER_E_NOMEM, "no memory for the NFC of a text");
        text += run + stop;
        length -= run + stop;
    }
    return 0;
}

bool normalize_is_mark(const char *text, size_t length)
{
    return length >= NORMALIZE_MARK_BYTES && !memcmp(text, NORMALIZE_MARK, NORMALIZE_MARK_BYTES);
}

void normalize_blanks(enum normalize_prefix prefix, bool first, const char *text, size_t length,
                      struct buffer *out)
{
    const bool there = length && (text[0] == ' ' || normalize_is_mark(text, length));
    if (prefix == NORMALIZE_ALWAYS ||
        (!there && (prefix == NORMALIZE_ABSENT || (prefix == NORMALIZE_FIRST && first))))
        buffer_text(out, NORMALIZE_MARK);
    while (length) {
        const char *blank = memchr(text, ' ', length);
        const size_t before = blank ? (size_t)(blank - text) : length;
        (void)buffer_append(out, text, before); /* out remembers a failure */
        if (blank)
            buffer_text(out, NORMALIZE_MARK);
        text += before + (blank != NULL);
        length -= before + (blank != NULL);
    }
}
