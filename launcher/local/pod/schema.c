/* schema.c - see schema.h. */
#include "launcher/local/pod/schema.h"

#include <limits.h>
#include <string.h>

#include "launcher/local/pod/quantity.h"
#include "proto/base/text.h"

enum { NAMES_LIMIT = 64 };

struct check {
    const char *file;
    struct problems *problems;
};

/* An API server rejects a wrong shape before any validation. */
#define ERROR(check, type, node, path, ...)                                                                  \
    (problems_add((check)->problems, PROBLEM_##type, (check)->file, node, path, __VA_ARGS__),                \
     problems_fatal((check)->problems))

static const char *expected(enum schema_type type)
{
    switch (type) {
    case SCHEMA_TEXT:
        return "text";
    case SCHEMA_BOOL:
        return "true or false";
    case SCHEMA_INT32:
    case SCHEMA_INT64:
        return "an integer";
    case SCHEMA_QUANTITY:
        return "a quantity such as 2, 500m or 4Gi";
    case SCHEMA_OBJECTS:
    case SCHEMA_TEXT_LIST:
        return "a list";
    default:
        return "a mapping";
    }
}

static void wrong_type(const struct check *check, const struct tree_node *node, const struct path *path,
                       enum schema_type type)
{
    bool quote = type == SCHEMA_TEXT && node->kind < TREE_TEXT && node->kind != TREE_NULL;
    bool unquote = node->kind == TREE_TEXT && type < SCHEMA_QUANTITY;
    if (quote)
        ERROR(check, INVALID, node, path, "%.100s is %s where text is expected; quote it: \"%.100s\"",
              node->text, tree_kind_name(node->kind), node->text);
    else if (node->text)
        ERROR(check, INVALID, node, path, "'%.100s' is %s where %s is expected%s", node->text,
              tree_kind_name(node->kind), expected(type), unquote ? "; write it without quotes" : "");
    else
        ERROR(check, INVALID, node, path, "%s found where %s is expected", tree_kind_name(node->kind),
              expected(type));
}

static bool is_whole(const struct tree_node *node, int64_t min, int64_t max)
{
    if (node->kind == TREE_FLOAT)
        return node->real >= (double)min && node->real <= (double)max &&
               (node->real >= 0x1p53 || node->real <= -0x1p53 || node->real == (double)(int64_t)node->real);
    return node->kind == TREE_INT && node->integer >= min && node->integer <= max;
}

static bool is_quantity(const struct tree_node *node)
{
    quantity_thousandths ignored;
    return (node->kind == TREE_TEXT || node->kind == TREE_INT || node->kind == TREE_FLOAT) &&
           quantity_parse(node->text, &ignored);
}

static bool scalar_fits(const struct tree_node *node, enum schema_type type)
{
    switch (type) {
    case SCHEMA_TEXT:
        return node->kind == TREE_TEXT;
    case SCHEMA_BOOL:
        return node->kind == TREE_BOOL;
    case SCHEMA_INT32:
        return is_whole(node, INT32_MIN, INT32_MAX);
    case SCHEMA_INT64:
        return is_whole(node, INT64_MIN, INT64_MAX);
    case SCHEMA_QUANTITY:
        return is_quantity(node);
    default:
        return true;
    }
}

static void check_scalar(const struct check *check, const struct tree_node *node, const struct path *path,
                         enum schema_type type)
{
    if (node->kind == TREE_INT && (type == SCHEMA_INT32 || type == SCHEMA_INT64) && !scalar_fits(node, type))
        ERROR(check, INVALID, node, path, "%.100s does not fit %d bits", node->text,
              type == SCHEMA_INT32 ? 32 : 64);
    else if (!scalar_fits(node, type))
        wrong_type(check, node, path, type);
}

static void check_object(const struct check *check, const struct schema *schema, const struct tree_node *node,
                         const struct path *path);

/* Lists and maps of one kind of value. */
static void check_values(const struct check *check, const struct tree_node *node, const struct path *path,
                         enum schema_type type, const struct schema *of)
{
    bool list = node->kind == TREE_LIST;
    for (size_t i = 0; i < node->count; i++) {
        const struct tree_node *value = list ? node->items[i] : node->entries[i].value;
        const struct path *at = list ? PATH_INDEX(path, i) : PATH_KEY(path, node->entries[i].key);
        if (value->kind == TREE_NULL && type != SCHEMA_OBJECT)
            wrong_type(check, value, at, type);
        else if (type == SCHEMA_OBJECT)
            check_object(check, of, value, at);
        else
            check_scalar(check, value, at, type);
    }
}

static void check_value(const struct check *check, const struct schema_field *field,
                        const struct tree_node *node, const struct path *path)
{
    static const struct {
        enum tree_kind kind;
        enum schema_type element;
    } collections[] = {
        [SCHEMA_OBJECTS] = {TREE_LIST, SCHEMA_OBJECT},   [SCHEMA_TEXT_LIST] = {TREE_LIST, SCHEMA_TEXT},
        [SCHEMA_TEXT_MAP] = {TREE_MAP, SCHEMA_TEXT},     [SCHEMA_QUANTITY_MAP] = {TREE_MAP, SCHEMA_QUANTITY},
        [SCHEMA_OBJECT_MAP] = {TREE_MAP, SCHEMA_OBJECT},
    };
    if (field->type == SCHEMA_OBJECT)
        check_object(check, field->of, node, path);
    else if (field->type < SCHEMA_OBJECT)
        check_scalar(check, node, path, field->type);
    else if (node->kind != collections[field->type].kind)
        wrong_type(check, node, path, field->type);
    else
        check_values(check, node, path, collections[field->type].element, field->of);
}

static const struct schema_field *find(const struct schema *schema, const char *name)
{
    for (size_t i = 0; i < schema->count; i++)
        if (!strcmp(schema->fields[i].name, name))
            return &schema->fields[i];
    return NULL;
}

static void unknown(const struct check *check, const struct schema *schema, const struct tree_entry *entry,
                    const struct path *path)
{
    const char *names[NAMES_LIMIT];
    size_t count = 0;
    for (; count < schema->count && count < NAMES_LIMIT; count++)
        names[count] = schema->fields[count].name;
    const char *nearest = text_nearest(entry->key, names, count);
    const struct tree_node place = {.line = entry->line, .column = entry->column};
    problems_add(check->problems, PROBLEM_WARNING, check->file, &place, path,
                 "unknown field, which a cluster drops silently%s%s%s", nearest ? "; did you mean " : "",
                 nearest ? nearest : "", nearest ? "?" : "");
}

static void check_object(const struct check *check, const struct schema *schema, const struct tree_node *node,
                         const struct path *path)
{
    if (node->kind == TREE_NULL)
        return; /* a missing requirement is reported by its user */
    if (node->kind != TREE_MAP) {
        wrong_type(check, node, path, SCHEMA_OBJECT);
        return;
    }
    for (size_t i = 0; i < node->count; i++) {
        const struct tree_entry *entry = &node->entries[i];
        const struct schema_field *field = find(schema, entry->key);
        const struct path *at = PATH_FIELD(path, entry->key);
        if (!field) {
            unknown(check, schema, entry, at);
            continue;
        }
        if (entry->value->kind == TREE_NULL)
            continue; /* as if it were absent */
        if (field->note)
            problems_add(check->problems, PROBLEM_NOTE, check->file, NULL, at, "%s: %s", field->name,
                         field->note);
        check_value(check, field, entry->value, at);
    }
    for (size_t i = 0; i < schema->count; i++)
        if (schema->fields[i].required && !tree_get(node, schema->fields[i].name))
            ERROR(check, REQUIRED, node, PATH_FIELD(path, schema->fields[i].name), "must be given");
}

int64_t schema_integer(const struct tree_node *map, const char *field, int64_t otherwise)
{
    const struct tree_node *node = tree_get(map, field);
    if (node && node->kind == TREE_INT)
        return node->integer;
    return node && node->kind == TREE_FLOAT && node->real > -1e15 && node->real < 1e15 ? (int64_t)node->real
                                                                                       : otherwise;
}

void schema_check(const struct schema *schema, const char *file, const struct tree_node *node,
                  const struct path *path, struct problems *problems)
{
    const struct check check = {file, problems};
    check_object(&check, schema, node, path);
}
