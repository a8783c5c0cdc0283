/* tail.c - see tail.h. */
#include "launcher/output/tail.h"

#include <string.h>

void tail_add(struct tail *t, const char *data, size_t length)
{
    if (length > TAIL_BYTES) {
        t->total += length - TAIL_BYTES;
        data += length - TAIL_BYTES;
        length = TAIL_BYTES;
    }
    size_t at = t->total % TAIL_BYTES, first = TAIL_BYTES - at < length ? TAIL_BYTES - at : length;
    memcpy(t->ring + at, data, first);
    memcpy(t->ring, data + first, length - first);
    t->total += length;
}

/* The length of the escape sequence (CSI, as in colours) at text, 0 where there is none. */
static size_t escape_length(const char *text, size_t length)
{
    if (length < 2 || text[0] != '\033')
        return 0;
    if (text[1] != '[')
        return 2;
    size_t at = 2;
    while (at < length && (unsigned char)text[at] >= 0x20 && (unsigned char)text[at] < 0x40)
        at++;
    return at < length ? at + 1 : length;
}

/* The line as a terminal would show it; at most room bytes. Returns how many were written. */
static size_t format_line(const char *line, size_t length, char *out, size_t room)
{
    while (length && line[length - 1] == '\r')
        length--;
    const char *rewritten = length ? memrchr(line, '\r', length) : NULL;
    if (rewritten) {
        length -= (size_t)(rewritten + 1 - line);
        line = rewritten + 1;
    }
    size_t used = 0;
    for (size_t i = 0; i < length && used < room;) {
        size_t escape = escape_length(line + i, length - i);
        if (escape) {
            i += escape;
            continue;
        }
        unsigned char c = (unsigned char)line[i++];
        out[used++] = (char)(c == 127 || (c < 32 && c != '\t') ? '?' : c);
    }
    return used;
}

/* Where the last TAIL_LINES lines begin. */
static size_t last_lines(const char *bytes, size_t length)
{
    size_t at = length;
    if (at && bytes[at - 1] == '\n')
        at--;
    for (int lines = 0; at; at--)
        if (bytes[at - 1] == '\n' && ++lines == TAIL_LINES)
            break;
    return at;
}

void tail_format(const char *bytes, size_t length, bool cut, char *out, size_t size)
{
    size_t at = last_lines(bytes, length), used = 0;
    const char *newline = cut && at == 0 && length ? memchr(bytes, '\n', length - 1) : NULL;
    if (newline)
        at = (size_t)(newline + 1 - bytes);
    while (at < length && used + 1 < size) {
        const char *end = memchr(bytes + at, '\n', length - at);
        size_t line = end ? (size_t)(end - bytes) - at : length - at;
        if (used)
            out[used++] = '\n';
        used += format_line(bytes + at, line, out + used, size - 1 - used);
        at += line + 1;
    }
    if (size)
        out[used] = '\0';
}

void tail_text(const struct tail *t, char *out, size_t size)
{
    char bytes[TAIL_BYTES];
    bool cut = t->total > TAIL_BYTES;
    size_t length = cut ? TAIL_BYTES : (size_t)t->total, start = cut ? t->total % TAIL_BYTES : 0;
    memcpy(bytes, t->ring + start, length - start);
    memcpy(bytes + length - start, t->ring, start);
    tail_format(bytes, length, cut, out, size);
}

/* --- notable lines --- */

static const char mark[] = "NCCL WARN ";

static void keep(struct notable *n, const char *line, size_t length)
{
    const char *at = memmem(line, length, mark, sizeof mark - 1);
    if (!at || n->count == NOTABLE_KEPT)
        return;
    tail_format(at, length - (size_t)(at - line), false, n->kept[n->count], NOTABLE_TEXT);
    n->count++;
}

/* The beginning of an incomplete line is enough: it has the warning's name. */
static void hold(struct notable *n, const char *data, size_t length)
{
    const size_t room = sizeof n->line - n->length;
    length = length < room ? length : room;
    memcpy(n->line + n->length, data, length);
    n->length += length;
}

void notable_add(struct notable *n, const char *data, size_t length)
{
    const char *end = data + length, *newline;
    if (n->length) { /* the line that has begun before */
        newline = memchr(data, '\n', length);
        hold(n, data, newline ? (size_t)(newline - data) : length);
        if (!newline)
            return;
        keep(n, n->line, n->length);
        n->length = 0;
        data = newline + 1;
    }
    for (const char *found; (found = memmem(data, (size_t)(end - data), mark, sizeof mark - 1));) {
        newline = memchr(found, '\n', (size_t)(end - found));
        if (!newline)
            break;
        keep(n, found, (size_t)(newline - found));
        data = newline + 1;
    }
    newline = memrchr(data, '\n', (size_t)(end - data));
    data = newline ? newline + 1 : data;
    hold(n, data, (size_t)(end - data));
}

bool notable_take(struct notable *n, char *out)
{
    if (!n->count)
        return false;
    memcpy(out, n->kept[0], NOTABLE_TEXT);
    n->count--;
    memmove(n->kept[0], n->kept[1], (size_t)n->count * NOTABLE_TEXT);
    return true;
}
