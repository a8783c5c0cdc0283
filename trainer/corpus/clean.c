/* clean.c - see texts.h. */
#include "trainer/corpus/texts.h"

#include <stdbool.h>
#include <string.h>

#include "proto/base/error.h"
#include "trainer/tokens/unicode.h"

int clean_open(struct muster_error *err)
{
    return normalize_open("muster-train prepare", err);
}

/* Copies ASCII without control characters; "\r\n" and '\r' become newlines. Returns the bytes read; adds the
 * bytes written, at most as many, to *written. */
static size_t copy_ascii(const char *text, size_t length, char *out, size_t *written)
{
    size_t at = 0;
    for (; at < length && (unsigned char)text[at] < 0x80; at++) {
        const char c = text[at];
        if (c == '\r' && at + 1 < length && text[at + 1] == '\n')
            continue;
        if (c == '\r')
            out[(*written)++] = '\n';
        else if (((unsigned char)c >= 0x20 && c != 0x7F) || c == '\n' || c == '\t')
            out[(*written)++] = c;
    }
    return at;
}

/* Replaces out by valid UTF-8 without control characters. *composed: NFC would change no character. -1: no
 * memory. */
static int decode(const char *text, size_t length, struct buffer *out, size_t *invalid, bool *composed)
{
    enum { FIRST_MARK = 0x300 }; /* NFC changes no character below this */
    buffer_clear(out);
    *invalid = 0;
    *composed = true;
    while (length) {
        char *to = buffer_reserve(out, length + 4);
        if (!to)
            return -1;
        size_t written = 0;
        const size_t ascii = copy_ascii(text, length, to, &written);
        out->length += written;
        text += ascii;
        length -= ascii;
        if (!length)
            break;
        const struct unicode_char c = unicode_next(text, length);
        const bool wrong = c.length == 1;
        const bool control = (c.point >= 0x80 && c.point < 0xA0 && c.point != 0x85) || c.point == 0xFEFF;
        if (wrong ? buffer_text(out, "\xEF\xBF\xBD") < 0 : !control && buffer_append(out, text, c.length) < 0)
            return -1;
        *invalid += wrong;
        *composed = *composed && (wrong || c.point < FIRST_MARK);
        text += c.length;
        length -= c.length;
    }
    return 0;
}

/* Removes blanks after the text, and empty lines before it. */
static void trim(struct buffer *text)
{
    size_t first = 0;
    while (text->length && strchr(" \t\n", text->data[text->length - 1]))
        text->data[--text->length] = '\0';
    for (size_t i = 0; i < text->length && strchr(" \t\n", text->data[i]); i++)
        first = text->data[i] == '\n' ? i + 1 : first;
    buffer_consume(text, first);
}

int clean_text(struct clean_room *room, const char *text, size_t length, struct buffer *out, size_t *invalid,
               struct muster_error *err)
{
    bool composed;
    buffer_clear(out);
    if (decode(text, length, &room->decoded, invalid, &composed) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a text of %zu bytes", length);
    if (composed) {
        const struct buffer kept = *out;
        *out = room->decoded;
        room->decoded = kept;
    } else if (normalize_compose(room->decoded.data, room->decoded.length, out, err) < 0) {
        return -1;
    }
    trim(out);
    return 0;
}

void clean_room_free(struct clean_room *room)
{
    if (room)
        buffer_free(&room->decoded);
}
