/* tree.c - memory, look-ups and the choice of reader; see tree.h. */
#include "proto/tree/tree.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/tree/tree_internal.h"

/* --- memory: blocks that are freed together --- */

enum { BLOCK_SIZE = 32 << 10 };

struct tree_arena {
    struct tree_arena *next;
    size_t used, size;
    _Alignas(max_align_t) char data[];
};

void *tree_allocate(struct tree_arena **arena, size_t count, size_t size)
{
    if (count > SIZE_MAX / 2 / (size ? size : 1))
        return NULL;
    size_t bytes = (count * size + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
    if (!*arena || (*arena)->size - (*arena)->used < bytes) {
        size_t room = bytes > BLOCK_SIZE ? bytes : BLOCK_SIZE;
        struct tree_arena *block = mem_calloc(1, sizeof *block + room);
        if (!block)
            return NULL;
        block->size = room;
        block->next = *arena;
        *arena = block;
    }
    void *memory = (*arena)->data + (*arena)->used;
    (*arena)->used += bytes;
    return memory;
}

char *tree_copy(struct tree_arena **arena, const char *text, size_t length)
{
    char *copy = tree_allocate(arena, length + 1, 1);
    if (copy && length)
        memcpy(copy, text, length);
    return copy;
}

void tree_arena_free(struct tree_arena *arena)
{
    while (arena) {
        struct tree_arena *next = arena->next;
        mem_free(arena);
        arena = next;
    }
}

void tree_free(struct tree *tree)
{
    if (!tree)
        return;
    tree_arena_free(tree->arena);
    mem_free(tree->documents);
    *tree = (struct tree){0};
}

int tree_add_document(struct tree *tree, const struct tree_node *root, struct muster_error *err)
{
    if (root->kind == TREE_NULL)
        return 0;
    void *longer = mem_realloc(tree->documents, tree->document_count + 1, sizeof(struct tree_node *));
    if (!longer)
        return error_set(err, MUSTER_E_NOMEM, "no memory");
    tree->documents = longer;
    tree->documents[tree->document_count++] = root;
    return 0;
}

/* --- maps --- */

struct ranked {
    const char *key;
    size_t at;
};

static int by_key_and_place(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    int order = strcmp(x->key, y->key);
    return order ? order : (x->at > y->at) - (x->at < y->at);
}

int tree_settle_entries(const char *name, struct tree_entry *entries, size_t *count, size_t merged,
                        struct buffer *twice, struct muster_error *err)
{
    scope_free struct ranked *ranked = mem_calloc(*count + 1, sizeof *ranked);
    if (!ranked)
        return error_set(err, MUSTER_E_NOMEM, "%s: no memory", name);
    for (size_t i = 0; i < *count; i++)
        ranked[i] = (struct ranked){entries[i].key, i};
    qsort(ranked, *count, sizeof *ranked, by_key_and_place);
    for (size_t i = 1; i < *count; i++) {
        struct tree_entry *entry = &entries[ranked[i].at];
        if (strcmp(ranked[i].key, ranked[i - 1].key))
            continue;
        if (ranked[i].at < merged && twice) {
            buffer_printf(twice, "%s:%d: key '%.100s' appears twice; the last value counts\n", name,
                          entry->line, entry->key);
            entries[ranked[i - 1].at].value = NULL;
            continue;
        }
        if (ranked[i].at < merged)
            return error_set(err, MUSTER_E_INVALID, "%s:%d:%d: key '%.100s' appears twice", name, entry->line,
                             entry->column, entry->key);
        entry->value = NULL;
    }
    size_t kept = 0;
    for (size_t i = 0; i < *count; i++)
        if (entries[i].value)
            entries[kept++] = entries[i];
    *count = kept;
    return 0;
}

const struct tree_entry *tree_entry(const struct tree_node *node, const char *key)
{
    if (!node || node->kind != TREE_MAP)
        return NULL;
    for (size_t i = 0; i < node->count; i++)
        if (!strcmp(node->entries[i].key, key))
            return &node->entries[i];
    return NULL;
}

const struct tree_node *tree_get(const struct tree_node *node, const char *key)
{
    const struct tree_entry *entry = tree_entry(node, key);
    return entry && entry->value->kind != TREE_NULL ? entry->value : NULL;
}

const char *tree_text(const struct tree_node *node)
{
    return node && node->kind == TREE_TEXT ? node->text : NULL;
}

const char *tree_kind_name(enum tree_kind kind)
{
    static const char *const names[] = {"null", "a boolean", "an integer", "a number",
                                        "text", "a list",    "a mapping"};
    return (unsigned)kind < sizeof names / sizeof *names ? names[kind] : "unknown";
}

/* --- reading --- */

static bool looks_like_json(const char *text, size_t length)
{
    size_t at = 0;
    while (at < length && strchr(" \t\r\n", text[at]) && text[at])
        at++;
    return at < length && (text[at] == '{' || text[at] == '[');
}

int tree_parse_last(const char *name, const char *text, size_t length, struct tree *out, struct buffer *twice,
                    struct muster_error *err)
{
    struct tree_stop yaml = {0}, json = {0};
    struct muster_error json_err = {0};
    *out = (struct tree){.twice = twice};
    if (length > TREE_BYTES_LIMIT)
        return error_set(err, MUSTER_E_LIMIT, "%s is larger than %d bytes", name, TREE_BYTES_LIMIT);
    int result = tree_parse_yaml(name, text, length, out, &yaml, err);
    /* JSON is YAML but for a few escapes and documents that follow each other; where it is YAML the YAML
     * reader goes first because it knows lines and columns */
    if (result < 0 && yaml.line && looks_like_json(text, length)) {
        tree_free(out);
        result = tree_parse_json(name, text, length, out, &json, &json_err);
        /* the reader that got further has the better error */
        bool further = json.line > yaml.line || (json.line == yaml.line && json.column > yaml.column);
        if (err && (result == 0 || !json.line || further))
            *err = json_err;
    }
    out->twice = NULL;
    if (result == 0 && twice && twice->failed)
        result = error_set(err, MUSTER_E_NOMEM, "%s: no memory", name);
    if (result < 0)
        tree_free(out);
    return result;
}

int tree_parse(const char *name, const char *text, size_t length, struct tree *out, struct muster_error *err)
{
    return tree_parse_last(name, text, length, out, NULL, err);
}

/* --- writing --- */

int tree_write_json(const struct tree_node *node, struct buffer *out)
{
    const bool map = node->kind == TREE_MAP;
    if (node->kind == TREE_TEXT || node->kind == TREE_BOOL)
        return buffer_json_string(out, node->text);
    if (!map && node->kind != TREE_LIST)
        return buffer_text(out, node->kind == TREE_NULL ? "null" : node->text);
    (void)buffer_text(out, map ? "{" : "[");
    for (size_t i = 0; i < node->count; i++) {
        (void)buffer_text(out, i ? ", " : "");
        if (map) {
            (void)buffer_json_string(out, node->entries[i].key);
            (void)buffer_text(out, ": ");
        }
        if (tree_write_json(map ? node->entries[i].value : node->items[i], out) < 0)
            return -1;
    }
    return buffer_text(out, map ? "}" : "]");
}
