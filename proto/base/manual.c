/* manual.c - see manual.h. */
#include "proto/base/manual.h"

#include <ctype.h>
#include <string.h>

/* A minus sign stays one (a bare '-' may be set as a hyphen, which cannot be pasted into a shell), a line
 * never begins as a request. */
static void put_text(struct buffer *out, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        const char c = text[i];
        const bool starts = i == 0 || text[i - 1] == '\n';
        if (starts && (c == '.' || c == '\''))
            buffer_text(out, "\\&");
        if (c == '-')
            buffer_text(out, "\\-");
        else if (c == '\\')
            buffer_text(out, "\\e");
        else
            buffer_append(out, &c, 1);
    }
}

static void manual_put(struct buffer *out, const char *text)
{
    put_text(out, text, strlen(text));
}

/* A title: capitals. */
static void put_title(struct buffer *out, const char *text)
{
    for (; *text; text++) {
        const char c = (char)toupper((unsigned char)*text);
        buffer_append(out, &c, 1);
    }
}

static void put_paragraphs(struct buffer *out, const char *text)
{
    while (*text) {
        const char *end = strstr(text, "\n\n");
        put_text(out, text, end ? (size_t)(end - text) : strlen(text));
        buffer_text(out, end ? "\n.PP\n" : "\n");
        text = end ? end + 2 : text + strlen(text);
    }
}

static void put_knob(const struct knob *knob, struct buffer *out)
{
    scope_buffer text = {0};
    const char *dashes = strchr(knob->name, '.') ? "" : "--";
    knob_describe(knob, &text);
    out->failed |= text.failed;
    buffer_text(out, ".TP\n.B ");
    if (knob->letter)
        buffer_printf(out, "\\-%c\\fR,\\fB ", knob->letter);
    manual_put(out, dashes);
    manual_put(out, knob->name);
    if (*dashes && !knob->implied && knob->type != KNOB_BOOL)
        buffer_text(out, "\\fR=\\fIVALUE\\fR");
    buffer_text(out, "\n");
    manual_put(out, text.data ? text.data : "");
    if (knob->env) {
        buffer_text(out, "; variable ");
        manual_put(out, knob->env);
    }
    buffer_text(out, "\n");
}

static void put_table(const char *title, const struct knob_table *table, struct buffer *out)
{
    const char *section = title;
    buffer_printf(out, ".SH %s\n", title);
    for (size_t i = 0; i < table->count; i++) {
        const struct knob *knob = &table->knobs[i];
        if (knob->section && strcmp(section, knob->section)) {
            section = knob->section;
            buffer_text(out, ".SS ");
            manual_put(out, section);
            buffer_text(out, "\n");
        }
        put_knob(knob, out);
    }
}

static void put_list(const struct manual_list *list, struct buffer *out)
{
    buffer_printf(out, ".SH %s\n", list->title);
    for (size_t i = 0; i < list->count; i++) {
        buffer_text(out, ".TP\n.B ");
        manual_put(out, list->rows[i].name);
        buffer_text(out, "\n");
        manual_put(out, list->rows[i].meaning);
        buffer_text(out, "\n");
    }
}

static void put_synopsis(struct buffer *out, const char *text)
{
    while (*text) {
        const size_t length = strcspn(text, "\n");
        buffer_text(out, ".B ");
        put_text(out, text, length);
        text += length + (text[length] == '\n');
        buffer_text(out, *text ? "\n.br\n" : "\n");
    }
}

int manual_print(const struct manual *manual, struct buffer *out)
{
    buffer_text(out, ".TH ");
    put_title(out, manual->page);
    buffer_printf(out, " 1 \"\" \"%s\" \"muster\"\n.SH NAME\n", manual->version);
    manual_put(out, manual->page);
    buffer_text(out, " \\- ");
    manual_put(out, manual->brief);
    buffer_text(out, "\n.SH SYNOPSIS\n");
    put_synopsis(out, manual->synopsis);
    buffer_text(out, ".SH DESCRIPTION\n");
    put_paragraphs(out, manual->description);
    if (manual->table)
        put_table(manual->options, manual->table, out);
    for (size_t i = 0; i < sizeof manual->lists / sizeof *manual->lists; i++)
        if (manual->lists[i].title)
            put_list(&manual->lists[i], out);
    buffer_text(out, ".SH SEE ALSO\n");
    manual_put(out, manual->see_also);
    buffer_text(out, "\n");
    return out->failed ? -1 : 0;
}
