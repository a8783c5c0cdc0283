/* knob_print.c - see knob.h: values as text and JSON, the table as help and as Markdown. */
#include <string.h>

#include "proto/base/guard.h"
#include "proto/base/knob.h"

static size_t list_length(char *const *list)
{
    size_t count = 0;
    while (list && list[count])
        count++;
    return count;
}

int knob_format(const struct knob *knob, const void *options, struct buffer *out)
{
    const void *value = (const char *)options + knob->offset;
    switch (knob->type) {
    case KNOB_BOOL:
        return buffer_text(out, *(const bool *)value ? "true" : "false");
    case KNOB_INT:
    case KNOB_BYTES:
        return buffer_printf(out, "%lld", (long long)*(const int64_t *)value);
    case KNOB_DOUBLE:
        return buffer_printf(out, "%.15g", *(const double *)value);
    case KNOB_CHOICE:
        return buffer_text(out, knob->choices[*(const int *)value]);
    case KNOB_TEXT:
        return buffer_text(out, *(char *const *)value ? *(char *const *)value : "");
    case KNOB_LIST: {
        char *const *list = *(char **const *)value;
        for (size_t n = 0; n < list_length(list); n++)
            buffer_printf(out, "%s%s", n ? "," : "", list[n]);
        return out->failed ? -1 : 0;
    }
    }
    return -1;
}

int knob_format_json(const struct knob *knob, const void *options, struct buffer *out)
{
    const void *value = (const char *)options + knob->offset;
    switch (knob->type) {
    case KNOB_CHOICE:
        return buffer_json_string(out, knob->choices[*(const int *)value]);
    case KNOB_TEXT:
        return buffer_json_string(out, *(char *const *)value);
    case KNOB_LIST: {
        char *const *list = *(char **const *)value;
        buffer_text(out, "[");
        for (size_t n = 0; n < list_length(list); n++) {
            buffer_text(out, n ? ", " : "");
            buffer_json_string(out, list[n]);
        }
        return buffer_text(out, "]");
    }
    default:
        return knob_format(knob, options, out); /* true, false and numbers are written alike */
    }
}

enum { HELP_INDENT = 28 };

void knob_wrap(const char *text, int indent, int columns, struct buffer *out)
{
    int room = columns - indent, used = 0;
    for (const char *word = text; *word;) {
        int length = (int)strcspn(word, " ");
        if (used && used + 1 + length > room) {
            buffer_printf(out, "\n%*s", indent, "");
            used = 0;
        }
        buffer_printf(out, "%s%.*s", used ? " " : "", length, word);
        used += length + (used ? 1 : 0);
        word += length;
        word += strspn(word, " ");
    }
    buffer_text(out, "\n");
}

/* "--" where the name is a flag's; "section.key" is a key of a file. */
static const char *dashes_of(const struct knob *knob)
{
    return strchr(knob->name, '.') ? "" : "--";
}

/* A text that ends as a sentence is followed by sentences. */
static bool is_sentence(const char *help)
{
    const size_t length = strlen(help);
    return length && help[length - 1] == '.';
}

void knob_describe(const struct knob *knob, struct buffer *out)
{
    buffer_text(out, knob->refused ? knob->refused : knob->help);
    if (knob->refused)
        return;
    const bool sentence = is_sentence(knob->help);
    for (int i = 0; knob->choices && knob->choices[i]; i++)
        buffer_printf(out, "%s%s",
                      i          ? (sentence ? ", " : " ")
                      : sentence ? " One of "
                                 : "; one of ",
                      knob->choices[i]);
    if (knob->choices && sentence)
        buffer_text(out, ".");
    if (knob->implied)
        buffer_printf(out, sentence ? " Without a value: %s." : "; without a value: %s", knob->implied);
    const bool line_end = knob->initial && !strcmp(knob->initial, "\n");
    if (knob->initial && *knob->initial && knob->type != KNOB_BOOL)
        buffer_printf(out, sentence ? " Default: %s%s%s." : " (default %s%s%s)",
                      line_end ? "a line end" : knob->initial, knob->unit ? " " : "",
                      knob->unit ? knob->unit : "");
}

static void help_row(const struct knob *knob, int columns, struct buffer *out)
{
    scope_buffer left = {0}, right = {0};
    const char *dashes = dashes_of(knob);
    if (knob->letter)
        buffer_printf(&left, "  -%c, %s%s", knob->letter, dashes, knob->name);
    else
        buffer_printf(&left, "  %s%s", dashes, knob->name);
    knob_describe(knob, &right);
    if (knob->env)
        buffer_printf(&right, " [%s]", knob->env);
    if (left.failed || right.failed) {
        out->failed = true;
        return;
    }
    if (left.length + 2 > HELP_INDENT)
        buffer_printf(out, "%s\n%*s", left.data, HELP_INDENT, "");
    else
        buffer_printf(out, "%-*s", HELP_INDENT, left.data);
    knob_wrap(right.data, HELP_INDENT, columns, out);
}

int knob_help(const struct knob_table *table, int columns, struct buffer *out)
{
    const char *section = NULL;
    for (size_t i = 0; i < table->count; i++) {
        const struct knob *knob = &table->knobs[i];
        if (knob->section && (!section || strcmp(section, knob->section))) {
            buffer_printf(out, "%s%s:\n", section ? "\n" : "", knob->section);
            section = knob->section;
        }
        help_row(knob, columns, out);
    }
    return out->failed ? -1 : 0;
}

/* text with the characters escaped that Markdown would read as marks */
static void put_plain(struct buffer *out, const char *text)
{
    for (const char *at = text; *at;) {
        const size_t plain = strcspn(at, "<*");
        buffer_append(out, at, plain);
        at += plain;
        if (*at)
            buffer_printf(out, "\\%c", *at++);
    }
}

static void markdown_item(const struct knob *knob, struct buffer *out)
{
    scope_buffer help = {0}, item = {0};
    knob_describe(knob, &help);
    buffer_text(&item, "- ");
    if (knob->letter)
        buffer_printf(&item, "`-%c`, ", knob->letter);
    buffer_printf(&item, "`%s%s`", dashes_of(knob), knob->name);
    if (knob->env)
        buffer_printf(&item, " (`%s`)", knob->env);
    buffer_text(&item, ": ");
    put_plain(&item, help.data ? help.data : "");
    if (help.failed || item.failed) {
        out->failed = true;
        return;
    }
    knob_wrap(item.data, 2, KNOB_MARKDOWN_COLUMNS, out);
}

int knob_markdown(const struct knob_table *table, struct buffer *out)
{
    const char *section = NULL;
    for (size_t i = 0; i < table->count; i++) {
        const struct knob *knob = &table->knobs[i];
        if (knob->section && (!section || strcmp(section, knob->section))) {
            buffer_printf(out, "%s## %s\n\n", section ? "\n" : "", knob->section);
            section = knob->section;
        }
        markdown_item(knob, out);
    }
    return out->failed ? -1 : 0;
}

const char *knob_source_name(enum knob_source source)
{
    static const char *const names[] = {"default", "environment", "file", "flag", "rule"};
    return (unsigned)source < sizeof names / sizeof *names ? names[source] : "unknown";
}
