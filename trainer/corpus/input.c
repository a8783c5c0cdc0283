/* input.c - see input.h. */
#include "trainer/corpus/input.h"

#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "proto/base/text.h"
#include "proto/json/json_text.h"
#include "trainer/data/documents.h"

enum { READ_BYTES = 256 << 10, LINE_FACTOR = 8 };

void split_open(struct split *s, const struct split_options *options)
{
    *s = (struct split){.options = *options};
}

void split_close(struct split *s)
{
    if (!s)
        return;
    buffer_free(&s->held);
    record_room_free(&s->room);
}

/* Reads more bytes to the end of the held bytes; drops the bytes of earlier documents. */
static int read_more(struct split *s, struct muster_error *err)
{
    buffer_consume(&s->held, s->at);
    s->scanned -= s->at;
    s->at = 0;
    char *to = buffer_reserve(&s->held, READ_BYTES);
    if (!to)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a document of %s", s->options.name);
    const ssize_t got = s->options.read(s->options.context, to, READ_BYTES, err);
    if (got < 0)
        return -1;
    s->ended = got == 0;
    s->held.length += (size_t)got;
    if (!s->begun && (s->held.length >= 3 || s->ended)) { /* a byte order mark is no part of a text */
        s->at = text_byte_order_mark(s->held.data, s->held.length);
        s->scanned = s->scanned > s->at ? s->scanned : s->at;
        s->begun = true;
    }
    return 0;
}

/* Makes `length` bytes a document, and skips a separator of `separator` bytes. */
static int give(struct split *s, size_t length, size_t separator, struct split_document *out)
{
    s->begun = true;
    *out =
        (struct split_document){.text = s->held.data + s->at, .length = length, .bytes = length + separator};
    s->at += length + separator;
    s->scanned = s->at;
    return 1;
}

/* Finds the end of the line at `from`, without its newline; false: the line is not read to its end. */
static bool find_line(const struct split *s, size_t from, size_t *end)
{
    const char *newline =
        from < s->held.length ? memchr(s->held.data + from, '\n', s->held.length - from) : NULL;
    if (newline)
        *end = (size_t)(newline - s->held.data);
    else if (s->ended)
        *end = s->held.length;
    return newline || s->ended;
}

static bool is_separator(const struct split *s, size_t from, size_t end)
{
    const size_t length = strlen(s->options.separator);
    if (end > from && s->held.data[end - 1] == '\r')
        end--;
    return length && end - from == length && !memcmp(s->held.data + from, s->options.separator, length);
}

/* Where a text that is too long is cut: after its last line, or else between two characters. */
static size_t cut_at(const struct split *s)
{
    const char *text = s->held.data + s->at, *newline = memrchr(text, '\n', s->options.limit);
    size_t cut = newline ? (size_t)(newline - text) + 1 : s->options.limit;
    for (int i = 0; !newline && i < 3 && cut > 1 && ((unsigned char)text[cut] & 0xC0) == 0x80; i++)
        cut--;
    return cut;
}

static int next_text(struct split *s, struct split_document *out, struct muster_error *err)
{
    /* a text is cut only when a separator that begins within the limit would be read to its end */
    const size_t separator = strlen(s->options.separator),
                 most = s->options.limit + (separator ? separator + 2 : 0);
    for (;;) {
        size_t end;
        while (separator && s->scanned < s->held.length && find_line(s, s->scanned, &end) &&
               s->scanned - s->at <= s->options.limit) {
            const size_t from = s->scanned, next = end < s->held.length ? end + 1 : end;
            if (is_separator(s, from, end))
                return give(s, from - s->at, next - from, out);
            s->scanned = next;
        }
        const size_t held = s->held.length - s->at;
        if (held > (s->ended ? s->options.limit : most))
            return give(s, cut_at(s), 0, out);
        if (s->ended)
            return held ? give(s, held, 0, out) : 0;
        if (read_more(s, err) < 0)
            return -1;
    }
}

void record_room_free(struct record_room *room)
{
    buffer_free(&room->text);
    mem_free(room->spans.span);
    *room = (struct record_room){0};
}

static int chat_document(const struct record_options *o, const json_t *record, struct record_room *room,
                         struct muster_error *err)
{
    struct chat_counts counts = {0};
    if (!o->chat)
        return error_set(err, MUSTER_E_UNSUPPORTED,
                         "a chat, which needs a template: --chat_template, or training reads it as it is "
                         "(data.path)");
    return chat_render(o->chat, record, o->key, &room->text, &room->spans, &counts, err);
}

int record_document(const struct record_options *o, const json_t *record, struct record_room *room,
                    struct split_document *out, struct muster_error *err)
{
    const json_t *found = json_is_string(record) ? record : json_object_get(record, o->key);
    buffer_clear(&room->text);
    room->spans.count = 0;
    *out = (struct split_document){.text = ""};
    if (json_is_string(found)) {
        if (buffer_append(&room->text, json_string_value(found), json_string_length(found)) < 0)
            return error_set(err, MUSTER_E_NOMEM, "no memory for a text");
    } else if (chat_is(record, o->key)) {
        if (chat_document(o, record, room, err) < 0)
            return -1;
        out->spans = &room->spans;
    } else {
        out->broken = true;
    }
    out->text = room->text.data ? room->text.data : "";
    out->length = room->text.length;
    return 0;
}

static int parse_line(struct split *s, size_t from, size_t end, struct split_document *out,
                      struct muster_error *err)
{
    json_error_t problem;
    GUARD(guard_json)
    json_t *root = json_loadb(s->held.data + from, end - from, JSON_ALLOW_NUL, &problem);
    if (!root) /* it may have an integer that no machine has */
        root =
            json_loadb(s->held.data + from, end - from, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &problem);
    const struct record_options options = {s->options.key, s->options.chat};
    if (record_document(&options, root, &s->room, out, err) < 0)
        return error_wrap(err, "%s:%lld", s->options.name, (long long)s->line);
    out->bytes = end - from + 1;
    return 1;
}

static int next_line(struct split *s, struct split_document *out, struct muster_error *err)
{
    for (;;) {
        size_t end;
        const size_t held = s->held.length - s->at;
        if (find_line(s, s->at, &end)) {
            const size_t from = s->at;
            if (s->ended && from == s->held.length)
                return 0;
            s->at = s->scanned = end < s->held.length ? end + 1 : end;
            s->line++;
            if (!documents_is_blank(s->held.data + from, end - from))
                return parse_line(s, from, end, out, err);
            continue;
        }
        if (held > s->options.limit * LINE_FACTOR)
            return error_set(err, MUSTER_E_LIMIT,
                             "%s:%lld: a line of more than %zu bytes; raise --max_document_bytes",
                             s->options.name, (long long)s->line + 1, s->options.limit * LINE_FACTOR);
        if (read_more(s, err) < 0)
            return -1;
    }
}

int split_next(struct split *s, struct split_document *out, struct muster_error *err)
{
    return s->options.lines ? next_line(s, out, err) : next_text(s, out, err);
}
