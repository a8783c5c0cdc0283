/* text.c - values as Python writes them: str, repr, json.dumps, the % of texts; characters of UTF-8. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/text.h"
#include "trainer/chat/jinja_internal.h"

enum { WRITTEN_DEPTH = 100 };

/* ---- str and repr ---- */

/* The shortest digits that read back as the number, as Python's repr has them. */
static int write_real(struct buffer *out, double real)
{
    char text[40];
    if (isnan(real))
        return buffer_text(out, "nan");
    if (isinf(real))
        return buffer_text(out, real < 0 ? "-inf" : "inf");
    int digits = 0;
    do
        (void)snprintf(text, sizeof text, "%.*e", digits, real); /* fits */
    while (strtod(text, NULL) != real && ++digits < 17);
    char *e = strchr(text, 'e');
    const int exponent = e ? (int)strtol(e + 1, NULL, 10) : 0; /* printf wrote it */
    if (exponent < -4 || exponent >= 16) {
        const int mantissa = (int)(e ? e - text : 0);
        return buffer_printf(out, "%.*se%c%02d", mantissa, text, exponent < 0 ? '-' : '+', abs(exponent));
    }
    const int after = digits - exponent;
    return buffer_printf(out, "%.*f%s", after > 0 ? after : 0, real, after > 0 ? "" : ".0");
}

static int write_quoted(struct buffer *out, struct jinja_text text)
{
    const bool one = text.length && memchr(text.data, '\'', text.length),
               two = text.length && memchr(text.data, '"', text.length);
    const char quote = one && !two ? '"' : '\'';
    (void)buffer_append(out, &quote, 1); /* out remembers a failure */
    for (size_t i = 0; i < text.length; i++) {
        const char c = text.data[i];
        const char *escape = c == '\n'   ? "\\n"
                             : c == '\r' ? "\\r"
                             : c == '\t' ? "\\t"
                             : c == '\\' ? "\\\\"
                                         : NULL;
        if (escape)
            (void)buffer_text(out, escape);
        else if (c == quote)
            (void)buffer_printf(out, "\\%c", c);
        else if ((unsigned char)c < 0x20 || c == 0x7F)
            (void)buffer_printf(out, "\\x%02x", (unsigned)c);
        else
            (void)buffer_append(out, &c, 1);
    }
    return buffer_append(out, &quote, 1);
}

static int write_list(struct buffer *out, const struct jinja_list *list, int depth)
{
    (void)buffer_text(out, list->tuple ? "(" : "["); /* out remembers a failure */
    for (size_t i = 0; i < list->count; i++) {
        (void)buffer_text(out, i ? ", " : "");
        (void)jinja_write_repr(out, list->item[i], depth + 1);
    }
    return buffer_text(out, !list->tuple ? "]" : list->count == 1 ? ",)" : ")");
}

static int write_dict(struct buffer *out, const struct jinja_dict *dict, int depth)
{
    (void)buffer_text(out, "{"); /* out remembers a failure */
    for (size_t i = 0; i < dict->count; i++) {
        (void)buffer_text(out, i ? ", " : "");
        (void)jinja_write_repr(out, dict->entry[i].key, depth + 1);
        (void)buffer_text(out, ": ");
        (void)jinja_write_repr(out, dict->entry[i].value, depth + 1);
    }
    return buffer_text(out, "}");
}

