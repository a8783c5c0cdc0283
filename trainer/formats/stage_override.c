/* stage_override.c - see stages.h. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "trainer/formats/scalar.h"
#include "trainer/formats/stages.h"

static const char prefix[] = "training.stages";

bool stage_is_override(const char *text)
{
    const size_t length = sizeof prefix - 1;
    return !strncmp(text, prefix, length) && (text[length] == '.' || text[length] == '[');
}

/* The value as JSON: null, the list "[a, b]" of a key of lists, or a text. */
static int write_value(const char *path, const char *value, struct buffer *out, struct muster_error *err)
{
    scope_free char *name = mem_printf("%s%s", strchr(path, '.') ? "" : "training.", path);
    if (!name)
        return error_set(err, MUSTER_E_NOMEM, "no memory to read a stage");
    const struct knob *knob = knob_find(train_config_table(), name, strlen(name), false, NULL);
    struct tree tree = {0};
    if (!knob || knob->type != KNOB_LIST || !scalar_is_list(value))
        (void)(scalar_is_null(value) ? buffer_text(out, "null") : buffer_json_string(out, value));
    else if (tree_parse(name, value, strlen(value), &tree, err) < 0)
        return -1;
    else
        (void)tree_write_json(tree.documents[0], out);
    tree_free(&tree);
    return out->failed ? error_set(err, MUSTER_E_NOMEM, "no memory to read a stage") : 0;
}

/* Writes the map with the JSON at a path of keys, "data.path"; map NULL: an empty map. */
static int put_with(const struct tree_node *map, const char *path, const char *json, struct buffer *out)
{
    const size_t length = strcspn(path, ".");
    const struct tree_node *inner = NULL;
    scope_free char *key = mem_strndup(path, length);
    if (!key)
        return -1;
    (void)buffer_text(out, "{");
    for (size_t i = 0; map && map->kind == TREE_MAP && i < map->count; i++) {
        if (!strcmp(map->entries[i].key, key)) {
            inner = map->entries[i].value;
            continue;
        }
        (void)buffer_json_string(out, map->entries[i].key);
        (void)buffer_text(out, ": ");
        (void)tree_write_json(map->entries[i].value, out);
        (void)buffer_text(out, ", ");
    }
    (void)buffer_json_string(out, key);
    (void)buffer_text(out, ": ");
    if (path[length] == '.' ? put_with(inner, path + length + 1, json, out) < 0 : buffer_text(out, json) < 0)
        return -1;
    return buffer_text(out, "}");
}

static int replace(struct assign *a, char **stage, const char *path, const char *value)
{
    struct tree tree;
    scope_buffer json = {0}, text = {0};
    if (write_value(path, value, &json, a->err) < 0 ||
        tree_parse(prefix, *stage, strlen(*stage), &tree, a->err) < 0)
        return -1;
    const int result = put_with(tree.document_count ? tree.documents[0] : NULL, path, json.data, &text);
    tree_free(&tree);
    char *copy = result < 0 || !text.data ? NULL : mem_strdup(text.data);
    if (!copy)
        return assign_no_memory(a);
    mem_free(*stage);
    *stage = copy;
    return 0;
}

/* The number in "1.steps" or "1].steps" after the prefix; *path: "steps". -1: another form. */
static long stage_number(const char *key, const char **path)
{
    const char *at = key + sizeof prefix; /* after the . or [ */
    const bool bracket = at[-1] == '[';
    char *end;
    if (!isdigit((unsigned char)*at))
        return -1;
    const long number = strtol(at, &end, 10);
    if (bracket && *end++ != ']')
        return -1;
    *path = end + 1;
    return *end == '.' && **path ? number : -1;
}

int stage_override(struct assign *a, const char *text)
{
    const char *equals = strchr(text, '='), *path = NULL;
    const int count = stages_count(a->config);
    scope_free char *key = mem_strndup(text, equals ? (size_t)(equals - text) : strlen(text));
    if (!key)
        return assign_no_memory(a);
    const long number = stage_number(key, &path);
    if (!equals || number < 0)
        return error_set(a->err, MUSTER_E_INVALID,
                         "--set %s: write a stage by its number from 0, e.g. --set "
                         "training.stages.1.learning_rate=0.001",
                         text);
    if (number >= count)
        return error_set(a->err, MUSTER_E_INVALID,
                         "--set %s: there is no stage %ld: the files have %d, numbered from 0", key, number,
                         count);
    if (replace(a, &a->config->stages[number], path, equals + 1) < 0)
        return -1;
    struct train_config stage;
    if (stages_settings(a->config, (int)number, &stage, NULL, a->err) < 0)
        return error_wrap(a->err, "--set %s", key);
    train_config_free(&stage);
    return 0;
}
