/* tree_json.c - JSON by jansson, for input that libyaml rejects: escapes of characters beyond 16 bits (an
 * emoji as Python writes it), and several documents in a file. */
#include "proto/tree/tree_internal.h"

#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"

/* jansson keeps no positions: a second walk over the text, which is known to be JSON by then, in the order in
 * which the values are converted. */
struct cursor {
    const char *at, *end;
    int line, column;
};

struct reader {
    const char *name;
    struct tree *tree;
    size_t nodes;
    struct cursor cursor;
    struct muster_error *err;
};

static void advance(struct cursor *c)
{
    if (c->at == c->end)
        return;
    const bool ends = *c->at == '\n';
    c->column += (*c->at++ & 0xc0) != 0x80; /* characters, as libyaml counts them */
    if (ends) {
        c->line++;
        c->column = 1;
    }
}

/* To the next value or key: over blanks, and the punctuation between values. */
static void seek_value(struct cursor *c)
{
    while (c->at < c->end && memchr(" \t\r\n,:]}", *c->at, 8))
        advance(c);
}

/* Over a key or a scalar, or the bracket that begins a list or a mapping. */
static void pass_value(struct cursor *c)
{
    const bool quoted = c->at < c->end && *c->at == '"';
    if (c->at < c->end && !quoted && !memchr("[{", *c->at, 2)) {
        while (c->at < c->end && !memchr(" \t\r\n,:]}", *c->at, 8))
            advance(c);
        return;
    }
    advance(c);
    while (quoted && c->at < c->end && *c->at != '"') {
        if (*c->at == '\\')
            advance(c);
        advance(c);
    }
    if (quoted)
        advance(c);
}

static void guard_json(json_t **value)
{
    json_decref(*value);
}

static struct tree_arena **arena_of(struct reader *r)
{
    return (struct tree_arena **)&r->tree->arena;
}

static int json_no_memory(struct reader *r)
{
    return error_set(r->err, MUSTER_E_NOMEM, "%s: no memory", r->name);
}

static struct tree_node *convert(struct reader *r, const json_t *value, int depth);

static int convert_list(struct reader *r, const json_t *value, int depth, struct tree_node *node)
{
    const struct tree_node **items = tree_allocate(arena_of(r), json_array_size(value), sizeof *items);
    if (!items)
        return json_no_memory(r);
    node->kind = TREE_LIST;
    node->count = json_array_size(value);
    node->items = items;
    for (size_t i = 0; i < node->count; i++)
        if (!(items[i] = convert(r, json_array_get(value, i), depth + 1)))
            return -1;
    return 0;
}

static int convert_map(struct reader *r, json_t *value, int depth, struct tree_node *node)
{
    struct tree_entry *entries = tree_allocate(arena_of(r), json_object_size(value), sizeof *entries);
    const char *key;
    json_t *item;
    if (!entries)
        return json_no_memory(r);
    node->kind = TREE_MAP;
    node->entries = entries;
    json_object_foreach(value, key, item)
    {
        seek_value(&r->cursor);
        entries[node->count].line = r->cursor.line;
        entries[node->count].column = r->cursor.column;
        pass_value(&r->cursor);
        entries[node->count].key = tree_copy(arena_of(r), key, strlen(key));
        entries[node->count].value = convert(r, item, depth + 1);
        if (!entries[node->count].value)
            return -1;
        if (!entries[node->count].key)
            return json_no_memory(r);
        node->count++;
    }
    return 0;
}

static int convert_scalar(struct reader *r, const json_t *value, struct tree_node *node)
{
    char number[64] = "";
    const char *text = number;
    size_t length;
    switch (json_typeof(value)) {
    case JSON_STRING:
        node->kind = TREE_TEXT;
        text = json_string_value(value);
        break;
    case JSON_INTEGER:
        node->kind = TREE_INT;
        node->integer = json_integer_value(value);
        (void)snprintf(number, sizeof number, "%lld", (long long)node->integer);
        break;
    case JSON_REAL:
        node->kind = TREE_FLOAT;
        node->real = json_real_value(value);
        (void)snprintf(number, sizeof number, "%.17g", node->real);
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        node->kind = TREE_BOOL;
        node->boolean = json_is_true(value);
        text = node->boolean ? "true" : "false";
        break;
    default:
        node->kind = TREE_NULL;
        text = "null";
    }
    length = json_is_string(value) ? json_string_length(value) : strlen(text);
    node->text = tree_copy(arena_of(r), text, length);
    return node->text ? 0 : json_no_memory(r);
}

static struct tree_node *convert(struct reader *r, const json_t *value, int depth)
{
    if (++r->nodes > TREE_NODES_LIMIT || depth > TREE_DEPTH_LIMIT) {
        (void)error_set(r->err, MUSTER_E_LIMIT, "%s has more than %d values or is nested more than %d deep",
                        r->name, TREE_NODES_LIMIT, TREE_DEPTH_LIMIT);
        return NULL;
    }
    struct tree_node *node = tree_allocate(arena_of(r), 1, sizeof *node);
    if (!node) {
        (void)json_no_memory(r);
        return NULL;
    }
    seek_value(&r->cursor);
    node->line = r->cursor.line;
    node->column = r->cursor.column;
    pass_value(&r->cursor);
    int result = json_is_array(value)    ? convert_list(r, value, depth, node)
                 : json_is_object(value) ? convert_map(r, (json_t *)value, depth, node)
                                         : convert_scalar(r, value, node);
    return result < 0 ? NULL : node;
}

int tree_parse_json(const char *name, const char *text, size_t length, struct tree *tree,
                    struct tree_stop *stop, struct muster_error *err)
{
    struct reader r = {.name = name, .tree = tree, .cursor = {text, text, 1, 1}, .err = err};
    for (size_t at = 0;;) {
        json_error_t problem;
        while (at < length && memchr(" \t\r\n", text[at], 4))
            at++;
        if (at == length)
            return 0;
        GUARD(guard_json)
        json_t *value =
            json_loadb(text + at, length - at, JSON_REJECT_DUPLICATES | JSON_DISABLE_EOF_CHECK, &problem);
        if (!value) {
            stop->line = problem.line;
            stop->column = problem.column;
            for (size_t i = 0; i < at; i++)
                stop->line += text[i] == '\n';
            return error_set(err, MUSTER_E_INVALID, "%s:%d:%d: not valid JSON: %s", name, stop->line,
                             stop->column, problem.text);
        }
        r.cursor.end = text + at + (size_t)problem.position;
        const struct tree_node *root = convert(&r, value, 1);
        if (!root || tree_add_document(tree, root, err) < 0)
            return -1;
        at += (size_t)problem.position;
    }
}