int jinja_write_repr(struct buffer *out, struct jinja_value value, int depth)
{
    if (depth > WRITTEN_DEPTH)
        return buffer_text(out, "...");
    switch (value.kind) {
    case JINJA_UNDEFINED:
        return buffer_text(out, "Undefined");
    case JINJA_NONE:
        return buffer_text(out, "None");
    case JINJA_BOOL:
        return buffer_text(out, value.truth ? "True" : "False");
    case JINJA_INT:
        return buffer_printf(out, "%" PRId64, value.number);
    case JINJA_FLOAT:
        return write_real(out, value.real);
    case JINJA_STRING:
        return write_quoted(out, value.text);
    case JINJA_LIST:
        return write_list(out, value.list, depth);
    case JINJA_DICT:
        return write_dict(out, value.dict, depth);
    case JINJA_NAMESPACE:
        (void)buffer_text(out, "<Namespace "); /* out remembers a failure */
        (void)write_dict(out, value.dict, depth);
        return buffer_text(out, ">");
    case JINJA_MACRO:
    case JINJA_METHOD:
    case JINJA_FUNCTION:
    case JINJA_LOOP:
        break;
    }
    return buffer_printf(out, "<%s>", jinja_kind_name(value.kind));
}

int jinja_write(struct buffer *out, struct jinja_value value)
{
    if (value.kind == JINJA_UNDEFINED)
        return 0;
    return value.kind == JINJA_STRING ? buffer_append(out, value.text.data, value.text.length)
                                      : jinja_write_repr(out, value, 0);
}

struct jinja_value jinja_to_string(struct jinja_run *run, struct jinja_value value)
{
    scope_buffer text = {.limit = JINJA_OUTPUT};
    if (value.kind == JINJA_STRING)
        return value;
    (void)jinja_write(&text, value); /* text remembers a failure */
    return jinja_copy(run, &text);
}

/* ---- json.dumps ---- */

struct json_writing {
    struct jinja_run *run;
    struct buffer *out;
    struct buffer indent; /* blanks for a level; empty: all is on a single line */
    bool indents, ascii, sorts;
    struct jinja_text between, after_key;
};

static void json_quoted(const struct json_writing *w, struct jinja_text text)
{
    static const char plain[] = "\"\\\b\f\n\r\t", escapes[] = "\"\\bfnrt";
    struct buffer *out = w->out;
    (void)buffer_text(out, "\""); /* out remembers a failure */
    for (size_t i = 0, bytes; i < text.length; i += bytes) {
        const unsigned char c = (unsigned char)text.data[i];
        const char *known = c ? strchr(plain, c) : NULL;
        bytes = jinja_character_at((struct jinja_text){text.data + i, text.length - i}, 1);
        if (known) {
            (void)buffer_printf(out, "\\%c", escapes[known - plain]);
        } else if (c < 0x20) {
            (void)buffer_printf(out, "\\u%04x", c);
        } else if (c >= 0x80 && w->ascii) {
            const uint32_t code = jinja_code_at(text.data + i, bytes);
            if (code >= 0x10000)
                (void)buffer_printf(out, "\\u%04x\\u%04x", 0xD800 + ((code - 0x10000) >> 10),
                                    0xDC00 + ((code - 0x10000) & 0x3FF));
            else
                (void)buffer_printf(out, "\\u%04x", code);
        } else {
            (void)buffer_append(out, text.data + i, bytes);
        }
    }
    (void)buffer_text(out, "\"");
}

static void json_line(const struct json_writing *w, int depth)
{
    if (!w->indents)
        return;
    (void)buffer_text(w->out, "\n"); /* out remembers a failure */
    for (int i = 0; i < depth; i++)
        (void)buffer_append(w->out, w->indent.data, w->indent.length);
}

static void json_value(const struct json_writing *w, struct jinja_value value, int depth);

static void json_key(const struct json_writing *w, struct jinja_value key)
{
    if (key.kind == JINJA_STRING) {
        json_quoted(w, key.text);
        return;
    }
    (void)buffer_text(w->out, "\""); /* out remembers a failure */
    json_value(w, key, 0);
    (void)buffer_text(w->out, "\"");
}

static int compare_keys(const void *a_, const void *b_)
{
    const struct jinja_text a = ((const struct jinja_entry *)a_)->key.text,
                            b = ((const struct jinja_entry *)b_)->key.text;
    const size_t shorter = a.length < b.length ? a.length : b.length;
    const int order = shorter ? memcmp(a.data, b.data, shorter) : 0;
    return order ? order : a.length < b.length ? -1 : a.length > b.length;
}

