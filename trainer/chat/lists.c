/* lists.c - the filters of templates that go through a list: select, map, sort, join ... */
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/text.h"
#include "trainer/chat/jinja_internal.h"

typedef struct jinja_value list_function(struct jinja_run *run, struct jinja_list *list,
                                         const struct jinja_arguments *arguments);

/* An attribute by its path, "function.name" or a number. */
static struct jinja_value at_path(struct jinja_run *run, struct jinja_value of, struct jinja_value path)
{
    if (path.kind == JINJA_INT)
        return jinja_item(run, of, path);
    if (path.kind != JINJA_STRING)
        return jinja_fail(run, "an attribute is a text or a number");
    for (size_t from = 0; from <= path.text.length && !run->failed;) {
        const char *part = path.text.data + from, *dot = memchr(part, '.', path.text.length - from);
        const size_t length = dot ? (size_t)(dot - part) : path.text.length - from;
        char digits[20] = "";
        int64_t number;
        if (length < sizeof digits)
            memcpy(digits, part, length);
        of = text_int64(digits, &number) ? jinja_item(run, of, jinja_int(number))
                                         : jinja_item(run, of, jinja_string(part, length));
        from += length + 1;
    }
    return of;
}

static struct jinja_value sort_key(struct jinja_run *run, struct jinja_value item,
                                   const struct jinja_value *path, bool exact)
{
    struct jinja_value key = path ? at_path(run, item, *path) : item;
    if (!exact && key.kind == JINJA_STRING) {
        scope_buffer lower = {0};
        for (size_t i = 0; i < key.text.length; i++) {
            const char c = key.text.data[i], small = c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
            (void)buffer_append(&lower, &small, 1); /* remembers a failure */
        }
        key = jinja_copy(run, &lower);
    }
    return key;
}

static struct jinja_value list_first(struct jinja_run *run, struct jinja_list *list,
                                     const struct jinja_arguments *arguments)
{
    (void)run;
    (void)arguments;
    return list->count ? list->item[0] : jinja_undefined((struct jinja_text){"first", 5});
}

static struct jinja_value list_last(struct jinja_run *run, struct jinja_list *list,
                                    const struct jinja_arguments *arguments)
{
    (void)run;
    (void)arguments;
    return list->count ? list->item[list->count - 1] : jinja_undefined((struct jinja_text){"last", 4});
}

static struct jinja_value list_list(struct jinja_run *run, struct jinja_list *list,
                                    const struct jinja_arguments *arguments)
{
    struct jinja_list *copy = jinja_list_create(run->arena);
    (void)arguments;
    for (size_t i = 0; i < list->count; i++)
        if (!jinja_list_add(run->arena, copy, list->item[i]))
            return jinja_no_memory(run);
    return copy ? jinja_of_list(copy) : jinja_no_memory(run);
}

static struct jinja_value list_reverse(struct jinja_run *run, struct jinja_list *list,
                                       const struct jinja_arguments *arguments)
{
    struct jinja_list *copy = jinja_list_create(run->arena);
    (void)arguments;
    for (size_t i = list->count; i > 0; i--)
        if (!jinja_list_add(run->arena, copy, list->item[i - 1]))
            return jinja_no_memory(run);
    return copy ? jinja_of_list(copy) : jinja_no_memory(run);
}

static struct jinja_value list_join(struct jinja_run *run, struct jinja_list *list,
                                    const struct jinja_arguments *arguments)
{
    scope_buffer out = {.limit = JINJA_OUTPUT};
    const struct jinja_value *by = jinja_argument(arguments, 0, "d"),
                             *path = jinja_argument(arguments, 1, "attribute");
    for (size_t i = 0; i < list->count && !run->failed; i++) {
        if (i && by)
            (void)jinja_write(&out, *by); /* out remembers a failure */
        (void)jinja_write(&out, path ? at_path(run, list->item[i], *path) : list->item[i]);
    }
    return run->failed ? jinja_none() : jinja_copy(run, &out);
}

/* Stable: an item stays after the equal items in front of it. */
static struct jinja_value sorted_list(struct jinja_run *run, const struct jinja_list *list, bool reverse,
                                      bool exact, const struct jinja_value *path)
{
    struct jinja_list *sorted = jinja_list_create(run->arena), *keys = jinja_list_create(run->arena);
    for (size_t i = 0; i < list->count && !run->failed; i++) {
        const struct jinja_value key = sort_key(run, list->item[i], path, exact);
        size_t at = i;
        if (run->failed)
            break;
        if (!jinja_list_add(run->arena, sorted, list->item[i]) || !jinja_list_add(run->arena, keys, key))
            return jinja_no_memory(run);
        for (; at > 0 && !run->failed && jinja_enter(run, run->line); at--) {
            run->depth--;
            const int order = jinja_compare(run, keys->item[at - 1], key);
            if (reverse ? order >= 0 : order <= 0)
                break;
            keys->item[at] = keys->item[at - 1];
            sorted->item[at] = sorted->item[at - 1];
        }
        keys->item[at] = key;
        sorted->item[at] = list->item[i];
    }
    return sorted ? jinja_of_list(sorted) : jinja_no_memory(run);
}

