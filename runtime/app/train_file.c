/* train_file.c - the strict YAML reader. See train_file.h. */
#include "runtime/app/train_file.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/tree/tree.h"
#include "runtime/config/train_config_check.h"

struct reader {
    const char *name;
    struct train_config *config;
    struct muster_error *err;
};

enum { PLACE_SIZE = 512 };

/* "file:line:column" */
static const char *place(const struct reader *r, int line, int column, char out[PLACE_SIZE])
{
    (void)snprintf(out, PLACE_SIZE, "%s:%d:%d", r->name, line, column);
    return out;
}

static bool is_section(const char *name)
{
    const struct knob_table *table = train_config_table();
    for (size_t i = 0; i < table->count; i++)
        if (!strcmp(table->knobs[i].section, name))
            return true;
    return false;
}

static int unknown(const char *where, const char *name, bool section, struct muster_error *err)
{
    const struct knob_table *table = train_config_table();
    const char *nearest = NULL;
    if (!section)
        nearest = knob_nearest(table, name);
    else
        for (size_t i = 0; i < table->count && !nearest; i++)
            if (!strncmp(table->knobs[i].section, name,
                         3)) /* section names differ in their first three letters */
                nearest = table->knobs[i].section;
    if (nearest)
        return error_set(err, MUSTER_E_INVALID, "%s: unknown %s '%s'; did you mean '%s'?", where,
                         section ? "section" : "key", name, nearest);
    return error_set(
        err, MUSTER_E_INVALID, "%s: unknown %s '%s'; %s", where, section ? "section" : "key", name,
        section ? "the sections are training, model, data, logging" : "muster-train --help lists every key");
}

static int take_scalar(struct reader *r, const struct knob *knob, const struct tree_node *value)
{
    char where[PLACE_SIZE];
    place(r, value->line, value->column, where);
    if (!value->text) /* a scalar of any kind keeps its text */
        return error_set(r->err, MUSTER_E_INVALID, "%s: %s found where a single value is expected", where,
                         tree_kind_name(value->kind));
    scope_free char *place_and_key = mem_printf("%s: %s", where, knob->name);
    if (!place_and_key)
        return error_set(r->err, MUSTER_E_NOMEM, "%s: no memory", r->name);
    return knob_set(train_config_table(), r->config, r->config->sources, knob, value->text, KNOB_FROM_FILE,
                    place_and_key, r->err);
}

static int take_value(struct reader *r, const char *section, const struct tree_entry *entry)
{
    char where[PLACE_SIZE];
    scope_free char *full = mem_printf("%s.%s", section, entry->key);
    if (!full)
        return error_set(r->err, MUSTER_E_NOMEM, "%s: no memory", r->name);
    const struct knob *knob = knob_find(train_config_table(), full, strlen(full), false, NULL);
    if (!knob)
        return unknown(place(r, entry->line, entry->column, where), full, false, r->err);
    if (knob->type != KNOB_LIST || entry->value->kind != TREE_LIST)
        return take_scalar(r, knob, entry->value);
    for (size_t i = 0; i < entry->value->count; i++)
        if (take_scalar(r, knob, entry->value->items[i]) < 0)
            return -1;
    return 0;
}

static int take_section(struct reader *r, const struct tree_entry *entry)
{
    const struct tree_node *section = entry->value;
    char where[PLACE_SIZE];
    if (!is_section(entry->key))
        return unknown(place(r, entry->line, entry->column, where), entry->key, true, r->err);
    place(r, section->line, section->column, where);
    if (section->kind == TREE_NULL) /* a heading with nothing under it */
        return 0;
    if (section->kind == TREE_LIST)
        return error_set(r->err, MUSTER_E_INVALID, "%s: a list found where keys of section '%s' are expected",
                         where, entry->key);
    if (section->kind != TREE_MAP)
        return error_set(
            r->err, MUSTER_E_INVALID,
            "%s: section '%s' is a single value; its keys belong on lines of their own, indented", where,
            entry->key);
    for (size_t i = 0; i < section->count; i++)
        if (take_value(r, entry->key, &section->entries[i]) < 0)
            return -1;
    return 0;
}

