/* tree_yaml.c - YAML by libyaml's events: a stack of open collections, so that depth is known before libyaml
 * sees it. See tree.h. */
#include "proto/tree/tree_internal.h"

#include <stdio.h>
#include <string.h>

#include <yaml.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"

struct anchor {
    const char *name;
    const struct tree_node *node;
    size_t weight; /* nodes of it, aliases written out; 0 while it is still open */
};

/* An open list or map. Its nodes are gathered here and moved into the tree at its end. */
struct frame {
    struct tree_node *node;
    struct tree_entry *entries; /* a list has only the values */
    size_t count, capacity;
    const struct tree_node **merges; /* maps whose entries a merge key brings in */
    size_t merge_count;
    const char *key; /* the key whose value comes next */
    int key_line, key_column;
    bool merge_next;
    size_t before; /* r->nodes at its start */
    int anchor;    /* index, -1 for none */
};

struct reader {
    const char *name;
    yaml_parser_t parser;
    struct tree *tree;
    size_t nodes; /* aliases counted in full */
    struct anchor anchors[TREE_ANCHORS_LIMIT];
    int anchor_count;
    struct frame frames[TREE_DEPTH_LIMIT];
    int depth;
    struct muster_error *err;
};

static void guard_event(yaml_event_t *event)
{
    yaml_event_delete(event);
}

static void free_reader(struct reader **at)
{
    struct reader *r = *at;
    if (!r)
        return;
    for (int i = 0; i < TREE_DEPTH_LIMIT; i++) {
        mem_free(r->frames[i].entries);
        mem_free(r->frames[i].merges);
    }
    yaml_parser_delete(&r->parser);
    mem_free(r);
}

static struct tree_arena **arena_of(struct reader *r)
{
    return (struct tree_arena **)&r->tree->arena;
}

static int yaml_no_memory(struct reader *r)
{
    return error_set(r->err, MUSTER_E_NOMEM, "%s: no memory", r->name);
}

static int line_of(const yaml_event_t *event)
{
    return (int)event->start_mark.line + 1;
}

static int column_of(const yaml_event_t *event)
{
    return (int)event->start_mark.column + 1;
}

/* An error at an event, or at a line and column, of the file; -1. */
#define FAIL_AT(r, line, column, code, ...)                                                                  \
    (error_set((r)->err, code, __VA_ARGS__), error_wrap((r)->err, "%s:%d:%d", (r)->name, line, column))
#define FAIL(r, event, code, ...) FAIL_AT(r, line_of(event), column_of(event), code, __VA_ARGS__)

static int count_nodes(struct reader *r, const yaml_event_t *event, size_t more)
{
    if (more > TREE_NODES_LIMIT - r->nodes)
        return FAIL(r, event, MUSTER_E_LIMIT, "the file holds more than %d values (aliases counted in full)",
                    TREE_NODES_LIMIT);
    r->nodes += more;
    return 0;
}

static struct tree_node *new_node(struct reader *r, const yaml_event_t *event, enum tree_kind kind)
{
    if (count_nodes(r, event, 1) < 0)
        return NULL;
    struct tree_node *node = tree_allocate(arena_of(r), 1, sizeof *node);
    if (!node) {
        (void)yaml_no_memory(r);
        return NULL;
    }
    node->kind = kind;
    node->line = line_of(event);
    node->column = column_of(event);
    return node;
}

/* --- anchors --- */

/* Remembers an anchor (NULL: none) and gives its index in *index. */
static int add_anchor(struct reader *r, const yaml_event_t *event, const yaml_char_t *name,
                      const struct tree_node *node, size_t weight, int *index)
{
    *index = -1;
    if (!name)
        return 0;
    if (r->anchor_count == TREE_ANCHORS_LIMIT)
        return FAIL(r, event, MUSTER_E_LIMIT, "there are more than %d anchors in one document",
                    TREE_ANCHORS_LIMIT);
    char *copy = tree_copy(arena_of(r), (const char *)name, strlen((const char *)name));
    if (!copy)
        return yaml_no_memory(r);
    r->anchors[r->anchor_count] = (struct anchor){copy, node, weight};
    *index = r->anchor_count++;
    return 0;
}

/* The latest anchor of a name: YAML lets a later one replace it. */
static const struct tree_node *find_anchor(struct reader *r, const yaml_event_t *event)
{
    const char *name = (const char *)event->data.alias.anchor;
    for (int i = r->anchor_count - 1; i >= 0; i--) {
        const struct anchor *anchor = &r->anchors[i];
        if (strcmp(anchor->name, name))
            continue;
        if (!anchor->weight)
            (void)FAIL(r, event, MUSTER_E_INVALID, "alias *%.100s is inside of its own anchor", name);
        else if (!count_nodes(r, event, anchor->weight))
            return anchor->node;
        return NULL;
    }
    (void)FAIL(r, event, MUSTER_E_INVALID, "alias *%.100s has no anchor before it", name);
    return NULL;
}

/* --- values into the collection that is open --- */

