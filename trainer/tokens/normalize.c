/* normalize.c - see normalize.h. */
#include "trainer/tokens/normalize.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/library.h"
#include "trainer/tokens/unicode.h"

/* ---- the library ---- */

/* As declared in its uninorm.h, which is not needed to build this. */
struct uninorm;
struct uninorm_calls {
    uint8_t *(*normalize)(const struct uninorm *form, const uint8_t *text, size_t length, uint8_t *room,
                          size_t *result);
    const struct uninorm *nfc; /* its address is that of a table */
};

static const struct library_function functions[] = {
    {"u8_normalize", offsetof(struct uninorm_calls, normalize), false, NULL},
    {"uninorm_nfc", offsetof(struct uninorm_calls, nfc), false, NULL},
};
/* Debian 12 has the first, Debian 13 the second. */
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

/* ---- NFC ---- */

/* Marks that `tokenizers` does not know as such, whose tables are of Unicode 9 (found by comparing all code
 * points with those of Unicode 14; those of 15 and 16 by their lists). For it nothing is reordered or
 * composed across them. */
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

/* Bytes from the start on that are composed together: up to a later mark or a byte that is no UTF-8. stop:
 * bytes of that one, 0 at the end. */
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

/* ---- blanks ---- */

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