static struct jinja_value list_sort(struct jinja_run *run, struct jinja_list *list,
                                    const struct jinja_arguments *arguments)
{
    return sorted_list(run, list, jinja_argument_true(arguments, 0, "reverse", false),
                       jinja_argument_true(arguments, 1, "case_sensitive", false),
                       jinja_argument(arguments, 2, "attribute"));
}

static struct jinja_value list_unique(struct jinja_run *run, struct jinja_list *list,
                                      const struct jinja_arguments *arguments)
{
    struct jinja_list *kept = jinja_list_create(run->arena), *keys = jinja_list_create(run->arena);
    const bool exact = jinja_argument_true(arguments, 0, "case_sensitive", false);
    for (size_t i = 0; keys && i < list->count && !run->failed; i++) {
        const struct jinja_value key =
            sort_key(run, list->item[i], jinja_argument(arguments, 1, "attribute"), exact);
        if (run->failed || jinja_contains(run, jinja_of_list(keys), key))
            continue;
        if (!jinja_list_add(run->arena, keys, key) || !jinja_list_add(run->arena, kept, list->item[i]))
            return jinja_no_memory(run);
    }
    return kept && keys ? jinja_of_list(kept) : jinja_no_memory(run);
}

static struct jinja_value extreme(struct jinja_run *run, const struct jinja_list *list,
                                  const struct jinja_arguments *arguments, int sign)
{
    const struct jinja_value *path = jinja_argument(arguments, 1, "attribute");
    const bool exact = jinja_argument_true(arguments, 0, "case_sensitive", false);
    size_t best = 0;
    for (size_t i = 1; i < list->count && !run->failed; i++)
        if (jinja_compare(run, sort_key(run, list->item[i], path, exact),
                          sort_key(run, list->item[best], path, exact)) *
                sign >
            0)
            best = i;
    return list->count ? list->item[best] : jinja_undefined((struct jinja_text){"item", 4});
}

static struct jinja_value list_max(struct jinja_run *run, struct jinja_list *list,
                                   const struct jinja_arguments *arguments)
{
    return extreme(run, list, arguments, 1);
}

static struct jinja_value list_min(struct jinja_run *run, struct jinja_list *list,
                                   const struct jinja_arguments *arguments)
{
    return extreme(run, list, arguments, -1);
}

static struct jinja_value list_sum(struct jinja_run *run, struct jinja_list *list,
                                   const struct jinja_arguments *arguments)
{
    const struct jinja_value *path = jinja_argument(arguments, 0, "attribute"),
                             *start = jinja_argument(arguments, 1, "start");
    struct jinja_value sum = start ? *start : jinja_int(0);
    for (size_t i = 0; i < list->count && !run->failed; i++)
        sum = jinja_binary(run, "+", sum, path ? at_path(run, list->item[i], *path) : list->item[i]);
    return sum;
}

/* The arguments without the first `skip`. */
static bool without_first(struct jinja_run *run, const struct jinja_arguments *arguments, size_t skip,
                          struct jinja_arguments *out)
{
    *out = (struct jinja_arguments){jinja_list_create(run->arena), arguments->named};
    for (size_t i = skip; i < arguments->list->count; i++)
        if (!jinja_list_add(run->arena, out->list, arguments->list->item[i]))
            return false;
    return out->list != NULL;
}

/* select, reject: by a test of the item, or of its attribute. */
static struct jinja_value selected(struct jinja_run *run, const struct jinja_list *list,
                                   const struct jinja_arguments *arguments, bool by_attribute, bool wanted)
{
    struct jinja_list *kept = jinja_list_create(run->arena);
    struct jinja_arguments rest;
    const size_t skip = by_attribute;
    const struct jinja_value *path = by_attribute ? jinja_argument(arguments, 0, NULL) : NULL,
                             *test = jinja_argument(arguments, skip, NULL);
    if (by_attribute && !path)
        return jinja_fail(run, "the name of an attribute is missing");
    if (test && test->kind != JINJA_STRING)
        return jinja_fail(run, "the name of a test is no text");
    if (!kept || !without_first(run, arguments, skip + 1, &rest))
        return jinja_no_memory(run);
    for (size_t i = 0; i < list->count && !run->failed; i++) {
        const struct jinja_value value = path ? at_path(run, list->item[i], *path) : list->item[i];
        const bool passes = run->failed ? false
                            : test      ? jinja_test(run, test->text, value, &rest)
                                        : jinja_true(value);
        if (passes == wanted && !jinja_list_add(run->arena, kept, list->item[i]))
            return jinja_no_memory(run);
    }
    return jinja_of_list(kept);
}

static struct jinja_value list_select(struct jinja_run *run, struct jinja_list *list,
                                      const struct jinja_arguments *arguments)
{
    return selected(run, list, arguments, false, true);
}

static struct jinja_value list_reject(struct jinja_run *run, struct jinja_list *list,
                                      const struct jinja_arguments *arguments)
{
    return selected(run, list, arguments, false, false);
}

static struct jinja_value list_selectattr(struct jinja_run *run, struct jinja_list *list,
                                          const struct jinja_arguments *arguments)
{
    return selected(run, list, arguments, true, true);
}

