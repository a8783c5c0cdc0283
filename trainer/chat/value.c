/* value.c - the values of a template, in an arena: making, comparing, going through them. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "trainer/chat/jinja_internal.h"

/* ---- the arena ---- */

enum { BLOCK_BYTES = 64 << 10, ALIGNMENT = 16 };

struct jinja_block {
    struct jinja_block *next;
    size_t used, size;
    _Alignas(ALIGNMENT) char bytes[];
};

void *jinja_arena_take(struct jinja_arena *arena, size_t bytes)
{
    struct jinja_block *block = arena->blocks;
    if (bytes > SIZE_MAX / 2)
        return NULL;
    bytes = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (!block || block->size - block->used < bytes) {
        const size_t size = bytes > BLOCK_BYTES / 4 ? bytes : BLOCK_BYTES;
        if (arena->limit && (size > arena->limit || arena->taken > arena->limit - size))
            return NULL;
        struct jinja_block *made = mem_calloc(1, sizeof *made + size);
        if (!made)
            return NULL;
        made->size = size;
        arena->taken += size;
        if (block && size == bytes) { /* a large value: the block of small ones stays in front */
            made->next = block->next;
            block->next = made;
        } else {
            made->next = block;
            arena->blocks = made;
        }
        block = made;
    }
    void *taken = block->bytes + block->used;
    block->used += bytes;
    return taken;
}

void jinja_arena_free(struct jinja_arena *arena)
{
    if (!arena)
        return;
    for (struct jinja_block *block = arena->blocks, *next; block; block = next) {
        next = block->next;
        mem_free(block);
    }
    *arena = (struct jinja_arena){.limit = arena->limit};
}

/* ---- errors of a run ---- */

struct jinja_value jinja_fail(struct jinja_run *run, const char *format, ...)
{
    char text[400];
    va_list arguments;
    if (run->failed)
        return (struct jinja_value){.kind = JINJA_UNDEFINED};
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments); /* a longer text is cut */
    va_end(arguments);
    run->failed = true;
    (void)error_set(run->err, MUSTER_E_INVALID, "%s:%d: %s", run->source->name, run->line, text);
    return (struct jinja_value){.kind = JINJA_UNDEFINED};
}

struct jinja_value jinja_no_memory(struct jinja_run *run)
{
    if (!run->failed)
        (void)error_set(run->err, MUSTER_E_LIMIT, "%s:%d: more than %d MB of values, or no memory",
                        run->source->name, run->line, JINJA_MEMORY >> 20);
    run->failed = true;
    return (struct jinja_value){.kind = JINJA_UNDEFINED};
}

bool jinja_enter(struct jinja_run *run, int line)
{
    if (run->failed)
        return false;
    run->line = line;
    if (run->depth >= JINJA_DEPTH) {
        (void)jinja_fail(run, "calls are nested more than %d deep", JINJA_DEPTH);
        return false;
    }
    if (run->steps++ >= JINJA_STEPS) {
        (void)jinja_fail(run, "the template does not end within %d steps", JINJA_STEPS);
        return false;
    }
    run->depth++;
    return true;
}

/* ---- values ---- */

struct jinja_value jinja_string(const char *data, size_t length)
{
    return (struct jinja_value){.kind = JINJA_STRING, .text = {data, length}};
}

struct jinja_value jinja_undefined(struct jinja_text name)
{
    return (struct jinja_value){.kind = JINJA_UNDEFINED, .text = name};
}

struct jinja_value jinja_none(void)
{
    return (struct jinja_value){.kind = JINJA_NONE};
}

struct jinja_value jinja_bool(bool truth)
{
    return (struct jinja_value){.kind = JINJA_BOOL, .truth = truth};
}

struct jinja_value jinja_int(int64_t number)
{
    return (struct jinja_value){.kind = JINJA_INT, .number = number};
}

struct jinja_value jinja_real(double real)
{
    return (struct jinja_value){.kind = JINJA_FLOAT, .real = real};
}

struct jinja_value jinja_of_list(struct jinja_list *list)
{
    return (struct jinja_value){.kind = JINJA_LIST, .list = list};
}

