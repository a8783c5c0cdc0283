/* unicode.c - see unicode.h. */
#include "trainer/tokens/unicode.h"

#include <stdbool.h>

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

/* The table of well-formed sequences of the Unicode standard (3-7). Returns the point, or REPLACEMENT with
 * length 1. */
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