static int grow(struct reader *r, struct frame *frame)
{
    if (frame->count < frame->capacity)
        return 0;
    size_t capacity = frame->capacity ? 2 * frame->capacity : 8;
    struct tree_entry *longer = mem_realloc(frame->entries, capacity, sizeof *longer);
    if (!longer)
        return yaml_no_memory(r);
    frame->entries = longer;
    frame->capacity = capacity;
    return 0;
}

static int put_entry(struct reader *r, struct frame *frame, struct tree_entry entry)
{
    if (grow(r, frame) < 0)
        return -1;
    frame->entries[frame->count++] = entry;
    return 0;
}

static int put_key(struct reader *r, struct frame *frame, const yaml_event_t *event,
                   const struct tree_node *node)
{
    if (node->kind == TREE_LIST || node->kind == TREE_MAP || node->kind == TREE_NULL)
        return FAIL(r, event, MUSTER_E_INVALID, "%s cannot be a key", tree_kind_name(node->kind));
    frame->merge_next = event->type == YAML_SCALAR_EVENT && event->data.scalar.plain_implicit &&
                        event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE && !strcmp(node->text, "<<");
    frame->key = node->text;
    frame->key_line = line_of(event);
    frame->key_column = column_of(event);
    char number[24];
    if (node->kind == TREE_BOOL) {
        frame->key = node->boolean ? "true" : "false";
    } else if (node->kind == TREE_INT) {
        (void)snprintf(number, sizeof number, "%lld", (long long)node->integer);
        frame->key = tree_copy(arena_of(r), number, strlen(number));
    }
    return frame->key ? 0 : yaml_no_memory(r);
}

static int put_merge(struct reader *r, struct frame *frame, const struct tree_node *map)
{
    if (map->kind != TREE_MAP)
        return FAIL_AT(r, frame->key_line, frame->key_column, MUSTER_E_INVALID,
                       "<< takes a mapping or a list of mappings, not %s", tree_kind_name(map->kind));
    const struct tree_node **longer = mem_realloc(frame->merges, frame->merge_count + 1, sizeof *longer);
    if (!longer)
        return yaml_no_memory(r);
    frame->merges = longer;
    frame->merges[frame->merge_count++] = map;
    return 0;
}

static int put_merges(struct reader *r, struct frame *frame, const struct tree_node *value)
{
    if (value->kind != TREE_LIST)
        return put_merge(r, frame, value);
    for (size_t i = 0; i < value->count; i++)
        if (put_merge(r, frame, value->items[i]) < 0)
            return -1;
    return 0;
}

/* A finished value goes into its container: the document, a list, or a map as key or value. */
static int put_value(struct reader *r, const yaml_event_t *event, const struct tree_node *node)
{
    if (r->depth == 0)
        return tree_add_document(r->tree, node, r->err);
    struct frame *frame = &r->frames[r->depth - 1];
    if (frame->node->kind == TREE_LIST)
        return put_entry(r, frame, (struct tree_entry){.value = node});
    if (!frame->key)
        return put_key(r, frame, event, node);
    struct tree_entry entry = {frame->key, frame->key_line, frame->key_column, node};
    frame->key = NULL;
    return frame->merge_next ? put_merges(r, frame, node) : put_entry(r, frame, entry);
}

/* --- collections --- */

static int open_collection(struct reader *r, const yaml_event_t *event, enum tree_kind kind,
                           const yaml_char_t *anchor, const yaml_char_t *tag)
{
    if (r->depth == TREE_DEPTH_LIMIT)
        return FAIL(r, event, MUSTER_E_LIMIT, "nested more than %d deep", TREE_DEPTH_LIMIT);
    if (r->depth && r->frames[r->depth - 1].node->kind == TREE_MAP && !r->frames[r->depth - 1].key)
        return FAIL(r, event, MUSTER_E_INVALID, "%s cannot be a key", tree_kind_name(kind));
    struct frame *frame = &r->frames[r->depth];
    frame->before = r->nodes;
    frame->node = new_node(r, event, kind);
    frame->count = frame->merge_count = 0;
    frame->key = NULL;
    if (!frame->node || add_anchor(r, event, anchor, frame->node, 0, &frame->anchor) < 0)
        return -1;
    frame->node->tagged = tree_tag_is_foreign((const char *)tag);
    r->depth++;
    return 0;
}

static int close_list(struct reader *r, struct frame *frame)
{
    const struct tree_node **items = tree_allocate(arena_of(r), frame->count, sizeof *items);
    if (!items)
        return yaml_no_memory(r);
    for (size_t i = 0; i < frame->count; i++)
        items[i] = frame->entries[i].value;
    frame->node->items = items;
    return 0;
}

static int close_map(struct reader *r, struct frame *frame, const yaml_event_t *event)
{
    size_t own = frame->count;
    for (size_t i = 0; i < frame->merge_count; i++) {
        if (count_nodes(r, event, frame->merges[i]->count) < 0)
            return -1;
        for (size_t n = 0; n < frame->merges[i]->count; n++)
            if (put_entry(r, frame, frame->merges[i]->entries[n]) < 0)
                return -1;
    }
    if (tree_settle_entries(r->name, frame->entries, &frame->count, own, r->tree->twice, r->err) < 0)
        return -1;
    struct tree_entry *entries = tree_allocate(arena_of(r), frame->count, sizeof *entries);
    if (!entries)
        return yaml_no_memory(r);
    if (frame->count)
        memcpy(entries, frame->entries, frame->count * sizeof *entries);
    frame->node->entries = entries;
    return 0;
}