/* The entries by their keys, where all are texts. */
static const struct jinja_entry *sorted_entries(const struct json_writing *w, const struct jinja_dict *dict)
{
    struct jinja_entry *sorted = jinja_arena_take(w->run->arena, (dict->count + 1) * sizeof *sorted);
    for (size_t i = 0; sorted && i < dict->count; i++) {
        if (dict->entry[i].key.kind != JINJA_STRING) {
            (void)jinja_fail(w->run, "sort_keys: a key is no text");
            return dict->entry;
        }
        sorted[i] = dict->entry[i];
    }
    if (!sorted) {
        (void)jinja_no_memory(w->run);
        return dict->entry;
    }
    qsort(sorted, dict->count, sizeof *sorted, compare_keys);
    return sorted;
}

static void json_value(const struct json_writing *w, struct jinja_value value, int depth)
{
    struct buffer *out = w->out;
    if (depth > WRITTEN_DEPTH) {
        (void)jinja_fail(w->run, "tojson: values are nested more than %d deep", WRITTEN_DEPTH);
        return;
    }
    switch (value.kind) {
    case JINJA_NONE:
        (void)buffer_text(out, "null"); /* out remembers a failure */
        return;
    case JINJA_BOOL:
        (void)buffer_text(out, value.truth ? "true" : "false");
        return;
    case JINJA_FLOAT:
        if (isfinite(value.real))
            (void)write_real(out, value.real);
        else
            (void)buffer_text(out, isnan(value.real) ? "NaN" : value.real < 0 ? "-Infinity" : "Infinity");
        return;
    case JINJA_INT:
        (void)jinja_write_repr(out, value, 0);
        return;
    case JINJA_STRING:
        json_quoted(w, value.text);
        return;
    case JINJA_LIST:
    case JINJA_DICT:
        break;
    case JINJA_UNDEFINED:
    case JINJA_NAMESPACE:
    case JINJA_MACRO:
    case JINJA_METHOD:
    case JINJA_FUNCTION:
    case JINJA_LOOP:
        (void)jinja_fail(w->run, "tojson: %s is no JSON", jinja_kind_name(value.kind));
        return;
    }
    const bool list = value.kind == JINJA_LIST;
    const size_t count = list ? value.list->count : value.dict->count;
    const struct jinja_entry *entry = list       ? NULL
                                      : w->sorts ? sorted_entries(w, value.dict)
                                                 : value.dict->entry;
    (void)buffer_text(out, list ? "[" : "{"); /* out remembers a failure */
    for (size_t i = 0; i < count && !w->run->failed; i++) {
        if (i)
            (void)buffer_append(out, w->between.data, w->between.length);
        json_line(w, depth + 1);
        if (!list) {
            json_key(w, entry[i].key);
            (void)buffer_append(out, w->after_key.data, w->after_key.length);
        }
        json_value(w, list ? value.list->item[i] : entry[i].value, depth + 1);
    }
    if (count)
        json_line(w, depth);
    (void)buffer_text(out, list ? "]" : "}");
}

