/* policy_read.c - see policy_read.h. */
#include "runtime/nccl/files/policy_read.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "proto/base/text.h"
#include "proto/tree/tree.h"

struct reader {
    const char *name;
    struct policy *policy;
    int capacity;
    struct muster_error *err;
};

static int wrong(struct reader *r, int line, int column, const char *what, const char *wanted)
{
    return error_set(r->err, MUSTER_E_INVALID, "%s:%d:%d: %s; expected %s", r->name, line, column, what,
                     wanted);
}

static int unknown_key(struct reader *r, const struct tree_entry *entry, const char *const *keys,
                       size_t count)
{
    const char *hint = text_nearest(entry->key, keys, count);
    return error_set(r->err, MUSTER_E_INVALID, "%s:%d:%d: unknown key '%s'%s%s", r->name, entry->line,
                     entry->column, entry->key, hint ? "; did you mean " : "", hint ? hint : "");
}

/* A scalar as written: 106 and "106" are equal in an environment. */
static const char *scalar(const struct tree_node *node)
{
    return node->kind == TREE_LIST || node->kind == TREE_MAP || node->kind == TREE_NULL ? NULL : node->text;
}

static bool is_variable(const char *name)
{
    return *name && strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == strlen(name) &&
           strlen(name) < DESCRIPTION_NAME;
}

/* --- conditions --- */

/* ">=2.21" or "<2.28", also both with a comma between. */
static int read_versions(struct reader *r, const struct tree_node *node, struct policy_entry *entry)
{
    const char *text = scalar(node);
    for (const char *at = text; at && *at;) {
        char number[32];
        bool least = !strncmp(at, ">=", 2), below = !least && *at == '<' && at[1] != '=';
        if (!least && !below)
            return wrong(r, node->line, node->column, "no version range",
                         "\">=2.21\", \"<2.28\" or \">=2.21,<2.28\"");
        at += least ? 2 : 1;
        size_t length = strcspn(at, ",");
        (void)snprintf(number, sizeof number, "%.*s", (int)(length < sizeof number ? length : 0), at);
        int version = description_version(number);
        if (version == 0)
            return wrong(r, node->line, node->column, "no version number", "major.minor.patch");
        if (least)
            entry->nccl_least = version;
        else
            entry->nccl_below = version;
        at += length + (at[length] == ',');
    }
    return text ? 0 : wrong(r, node->line, node->column, "no text", "a version range");
}

static int read_nodes(struct reader *r, const struct tree_node *node, struct policy_entry *entry)
{
    const char *text = scalar(node);
    int64_t least;
    if (!text || strncmp(text, ">=", 2) || !text_int64(text + 2, &least) || least < 1 || least > 1000000)
        return wrong(r, node->line, node->column, "no number of nodes", "\">=2\"");
    entry->nodes_least = (int)least;
    return 0;
}

static bool policy_has_word(const char *text, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(text, words[i]))
            return true;
    return false;
}

static int read_when(struct reader *r, const struct tree_node *when, struct policy_entry *entry)
{
    static const char *const keys[] = {"gpu", "pool", "nccl", "nodes"};
    if (when->kind != TREE_MAP)
        return wrong(r, when->line, when->column, "when is no map", "gpu, pool, nccl or nodes");
    for (size_t i = 0; i < when->count; i++) {
        const struct tree_entry *condition = &when->entries[i];
        const char *text = scalar(condition->value);
        if (condition->value->kind == TREE_NULL) { /* not set */
            if (policy_has_word(condition->key, keys, sizeof keys / sizeof *keys))
                continue;
            return unknown_key(r, condition, keys, sizeof keys / sizeof *keys);
        }
        if (!strcmp(condition->key, "nccl")) {
            if (read_versions(r, condition->value, entry) < 0)
                return -1;
        } else if (!strcmp(condition->key, "nodes")) {
            if (read_nodes(r, condition->value, entry) < 0)
                return -1;
        } else if (strcmp(condition->key, "gpu") && strcmp(condition->key, "pool")) {
            return unknown_key(r, condition, keys, sizeof keys / sizeof *keys);
        } else if (!text) {
            return wrong(r, condition->line, condition->column, "no text",
                         "a pattern such as \"NVIDIA H100*\"");
        } else {
            *(strcmp(condition->key, "gpu") ? &entry->pool : &entry->gpu) = text;
        }
    }
    return 0;
}

/* --- rules --- */

static int policy_append(struct reader *r, const struct policy_entry *common, enum policy_kind kind,
                         const char *name, const char *value)
{
    struct policy *policy = r->policy;
    if (policy->count == r->capacity) {
        int capacity = r->capacity ? 2 * r->capacity : 16;
        struct policy_entry *entries = mem_realloc(policy->entries, (size_t)capacity, sizeof *entries);
        if (!entries)
            return error_set(r->err, MUSTER_E_NOMEM, "no memory for %s", r->name);
        policy->entries = entries;
        r->capacity = capacity;
    }
    struct policy_entry *entry = &policy->entries[policy->count++];
    *entry = *common;
    entry->kind = kind;
    entry->name = name;
    entry->value = value;
    return 0;
}

