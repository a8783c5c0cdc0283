/* description_json.c - see description_json.h; description_table.c has the fields. */
#include "runtime/nccl/files/description_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "proto/base/text.h"
#include "proto/tree/tree.h"
#include "runtime/nccl/describe/description_table.h"

/* --- writing --- */

static bool is_unknown(const struct description_field *field, const void *record)
{
    const void *at = (const char *)record + field->offset;
    switch (field->type) {
    case DESCRIPTION_FIELD_TEXT:
        return *(const char *)at == 0;
    case DESCRIPTION_FIELD_INT:
    case DESCRIPTION_FIELD_NAME:
        return *(const int *)at == field->unknown;
    case DESCRIPTION_FIELD_INT64:
        return *(const int64_t *)at == field->unknown;
    case DESCRIPTION_FIELD_UINT64:
        return *(const uint64_t *)at == 0;
    case DESCRIPTION_FIELD_DOUBLE:
        return *(const double *)at == 0;
    case DESCRIPTION_FIELD_BOOL:
        return !*(const bool *)at;
    case DESCRIPTION_FIELD_FLAG:
        return *(const enum description_flag *)at == DESCRIPTION_UNKNOWN;
    default: /* LIST */
        return *(const int *)((const char *)record + field->count_offset) == 0;
    }
}

static void write_record(const struct description_table *table, const void *record, int depth,
                         struct buffer *out);

static void write_list(const struct description_field *field, const void *record, int depth,
                       struct buffer *out)
{
    const char *items = *(char *const *)((const char *)record + field->offset);
    int count = *(const int *)((const char *)record + field->count_offset);
    buffer_text(out, "[");
    for (int i = 0; i < count; i++) {
        buffer_printf(out, "%s\n%*s", i ? "," : "", 2 * (depth + 1), "");
        write_record(field->table, items + (size_t)i * field->table->size, depth + 1, out);
    }
    buffer_printf(out, "\n%*s]", 2 * depth, "");
}

static void write_value(const struct description_field *field, const void *record, int depth,
                        struct buffer *out)
{
    const void *at = (const char *)record + field->offset;
    switch (field->type) {
    case DESCRIPTION_FIELD_TEXT:
        buffer_json_string(out, at);
        break;
    case DESCRIPTION_FIELD_NAME:
        buffer_json_string(out, field->names[*(const int *)at]);
        break;
    case DESCRIPTION_FIELD_INT:
        buffer_printf(out, "%d", *(const int *)at);
        break;
    case DESCRIPTION_FIELD_INT64:
        buffer_printf(out, "%" PRId64, *(const int64_t *)at);
        break;
    case DESCRIPTION_FIELD_UINT64:
        buffer_printf(out, "%" PRIu64, *(const uint64_t *)at);
        break;
    case DESCRIPTION_FIELD_DOUBLE:
        buffer_printf(out, "%.17g", *(const double *)at);
        break;
    case DESCRIPTION_FIELD_BOOL:
        buffer_text(out, *(const bool *)at ? "true" : "false");
        break;
    case DESCRIPTION_FIELD_FLAG:
        buffer_text(out, *(const enum description_flag *)at == DESCRIPTION_YES ? "true" : "false");
        break;
    default:
        write_list(field, record, depth, out);
        break;
    }
}

static void write_record(const struct description_table *table, const void *record, int depth,
                         struct buffer *out)
{
    bool first = true;
    buffer_text(out, "{");
    for (size_t i = 0; i < table->count; i++) {
        const struct description_field *field = &table->fields[i];
        if (is_unknown(field, record))
            continue;
        buffer_printf(out, "%s\n%*s\"%s\": ", first ? "" : ",", 2 * (depth + 1), "", field->name);
        write_value(field, record, depth + 1, out);
        first = false;
    }
    buffer_printf(out, "\n%*s}", 2 * depth, "");
}

int description_write(const struct description *description, struct buffer *out)
{
    write_record(description_table(), description, 0, out);
    return buffer_text(out, "\n");
}

/* --- reading --- */

struct reader {
    const char *name;
    struct muster_error *err;
};

static int read_record(struct reader *reader, const struct description_table *table,
                       const struct tree_node *node, void *record);

static int wrong(struct reader *reader, const struct tree_node *node, const char *key, const char *wanted)
{
    return error_set(reader->err, MUSTER_E_INVALID, "%s:%d:%d: %s is %s, expected %s", reader->name,
                     node->line, node->column, key, tree_kind_name(node->kind), wanted);
}

static int json_read_text(struct reader *reader, const struct description_field *field,
                          const struct tree_node *node, char *at)
{
    if (node->kind != TREE_TEXT)
        return wrong(reader, node, field->name, "text");
    if (strlen(node->text) >= field->size)
        return error_set(reader->err, MUSTER_E_LIMIT, "%s:%d:%d: %s has %zu bytes; at most %zu fit",
                         reader->name, node->line, node->column, field->name, strlen(node->text),
                         field->size - 1);
    (void)snprintf(at, field->size, "%s", node->text);
    return 0;
}

static int read_number(struct reader *reader, const struct description_field *field,
                       const struct tree_node *node, void *at)
{
    if (node->kind != TREE_INT)
        return wrong(reader, node, field->name, "a whole number");
    if (field->type == DESCRIPTION_FIELD_INT64) {
        *(int64_t *)at = node->integer;
        return 0;
    }
    bool wide = field->type == DESCRIPTION_FIELD_UINT64;
    if (wide ? node->integer < 0 : node->integer != (int)node->integer)
        return error_set(reader->err, MUSTER_E_LIMIT, "%s:%d:%d: %s is %" PRId64 ", which does not fit",
                         reader->name, node->line, node->column, field->name, node->integer);
    if (wide)
        *(uint64_t *)at = (uint64_t)node->integer;
    else
        *(int *)at = (int)node->integer;
    return 0;
}

