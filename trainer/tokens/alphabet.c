/* alphabet.c - see alphabet.h. */
#include "trainer/tokens/alphabet.h"

#include "trainer/tokens/unicode.h"

enum { MOVED = 68 }; /* bytes that do not stand for themselves: 0-32, 127-160, 173 */

static bool is_itself(unsigned byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

/* -1: not of the alphabet. */
static int byte_of(uint32_t point)
{
    if (point < 256)
        return is_itself(point) ? (int)point : -1;
    if (point >= 256 + MOVED)
        return -1;
    const uint32_t at = point - 256; /* of the moved ones, in order */
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
