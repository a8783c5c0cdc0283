/* schema.c - see schema.h. */
#include "launcher/local/pod/schema.h"

#include <limits.h>
#include <string.h>

#include "launcher/local/pod/placeholder.h"
#include "launcher/local/pod/quantity.h"
#include "proto/base/buffer.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"

static bool schema_search(const struct schema_frame *frame, const char *name, struct buffer *place);

enum { NAMES_LIMIT = 64 };

struct check {
    const char *file, *release;
    struct problems *problems;
    const struct schema_frame *frame; /* the checked object's */
    /* places that a template engine did not fill: one line for the whole object */
    struct placeholder first;
    const struct tree_node *first_node;
    struct buffer first_field, others;
    bool in_typed, in_name; /* a placeholder stands where no text may, in a name */
};

/* An API server rejects a wrong shape before any validation. */
#define ERROR(check, type, node, path, ...)                                                                  \
    (problems_add((check)->problems, PROBLEM_##type, (check)->file, node, path, __VA_ARGS__),                \
     problems_fatal((check)->problems))

static bool takes_text(enum schema_type type)
{
    return type == SCHEMA_TEXT || type == SCHEMA_NAME || type == SCHEMA_VALUE || type == SCHEMA_IMAGE;
}

static const char *expected(enum schema_type type)
{
    switch (type) {
    case SCHEMA_TEXT:
    case SCHEMA_NAME:
    case SCHEMA_VALUE:
    case SCHEMA_IMAGE:
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

/* Whether the text is the expected value but for its quotes. */
static bool is_plain(const char *text, enum schema_type type)
{
    int64_t number;
    bool on;
    return type == SCHEMA_BOOL ? text_bool(text, &on) : text_int64(text, &number);
}

/* A value that a template engine should have replaced. False: there is none in it. */
static bool take_placeholder(struct check *check, const struct tree_node *node, const struct path *path,
                             enum schema_type type)
{
    struct placeholder found = placeholder_in_node(node);
    if (found.kind == PLACEHOLDER_NONE)
        return false;
    check->in_typed |= !takes_text(type);
    check->in_name |= type == SCHEMA_NAME;
    if (check->first.kind == PLACEHOLDER_NONE) {
        check->first = found;
        check->first_node = node;
        problems_path(path, &check->first_field);
    } else if (check->others.length < 200 && strcmp(found.text, check->first.text) != 0 &&
               !(check->others.data && strstr(check->others.data, found.text))) {
        buffer_printf(&check->others, "%s%.60s", check->others.length ? ", " : "", found.text);
    }
    return true;
}

static void report_placeholders(struct check *check)
{
    const bool more = check->others.length > 0;
    if (check->first.kind == PLACEHOLDER_NONE)
        return;
    problems_add(check->problems, check->in_typed || check->in_name ? PROBLEM_INVALID : PROBLEM_WARNING,
                 check->file, check->first_node,
                 PATH_FIELD(NULL, check->first_field.data ? check->first_field.data : ""),
                 "%s was not substituted%s%s%s: %s", check->first.text, more ? " (nor " : "",
                 more ? check->others.data : "", more ? ")" : "", placeholder_advice(check->first.kind));
    if (check->in_typed)
        problems_fatal(check->problems);
}

static void wrong_type(struct check *check, const struct tree_node *node, const struct path *path,
                       enum schema_type type)
{
    if (take_placeholder(check, node, path, type))
        return;
    bool quote = takes_text(type) && node->kind < TREE_TEXT && node->kind != TREE_NULL;
    bool unquote = node->kind == TREE_TEXT && type < SCHEMA_QUANTITY && is_plain(node->text, type);
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
    case SCHEMA_NAME:
    case SCHEMA_VALUE:
    case SCHEMA_IMAGE:
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

static void check_scalar(struct check *check, const struct tree_node *node, const struct path *path,
                         enum schema_type type)
{
    if (node->kind == TREE_INT && (type == SCHEMA_INT32 || type == SCHEMA_INT64) && !scalar_fits(node, type))
        ERROR(check, INVALID, node, path, "%.100s does not fit %d bits", node->text,
              type == SCHEMA_INT32 ? 32 : 64);
    else if (!scalar_fits(node, type))
        wrong_type(check, node, path, type);
    else if (type == SCHEMA_NAME || type == SCHEMA_IMAGE ||
             (type == SCHEMA_VALUE && placeholder_is_variable(node->text)))
        (void)take_placeholder(check, node, path, type);
}

static void check_object(struct check *check, const struct schema *schema, const struct tree_node *node,
                         const struct path *path);

/* Lists and maps of one kind of value. */
static void check_values(struct check *check, const struct tree_node *node, const struct path *path,
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

/* Values of the API alone: a cluster refuses others, a newer one may have more. */
static void check_choice(const struct check *check, const struct schema_field *field,
                         const struct tree_node *node, const struct path *path)
{
    const char *text = tree_text(node);
    size_t length = text ? strlen(text) : 0;
    if (!length || placeholder_in_text(text).kind != PLACEHOLDER_NONE)
        return;
    for (const char *at = field->choices; (at = strstr(at, text)); at += length)
        if ((at == field->choices || at[-1] == ' ') && (!at[length] || at[length] == ' '))
            return;
    problems_add(check->problems, PROBLEM_NOT_SUPPORTED, check->file, node, path,
                 "'%.60s' is no value of it in %s: %s", text, check->release, field->choices);
}

static void check_value(struct check *check, const struct schema_field *field, const struct tree_node *node,
                        const struct path *path)
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
    else if (field->type < SCHEMA_OBJECT) {
        check_scalar(check, node, path, field->type);
        if (field->choices)
            check_choice(check, field, node, path);
    } else if (node->kind != collections[field->type].kind)
        wrong_type(check, node, path, field->type);
    else
        check_values(check, node, path, collections[field->type].element, field->of);
}

/* An unknown field: known at another place, a near spelling, or from a newer release. */
static void unknown(const struct check *check, const struct schema *schema, const struct tree_entry *entry,
                    const struct path *path)
{
    const char *names[NAMES_LIMIT];
    size_t count = 0;
    const struct tree_node at = {.line = entry->line, .column = entry->column};
    scope_buffer place = {0};
    /* fields that are only counted are not searched for: a hostile file has many */
    if (check->problems->count < PROBLEMS_LIMIT && schema_search(check->frame, entry->key, &place) &&
        !place.failed) {
        problems_add(check->problems, PROBLEM_WARNING, check->file, &at, path,
                     "unknown field here, which a cluster drops silently; its place is %.300s", place.data);
        return;
    }
    for (; count < schema->count && count < NAMES_LIMIT; count++)
        names[count] = schema->fields[count].name;
    const char *nearest = text_nearest(entry->key, names, count);
    problems_add(check->problems, PROBLEM_WARNING, check->file, &at, path,
                 "unknown field%s%s, which a cluster drops silently%s%s%s", nearest ? "" : " of ",
                 nearest ? "" : check->release, nearest ? "; did you mean " : " unless its release is newer",
                 nearest ? nearest : "", nearest ? "?" : "");
}

/* A field whose feature is not emulated. */
static void report_effect(const struct check *check, const struct schema_field *field,
                          const struct tree_entry *entry, const struct path *path)
{
    const struct tree_node at = {.line = entry->line, .column = entry->column};
    if (field->effect == SCHEMA_UNUSED)
        problems_add(check->problems, PROBLEM_NOTE, check->file, NULL, path, "%s: %s", field->name,
                     field->why);
    else if (field->effect == SCHEMA_REFUSED)
        problems_add(check->problems, PROBLEM_NOT_SUPPORTED, check->file, &at, path,
                     "muster local does not emulate it: %s", field->why);
}

static void check_object(struct check *check, const struct schema *schema, const struct tree_node *node,
                         const struct path *path)
{
    if (node->kind == TREE_NULL)
        return; /* a missing requirement is reported by its user */
    if (node->kind != TREE_MAP) {
        wrong_type(check, node, path, SCHEMA_OBJECT);
        return;
    }
    const struct schema_frame frame = {check->frame, schema, path};
    check->frame = &frame;
    for (size_t i = 0; i < node->count; i++) {
        const struct tree_entry *entry = &node->entries[i];
        const struct schema_field *field = schema_field_find(schema, entry->key);
        const struct path *at = PATH_FIELD(path, entry->key);
        if (!field) {
            unknown(check, schema, entry, at);
            continue;
        }
        if (entry->value->kind == TREE_NULL)
            continue; /* as if it were absent */
        report_effect(check, field, entry, at);
        check_value(check, field, entry->value, at);
    }
    for (size_t i = 0; i < schema->count; i++)
        if (schema->fields[i].required && !tree_get(node, schema->fields[i].name))
            ERROR(check, REQUIRED, node, PATH_FIELD(path, schema->fields[i].name), "must be given");
    check->frame = frame.up;
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
    struct check check = {
        .file = file, .release = schema->release ? schema->release : "this API", .problems = problems};
    check_object(&check, schema, node, path);
    report_placeholders(&check);
    problems->failed |= check.first_field.failed || check.others.failed;
    buffer_free(&check.first_field);
    buffer_free(&check.others);
}

/* --- searching --- */

enum { DEPTH_LIMIT = 12 };

const struct schema_field *schema_field_find(const struct schema *schema, const char *name)
{
    for (size_t i = 0; i < schema->count; i++)
        if (!strcmp(schema->fields[i].name, name))
            return &schema->fields[i];
    return NULL;
}

/* The way to a place: fields from an object down. */
struct way {
    const struct schema_field *steps[DEPTH_LIMIT];
    int count;
};

/* Objects at exactly this depth are looked into, so that the nearest is found first. */
static bool find_at(const struct schema *schema, const char *name, int depth, struct way *way)
{
    if (depth == 0)
        return schema_field_find(schema, name) != NULL;
    for (size_t i = 0; i < schema->count; i++) {
        const struct schema_field *field = &schema->fields[i];
        if (!field->of)
            continue;
        way->steps[way->count++] = field;
        if (find_at(field->of, name, depth - 1, way))
            return true;
        way->count--;
    }
    return false;
}

/* Appends the nearest place of a field of this name: below the object first, then below the ones above it;
 * "spec.runPolicy.cleanPodPolicy". False: no object of the whole has such a field. */
static bool schema_search(const struct schema_frame *frame, const char *name, struct buffer *place)
{
    for (; frame; frame = frame->up)
        for (int depth = 0; depth < DEPTH_LIMIT; depth++) {
            struct way way = {.count = 0};
            if (!find_at(frame->schema, name, depth, &way))
                continue;
            problems_path(frame->path, place);
            for (int i = 0; i < way.count; i++) {
                enum schema_type type = way.steps[i]->type;
                buffer_printf(place, "%s%s%s", place->length ? "." : "", way.steps[i]->name,
                              type == SCHEMA_OBJECTS      ? "[]"
                              : type == SCHEMA_OBJECT_MAP ? "[<TYPE>]"
                                                          : "");
            }
            buffer_printf(place, "%s%s", place->length ? "." : "", name);
            return true;
        }
    return false;
}