struct jinja_value jinja_copy(struct jinja_run *run, const struct buffer *text)
{
    char *copy = text->failed ? NULL : jinja_arena_take(run->arena, text->length + 1);
    if (!copy)
        return jinja_no_memory(run);
    if (text->length)
        memcpy(copy, text->data, text->length);
    return jinja_string(copy, text->length);
}

struct jinja_list *jinja_list_create(struct jinja_arena *arena)
{
    return jinja_arena_take(arena, sizeof(struct jinja_list));
}

/* Memory for one more item; the old items are copied. */
static void *grow_items(struct jinja_arena *arena, const void *items, size_t count, size_t *capacity,
                        size_t size)
{
    const size_t more = *capacity * 2 + 4;
    void *grown = jinja_arena_take(arena, more * size);
    if (grown && count)
        memcpy(grown, items, count * size);
    if (grown)
        *capacity = more;
    return grown;
}

bool jinja_list_add(struct jinja_arena *arena, struct jinja_list *list, struct jinja_value value)
{
    if (!list)
        return false;
    if (list->count == list->capacity) {
        struct jinja_value *grown =
            grow_items(arena, list->item, list->count, &list->capacity, sizeof *grown);
        if (!grown)
            return false;
        list->item = grown;
    }
    list->item[list->count++] = value;
    return true;
}

struct jinja_dict *jinja_dict_create(struct jinja_arena *arena)
{
    return jinja_arena_take(arena, sizeof(struct jinja_dict));
}

static bool dict_add(struct jinja_arena *arena, struct jinja_dict *dict, struct jinja_value key,
                     struct jinja_value value)
{
    if (dict->count == dict->capacity) {
        struct jinja_entry *grown =
            grow_items(arena, dict->entry, dict->count, &dict->capacity, sizeof *grown);
        if (!grown)
            return false;
        dict->entry = grown;
    }
    dict->entry[dict->count++] = (struct jinja_entry){key, value};
    return true;
}

bool jinja_dict_set(struct jinja_arena *arena, struct jinja_dict *dict, struct jinja_value key,
                    struct jinja_value value)
{
    struct jinja_value *there = dict ? (struct jinja_value *)(uintptr_t)jinja_dict_get(dict, key) : NULL;
    if (there)
        *there = value;
    return dict && (there || dict_add(arena, dict, key, value));
}

const struct jinja_value *jinja_dict_get(const struct jinja_dict *dict, struct jinja_value key)
{
    for (size_t i = 0; i < dict->count; i++)
        if (jinja_equal(dict->entry[i].key, key))
            return &dict->entry[i].value;
    return NULL;
}

const struct jinja_value *jinja_dict_find(const struct jinja_dict *dict, const char *key)
{
    return jinja_dict_get(dict, jinja_string(key, strlen(key)));
}

static bool from_object(struct jinja_arena *arena, const json_t *json, struct jinja_value *out)
{
    struct jinja_dict *dict = jinja_dict_create(arena);
    if (!dict)
        return false;
    for (void *at = json_object_iter((json_t *)json); at; at = json_object_iter_next((json_t *)json, at)) {
        const char *key = json_object_iter_key(at); /* a key has no NUL, and is there once */
        struct jinja_value value;
        if (!jinja_from_json(arena, json_object_iter_value(at), &value) ||
            !dict_add(arena, dict, jinja_string(key, strlen(key)), value))
            return false;
    }
    *out = (struct jinja_value){.kind = JINJA_DICT, .dict = dict};
    return true;
}

bool jinja_from_json(struct jinja_arena *arena, const json_t *json, struct jinja_value *out)
{
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        return from_object(arena, json, out);
    case JSON_ARRAY:
        break;
    case JSON_STRING:
        *out = jinja_string(json_string_value(json), json_string_length(json));
        return true;
    case JSON_INTEGER:
        *out = jinja_int(json_integer_value(json));
        return true;
    case JSON_REAL:
        *out = jinja_real(json_real_value(json));
        return true;
    case JSON_TRUE:
    case JSON_FALSE:
        *out = jinja_bool(json_is_true(json));
        return true;
    case JSON_NULL:
        *out = jinja_none();
        return true;
    }
    struct jinja_list *list = jinja_list_create(arena);
    for (size_t i = 0; list && i < json_array_size(json); i++) {
        struct jinja_value value;
        if (!jinja_from_json(arena, json_array_get(json, i), &value) || !jinja_list_add(arena, list, value))
            return false;
    }
    *out = jinja_of_list(list);
    return list != NULL;
}

