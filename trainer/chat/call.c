/* call.c - calls: arguments, macros, and the functions that every template has. */
#include <string.h>
#include <time.h>

#include "proto/base/error.h"
#include "trainer/chat/jinja_internal.h"

/* ---- arguments ---- */

static bool add_spread(struct jinja_run *run, const struct jinja_node *node, struct jinja_arguments *out)
{
    const struct jinja_value value = jinja_evaluate(run, node->a);
    if (node->kind == NODE_SPREAD) {
        const struct jinja_list *list = run->failed ? NULL : jinja_elements(run, value);
        for (size_t i = 0; list && i < list->count; i++)
            if (!jinja_list_add(run->arena, out->list, list->item[i]))
                return false;
        return true;
    }
    if (value.kind != JINJA_DICT)
        (void)jinja_fail(run, "** needs a dict, and has %s", jinja_kind_name(value.kind));
    for (size_t i = 0; !run->failed && i < value.dict->count; i++)
        if (!jinja_dict_set(run->arena, out->named, value.dict->entry[i].key, value.dict->entry[i].value))
            return false;
    return true;
}

bool jinja_arguments_of(struct jinja_run *run, const struct jinja_node *node, struct jinja_arguments *out)
{
    *out = (struct jinja_arguments){jinja_list_create(run->arena), jinja_dict_create(run->arena)};
    bool room = out->list && out->named;
    for (size_t i = 0; room && i < node->count && !run->failed; i++) {
        const struct jinja_node *argument = node->item[i];
        if (argument->kind == NODE_SPREAD || argument->kind == NODE_SPREAD2)
            room = add_spread(run, argument, out);
        else if (argument->kind == NODE_KEYWORD)
            room = jinja_dict_set(run->arena, out->named,
                                  jinja_string(argument->text.data, argument->text.length),
                                  jinja_evaluate(run, argument->a));
        else
            room = jinja_list_add(run->arena, out->list, jinja_evaluate(run, argument));
    }
    if (!room)
        (void)jinja_no_memory(run);
    return room && !run->failed;
}

/* ---- macros ---- */

/* Values of the parameters in the macro's scope, which is the run's. */
static void define_parameters(struct jinja_run *run, const struct jinja_node *node,
                              const struct jinja_arguments *arguments)
{
    struct jinja_list *more = jinja_list_create(run->arena);
    struct jinja_dict *named = jinja_dict_create(run->arena);
    bool room = more && named;
    for (size_t i = 0; room && i < node->count && !run->failed; i++) {
        const struct jinja_node *parameter = node->item[i];
        const struct jinja_value name = jinja_string(parameter->text.data, parameter->text.length);
        const struct jinja_value *given =
            i < arguments->list->count ? &arguments->list->item[i] : jinja_dict_get(arguments->named, name);
        room = jinja_define(run, parameter->text,
                            given          ? *given
                            : parameter->a ? jinja_evaluate(run, parameter->a)
                                           : jinja_undefined(parameter->text));
    }
    for (size_t i = node->count; room && i < arguments->list->count; i++)
        room = jinja_list_add(run->arena, more, arguments->list->item[i]);
    for (size_t i = 0; room && i < arguments->named->count; i++) {
        const struct jinja_entry *entry = &arguments->named->entry[i];
        bool parameter = false;
        for (size_t k = 0; k < node->count; k++)
            parameter = parameter || jinja_equal(entry->key, jinja_string(node->item[k]->text.data,
                                                                          node->item[k]->text.length));
        if (jinja_text_is(entry->key.text, "caller"))
            room = jinja_define(run, entry->key.text, entry->value);
        else if (!parameter)
            room = jinja_dict_set(run->arena, named, entry->key, entry->value);
    }
    if (more && more->count)
        more->tuple = true;
    if (!room || !jinja_define(run, (struct jinja_text){"varargs", 7}, jinja_of_list(more)) ||
        !jinja_define(run, (struct jinja_text){"kwargs", 6},
                      (struct jinja_value){.kind = JINJA_DICT, .dict = named}))
        (void)jinja_no_memory(run);
}

struct jinja_value jinja_call_macro(struct jinja_run *run, const struct jinja_macro *macro,
                                    const struct jinja_arguments *arguments)
{
    struct jinja_scope *caller = run->scope, *scope = jinja_arena_take(run->arena, sizeof *scope);
    if (!scope)
        return jinja_no_memory(run);
    scope->parent = macro->scope;
    run->scope = scope;
    define_parameters(run, macro->node, arguments);
    const struct jinja_value value =
        run->failed ? jinja_none() : jinja_capture(run, macro->node->body, scope);
    run->scope = caller;
    return value;
}

/* ---- functions ---- */

static struct jinja_value call_range(struct jinja_run *run, const struct jinja_arguments *arguments)
{
    enum { RANGE = 100000 }; /* the limit of jinja2's sandbox */
    const bool two = arguments->list->count > 1;
    const int64_t first = jinja_argument_int(run, arguments, 0, NULL, 0), from = two ? first : 0,
                  to = two ? jinja_argument_int(run, arguments, 1, NULL, 0) : first,
                  step = jinja_argument_int(run, arguments, 2, NULL, 1);
    struct jinja_list *list = jinja_list_create(run->arena);
    if (!step)
        return jinja_fail(run, "range needs a step that is not 0");
    for (int64_t at = from; !run->failed && (step > 0 ? at < to : at > to);) {
        if (list && list->count == RANGE)
            return jinja_fail(run, "range has more than %d numbers", RANGE);
        if (!jinja_list_add(run->arena, list, jinja_int(at)))
            return jinja_no_memory(run);
        if (__builtin_add_overflow(at, step, &at))
            break;
    }
    return list ? jinja_of_list(list) : jinja_no_memory(run);
}

