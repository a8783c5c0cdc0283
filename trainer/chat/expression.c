/* expression.c - the value of an expression, as jinja2 finds it. */
#include <math.h>
#include <string.h>

#include "proto/base/error.h"
#include "trainer/chat/jinja_internal.h"

/* ---- names ---- */

static struct jinja_value value_of_name(const struct jinja_run *run, struct jinja_text name)
{
    for (const struct jinja_scope *scope = run->scope; scope; scope = scope->parent)
        for (const struct jinja_variable *v = scope->first; v; v = v->next)
            if (v->name.length == name.length && !memcmp(v->name.data, name.data, name.length))
                return v->value;
    const struct jinja_value *given =
        jinja_dict_get(run->input->variables, jinja_string(name.data, name.length));
    const int function = given ? -1 : jinja_function(name);
    return given           ? *given
           : function >= 0 ? (struct jinja_value){.kind = JINJA_FUNCTION, .function = function}
                           : jinja_undefined(name);
}

/* ---- slices ---- */

/* A bound, as Python clips it. */
static bool slice_bound(struct jinja_run *run, const struct jinja_node *node, int64_t count,
                        int64_t otherwise, bool back, int64_t *out)
{
    const struct jinja_value value = node ? jinja_evaluate(run, node) : jinja_none();
    *out = otherwise;
    if (value.kind == JINJA_NONE)
        return true;
    if (value.kind != JINJA_INT) {
        (void)jinja_fail(run, "a slice needs whole numbers, and has %s", jinja_kind_name(value.kind));
        return false;
    }
    const int64_t at = value.number < 0 ? value.number + count : value.number;
    *out = at < 0 ? (back ? -1 : 0) : at >= count ? (back ? count - 1 : count) : at;
    return true;
}

static struct jinja_value slice_of(struct jinja_run *run, const struct jinja_node *node)
{
    const struct jinja_value of = jinja_evaluate(run, node->a);
    if (run->failed)
        return of;
    if (of.kind != JINJA_STRING && of.kind != JINJA_LIST)
        return of.kind == JINJA_UNDEFINED ? jinja_fail_undefined(run, of.text)
                                          : jinja_fail(run, "%s has no slices", jinja_kind_name(of.kind));
    const int64_t count =
        of.kind == JINJA_LIST ? (int64_t)of.list->count : (int64_t)jinja_characters(of.text);
    const struct jinja_value given = node->item[2] ? jinja_evaluate(run, node->item[2]) : jinja_int(1);
    const int64_t step = given.kind == JINJA_INT ? given.number : given.kind == JINJA_NONE ? 1 : 0;
    int64_t from, to;
    if (!run->failed && (step == 0 || step < -INT32_MAX || step > INT32_MAX))
        return jinja_fail(run, "a slice needs a step that is a whole number and not 0");
    if (run->failed || !slice_bound(run, node->item[0], count, step > 0 ? 0 : count - 1, step < 0, &from) ||
        !slice_bound(run, node->item[1], count, step > 0 ? count : -1, step < 0, &to))
        return of;
    if (of.kind == JINJA_STRING && step == 1) {
        const size_t begin = jinja_character_at(of.text, (size_t)from),
                     end = to > from ? jinja_character_at(of.text, (size_t)to) : begin;
        return jinja_string(of.text.data + begin, end - begin);
    }
    const struct jinja_list *items = jinja_elements(run, of);
    struct jinja_list *list = jinja_list_create(run->arena);
    if (!items || !list)
        return jinja_no_memory(run);
    list->tuple = of.kind == JINJA_LIST && of.list->tuple;
    for (int64_t at = from; step > 0 ? at < to : at > to; at += step)
        if (!jinja_list_add(run->arena, list, items->item[at]))
            return jinja_no_memory(run);
    if (of.kind == JINJA_LIST)
        return jinja_of_list(list);
    scope_buffer text = {.limit = JINJA_OUTPUT};
    for (size_t i = 0; i < list->count; i++)
        (void)buffer_append(&text, list->item[i].text.data, list->item[i].text.length); /* remembers */
    return jinja_copy(run, &text);
}

/* ---- operators ---- */

static bool holds(struct jinja_run *run, const char *sign, struct jinja_value a, struct jinja_value b)
{
    if (!strcmp(sign, "=="))
        return jinja_equal(a, b);
    if (!strcmp(sign, "!="))
        return !jinja_equal(a, b);
    if (!strcmp(sign, "in"))
        return jinja_contains(run, b, a);
    if (!strcmp(sign, "not in"))
        return !jinja_contains(run, b, a);
    const int order = jinja_compare(run, a, b);
    return !strcmp(sign, "<")    ? order < 0
           : !strcmp(sign, "<=") ? order <= 0
           : !strcmp(sign, ">")  ? order > 0
                                 : order >= 0;
}