static int read_variables(struct reader *r, const struct tree_node *node, enum policy_kind kind,
                          const struct policy_entry *common)
{
    if (node->kind != TREE_MAP)
        return wrong(r, node->line, node->column, "no map", "{NAME: value}");
    for (size_t i = 0; i < node->count; i++) {
        const struct tree_entry *entry = &node->entries[i];
        const char *value = scalar(entry->value);
        if (!is_variable(entry->key))
            return wrong(r, entry->line, entry->column, entry->key, "a variable's name in capitals");
        if (!value || strlen(value) >= sizeof(struct description_setting){0}.value)
            return wrong(r, entry->line, entry->column, "no value, or a long one", "one scalar");
        if (policy_append(r, common, kind, entry->key, value) < 0)
            return -1;
    }
    return 0;
}

static int read_names(struct reader *r, const struct tree_node *node, const struct policy_entry *common)
{
    if (node->kind != TREE_LIST)
        return wrong(r, node->line, node->column, "no list", "[NAME, ...]");
    for (size_t i = 0; i < node->count; i++) {
        const char *name = tree_text(node->items[i]);
        if (!name || !is_variable(name))
            return wrong(r, node->items[i]->line, node->items[i]->column, "no name",
                         "a variable's name in capitals");
        if (policy_append(r, common, POLICY_FORBID, name, NULL) < 0)
            return -1;
    }
    return 0;
}

static int read_rule(struct reader *r, const struct tree_node *rule)
{
    static const char *const keys[] = {"add", "pin", "forbid", "when", "reason"};
    struct policy_entry common = {.reason = "", .line = rule->line};
    const struct tree_node *when = tree_get(rule, "when"), *reason = tree_get(rule, "reason");
    if (rule->kind != TREE_MAP)
        return wrong(r, rule->line, rule->column, "a rule is no map",
                     "add, pin or forbid with when and reason");
    for (size_t i = 0; i < rule->count; i++) {
        if (!policy_has_word(rule->entries[i].key, keys, sizeof keys / sizeof *keys))
            return unknown_key(r, &rule->entries[i], keys, sizeof keys / sizeof *keys);
    }
    if (when && read_when(r, when, &common) < 0)
        return -1;
    if (reason && !(common.reason = tree_text(reason)))
        return wrong(r, reason->line, reason->column, "the reason is no text", "text");
    const struct tree_node *add = tree_get(rule, "add"), *pin = tree_get(rule, "pin"),
                           *forbid = tree_get(rule, "forbid");
    if (!add && !pin && !forbid)
        return wrong(r, rule->line, rule->column, "a rule without effect", "add, pin or forbid");
    if (add && read_variables(r, add, POLICY_ADD, &common) < 0)
        return -1;
    if (pin && read_variables(r, pin, POLICY_PIN, &common) < 0)
        return -1;
    return forbid ? read_names(r, forbid, &common) : 0;
}

static int read_policy(struct reader *r, const struct tree *tree)
{
    static const char *const keys[] = {"version", "rules"};
    if (tree->document_count == 0)
        return 0; /* an empty file has no rules */
    const struct tree_node *root = tree->documents[0];
    if (tree->document_count > 1 || root->kind != TREE_MAP)
        return wrong(r, root->line, root->column, "no policy", "one map with version and rules");
    for (size_t i = 0; i < root->count; i++)
        if (strcmp(root->entries[i].key, "version") && strcmp(root->entries[i].key, "rules"))
            return unknown_key(r, &root->entries[i], keys, 2);
    const struct tree_node *version = tree_get(root, "version"), *rules = tree_get(root, "rules");
    if (!version || version->kind != TREE_INT || version->integer != 1)
        return wrong(r, version ? version->line : root->line, version ? version->column : root->column,
                     "no version that is known", "version: 1");
    if (rules && rules->kind != TREE_LIST)
        return wrong(r, rules->line, rules->column, "rules are no list", "a list");
    for (size_t i = 0; rules && i < rules->count; i++)
        if (read_rule(r, rules->items[i]) < 0)
            return -1;
    return 0;
}

int policy_parse(const char *name, const char *text, size_t length, struct policy *out,
                 struct muster_error *err)
{
    struct reader reader = {.policy = out, .err = err};
    *out = (struct policy){.file = mem_strdup(name)};
    struct tree *tree = mem_calloc(1, sizeof *tree);
    reader.name = out->file;
    if (!out->file || !tree) {
        mem_free(tree);
        policy_free(out);
        return error_set(err, MUSTER_E_NOMEM, "no memory for %s", name);
    }
    if (tree_parse(name, text, length, tree, err) < 0) {
        mem_free(tree);
        policy_free(out);
        return -1;
    }
    out->tree = tree;
    if (read_policy(&reader, tree) < 0) {
        policy_free(out);
        return -1;
    }
    return 0;
}

void policy_free(struct policy *policy)
{
    if (!policy)
        return;
    if (policy->tree)
        tree_free(policy->tree);
    mem_free(policy->tree);
    mem_free(policy->entries);
    mem_free(policy->file);
    *policy = (struct policy){0};
}
