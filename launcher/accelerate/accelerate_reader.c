/* accelerate_reader.c - see accelerate_reader.h. */
#include "launcher/accelerate/accelerate_reader.h"

#include <string.h>

#include "launcher/accelerate/accelerate_keys.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"

int accelerate_no_memory(const struct accelerate_reader *r)
{
    return error_set(r->err, MUSTER_E_NOMEM, "no memory to read %s", r->file);
}

int accelerate_add_setting(struct accelerate_reader *r, const char *flag, const char *value, int line)
{
    struct accelerate_config *out = r->out;
    if (out->setting_count == ACCELERATE_SETTINGS_LIMIT)
        return error_set(r->err, MUSTER_E_LIMIT, "%s: more than %d settings", r->file,
                         ACCELERATE_SETTINGS_LIMIT);
    char *copy = mem_strdup(value);
    if (!copy)
        return accelerate_no_memory(r);
    out->settings[out->setting_count++] = (struct accelerate_setting){flag, copy, line};
    return 0;
}

int accelerate_take_variable(struct accelerate_reader *r, const char *name, char *value, int line)
{
    struct accelerate_config *out = r->out;
    if (!value)
        return accelerate_no_memory(r);
    for (int i = 0; i < out->variable_count; i++) {
        struct accelerate_variable *variable = &out->variables[i];
        if (strcmp(variable->name, name) != 0)
            continue;
        mem_free(line ? variable->value : value);
        if (line)
            *variable = (struct accelerate_variable){name, value, line, false};
        return 0;
    }
    if (out->variable_count == ACCELERATE_VARIABLES_LIMIT) {
        mem_free(value);
        return error_set(r->err, MUSTER_E_LIMIT, "%s: more than %d variables", r->file,
                         ACCELERATE_VARIABLES_LIMIT);
    }
    out->variables[out->variable_count++] = (struct accelerate_variable){name, value, line, false};
    return 0;
}

int accelerate_add_variable(struct accelerate_reader *r, const char *name, const char *value, int line)
{
    return accelerate_take_variable(r, name, mem_strdup(value), line);
}

int accelerate_set_aside(struct accelerate_reader *r, const char *key, const char *why)
{
    buffer_printf(&r->out->aside, "%s%s (%s)", r->out->aside.length ? ", " : "", key, why);
    return r->out->aside.failed ? accelerate_no_memory(r) : 0;
}

int accelerate_not_one_value(const struct accelerate_reader *r, const char *key, const struct tree_node *node)
{
    return node->kind == TREE_TEXT
               ? error_set(r->err, MUSTER_E_INVALID, "%s:%d: %s: the text has a control character", r->file,
                           node->line, key)
               : error_set(r->err, MUSTER_E_INVALID, "%s:%d: %s: %s where one value is expected", r->file,
                           node->line, key, tree_kind_name(node->kind));
}

int accelerate_read_bool(const struct accelerate_reader *r, const char *key, bool *out, int *line)
{
    const struct tree_node *node = tree_get(r->root, key);
    *line = node ? node->line : 0;
    if (!node || accelerate_bool(node, out))
        return 0;
    if (!accelerate_is_value(node))
        return accelerate_not_one_value(r, key, node);
    return error_set(r->err, MUSTER_E_INVALID, "%s:%d: %s: '%s' is not true or false", r->file, node->line,
                     key, ACCELERATE_SHOWN(node->text));
}

int accelerate_read_int(const struct accelerate_reader *r, const char *key, int64_t *out, int *line)
{
    const struct tree_node *node = tree_get(r->root, key);
    *line = node ? node->line : 0;
    if (!node || accelerate_int(node, out))
        return 0;
    if (!accelerate_is_value(node))
        return accelerate_not_one_value(r, key, node);
    return error_set(r->err, MUSTER_E_INVALID, "%s:%d: %s: '%s' is not a whole number", r->file, node->line,
                     key, ACCELERATE_SHOWN(node->text));
}

int accelerate_read_setting(struct accelerate_reader *r, const char *key, const char *flag)
{
    const struct tree_node *node = tree_get(r->root, key);
    if (!node)
        return 0;
    if (!accelerate_is_value(node))
        return accelerate_not_one_value(r, key, node);
    scope_free char *text = accelerate_print(node, ACCELERATE_AS_IS);
    if (!text)
        return accelerate_no_memory(r);
    return *text ? accelerate_add_setting(r, flag, text, node->line) : 0;
}