int jinja_write_json(struct jinja_run *run, struct buffer *out, struct jinja_value value,
                     const struct jinja_arguments *arguments)
{
    scope_buffer blanks = {0};
    const struct jinja_value *indent = jinja_argument(arguments, 1, "indent"),
                             *separators = jinja_argument(arguments, 2, "separators");
    struct json_writing w = {.run = run,
                             .out = out,
                             .ascii = jinja_argument_true(arguments, 0, "ensure_ascii", false),
                             .sorts = jinja_argument_true(arguments, 3, "sort_keys", false),
                             .indents = indent && indent->kind != JINJA_NONE,
                             .after_key = {": ", 2}};
    w.between = w.indents ? (struct jinja_text){",", 1} : (struct jinja_text){", ", 2};
    if (w.indents && indent->kind == JINJA_STRING)
        (void)buffer_append(&blanks, indent->text.data, indent->text.length); /* remembers a failure */
    for (int64_t i = 0; w.indents && indent->kind == JINJA_INT && i < indent->number && i < 64; i++)
        (void)buffer_text(&blanks, " ");
    w.indent = blanks;
    if (separators && separators->kind == JINJA_LIST && separators->list->count == 2 &&
        separators->list->item[0].kind == JINJA_STRING && separators->list->item[1].kind == JINJA_STRING) {
        w.between = separators->list->item[0].text;
        w.after_key = separators->list->item[1].text;
    } else if (separators && separators->kind != JINJA_NONE) {
        (void)jinja_fail(run, "tojson: separators are two texts");
    }
    json_value(&w, value, 0);
    if (out->failed)
        (void)jinja_no_memory(run);
    return run->failed ? -1 : 0;
}

/* ---- format % values ---- */

/* One conversion at `at`, after the percent sign: its flags go to printf. */
static size_t write_conversion(struct jinja_run *run, struct buffer *out, struct jinja_text format, size_t at,
                               struct jinja_value value)
{
    char flags[24] = "%";
    size_t length = 1;
    while (at < format.length && strchr("-+ 0#.123456789", format.data[at]) && format.data[at] && length < 12)
        flags[length++] = format.data[at++];
    const char kind = at < format.length ? format.data[at] : '\0';
    double number;
    if (kind == 's' || kind == 'r') {
        scope_buffer text = {.limit = JINJA_OUTPUT};
        (void)(kind == 's' ? jinja_write(&text, value) : jinja_write_repr(&text, value, 0));
        (void)snprintf(flags + length, sizeof flags - length, "s"); /* fits */
        if (length == 1)
            (void)buffer_append(out, text.data, text.length); /* out remembers a failure */
        else
            (void)jinja_fail(run, "a width of %%s is not supported");
    } else if (kind && strchr("di", kind) && jinja_number(value, &number)) {
        (void)snprintf(flags + length, sizeof flags - length, PRId64); /* fits */
        char text[64];
        const int64_t whole = value.kind == JINJA_INT ? value.number : (int64_t)number;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        (void)snprintf(text, sizeof text, flags, whole); /* a longer text is cut */
        (void)buffer_text(out, text);
    } else if (kind && strchr("feEgG", kind) && jinja_number(value, &number)) {
        char text[400];
        flags[length] = kind;
        (void)snprintf(text, sizeof text, flags, number); /* a longer text is cut */
#pragma GCC diagnostic pop
        (void)buffer_text(out, text);
    } else {
        (void)jinja_fail(run, "the conversion '%%%c' of %s is not supported", kind ? kind : ' ',
                         jinja_kind_name(value.kind));
    }
    return at + 1;
}

struct jinja_value jinja_format(struct jinja_run *run, struct jinja_text format, struct jinja_value values)
{
    scope_buffer out = {.limit = JINJA_OUTPUT};
    const bool many = values.kind == JINJA_LIST && values.list->tuple;
    const size_t count = many ? values.list->count : 1;
    size_t taken = 0;
    for (size_t at = 0; at < format.length && !run->failed;) {
        if (format.data[at] != '%') {
            (void)buffer_append(&out, format.data + at++, 1); /* out remembers a failure */
        } else if (at + 1 < format.length && format.data[at + 1] == '%') {
            (void)buffer_text(&out, "%");
            at += 2;
        } else if (taken == count) {
            return jinja_fail(run, "the format has more conversions than values");
        } else {
            at = write_conversion(run, &out, format, at + 1, many ? values.list->item[taken] : values);
            taken++;
        }
    }
    if (taken < count && !run->failed && (many || values.kind != JINJA_DICT))
        return jinja_fail(run, "the format has fewer conversions than values");
    return run->failed ? jinja_none() : jinja_copy(run, &out);
}
