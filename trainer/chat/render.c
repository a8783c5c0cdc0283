/* render.c - runs the statements of a template. */
#include <string.h>

#include "proto/base/error.h"
#include "trainer/chat/jinja_internal.h"

/* ---- names ---- */

bool jinja_define(struct jinja_run *run, struct jinja_text name, struct jinja_value value)
{
    for (struct jinja_variable *v = run->scope->first; v; v = v->next)
        if (v->name.length == name.length && !memcmp(v->name.data, name.data, name.length)) {
            v->value = value;
            return true;
        }
    struct jinja_variable *made = jinja_arena_take(run->arena, sizeof *made);
    if (!made)
        return false;
    *made = (struct jinja_variable){name, value, run->scope->first};
    run->scope->first = made;
    return true;
}

static void assign_attribute(struct jinja_run *run, const struct jinja_node *target, struct jinja_value value)
{
    const struct jinja_value of = jinja_evaluate(run, target->a);
    if (!run->failed && of.kind != JINJA_NAMESPACE)
        (void)jinja_fail(run, "'%.*s' is %s: attributes of a namespace alone may be set",
                         (int)target->a->text.length, target->a->text.data, jinja_kind_name(of.kind));
    else if (!run->failed && !jinja_dict_set(run->arena, of.dict,
                                             jinja_string(target->text.data, target->text.length), value))
        (void)jinja_no_memory(run);
}

bool jinja_assign(struct jinja_run *run, const struct jinja_node *target, struct jinja_value value)
{
    if (run->failed)
        return false;
    if (target->kind == NODE_ATTRIBUTE) {
        assign_attribute(run, target, value);
    } else if (target->kind == NODE_NAME) {
        if (!jinja_define(run, target->text, value))
            (void)jinja_no_memory(run);
    } else {
        const struct jinja_list *list = jinja_elements(run, value);
        if (list && list->count != target->count)
            (void)jinja_fail(run, "%zu values for %zu names", list->count, target->count);
        for (size_t i = 0; list && !run->failed && i < target->count; i++)
            (void)jinja_assign(run, target->item[i], list->item[i]);
    }
    return !run->failed;
}

/* ---- bodies ---- */

static void run_body(struct jinja_run *run, const struct jinja_node *body)
{
    for (size_t i = 0; i < body->count && !run->failed && run->jump == JUMP_NONE; i++)
        jinja_run_node(run, body->item[i]);
}

static void run_in_scope(struct jinja_run *run, const struct jinja_node *body)
{
    struct jinja_scope *outer = run->scope;
    /* from the arena: a macro may keep it */
    struct jinja_scope *inner = jinja_arena_take(run->arena, sizeof *inner);
    if (!inner) {
        (void)jinja_no_memory(run);
        return;
    }
    inner->parent = outer;
    run->scope = inner;
    run_body(run, body);
    run->scope = outer;
}

struct jinja_value jinja_capture(struct jinja_run *run, const struct jinja_node *body,
                                 struct jinja_scope *scope)
{
    struct buffer *before = run->out;
    struct jinja_scope *outer = run->scope;
    scope_buffer text = {.limit = JINJA_OUTPUT};
    if (!jinja_enter(run, body->line))
        return jinja_none();
    run->out = &text;
    run->scope = scope;
    run_in_scope(run, body);
    run->scope = outer;
    run->out = before;
    run->depth--;
    return run->failed ? jinja_none() : jinja_copy(run, &text);
}

/* ---- for ---- */

/* The items that pass the condition. */
static struct jinja_list *filtered_items(struct jinja_run *run, const struct jinja_node *node,
                                         struct jinja_list *items)
{
    struct jinja_list *kept = jinja_list_create(run->arena);
    struct jinja_scope *outer = run->scope;
    for (size_t i = 0; kept && i < items->count && !run->failed; i++) {
        struct jinja_scope inner = {.parent = outer};
        run->scope = &inner;
        if (jinja_assign(run, node->a, items->item[i]) && jinja_true(jinja_evaluate(run, node->c)) &&
            !jinja_list_add(run->arena, kept, items->item[i]))
            kept = NULL;
        run->scope = outer;
    }
    if (!kept)
        (void)jinja_no_memory(run);
    return kept;
}

void jinja_run_for(struct jinja_run *run, const struct jinja_node *node, struct jinja_value over, int depth)
{
    struct jinja_list *items = run->failed ? NULL : jinja_elements(run, over);
    struct jinja_loop *loop = jinja_arena_take(run->arena, sizeof *loop);
    struct jinja_scope *outer = run->scope;
    if (items && node->c)
        items = filtered_items(run, node, items);
    if (!loop)
        (void)jinja_no_memory(run);
    if (!items || run->failed)
        return;
    *loop = (struct jinja_loop){
        .items = items, .depth = depth, .node = node->recursive ? node : NULL, .scope = outer};
    for (size_t i = 0; i < items->count && !run->failed; i++) {
        struct jinja_scope *inner = jinja_arena_take(run->arena, sizeof *inner);
        loop->at = i;
        if (!inner) {
            (void)jinja_no_memory(run);
            return;
        }
        inner->parent = outer;
        run->scope = inner;
        if (jinja_assign(run, node->a, items->item[i]) &&
            jinja_define(run, (struct jinja_text){"loop", 4},
                         (struct jinja_value){.kind = JINJA_LOOP, .loop = loop}))
            run_body(run, node->body);
        run->scope = outer;
        const bool ends = run->jump == JUMP_BREAK;
        run->jump = JUMP_NONE;
        if (ends)
            return;
    }
    if (!items->count && node->other)
        run_in_scope(run, node->other);
}

/* ---- statements ---- */

