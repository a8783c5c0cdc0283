/* unicode.c - see unicode.h.
 *
 * The classes are a table made from `tokenizers`, not a call of a library. Debian 12's libunistring is not
 * slower (24 against 31 ns a character), but it knows an earlier version of Unicode: 10,062 code points have
 * other classes, and the ids of a text would depend on the installed library. */
#include "trainer/tokens/unicode.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/library.h"

struct class_row {
    uint32_t first;
    unsigned classes;
};
struct lower_row {
    uint32_t first, last, step;
    int32_t delta;
};
#include "trainer/tokens/unicode_table.inc"
enum {
    CLASS_ROWS = sizeof class_rows / sizeof *class_rows,
    BLOCK_BITS = 7,
    BLOCKS = 0x110000 >> BLOCK_BITS,
    REPLACEMENT = 0xFFFD
};

/* The row of each block's first code point, so that few rows are looked through. */
static uint16_t first_rows[BLOCKS + 1];
static pthread_once_t rows_once = PTHREAD_ONCE_INIT;

static void find_first_rows(void)
{
    size_t row = 0;
    for (uint32_t block = 0; block <= BLOCKS; block++) {
        while (row + 1 < CLASS_ROWS && class_rows[row + 1].first <= block << BLOCK_BITS)
            row++;
        first_rows[block] = (uint16_t)row;
    }
}

unsigned unicode_classes(uint32_t point)
{
    (void)pthread_once(&rows_once, find_first_rows); /* cannot fail: initialized */
    if (point >= 0x110000)
        return 0;
    size_t low = first_rows[point >> BLOCK_BITS], high = first_rows[(point >> BLOCK_BITS) + 1];
    while (low < high) {
        const size_t middle = (low + high + 1) / 2;
        if (class_rows[middle].first <= point)
            low = middle;
        else
            high = middle - 1;
    }
    return class_rows[low].classes;
}

bool unicode_next_run(struct unicode_run *run)
{
    size_t low = 0, high = CLASS_ROWS;
    const uint32_t from = run->last ? run->last + 1 : 0;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (class_rows[middle].first < from)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == CLASS_ROWS)
        return false;
    *run = (struct unicode_run){from, low + 1 < CLASS_ROWS ? class_rows[low + 1].first - 1 : 0x10FFFF,
                                class_rows[low].classes};
    return true;
}

static int number_of(const char *const *names, size_t count, const char *name, size_t length)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(names[i]) == length && length && !memcmp(names[i], name, length))
            return (int)i;
    return -1;
}

int unicode_category(const char *name, size_t length)
{
    return number_of(category_names, sizeof category_names / sizeof *category_names, name, length);
}

const char *unicode_category_name(int category)
{
    return category >= 0 && category < (int)(sizeof category_names / sizeof *category_names)
               ? category_names[category]
               : NULL;
}

int unicode_script(const char *name, size_t length)
{
    return number_of(script_names, sizeof script_names / sizeof *script_names, name, length);
}

uint32_t unicode_lower(uint32_t point)
{
    size_t low = 0, high = sizeof lower_rows / sizeof *lower_rows;
    if (point < 0x80)
        return point - 'A' < 26 ? point + 32 : point;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (lower_rows[middle].last < point)
            low = middle + 1;
        else
            high = middle;
    }
    const struct lower_row *row = &lower_rows[low];
    return low < sizeof lower_rows / sizeof *lower_rows && row->first <= point &&
                   (point - row->first) % row->step == 0
               ? (uint32_t)((int64_t)point + row->delta)
               : point;
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
        return (struct unicode_char){s[0], ascii_classes[s[0]], 1};
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

size_t alphabet_letter(unsigned char byte, char out[4])
{
    const unsigned c = byte;
    const bool printable = (c >= 33 && c <= 126) || (c >= 161 && c <= 172) || c >= 174;
    return unicode_write(printable ? c : 256 + (c < 33 ? c : c < 161 ? c - 127 + 33 : 67), out);
}

void alphabet_letters(const char *text, size_t length, struct buffer *out)
{
    for (size_t i = 0; i < length; i++) {
        char letter[4];
        (void)buffer_append(out, letter,
                            alphabet_letter((unsigned char)text[i], letter)); /* out remembers a failure */
    }
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

bool normalize_is_mark(const char *text, size_t length)
{
    return length >= NORMALIZE_MARK_BYTES && !memcmp(text, NORMALIZE_MARK, NORMALIZE_MARK_BYTES);
}

void normalize_blanks(enum normalize_prefix prefix, bool first, const char *text, size_t length,
                      struct buffer *out)
{
    const bool there = length && (text[0] == ' ' || normalize_is_mark(text, length));
    if (!there && (prefix == NORMALIZE_ABSENT || (prefix == NORMALIZE_FIRST && first)))
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