static int close_collection(struct reader *r, const yaml_event_t *event)
{
    struct frame *frame = &r->frames[r->depth - 1];
    if ((frame->node->kind == TREE_LIST ? close_list(r, frame) : close_map(r, frame, event)) < 0)
        return -1;
    frame->node->count = frame->count;
    if (frame->anchor >= 0)
        r->anchors[frame->anchor].weight = r->nodes - frame->before;
    r->depth--;
    return put_value(r, event, frame->node);
}

static int take_scalar(struct reader *r, const yaml_event_t *event)
{
    const char *text = (const char *)event->data.scalar.value;
    size_t length = event->data.scalar.length;
    int anchor;
    struct tree_node *node = new_node(r, event, TREE_TEXT);
    if (!node)
        return -1;
    if (memchr(text, 0, length))
        return FAIL(r, event, MUSTER_E_INVALID, "a value contains a NUL byte");
    node->text = tree_copy(arena_of(r), text, length);
    if (!node->text)
        return yaml_no_memory(r);
    bool plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (!tree_resolve(node, plain, (const char *)event->data.scalar.tag))
        return FAIL(r, event, MUSTER_E_INVALID, "'%.100s' does not fit its tag", node->text);
    return add_anchor(r, event, event->data.scalar.anchor, node, 1, &anchor) < 0 ? -1
                                                                                 : put_value(r, event, node);
}

/* Returns 1 at the end of the stream, 0 to go on, -1 on error. */
static int take_event(struct reader *r, const yaml_event_t *event)
{
    const struct tree_node *node;
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        return take_scalar(r, event);
    case YAML_ALIAS_EVENT:
        node = find_anchor(r, event);
        return node ? put_value(r, event, node) : -1;
    case YAML_SEQUENCE_START_EVENT:
        return open_collection(r, event, TREE_LIST, event->data.sequence_start.anchor,
                               event->data.sequence_start.tag);
    case YAML_MAPPING_START_EVENT:
        return open_collection(r, event, TREE_MAP, event->data.mapping_start.anchor,
                               event->data.mapping_start.tag);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        return close_collection(r, event);
    case YAML_DOCUMENT_START_EVENT:
        r->anchor_count = 0;
        return 0;
    case YAML_STREAM_END_EVENT:
        return 1;
    default:
        return 0;
    }
}

/* libyaml does not say that the character which it cannot take is a tab. */
static bool is_tab(const char *text, size_t length, const yaml_mark_t *mark)
{
    const char *line = text, *end = text + length;
    for (size_t i = 0; i < mark->line && line; i++) {
        line = memchr(line, '\n', (size_t)(end - line));
        line = line ? line + 1 : NULL;
    }
    if (!line || (size_t)(end - line) <= mark->column)
        return false;
    for (size_t i = 0; i < mark->column;
         i++) /* columns count characters: exact where all before are blanks */
        if (line[i] != ' ')
            return false;
    return line[mark->column] == '\t';
}

static int syntax_error(struct reader *r, const char *text, size_t length, struct tree_stop *stop)
{
    const yaml_parser_t *parser = &r->parser;
    if (parser->error == YAML_MEMORY_ERROR)
        return yaml_no_memory(r);
    stop->line = (int)parser->problem_mark.line + 1;
    stop->column = (int)parser->problem_mark.column + 1;
    if (is_tab(text, length, &parser->problem_mark))
        return FAIL_AT(r, stop->line, stop->column, MUSTER_E_INVALID,
                       "not valid YAML: a line is indented by a tab; YAML takes blanks alone");
    return FAIL_AT(r, stop->line, stop->column, MUSTER_E_INVALID, "not valid YAML: %s%s%s",
                   parser->problem ? parser->problem : "unknown problem", parser->context ? " " : "",
                   parser->context ? parser->context : "");
}

int tree_parse_yaml(const char *name, const char *text, size_t length, struct tree *tree,
                    struct tree_stop *stop, struct muster_error *err)
{
    GUARD(free_reader) struct reader *r = mem_calloc(1, sizeof *r);
    if (!r || !yaml_parser_initialize(&r->parser))
        return error_set(err, MUSTER_E_NOMEM, "%s: no memory", name);
    r->name = name;
    r->tree = tree;
    r->err = err;
    yaml_parser_set_input_string(&r->parser, (const unsigned char *)text, length);
    for (;;) {
        GUARD(guard_event) yaml_event_t event = {0};
        if (!yaml_parser_parse(&r->parser, &event))
            return syntax_error(r, text, length, stop);
        int result = take_event(r, &event);
        if (result)
            return result < 0 ? -1 : 0;
    }
}