static int take_tree(struct reader *r, const struct tree *tree)
{
    char where[PLACE_SIZE];
    const struct tree_node *root = tree->document_count ? tree->documents[0] : NULL;
    if (tree->document_count > 1)
        return error_set(
            r->err, MUSTER_E_INVALID, "%s: the configuration must be one document; this file has %zu",
            place(r, tree->documents[1]->line, tree->documents[1]->column, where), tree->document_count);
    if (root && root->kind != TREE_MAP)
        return error_set(r->err, MUSTER_E_INVALID,
                         "%s: the file is not a mapping with the sections training, model, data, logging",
                         place(r, root->line, root->column, where));
    for (size_t i = 0; root && i < root->count; i++)
        if (take_section(r, &root->entries[i]) < 0)
            return -1;
    return 0;
}

static int read_yaml(const char *name, const char *text, size_t length, struct train_config *config,
                     struct muster_error *err)
{
    struct reader r = {.name = name, .config = config, .err = err};
    struct tree tree;
    if (tree_parse(name, text, length, &tree, err) < 0)
        return -1;
    int result = take_tree(&r, &tree);
    tree_free(&tree);
    return result;
}

static int override(struct train_config *config, const char *text, struct muster_error *err)
{
    const char *equals = strchr(text, '=');
    if (!equals)
        return error_set(err, MUSTER_E_INVALID, "--set %s: write key=value, e.g. --set training.steps=100",
                         text);
    const struct knob *knob = knob_find(train_config_table(), text, (size_t)(equals - text), false, NULL);
    scope_free char *key = mem_strndup(text, (size_t)(equals - text));
    if (!key)
        return error_set(err, MUSTER_E_NOMEM, "--set: no memory");
    if (!knob)
        return unknown("--set", key, false, err);
    scope_free char *where = mem_printf("--set %s", key);
    if (!where)
        return error_set(err, MUSTER_E_NOMEM, "--set: no memory");
    return knob_set(train_config_table(), config, config->sources, knob, equals + 1, KNOB_FROM_FLAG, where,
                    err);
}

static int check_file(const char *name, const struct train_config *config, struct muster_error *err)
{
    scope_free char *prefix = mem_printf("%s: ", name);
    if (!prefix)
        return error_set(err, MUSTER_E_NOMEM, "%s: no memory", name);
    return train_config_check(prefix, config, TRAIN_ALL, err);
}

/* A model whose sizes are the keys' is as long as its batches. */
static int complete(struct train_config *config, struct muster_error *err)
{
    static const char key[] = "model.positions";
    const struct knob *knob = knob_find(train_config_table(), key, strlen(key), false, NULL);
    char text[32];
    if (config->positions || !train_config_gives_sizes(config))
        return 0;
    (void)snprintf(text, sizeof text, "%lld", (long long)config->sequence_length); /* fits */
    return knob_set(train_config_table(), config, config->sources, knob, text, KNOB_FROM_RULE, key, err);
}

int train_config_parse(const char *name, const char *text, size_t length, char *const *overrides,
                       int override_count, struct train_config *config, struct muster_error *err)
{
    struct train_config fresh = {0};
    int result = knob_defaults(train_config_table(), &fresh, err);
    if (!result)
        result = read_yaml(name, text, length, &fresh, err);
    for (int i = 0; !result && i < override_count; i++)
        result = override(&fresh, overrides[i], err);
    if (!result)
        result = check_file(name, &fresh, err);
    if (!result)
        result = complete(&fresh, err);
    if (result < 0)
        train_config_free(&fresh);
    else
        *config = fresh;
    return result;
}

int train_config_read(const char *path, char *const *overrides, int override_count,
                      struct train_config *config, struct muster_error *err)
{
    scope_buffer text = {0};
    if (io_read_file(path, TREE_BYTES_LIMIT, &text, err) < 0)
        return -1;
    return train_config_parse(path, text.data ? text.data : "", text.length, overrides, override_count,
                              config, err);
}
