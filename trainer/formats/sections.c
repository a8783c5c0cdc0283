/* sections.c - the reader of muster-train's own files: sections training, model, lora, data and logging, with
 * the keys of runtime/config and some names of other programs. See formats.h. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "trainer/formats/formats_internal.h"
#include "trainer/formats/meant.h"
#include "trainer/formats/rows.h"
#include "trainer/formats/scalar.h"
#include "trainer/formats/stages.h"

static const struct key_choice architectures[] = {{"gpt2", "gpt2"},
                                                  {"llama", "llama"},
                                                  {"simple_cnn", "simple_cnn"},
                                                  {"resnet", "resnet"},
                                                  {"text_classifier", "text_classifier"},
                                                  {"text_encoder", "text_encoder"},
                                                  {NULL, NULL}};

static const struct key_choice recomputes[] = {{"false", NULL}, {"true", "all"}, {NULL, NULL}};
static const struct key_choice amp[] = {{"false", NULL}, {"true", "fp16"}, {NULL, NULL}};

static int take_epochs(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    return key_epochs(walk, shown, entry->value);
}

static int take_accumulation(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    walk->assign->wants_batch = true;
    return key_keep(walk, ASSIGN_ACCUMULATION, entry->value, shown, 1, 1e9);
}

static int take_chunks(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    walk->assign->wants_batch = true;
    return key_keep(walk, ASSIGN_CHUNKS, entry->value, shown, 1, 1 << 16);
}

static int take_save(struct key_walk *walk, const char *shown, const struct tree_entry *entry)
{
    char place[KEY_PLACE];
    if (entry->value->kind != TREE_BOOL || !entry->value->boolean)
        return 0;
    return assign_weakly(walk->assign, ASSIGN_VALUE, "training.checkpoint_dir", "checkpoints",
                         key_origin(walk, entry->value, shown, place));
}

static const struct key_row rows[] = {
#include "trainer/formats/sections_keys.inc"
};
const struct key_table sections_aliases = {"training scripts, by section", rows, sizeof rows / sizeof *rows};

static bool is_section(const char *name)
{
    const struct knob_table *table = train_config_table();
    for (size_t i = 0; i < table->count; i++)
        if (!strcmp(table->knobs[i].section, name))
            return true;
    return false;
}

bool sections_recognise(const struct tree_node *root)
{
    for (size_t i = 0; i < root->count; i++)
        if (is_section(root->entries[i].key) && root->entries[i].value->kind != TREE_TEXT)
            return true;
    return false;
}

static int unknown_key(struct key_walk *walk, const struct tree_entry *entry, const char *name)
{
    char place[KEY_PLACE], text[MEANT_SIZE];
    const char *nearest = setting_meant(name, text);
    key_place(walk, entry->line, entry->column, place);
    if (nearest)
        return error_set(walk->assign->err, MUSTER_E_INVALID, "%s: unknown key '%s'; did you mean '%s'?",
                         place, name, nearest);
    return error_set(walk->assign->err, MUSTER_E_INVALID,
                     "%s: unknown key '%s'; muster-train --help lists every key", place, name);
}

static int unknown_section(struct key_walk *walk, const struct tree_entry *entry)
{
    const struct knob_table *table = train_config_table();
    char place[KEY_PLACE];
    key_place(walk, entry->line, entry->column, place);
    if (!strcmp(entry->key, "parallelism") || !strcmp(entry->key, "parallelism_config"))
        return error_set(
            walk->assign->err, MUSTER_E_UNSUPPORTED,
            "%s: section '%s' is another program's: mesh.pipeline has the stages, training.strategy "
            "and training.replicas have shards and replicas; no model is split by tensor, context "
            "or expert",
            place, entry->key);
    for (size_t i = 0; i < table->count; i++)
        if (!strncasecmp(table->knobs[i].section, entry->key,
                         3)) /* sections differ in their first three letters */
            return error_set(walk->assign->err, MUSTER_E_INVALID,
                             "%s: unknown section '%s'; did you mean '%s'?", place, entry->key,
                             table->knobs[i].section);
    return error_set(walk->assign->err, MUSTER_E_INVALID,
                     "%s: unknown section '%s'; the sections are training, mesh, model, lora, data, logging",
                     place, entry->key);
}

/* training.resume: true is the newest checkpoint, false none. */
static const char *resume_word(const struct knob *knob, const struct tree_node *value)
{
    if (value->kind != TREE_BOOL || strcmp(knob->name, "training.resume") != 0)
        return NULL;
    return value->boolean ? "auto" : "none";
}

static int take_scalar(struct key_walk *walk, const struct knob *knob, const struct tree_node *value)
{
    char where[KEY_PLACE], place[KEY_PLACE], number[SCALAR_SIZE];
    const char *word = resume_word(knob, value);
    key_where(walk, value, knob->name, where);
    const char *text = word ? word : scalar_text(value, knob, number, where, walk->assign->err);
    if (!text)
        return -1;
    return assign_set(walk->assign, knob->name, text, KNOB_FROM_FILE, where,
                      key_place(walk, value->line, value->column, place));
}

static int take_entry(struct key_walk *walk, const char *section, const struct tree_entry *entry)
{
    scope_free char *full = mem_printf("%s.%s", section, entry->key);
    scope_free char *path = mem_printf("%s.", section);
    if (!full || !path)
        return assign_no_memory(walk->assign);
    const struct knob *knob = knob_find(train_config_table(), full, strlen(full), false, NULL);
    if (!knob && key_find(&sections_aliases, full))
        return key_walk_entry(walk, path, path, entry);
    if (!knob)
        return unknown_key(walk, entry, full);
    if (entry->value->kind == TREE_NULL) /* not set */
        return 0;
    if (!strcmp(knob->name, "training.stages"))
        return stages_read(walk, entry->value);
    char place[KEY_PLACE];
    if (knob->type == KNOB_LIST &&
        assign_list_anew(walk->assign, knob->name,
                         key_place(walk, entry->value->line, entry->value->column, place)) < 0)
        return -1;
    if (knob->type != KNOB_LIST || entry->value->kind != TREE_LIST)
        return take_scalar(walk, knob, entry->value);
    for (size_t i = 0; i < entry->value->count; i++)
        if (take_scalar(walk, knob, entry->value->items[i]) < 0)
            return -1;
    return 0;
}

static int take_section(struct key_walk *walk, const struct tree_entry *entry)
{
    const struct tree_node *section = entry->value;
    char where[KEY_PLACE];
    if (*entry->key == '_' || !strncmp(entry->key, "x-", 2)) /* a remark, or a place for anchors */
        return 0;
    if (!is_section(entry->key))
        return unknown_section(walk, entry);
    key_place(walk, section->line, section->column, where);
    if (section->kind == TREE_NULL) /* a heading with nothing under it */
        return 0;
    if (section->kind == TREE_LIST)
        return error_set(walk->assign->err, MUSTER_E_INVALID,
                         "%s: a list found where keys of section '%s' are expected", where, entry->key);
    if (section->kind != TREE_MAP)
        return error_set(
            walk->assign->err, MUSTER_E_INVALID,
            "%s: section '%s' is a single value; its keys belong on lines of their own, indented", where,
            entry->key);
    for (size_t i = 0; i < section->count; i++)
        if (take_entry(walk, entry->key, &section->entries[i]) < 0)
            return -1;
    return 0;
}

int sections_read(struct key_walk *walk, const struct tree_node *root)
{
    walk->table = &sections_aliases;
    for (size_t i = 0; i < root->count; i++)
        if (take_section(walk, &root->entries[i]) < 0)
            return -1;
    return 0;
}
