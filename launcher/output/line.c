/* line.c - see line.h. */
#include "launcher/output/line.h"

#include <string.h>

void line_flush(struct line_splitter *s, const struct line_sink *sink)
{
    if (s->partial.length)
        sink->piece(sink->context, s->partial.data, s->partial.length, false);
    buffer_clear(&s->partial);
}

/* The latest state of a progress line that has any text; "" if none has. */
static const char *latest_state(const char *data, size_t length, size_t *state)
{
    while (length && (data[length - 1] == '\r' || data[length - 1] == '\n'))
        length--;
    const char *before = length ? memrchr(data, '\r', length) : NULL;
    size_t start = before ? (size_t)(before + 1 - data) : 0;
    *state = length - start;
    return data + start;
}

bool line_has_state(const struct line_splitter *s)
{
    return s->partial.length && memchr(s->partial.data, '\r', s->partial.length);
}

bool line_state(struct line_splitter *s, const struct line_sink *sink)
{
    size_t state = 0;
    if (line_has_state(s) && buffer_append(&s->partial, "\r", 1) == 0) {
        const char *text = latest_state(s->partial.data, s->partial.length, &state);
        if (state) /* the byte after it is a '\r' */
            sink->piece(sink->context, text, state + 1, false);
        buffer_clear(&s->partial);
    }
    s->shown |= state > 0;
    return state > 0;
}

/* The end of a line of which a state was passed on. */
static void finish_states(struct line_splitter *s, const char *data, size_t length,
                          const struct line_sink *sink)
{
    size_t state;
    const char *text = data;
    if (buffer_append(&s->partial, data, length) == 0) {
        text = s->partial.data;
        length = s->partial.length;
    }
    const char *latest = latest_state(text, length, &state);
    if (state)
        sink->piece(sink->context, latest, (size_t)(text + length - latest), true);
    buffer_clear(&s->partial);
    s->shown = false;
}

/* The last part of a line, newline included. */
static void finish(struct line_splitter *s, const char *data, size_t length, const struct line_sink *sink)
{
    if (s->shown) {
        finish_states(s, data, length, sink);
        return;
    }
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
    if (s->partial.length + length > LINE_PIECE_LIMIT && s->states && line_has_state(s)) {
        /* Drops the states before the latest one. */
        size_t state;
        const char *text = latest_state(s->partial.data, s->partial.length, &state);
        memmove(s->partial.data + 1, text, state);
        s->partial.data[0] = '\r'; /* line_has_state */
        s->partial.length = state + 1;
    }
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
    if (!s->states && s->partial.length && s->partial.data[s->partial.length - 1] == '\r')
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

enum { MACRO_LIMIT = 16 };

/* The name after a dollar, with or without braces; returns the length of all of it, 0 if there is none. */
static size_t macro_at(const char *at, char name[MACRO_LIMIT])
{
    bool braced = at[1] == '{';
    const char *start = at + 1 + braced;
    size_t length = strspn(start, "abcdefghijklmnopqrstuvwxyz_");
    if (!length || length >= MACRO_LIMIT || (braced && start[length] != '}'))
        return 0;
    memcpy(name, start, length);
    name[length] = '\0';
    return length + 1 + 2 * (size_t)braced;
}

/* Appends the name's value; false if the name is unknown. */
static bool put_macro(const char *name, const struct line_names *names, struct buffer *out)
{
    const struct {
        const char *name, *text;
        long long number;
    } macros[] = {{"role_name", names->role, 0},
                  {"rank", NULL, names->rank},
                  {"local_rank", NULL, names->local_rank},
                  {"hostname", names->host, 0},
                  {"node_rank", NULL, names->node_rank},
                  {"restart", NULL, names->restart},
                  {"time", names->time, 0}};
    for (size_t i = 0; i < sizeof macros / sizeof *macros; i++) {
        if (strcmp(macros[i].name, name) != 0)
            continue;
        if (macros[i].text)
            buffer_text(out, macros[i].text);
        else
            buffer_printf(out, "%lld", macros[i].number);
        return true;
    }
    return false;
}

int line_prefix(const char *pattern, const struct line_names *names, struct buffer *out)
{
    for (const char *at = pattern; *at;) {
        char name[MACRO_LIMIT];
        size_t length = *at == '$' ? macro_at(at, name) : 0;
        if (length && put_macro(name, names, out)) {
            at += length;
            continue;
        }
        buffer_append(out, at, 1);
        at += at[0] == '$' && at[1] == '$' ? 2 : 1;
    }
    return out->failed ? -1 : 0;
}

bool line_prefix_has_time(const char *pattern)
{
    for (const char *at = pattern; (at = strchr(at, '$')); at++) {
        char name[MACRO_LIMIT];
        if (at[1] == '$')
            at++;
        else if (macro_at(at, name) && !strcmp(name, "time"))
            return true;
    }
    return false;
}
