/* tables.c - the keys of a language as a table of Markdown. See formats.h. */
#include <string.h>

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

static void print_table(const struct key_table *table, struct buffer *out)
{
    buffer_text(out, "| key | here |\n|---|---|\n");
    for (size_t i = 0; i < table->count; i++) {
        buffer_printf(out, "| `%s` | ", table->rows[i].path);
        print_meaning(&table->rows[i], out);
        buffer_text(out, " |\n");
    }
    buffer_text(out, "\n");
}

int formats_markdown(struct buffer *out)
{
    const struct {
        const char *heading;
        const struct key_table *keys;
    } tables[] = {{"DeepSpeed's ds_config.json", &deepspeed_keys},
                  {"Parameters of DeepSpeed's optimizers and schedulers", deepspeed_params},
                  {"Hugging Face's TrainingArguments, and names of training scripts", &arguments_keys},
                  {"A model's config.json", &model_keys},
                  {"Further keys of YAML files with our sections", &sections_aliases}};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        buffer_printf(out, "## %s\n\n", tables[i].heading);
        print_table(tables[i].keys, out);
    }
    return out->failed ? -1 : 0;
}