static bool copy_texts(struct jinja_arena *arena, struct jinja_value *value)
{
    if (value->kind == JINJA_STRING) {
        char *copy = jinja_arena_take(arena, value->text.length + 1);
        if (copy && value->text.length)
            memcpy(copy, value->text.data, value->text.length);
        value->text.data = copy;
        return copy != NULL;
    }
    for (size_t i = 0; value->kind == JINJA_LIST && i < value->list->count; i++)
        if (!copy_texts(arena, &value->list->item[i]))
            return false;
    for (size_t i = 0; value->kind == JINJA_DICT && i < value->dict->count; i++)
        if (!copy_texts(arena, &value->dict->entry[i].key) ||
            !copy_texts(arena, &value->dict->entry[i].value))
            return false;
    return true;
}

bool jinja_from_json_copied(struct jinja_arena *arena, const json_t *json, struct jinja_value *out)
{
    return jinja_from_json(arena, json, out) && copy_texts(arena, out);
}

/* ---- what values are ---- */

const char *jinja_kind_name(enum jinja_kind kind)
{
    static const char *const names[] = {
        [JINJA_UNDEFINED] = "undefined", [JINJA_NONE] = "none",       [JINJA_BOOL] = "a truth value",
        [JINJA_INT] = "a number",        [JINJA_FLOAT] = "a number",  [JINJA_STRING] = "a text",
        [JINJA_LIST] = "a list",         [JINJA_DICT] = "a dict",     [JINJA_NAMESPACE] = "a namespace",
        [JINJA_MACRO] = "a macro",       [JINJA_METHOD] = "a method", [JINJA_FUNCTION] = "a function",
        [JINJA_LOOP] = "a loop"};
    return names[kind];
}

bool jinja_true(struct jinja_value value)
{
    switch (value.kind) {
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return false;
    case JINJA_BOOL:
        return value.truth;
    case JINJA_INT:
        return value.number != 0;
    case JINJA_FLOAT:
        return value.real < 0 || value.real > 0 || value.real != value.real;
    case JINJA_STRING:
        return value.text.length > 0;
    case JINJA_LIST:
        return value.list->count > 0;
    case JINJA_DICT:
        return value.dict->count > 0;
    case JINJA_NAMESPACE:
    case JINJA_MACRO:
    case JINJA_METHOD:
    case JINJA_FUNCTION:
    case JINJA_LOOP:
        break;
    }
    return true;
}

bool jinja_number(struct jinja_value value, double *out)
{
    *out = value.kind == JINJA_BOOL    ? (double)value.truth
           : value.kind == JINJA_INT   ? (double)value.number
           : value.kind == JINJA_FLOAT ? value.real
                                       : 0;
    return value.kind == JINJA_BOOL || value.kind == JINJA_INT || value.kind == JINJA_FLOAT;
}

static bool equal_dicts(const struct jinja_dict *a, const struct jinja_dict *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++) {
        const struct jinja_value *other = jinja_dict_get(b, a->entry[i].key);
        if (!other || !jinja_equal(a->entry[i].value, *other))
            return false;
    }
    return true;
}

static bool equal_lists(const struct jinja_list *a, const struct jinja_list *b)
{
    if (a->count != b->count || a->tuple != b->tuple)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (!jinja_equal(a->item[i], b->item[i]))
            return false;
    return true;
}

