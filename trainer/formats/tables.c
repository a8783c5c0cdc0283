/* tables.c - the keys of other programs as lists of Markdown. See formats.h. */
#include <string.h>

#include "proto/base/guard.h"
#include "proto/base/knob.h"
#include "trainer/formats/formats.h"
#include "trainer/formats/readers.h"

/* "`0`: NO_SHARD, ...": what values become. */
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
