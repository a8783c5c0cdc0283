/* line.c - see line.h. */
#include "launcher/line.h"

#include <string.h>

void line_flush(struct line_splitter *s, const struct line_sink *sink)
{
    if (s->partial.length)
        sink->piece(sink->context, s->partial.data, s->partial.length, false);
    buffer_clear(&s->partial);
}

/* The last part of a line, newline included. */
static void finish(struct line_splitter *s, const char *data, size_t length, const struct line_sink *sink)
{
    bool joined = s->partial.length && s->partial.length + length <= LINE_PIECE_LIMIT &&
                  buffer_append(&s->partial, data, length) == 0;
    if (joined) {
        sink->piece(sink->context, s->partial.data, s->partial.length, true);
        buffer_clear(&s->partial);
    } else {
        line_flush(s, sink);
        sink->piece(sink->context, data, length, true);
    }
}

/* A part without newline. */
static void keep(struct line_splitter *s, const char *data, size_t length, const struct line_sink *sink)
{
    if (s->partial.length + length > LINE_PIECE_LIMIT)
        line_flush(s, sink);
    if (length > LINE_PIECE_LIMIT || buffer_append(&s->partial, data, length) < 0) {
        line_flush(s, sink);
        sink->piece(sink->context, data, length, false);
    }
}

void line_feed(struct line_splitter *s, const char *data, size_t length, const struct line_sink *sink)
{
    while (length) {
        const char *newline = memchr(data, '\n', length);
        size_t part = newline ? (size_t)(newline - data) + 1 : length;
        if (newline)
            finish(s, data, part, sink);
        else
            keep(s, data, part, sink);
        data += part;
        length -= part;
    }
    if (s->partial.length && s->partial.data[s->partial.length - 1] == '\r')
        line_flush(s, sink);
}

bool line_pending(const struct line_splitter *s)
{
    return s->partial.length > 0;
}

void line_free(struct line_splitter *s)
{
    buffer_free(&s->partial);
}

static bool macro(const char **at, const char *name)
{
    size_t length = strlen(name);
    if (strncmp(*at, name, length))
        return false;
    *at += length;
    return true;
}

int line_prefix(const char *pattern, const char *role, int rank, int local_rank, struct buffer *out)
{
    for (const char *at = pattern ? pattern : "[${role_name}${local_rank}]:"; *at;) {
        if (macro(&at, "${role_name}"))
            buffer_text(out, role);
        else if (macro(&at, "${local_rank}"))
            buffer_printf(out, "%d", local_rank);
        else if (macro(&at, "${rank}"))
            buffer_printf(out, "%d", rank);
        else
            buffer_append(out, at++, 1);
    }
    return out->failed ? -1 : 0;
}
