/* operators.c - attributes and items of values, and the operators between two values. */
#include <math.h>
#include <string.h>

#include "proto/base/error.h"
#include "trainer/chat/jinja_internal.h"

/* ---- attributes, items ---- */

struct jinja_value jinja_fail_undefined(struct jinja_run *run, struct jinja_text name)
{
    return jinja_fail(run, "'%.*s' is undefined", (int)(name.length < 80 ? name.length : 80), name.data);
}

static struct jinja_value loop_attribute(struct jinja_run *run, const struct jinja_loop *loop,
                                         struct jinja_text name)
{
    const int64_t at = (int64_t)loop->at, count = (int64_t)loop->items->count;
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {{"index", at + 1},        {"index0", at},
                   {"revindex", count - at}, {"revindex0", count - at - 1},
                   {"length", count},        {"depth", loop->depth + 1},
                   {"depth0", loop->depth}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (jinja_text_is(name, numbers[i].name))
            return jinja_int(numbers[i].value);
    if (jinja_text_is(name, "first"))
        return jinja_bool(at == 0);
    if (jinja_text_is(name, "last"))
        return jinja_bool(at == count - 1);
    if (jinja_text_is(name, "previtem") && at > 0)
        return loop->items->item[at - 1];
    if (jinja_text_is(name, "nextitem") && at + 1 < count)
        return loop->items->item[at + 1];
    (void)run;
    return jinja_undefined(name);
}

/* A method of a value; false: it has none of this name. */
static bool find_method(struct jinja_run *run, struct jinja_value of, struct jinja_text name,
                        struct jinja_value *out)
{
    bool changes = false;
    if (!jinja_has_method(of, name, &changes))
        return false;
    if (changes) {
        *out = jinja_fail(run, "the method '%.*s' would change %s, and templates may not", (int)name.length,
                          name.data, jinja_kind_name(of.kind));
        return true;
    }
    struct jinja_method *method = jinja_arena_take(run->arena, sizeof *method);
    if (!method) {
        *out = jinja_no_memory(run);
        return true;
    }
    *method = (struct jinja_method){of, name};
    *out = (struct jinja_value){.kind = JINJA_METHOD, .method = method};
    return true;
}

struct jinja_value jinja_attribute(struct jinja_run *run, struct jinja_value of, struct jinja_text name)
{
    struct jinja_value found;
    const struct jinja_value *value;
    if (of.kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(run, of.text);
    if (find_method(run, of, name, &found))
        return found;
    if (of.kind == JINJA_LOOP)
        return loop_attribute(run, of.loop, name);
    if ((of.kind == JINJA_DICT || of.kind == JINJA_NAMESPACE) &&
        (value = jinja_dict_get(of.dict, jinja_string(name.data, name.length))))
        return *value;
    return jinja_undefined(name);
}

struct jinja_value jinja_item(struct jinja_run *run, struct jinja_value of, struct jinja_value key)
{
    struct jinja_value found;
    if (of.kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(run, of.text);
    if (of.kind == JINJA_DICT || of.kind == JINJA_NAMESPACE) {
        const struct jinja_value *value = jinja_dict_get(of.dict, key);
        if (value)
            return *value;
    }
    const bool numbered = key.kind == JINJA_INT || key.kind == JINJA_BOOL;
    const int64_t number = key.kind == JINJA_BOOL ? key.truth : key.number;
    if (numbered && of.kind == JINJA_LIST) {
        const int64_t count = (int64_t)of.list->count, at = number < 0 ? number + count : number;
        return at >= 0 && at < count ? of.list->item[at] : jinja_undefined((struct jinja_text){"item", 4});
    }
    if (numbered && of.kind == JINJA_STRING) {
        const int64_t count = (int64_t)jinja_characters(of.text), at = number < 0 ? number + count : number;
        if (at < 0 || at >= count)
            return jinja_undefined((struct jinja_text){"character", 9});
        const size_t from = jinja_character_at(of.text, (size_t)at);
        const struct jinja_text rest = {of.text.data + from, of.text.length - from};
        return jinja_string(rest.data, jinja_character_at(rest, 1));
    }
    if (key.kind != JINJA_STRING)
        return jinja_undefined((struct jinja_text){"item", 4});
    if (find_method(run, of, key.text, &found))
        return found;
    return of.kind == JINJA_LOOP ? loop_attribute(run, of.loop, key.text) : jinja_undefined(key.text);
}

/* ---- operators ---- */

bool jinja_contains(struct jinja_run *run, struct jinja_value in, struct jinja_value value)
{
    if (in.kind == JINJA_STRING) {
        if (value.kind != JINJA_STRING)
            (void)jinja_fail(run, "'in' a text needs a text, and has %s", jinja_kind_name(value.kind));
        return value.kind == JINJA_STRING &&
               (!value.text.length ||
                memmem(in.text.data, in.text.length, value.text.data, value.text.length));
    }
    if (in.kind == JINJA_DICT)
        return jinja_dict_get(in.dict, value) != NULL;
    const struct jinja_list *list = jinja_elements(run, in);
    for (size_t i = 0; list && i < list->count; i++)
        if (jinja_equal(list->item[i], value))
            return true;
    return false;
}

static struct jinja_value repeat(struct jinja_run *run, struct jinja_value of, int64_t times)
{
    if (of.kind == JINJA_STRING) {
        scope_buffer text = {.limit = JINJA_OUTPUT};
        for (int64_t i = 0; i < times && of.text.length && !text.failed; i++)
            (void)buffer_append(&text, of.text.data, of.text.length); /* remembers a failure */
        return jinja_copy(run, &text);
    }
    struct jinja_list *list = jinja_list_create(run->arena);
    for (int64_t i = 0; i < times && of.list->count; i++)
        for (size_t k = 0; k < of.list->count; k++)
            if (!jinja_list_add(run->arena, list, of.list->item[k]))
                return jinja_no_memory(run);
    return list ? jinja_of_list(list) : jinja_no_memory(run);
}

static struct jinja_value add_values(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    if (a.kind == JINJA_STRING) {
        const size_t length = a.text.length + b.text.length;
        char *both = length <= JINJA_OUTPUT ? jinja_arena_take(run->arena, length + 1) : NULL;
        if (!both)
            return jinja_no_memory(run);
        if (a.text.length)
            memcpy(both, a.text.data, a.text.length);
        if (b.text.length)
            memcpy(both + a.text.length, b.text.data, b.text.length);
        return jinja_string(both, length);
    }
    struct jinja_list *list = jinja_list_create(run->arena);
    for (size_t i = 0; i < a.list->count + b.list->count; i++)
        if (!jinja_list_add(run->arena, list,
                            i < a.list->count ? a.list->item[i] : b.list->item[i - a.list->count]))
            return jinja_no_memory(run);
    if (!list)
        return jinja_no_memory(run);
    list->tuple = a.list->tuple;
    return jinja_of_list(list);
}

/* *out: the result in whole numbers, with Python's rounding to below; false: it has none. */
static bool whole_result(const char *sign, int64_t a, int64_t b, int64_t *out)
{
    if (!strcmp(sign, "+"))
        return !__builtin_add_overflow(a, b, out);
    if (!strcmp(sign, "-"))
        return !__builtin_sub_overflow(a, b, out);
    if (!strcmp(sign, "*"))
        return !__builtin_mul_overflow(a, b, out);
    if (!strcmp(sign, "**")) {
        *out = 1;
        for (int64_t i = 0; i < b; i++)
            if (__builtin_mul_overflow(*out, a, out) || i > 64)
                return i > 64 && (a == 0 || a == 1 || a == -1);
        return b >= 0;
    }
    if (b == 0 || (a == INT64_MIN && b == -1))
        return false;
    const int64_t left = a % b, below = left && (left < 0) != (b < 0);
    *out = !strcmp(sign, "//") ? a / b - below : left + (below ? b : 0);
    return true;
}

static struct jinja_value real_result(struct jinja_run *run, const char *sign, double a, double b)
{
    if (!strcmp(sign, "+"))
        return jinja_real(a + b);
    if (!strcmp(sign, "-"))
        return jinja_real(a - b);
    if (!strcmp(sign, "*"))
        return jinja_real(a * b);
    if (!strcmp(sign, "**"))
        return jinja_real(pow(a, b));
    if (!(b < 0) && !(b > 0))
        return jinja_fail(run, "a division by zero");
    if (!strcmp(sign, "/"))
        return jinja_real(a / b);
    return jinja_real(!strcmp(sign, "//") ? floor(a / b) : a - b * floor(a / b));
}

struct jinja_value jinja_binary(struct jinja_run *run, const char *sign, struct jinja_value a,
                                struct jinja_value b)
{
    double x, y;
    if (run->failed)
        return a;
    if (a.kind == JINJA_UNDEFINED || b.kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(run, a.kind == JINJA_UNDEFINED ? a.text : b.text);
    const bool same = a.kind == b.kind && (a.kind == JINJA_STRING || a.kind == JINJA_LIST);
    if (same && !strcmp(sign, "+"))
        return add_values(run, a, b);
    if (a.kind == JINJA_STRING && !strcmp(sign, "%"))
        return jinja_format(run, a.text, b);
    if (!strcmp(sign, "*") && b.kind == JINJA_INT && (a.kind == JINJA_STRING || a.kind == JINJA_LIST))
        return repeat(run, a, b.number);
    if (!strcmp(sign, "*") && a.kind == JINJA_INT && (b.kind == JINJA_STRING || b.kind == JINJA_LIST))
        return repeat(run, b, a.number);
    if (!jinja_number(a, &x) || !jinja_number(b, &y))
        return jinja_fail(run, "%s %s %s is not possible", jinja_kind_name(a.kind), sign,
                          jinja_kind_name(b.kind));
    if (a.kind != JINJA_FLOAT && b.kind != JINJA_FLOAT && strcmp(sign, "/") != 0) {
        int64_t result = 0;
        const int64_t first = a.kind == JINJA_BOOL ? a.truth : a.number,
                      second = b.kind == JINJA_BOOL ? b.truth : b.number;
        if (whole_result(sign, first, second, &result))
            return jinja_int(result);
        if (strcmp(sign, "**") != 0)
            return jinja_fail(run, "%s of whole numbers divides by zero or is too large", sign);
    }
    return real_result(run, sign, x, y);
}