static struct jinja_value compare_all(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value left = jinja_evaluate(run, node->a);
    for (size_t i = 0; i < node->count && !run->failed; i++) {
        const struct jinja_value right = jinja_evaluate(run, node->item[i]->a);
        /* the operator is a text of parse.c, ended by NUL */
        if (run->failed || !holds(run, node->item[i]->text.data, left, right))
            return jinja_bool(false);
        left = right;
    }
    return jinja_bool(true);
}

static struct jinja_value concatenate(struct jinja_run *run, const struct jinja_node *node)
{
    scope_buffer text = {.limit = JINJA_OUTPUT};
    for (size_t i = 0; i < node->count && !run->failed; i++)
        (void)jinja_write(&text, jinja_evaluate(run, node->item[i])); /* text remembers a failure */
    return run->failed ? jinja_none() : jinja_copy(run, &text);
}

static struct jinja_value list_of(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_list *list = jinja_list_create(run->arena);
    for (size_t i = 0; i < node->count && !run->failed; i++)
        if (!jinja_list_add(run->arena, list, jinja_evaluate(run, node->item[i])))
            return jinja_no_memory(run);
    if (!list)
        return jinja_no_memory(run);
    list->tuple = node->kind == NODE_TUPLE;
    return jinja_of_list(list);
}

static struct jinja_value dict_of(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_dict *dict = jinja_dict_create(run->arena);
    for (size_t i = 0; i + 1 < node->count && !run->failed; i += 2) {
        const struct jinja_value key = jinja_evaluate(run, node->item[i]),
                                 value = jinja_evaluate(run, node->item[i + 1]);
        if (!jinja_dict_set(run->arena, dict, key, value))
            return jinja_no_memory(run);
    }
    return dict ? (struct jinja_value){.kind = JINJA_DICT, .dict = dict} : jinja_no_memory(run);
}

static struct jinja_value negate(struct jinja_run *run, struct jinja_value value)
{
    if (value.kind == JINJA_FLOAT)
        return jinja_real(-value.real);
    return jinja_binary(run, "-", jinja_int(0), value);
}

static struct jinja_value binary_of(struct jinja_run *run, const struct jinja_node *node)
{
    char sign[4] = "";
    const struct jinja_value a = jinja_evaluate(run, node->a), b = jinja_evaluate(run, node->b);
    memcpy(sign, node->text.data, node->text.length < 3 ? node->text.length : 3);
    return jinja_binary(run, sign, a, b);
}

static struct jinja_value applied(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_arguments arguments;
    const struct jinja_value of = jinja_evaluate(run, node->a);
    if (run->failed || !jinja_arguments_of(run, node, &arguments))
        return of;
    return node->kind == NODE_CALL     ? jinja_call(run, of, &arguments)
           : node->kind == NODE_FILTER ? jinja_filter(run, node->text, of, &arguments)
                                       : jinja_bool(jinja_test(run, node->text, of, &arguments));
}

static struct jinja_value evaluate_here(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value a;
    switch (node->kind) {
    case NODE_CONSTANT:
        return node->value;
    case NODE_NAME:
        return value_of_name(run, node->text);
    case NODE_LIST:
    case NODE_TUPLE:
        return list_of(run, node);
    case NODE_DICT:
        return dict_of(run, node);
    case NODE_CONDITION:
        return jinja_true(jinja_evaluate(run, node->b)) ? jinja_evaluate(run, node->a)
               : node->c                                ? jinja_evaluate(run, node->c)
                                                        : jinja_undefined((struct jinja_text){"else", 4});
    case NODE_OR:
        a = jinja_evaluate(run, node->a);
        return jinja_true(a) ? a : jinja_evaluate(run, node->b);
    case NODE_AND:
        a = jinja_evaluate(run, node->a);
        return jinja_true(a) ? jinja_evaluate(run, node->b) : a;
    case NODE_NOT:
        return jinja_bool(!jinja_true(jinja_evaluate(run, node->a)));
    case NODE_COMPARE:
        return compare_all(run, node);
    case NODE_BINARY:
        return binary_of(run, node);
    case NODE_NEGATE:
        return negate(run, jinja_evaluate(run, node->a));
    case NODE_CONCAT:
        return concatenate(run, node);
    case NODE_ATTRIBUTE:
        return jinja_attribute(run, jinja_evaluate(run, node->a), node->text);
    case NODE_ITEM:
        a = jinja_evaluate(run, node->a);
        return jinja_item(run, a, jinja_evaluate(run, node->b));
    case NODE_SLICE:
        return slice_of(run, node);
    case NODE_CALL:
    case NODE_FILTER:
    case NODE_TEST:
        return applied(run, node);
    default:
        return jinja_none(); /* statements are no expressions: parse.c makes none */
    }
}

struct jinja_value jinja_evaluate(struct jinja_run *run, const struct jinja_node *node)
{
    if (!jinja_enter(run, node->line))
        return jinja_none();
    const struct jinja_value value = evaluate_here(run, node);
    run->depth--;
    return value;
}