static int read_name(struct reader *reader, const struct description_field *field,
                     const struct tree_node *node, int *at)
{
    const char *text = tree_text(node);
    for (int i = 0; text && field->names[i]; i++)
        if (!strcmp(field->names[i], text)) {
            *at = i;
            return 0;
        }
    return wrong(reader, node, field->name, "one of its names");
}

static int read_list(struct reader *reader, const struct description_field *field,
                     const struct tree_node *node, void *record)
{
    if (node->kind != TREE_LIST)
        return wrong(reader, node, field->name, "a list");
    if (node->count > DESCRIPTION_LIST_LIMIT)
        return error_set(reader->err, MUSTER_E_LIMIT, "%s:%d:%d: %s has %zu entries; at most %d are read",
                         reader->name, node->line, node->column, field->name, node->count,
                         DESCRIPTION_LIST_LIMIT);
    char *items = mem_calloc(node->count ? node->count : 1, field->table->size);
    if (!items)
        return error_set(reader->err, MUSTER_E_NOMEM, "no memory");
    *(char **)((char *)record + field->offset) =
        items; /* owned by the description from here on, even if an item is wrong */
    for (size_t i = 0; i < node->count; i++) {
        *(int *)((char *)record + field->count_offset) = (int)i + 1;
        if (read_record(reader, field->table, node->items[i], items + i * field->table->size) < 0)
            return -1;
    }
    return 0;
}

static int read_value(struct reader *reader, const struct description_field *field,
                      const struct tree_node *node, void *record)
{
    void *at = (char *)record + field->offset;
    switch (field->type) {
    case DESCRIPTION_FIELD_TEXT:
        return json_read_text(reader, field, node, at);
    case DESCRIPTION_FIELD_NAME:
        return read_name(reader, field, node, at);
    case DESCRIPTION_FIELD_DOUBLE:
        if (node->kind != TREE_FLOAT && node->kind != TREE_INT)
            return wrong(reader, node, field->name, "a number");
        *(double *)at = node->kind == TREE_INT ? (double)node->integer : node->real;
        return 0;
    case DESCRIPTION_FIELD_BOOL:
    case DESCRIPTION_FIELD_FLAG:
        if (node->kind != TREE_BOOL)
            return wrong(reader, node, field->name, "true or false");
        if (field->type == DESCRIPTION_FIELD_BOOL)
            *(bool *)at = node->boolean;
        else
            *(enum description_flag *)at = node->boolean ? DESCRIPTION_YES : DESCRIPTION_NO;
        return 0;
    case DESCRIPTION_FIELD_LIST:
        return read_list(reader, field, node, record);
    default:
        return read_number(reader, field, node, at);
    }
}

static const struct description_field *find_field(const struct description_table *table, const char *name)
{
    for (size_t i = 0; i < table->count; i++)
        if (!strcmp(table->fields[i].name, name))
            return &table->fields[i];
    return NULL;
}

static int no_such_field(struct reader *reader, const struct description_table *table,
                         const struct tree_entry *entry)
{
    const char *names[128];
    size_t count = 0;
    for (; count < table->count && count < sizeof names / sizeof *names; count++)
        names[count] = table->fields[count].name;
    const char *hint = text_nearest(entry->key, names, count);
    return error_set(reader->err, MUSTER_E_INVALID, "%s:%d:%d: unknown field '%s'%s%s", reader->name,
                     entry->line, entry->column, entry->key, hint ? "; did you mean " : "", hint ? hint : "");
}

static int read_record(struct reader *reader, const struct description_table *table,
                       const struct tree_node *node, void *record)
{
    description_record_init(table, record);
    if (node->kind != TREE_MAP)
        return wrong(reader, node, "this", "an object");
    for (size_t i = 0; i < node->count; i++) {
        const struct tree_entry *entry = &node->entries[i];
        const struct description_field *field = find_field(table, entry->key);
        if (!field)
            return no_such_field(reader, table, entry);
        if (entry->value->kind != TREE_NULL && read_value(reader, field, entry->value, record) < 0)
            return -1;
    }
    return 0;
}

static int read_tree(struct reader *reader, const struct tree *tree, struct description *out)
{
    if (tree->document_count != 1)
        return error_set(reader->err, MUSTER_E_INVALID, "%s: %zu documents, expected one description",
                         reader->name, tree->document_count);
    if (read_record(reader, description_table(), tree->documents[0], out) < 0)
        return -1;
    if (out->version != DESCRIPTION_VERSION)
        return error_set(reader->err, MUSTER_E_INVALID, "%s: version %d, this program reads %d", reader->name,
                         out->version, DESCRIPTION_VERSION);
    if (!*out->visible_devices)
        (void)snprintf(out->visible_devices, sizeof out->visible_devices, "-");
    return 0;
}

int description_read(const char *name, const char *text, size_t length, struct description *out,
                     struct muster_error *err)
{
    struct tree tree;
    struct reader reader = {name, err};
    memset(out, 0, sizeof *out);
    if (tree_parse(name, text, length, &tree, err) < 0)
        return -1;
    int result = read_tree(&reader, &tree, out);
    tree_free(&tree);
    if (result < 0)
        description_free(out);
    return result;
}