static void run_if(struct jinja_run *run, const struct jinja_node *node)
{
    while (node && node->kind == NODE_IF) {
        const bool holds = jinja_true(jinja_evaluate(run, node->a));
        if (run->failed)
            return;
        if (holds) {
            run_body(run, node->body);
            return;
        }
        node = node->other;
    }
    if (node)
        run_body(run, node);
}

static void define_macro(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_macro *macro = jinja_arena_take(run->arena, sizeof *macro);
    if (macro)
        *macro = (struct jinja_macro){node, run->scope};
    if (!macro || !jinja_define(run, node->text, (struct jinja_value){.kind = JINJA_MACRO, .macro = macro}))
        (void)jinja_no_memory(run);
}

static void print_value(struct jinja_run *run, struct jinja_value value)
{
    if (!run->failed && jinja_write(run->out, value) < 0)
        (void)jinja_fail(run, "the text of a chat has more than %d MB", JINJA_OUTPUT >> 20);
}

/* call(...) with the body as its caller. */
static void run_call_block(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_arguments arguments;
    struct jinja_macro *macro = jinja_arena_take(run->arena, sizeof *macro);
    const struct jinja_value callee = jinja_evaluate(run, node->a->a);
    if (!macro) {
        (void)jinja_no_memory(run);
        return;
    }
    *macro = (struct jinja_macro){node, run->scope};
    if (run->failed || !jinja_arguments_of(run, node->a, &arguments))
        return;
    if (!jinja_dict_set(run->arena, arguments.named, jinja_string("caller", 6),
                        (struct jinja_value){.kind = JINJA_MACRO, .macro = macro}))
        (void)jinja_no_memory(run);
    print_value(run, jinja_call(run, callee, &arguments));
}

/* The text of a body, after the filters of a block. */
static struct jinja_value filtered_text(struct jinja_run *run, const struct jinja_node *filter,
                                        struct jinja_value text)
{
    struct jinja_arguments arguments;
    if (!filter || run->failed)
        return text;
    if (filter->kind != NODE_FILTER)
        return jinja_fail(run, "a block takes filters alone");
    const struct jinja_value inner = filtered_text(run, filter->a, text);
    return run->failed || !jinja_arguments_of(run, filter, &arguments)
               ? inner
               : jinja_filter(run, filter->text, inner, &arguments);
}

static struct jinja_value captured(struct jinja_run *run, const struct jinja_node *node)
{
    return filtered_text(run, node->b, jinja_capture(run, node->body, run->scope));
}

static void run_with(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_scope *outer = run->scope, *inner = jinja_arena_take(run->arena, sizeof *inner);
    if (!inner) {
        (void)jinja_no_memory(run);
        return;
    }
    inner->parent = outer;
    for (size_t i = 0; i < node->count && !run->failed; i++) {
        const struct jinja_value value = jinja_evaluate(run, node->item[i]->b);
        run->scope = inner;
        (void)jinja_assign(run, node->item[i]->a, value);
        run->scope = outer;
    }
    run->scope = inner;
    if (!run->failed)
        run_body(run, node->body);
    run->scope = outer;
}

/* Remembers where the text of a generation block is, if it goes to the text of the template itself. */
static void run_generation(struct jinja_run *run, const struct jinja_node *node)
{
    const size_t from = run->out->length;
    run_in_scope(run, node->body);
    if (!run->failed && run->out == run->whole && run->input->spans && run->out->length > from &&
        jinja_spans_add(run->input->spans, (struct jinja_span){from, run->out->length}, NULL) < 0)
        (void)jinja_no_memory(run);
}

static void run_here(struct jinja_run *run, const struct jinja_node *node)
{
    switch (node->kind) {
    case NODE_BODY:
        run_body(run, node);
        return;
    case NODE_TEXT:
        print_value(run, jinja_string(node->text.data, node->text.length));
        return;
    case NODE_PRINT:
        print_value(run, jinja_evaluate(run, node->a));
        return;
    case NODE_FOR:
        jinja_run_for(run, node, jinja_evaluate(run, node->b), 0);
        return;
    case NODE_IF:
        run_if(run, node);
        return;
    case NODE_SET:
        (void)jinja_assign(run, node->a, jinja_evaluate(run, node->b));
        return;
    case NODE_SET_BLOCK:
        (void)jinja_assign(run, node->a, captured(run, node));
        return;
    case NODE_MACRO:
        define_macro(run, node);
        return;
    case NODE_CALL_BLOCK:
        run_call_block(run, node);
        return;
    case NODE_FILTERED:
        print_value(run, captured(run, node));
        return;
    case NODE_WITH:
        run_with(run, node);
        return;
    case NODE_GENERATION:
        run_generation(run, node);
        return;
    case NODE_BREAK:
    case NODE_CONTINUE:
        run->jump = node->kind == NODE_BREAK ? JUMP_BREAK : JUMP_CONTINUE;
        return;
    default:
        return; /* expressions are no statements: statements.c makes none */
    }
}

void jinja_run_node(struct jinja_run *run, const struct jinja_node *node)
{
    if (!jinja_enter(run, node->line))
        return;
    run_here(run, node);
    run->depth--;
}

int jinja_render(const struct jinja *source, struct jinja_arena *arena, const struct jinja_input *input,
                 struct buffer *out, struct muster_error *err)
{
    struct jinja_scope top = {0};
    scope_buffer text = {.limit = JINJA_OUTPUT};
    struct jinja_run run = {.source = source,
                            .input = input,
                            .arena = arena,
                            .scope = &top,
                            .out = &text,
                            .whole = &text,
                            .err = err};
    run_body(&run, source->body);
    if (run.letters)
        freelocale(run.letters);
    if (run.failed)
        return -1;
    if (text.failed || buffer_append(out, text.data, text.length) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the text of a chat");
    return 0;
}