/* The named arguments, after the entries of a dict. */
static struct jinja_value call_dict(struct jinja_run *run, const struct jinja_arguments *arguments)
{
    struct jinja_dict *dict = jinja_dict_create(run->arena);
    const struct jinja_value *from = jinja_argument(arguments, 0, NULL);
    bool room = dict != NULL;
    if (from && from->kind != JINJA_DICT)
        return jinja_fail(run, "dict and namespace take a dict, and not %s", jinja_kind_name(from->kind));
    for (size_t i = 0; room && from && i < from->dict->count; i++)
        room = jinja_dict_set(run->arena, dict, from->dict->entry[i].key, from->dict->entry[i].value);
    for (size_t i = 0; room && i < arguments->named->count; i++)
        room = jinja_dict_set(run->arena, dict, arguments->named->entry[i].key,
                              arguments->named->entry[i].value);
    return room ? (struct jinja_value){.kind = JINJA_DICT, .dict = dict} : jinja_no_memory(run);
}

static struct jinja_value call_namespace(struct jinja_run *run, const struct jinja_arguments *arguments)
{
    struct jinja_value value = call_dict(run, arguments);
    value.kind = run->failed ? value.kind : JINJA_NAMESPACE;
    return value;
}

static struct jinja_value call_raise_exception(struct jinja_run *run, const struct jinja_arguments *arguments)
{
    const struct jinja_value *why = jinja_argument(arguments, 0, "message");
    const struct jinja_value text = why ? jinja_to_string(run, *why) : jinja_string("", 0);
    return run->failed ? text
                       : jinja_fail(run, "the template refuses the chat: %.*s",
                                    (int)(text.text.length < 250 ? text.text.length : 250), text.text.data);
}

static struct jinja_value call_strftime_now(struct jinja_run *run, const struct jinja_arguments *arguments)
{
    const struct jinja_value *format = jinja_argument(arguments, 0, "format");
    const time_t now = (time_t)run->input->now_s;
    struct tm parts;
    char text[256], pattern[128];
    if (!format || format->kind != JINJA_STRING || format->text.length >= sizeof pattern ||
        !gmtime_r(&now, &parts))
        return jinja_fail(run, "strftime_now needs a short text of a format");
    if (format->text.length)
        memcpy(pattern, format->text.data, format->text.length);
    pattern[format->text.length] = '\0';
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    const size_t length = strftime(text, sizeof text, pattern, &parts);
#pragma GCC diagnostic pop
    scope_buffer copy = {0};
    (void)buffer_append(&copy, text, length); /* remembers a failure */
    return jinja_copy(run, &copy);
}

static const struct {
    const char *name;
    struct jinja_value (*call)(struct jinja_run *run, const struct jinja_arguments *arguments);
} functions[] = {{"range", call_range},
                 {"dict", call_dict},
                 {"namespace", call_namespace},
                 {"raise_exception", call_raise_exception},
                 {"strftime_now", call_strftime_now}};

int jinja_function(struct jinja_text name)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (jinja_text_is(name, functions[i].name))
            return (int)i;
    return -1;
}

static struct jinja_value call_loop(struct jinja_run *run, const struct jinja_loop *loop,
                                    const struct jinja_arguments *arguments)
{
    const struct jinja_value *over = jinja_argument(arguments, 0, NULL);
    struct jinja_scope *caller = run->scope;
    struct buffer *before = run->out;
    scope_buffer text = {.limit = JINJA_OUTPUT};
    if (!loop->node || !over)
        return jinja_fail(run, "loop is called in a loop that is not recursive");
    run->scope = loop->scope;
    run->out = &text;
    jinja_run_for(run, loop->node, *over, loop->depth + 1);
    run->out = before;
    run->scope = caller;
    return run->failed ? jinja_none() : jinja_copy(run, &text);
}

struct jinja_value jinja_call(struct jinja_run *run, struct jinja_value callee,
                              const struct jinja_arguments *arguments)
{
    switch (callee.kind) {
    case JINJA_MACRO:
        return jinja_call_macro(run, callee.macro, arguments);
    case JINJA_METHOD:
        return jinja_call_method(run, callee.method, arguments);
    case JINJA_FUNCTION:
        return functions[callee.function].call(run, arguments);
    case JINJA_LOOP:
        return call_loop(run, callee.loop, arguments);
    case JINJA_UNDEFINED:
        return jinja_fail(run, "'%.*s' is called, and is undefined",
                          (int)(callee.text.length < 80 ? callee.text.length : 80), callee.text.data);
    case JINJA_NONE:
    case JINJA_BOOL:
    case JINJA_INT:
    case JINJA_FLOAT:
    case JINJA_STRING:
    case JINJA_LIST:
    case JINJA_DICT:
    case JINJA_NAMESPACE:
        break;
    }
    return jinja_fail(run, "%s cannot be called", jinja_kind_name(callee.kind));
}
