/* print.c - see formats.h: settings with their sources as YAML and JSON, and the lists of keys as Markdown.
 */
#include <stdio.h>
#include <string.h>

#include "proto/base/guard.h"
#include "proto/base/knob.h"
#include "trainer/formats/formats.h"
#include "trainer/formats/formats_internal.h"

enum { COMMENT_COLUMN = 44 };

/* The value in YAML's flow style, which is JSON; numbers with every digit. */
static int print_value(const struct knob *knob, const struct train_config *config, struct buffer *out)
{
    if (knob->type == KNOB_DOUBLE) {
        const double value = *(const double *)((const char *)config + knob->offset);
        char text[32];
        (void)snprintf(text, sizeof text, "%.15g", value); /* fits */
        double again = 0;
        if (sscanf(text, "%lf", &again) != 1 || again != value)
            (void)snprintf(text, sizeof text, "%.17g", value);
        return buffer_text(out, text);
    }
    if (knob->type == KNOB_CHOICE) {
        scope_buffer text = {0};
        return knob_format(knob, config, &text) < 0 ? -1 : buffer_text(out, text.data ? text.data : "");
    }
    return knob_format_json(knob, config, out);
}

static bool is_default(const struct formats_settings *settings, size_t row)
{
    return settings->config.sources[row] == KNOB_FROM_DEFAULT;
}

/* The source of a value: its place, or the kind of source. */
static const char *source_of(const struct formats_settings *settings, size_t row)
{
    if (settings->places[row])
        return settings->places[row];
    return is_default(settings, row) ? "default" : "rule";
}

static int print_row(const struct formats_settings *settings, size_t row, struct buffer *out)
{
    const struct knob *knob = &train_config_table()->knobs[row];
    scope_buffer value = {0};
    const size_t begin = out->length;
    if (print_value(knob, &settings->config, &value) < 0)
        return -1;
    const char *text = value.data ? value.data : "\"\"";
    /* null and [] stand for a value that is not set */
    const bool empty = !strcmp(text, "null") || !strcmp(text, "[]");
    buffer_printf(out, "  %s%s: %s", is_default(settings, row) || empty ? "# " : "",
                  knob->name + strlen(knob->section) + 1, text);
    const size_t width = out->length - begin;
    const int pad = width < COMMENT_COLUMN ? (int)(COMMENT_COLUMN - width) : 1;
    return buffer_printf(out, "%*s# %s\n", pad, "", source_of(settings, row));
}

/* Whether a row is the first of its section. */
static bool is_first(const struct knob_table *table, size_t row)
{
    for (size_t i = 0; i < row; i++)
        if (!strcmp(table->knobs[i].section, table->knobs[row].section))
            return false;
    return true;
}

static int print_section(const struct formats_settings *settings, const char *section, struct buffer *out)
{
    const struct knob_table *table = train_config_table();
    buffer_printf(out, "%s:\n", section);
    for (size_t i = 0; i < table->count; i++)
        if (!strcmp(table->knobs[i].section, section) && print_row(settings, i, out) < 0)
            return -1;
    return out->failed ? -1 : 0;
}

static int print_yaml(const struct formats_settings *settings, struct buffer *out)
{
    const struct knob_table *table = train_config_table();
    for (size_t i = 0; i < table->count; i++)
        if (is_first(table, i) && print_section(settings, table->knobs[i].section, out) < 0)
            return -1;
    return 0;
}

static int print_json(const struct formats_settings *settings, struct buffer *out)
{
    const struct knob_table *table = train_config_table();
    for (size_t i = 0; i < table->count; i++) {
        const struct knob *knob = &table->knobs[i];
        buffer_printf(out, "%s\n  \"%s\": {\"value\": ", i ? "," : "{", knob->name);
        if (knob->type == KNOB_DOUBLE ? print_value(knob, &settings->config, out)
                                      : knob_format_json(knob, &settings->config, out))
            return -1;
        buffer_printf(out, ", \"from\": \"%s\", \"source\": ",
                      knob_source_name((enum knob_source)settings->config.sources[i]));
        buffer_json_string(out, source_of(settings, i));
        buffer_text(out, "}");
    }
    return buffer_text(out, "\n}\n");
}

int formats_print(const struct formats_settings *settings, bool json, struct buffer *out)
{
    return json ? print_json(settings, out) : print_yaml(settings, out);
}

/* ---- lists of keys ---- */

/* Prints the values that choices give: "`0`: NO_SHARD, ...". */
static void print_choices(const struct key_choice *choices, struct buffer *out)
{
    const char *before = ": ";
    for (; choices && choices->from; choices++) {
        if (!choices->to || !strcmp(choices->from, choices->to))
            continue;
        buffer_printf(out, "%s%s is %s", before, choices->from, choices->to);
        before = ", ";
    }
}

static void print_only(const struct key_row *row, struct buffer *out)
{
    if (!strcmp(row->only, "none") || !strcmp(row->only, "false") || !*row->only)
        buffer_text(out, "not supported: ");
    else
        buffer_printf(out, "only `%s`: ", row->only);
    buffer_text(out, row->why);
}

static void print_meaning(const struct key_row *row, struct buffer *out)
{
    switch (row->kind) {
    case KEY_SETTING:
    case KEY_WEAK:
        buffer_printf(out, "`%s`", row->setting);
        print_choices(row->choices, out);
        break;
    case KEY_BLOCK:
        buffer_text(out, "its keys follow");
        break;
    case KEY_SWITCHED:
        buffer_text(out, "its keys follow; they count where `enabled` is true");
        break;
    case KEY_RULE:
        buffer_text(out, row->why);
        break;
    case KEY_ONLY:
        print_only(row, out);
        break;
    case KEY_IDLE:
        buffer_printf(out, "no effect here%s%s", row->why ? ": " : "", row->why ? row->why : "");
    }
}

static void print_list(const struct key_table *table, struct buffer *out)
{
    for (size_t i = 0; i < table->count; i++) {
        scope_buffer item = {0};
        buffer_printf(&item, "- `%s`: ", table->rows[i].path);
        print_meaning(&table->rows[i], &item);
        if (item.failed)
            out->failed = true;
        else
            knob_wrap(item.data, 2, KNOB_MARKDOWN_COLUMNS, out);
    }
}

int formats_markdown(struct buffer *out)
{
    buffer_text(out, "# Keys of other programs\n\n"
                     "A key of another program becomes a setting of muster-train (`SETTINGS.md`), has no "
                     "effect here, or is\n"
                     "refused. Keys without an effect are listed when the run starts. An error names file, "
                     "line and column.\n"
                     "`muster-train --keys` prints this document.\n");
    const struct {
        const char *heading;
        const struct key_table *keys;
    } tables[] = {{"DeepSpeed's ds_config.json", &deepspeed_keys},
                  {"Parameters of DeepSpeed's optimizers and schedulers", deepspeed_params},
                  {"Hugging Face's TrainingArguments, and names of training scripts", &arguments_keys},
                  {"A model's config.json", &model_keys},
                  {"Further keys of YAML files with our sections", &sections_aliases}};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        buffer_printf(out, "\n## %s\n\n", tables[i].heading);
        print_list(tables[i].keys, out);
    }
    return out->failed ? -1 : 0;
}
