/* notable.c - see notable.h. */
#include "launcher/output/notable.h"

#include <string.h>

#include "launcher/output/tail.h"

static const char mark[] = "NCCL WARN ";

static void keep(struct notable *n, const char *line, size_t length)
{
    const char *at = memmem(line, length, mark, sizeof mark - 1);
    if (!at || n->count == NOTABLE_KEPT)
        return;
    tail_format(at, length - (size_t)(at - line), false, n->kept[n->count], NOTABLE_TEXT);
    n->count++;
}

/* Of a line that is not complete its beginning is enough: what names it stands there. */
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