static struct jinja_value list_rejectattr(struct jinja_run *run, struct jinja_list *list,
                                          const struct jinja_arguments *arguments)
{
    return selected(run, list, arguments, true, false);
}

/* By an attribute, or by a filter. */
static struct jinja_value list_map(struct jinja_run *run, struct jinja_list *list,
                                   const struct jinja_arguments *arguments)
{
    struct jinja_list *mapped = jinja_list_create(run->arena);
    struct jinja_arguments rest;
    const struct jinja_value *path = jinja_dict_find(arguments->named, "attribute"),
                             *otherwise = jinja_dict_find(arguments->named, "default"),
                             *filter = jinja_argument(arguments, 0, NULL);
    if (!path && (!filter || filter->kind != JINJA_STRING))
        return jinja_fail(run, "map needs an attribute or the name of a filter");
    if (!mapped || !without_first(run, arguments, 1, &rest))
        return jinja_no_memory(run);
    for (size_t i = 0; i < list->count && !run->failed; i++) {
        struct jinja_value value =
            path ? at_path(run, list->item[i], *path) : jinja_filter(run, filter->text, list->item[i], &rest);
        if (path && otherwise && value.kind == JINJA_UNDEFINED)
            value = *otherwise;
        if (!jinja_list_add(run->arena, mapped, value))
            return jinja_no_memory(run);
    }
    return jinja_of_list(mapped);
}

/* Lists of `size` items each; the last may be filled. */
static struct jinja_value list_batch(struct jinja_run *run, struct jinja_list *list,
                                     const struct jinja_arguments *arguments)
{
    const int64_t size = jinja_argument_int(run, arguments, 0, "linecount", 0);
    const struct jinja_value *fill = jinja_argument(arguments, 1, "fill_with");
    struct jinja_list *batches = jinja_list_create(run->arena), *batch = NULL;
    if (size < 1 || size > 1000000)
        return jinja_fail(run, "batch needs a number of items");
    for (size_t i = 0; i < list->count || (fill && batch && batch->count < (size_t)size); i++) {
        if ((i % (size_t)size == 0 && (!(batch = jinja_list_create(run->arena)) ||
                                       !jinja_list_add(run->arena, batches, jinja_of_list(batch)))) ||
            !jinja_list_add(run->arena, batch, i < list->count ? list->item[i] : *fill))
            return jinja_no_memory(run);
    }
    return batches ? jinja_of_list(batches) : jinja_no_memory(run);
}

static const struct {
    const char *name;
    list_function *apply;
} list_filters[] = {{"first", list_first},
                    {"last", list_last},
                    {"list", list_list},
                    {"reverse", list_reverse},
                    {"join", list_join},
                    {"sort", list_sort},
                    {"unique", list_unique},
                    {"max", list_max},
                    {"min", list_min},
                    {"sum", list_sum},
                    {"select", list_select},
                    {"reject", list_reject},
                    {"selectattr", list_selectattr},
                    {"rejectattr", list_rejectattr},
                    {"map", list_map},
                    {"batch", list_batch}};

/* Pairs of a dict by key or value. */
static struct jinja_value dictsort(struct jinja_run *run, struct jinja_value of,
                                   const struct jinja_arguments *arguments)
{
    const struct jinja_method method = {of, {"items", 5}};
    struct jinja_arguments none;
    const struct jinja_value *by = jinja_argument(arguments, 1, "by");
    const struct jinja_value path =
        jinja_int(by && by->kind == JINJA_STRING && jinja_text_is(by->text, "value"));
    if (of.kind != JINJA_DICT)
        return jinja_fail(run, "dictsort needs a dict, and has %s", jinja_kind_name(of.kind));
    if (!without_first(run, arguments, SIZE_MAX, &none))
        return jinja_no_memory(run);
    const struct jinja_value pairs = jinja_call_method(run, &method, &none);
    return run->failed ? pairs
                       : sorted_list(run, pairs.list, jinja_argument_true(arguments, 2, "reverse", false),
                                     jinja_argument_true(arguments, 0, "case_sensitive", false), &path);
}

bool jinja_list_filter(struct jinja_run *run, struct jinja_text name, struct jinja_value of,
                       const struct jinja_arguments *arguments, struct jinja_value *out)
{
    if (jinja_text_is(name, "dictsort")) {
        *out = dictsort(run, of, arguments);
        return true;
    }
    for (size_t i = 0; i < sizeof list_filters / sizeof *list_filters; i++) {
        if (!jinja_text_is(name, list_filters[i].name))
            continue;
        struct jinja_list *list = jinja_elements(run, of);
        *out = list ? list_filters[i].apply(run, list, arguments) : jinja_none();
        if (!run->failed && of.kind == JINJA_STRING && jinja_text_is(name, "reverse")) {
            scope_buffer text = {.limit = JINJA_OUTPUT};
            for (size_t k = 0; k < out->list->count; k++)
                (void)jinja_write(&text, out->list->item[k]); /* remembers a failure */
            *out = jinja_copy(run, &text);
        }
        return true;
    }
    return false;
}