bool jinja_equal(struct jinja_value a, struct jinja_value b)
{
    double x, y;
    if (jinja_number(a, &x) && jinja_number(b, &y))
        return a.kind == JINJA_INT && b.kind == JINJA_INT ? a.number == b.number : !(x < y) && !(x > y);
    if (a.kind != b.kind)
        return false;
    switch (a.kind) {
    case JINJA_STRING:
        return a.text.length == b.text.length &&
               (!a.text.length || !memcmp(a.text.data, b.text.data, a.text.length));
    case JINJA_LIST:
        return a.list == b.list || equal_lists(a.list, b.list);
    case JINJA_DICT:
        return a.dict == b.dict || equal_dicts(a.dict, b.dict);
    case JINJA_NAMESPACE:
        return a.dict == b.dict;
    case JINJA_MACRO:
        return a.macro == b.macro;
    case JINJA_FUNCTION:
        return a.function == b.function;
    case JINJA_METHOD:
    case JINJA_LOOP:
        return a.loop == b.loop;
    case JINJA_UNDEFINED:
    case JINJA_NONE:
    case JINJA_BOOL:
    case JINJA_INT:
    case JINJA_FLOAT:
        break;
    }
    return true;
}

int jinja_compare(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    double x, y;
    if (jinja_number(a, &x) && jinja_number(b, &y))
        return x < y ? -1 : x > y;
    if (a.kind == JINJA_STRING && b.kind == JINJA_STRING) { /* UTF-8 has the order of its characters */
        const size_t shorter = a.text.length < b.text.length ? a.text.length : b.text.length;
        const int order = shorter ? memcmp(a.text.data, b.text.data, shorter) : 0;
        return order ? order : a.text.length < b.text.length ? -1 : a.text.length > b.text.length;
    }
    if (a.kind == JINJA_LIST && b.kind == JINJA_LIST) {
        for (size_t i = 0; i < a.list->count && i < b.list->count; i++)
            if (!jinja_equal(a.list->item[i], b.list->item[i]))
                return jinja_compare(run, a.list->item[i], b.list->item[i]);
        return a.list->count < b.list->count ? -1 : a.list->count > b.list->count;
    }
    if (a.kind == JINJA_UNDEFINED || b.kind == JINJA_UNDEFINED) {
        const struct jinja_text name = a.kind == JINJA_UNDEFINED ? a.text : b.text;
        (void)jinja_fail(run, "'%.*s' is undefined", (int)(name.length < 80 ? name.length : 80), name.data);
    } else {
        (void)jinja_fail(run, "%s and %s have no order", jinja_kind_name(a.kind), jinja_kind_name(b.kind));
    }
    return 0;
}

/* ---- going through values ---- */

struct jinja_list *jinja_elements(struct jinja_run *run, struct jinja_value value)
{
    struct jinja_list *list;
    if (value.kind == JINJA_LIST)
        return value.list;
    list = jinja_list_create(run->arena);
    bool room = list != NULL;
    switch (value.kind) {
    case JINJA_UNDEFINED:
        break;
    case JINJA_STRING:
        for (size_t at = 0, bytes; room && at < value.text.length; at += bytes) {
            const struct jinja_text rest = {value.text.data + at, value.text.length - at};
            bytes = jinja_character_at(rest, 1);
            room = jinja_list_add(run->arena, list, jinja_string(rest.data, bytes));
        }
        break;
    case JINJA_DICT:
        for (size_t i = 0; room && i < value.dict->count; i++)
            room = jinja_list_add(run->arena, list, value.dict->entry[i].key);
        break;
    case JINJA_NONE:
    case JINJA_BOOL:
    case JINJA_INT:
    case JINJA_FLOAT:
    case JINJA_LIST:
    case JINJA_NAMESPACE:
    case JINJA_MACRO:
    case JINJA_METHOD:
    case JINJA_FUNCTION:
    case JINJA_LOOP:
        (void)jinja_fail(run, "%s cannot be gone through", jinja_kind_name(value.kind));
        return NULL;
    }
    if (!room)
        (void)jinja_no_memory(run);
    return room ? list : NULL;
}

/* ---- turns ---- */

int jinja_spans_add(struct jinja_spans *spans, struct jinja_span span, struct muster_error *err)
{
    if (spans->count == spans->capacity) {
        const size_t more = spans->capacity * 2 + 16;
        struct jinja_span *grown = mem_realloc(spans->span, more, sizeof *grown);
        if (!grown)
            return error_set(err, MUSTER_E_NOMEM, "no memory for the turns of a chat");
        spans->span = grown;
        spans->capacity = more;
    }
    spans->span[spans->count++] = span;
    return 0;
}
