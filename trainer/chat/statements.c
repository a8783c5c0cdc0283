/* statements.c - the statements of a template, and opening one. */
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "trainer/chat/jinja_internal.h"

static struct jinja_node *parse_body(struct jinja_parser *p, const char *const *ends);

/* ---- names that get values ---- */

/* A name, or ns.name. */
static struct jinja_node *parse_target_name(struct jinja_parser *p)
{
    struct jinja_node *node = jinja_node_new(p, NODE_NAME);
    if (!node)
        return NULL;
    node->text = jinja_here(p)->text;
    if (!jinja_expect(p, TOKEN_NAME, NULL))
        return NULL;
    if (!jinja_skip(p, TOKEN_OPERATOR, "."))
        return node;
    struct jinja_node *attribute = jinja_node_new(p, NODE_ATTRIBUTE);
    if (!attribute)
        return NULL;
    attribute->a = node;
    attribute->text = jinja_here(p)->text;
    return jinja_expect(p, TOKEN_NAME, NULL) ? attribute : NULL;
}

static struct jinja_node *parse_target(struct jinja_parser *p)
{
    if (p->depth >= JINJA_DEPTH)
        return jinja_refuse(p, MUSTER_E_LIMIT, "names are nested more than %d deep", JINJA_DEPTH);
    p->depth++;
    struct jinja_node *tuple = NULL, *first = NULL;
    do {
        if (tuple && (jinja_is(p, TOKEN_NAME, "in") || jinja_is(p, TOKEN_OPERATOR, "=") ||
                      jinja_is(p, TOKEN_OPERATOR, ")")))
            break;
        struct jinja_node *item = NULL;
        if (!jinja_skip(p, TOKEN_OPERATOR, "("))
            item = parse_target_name(p);
        else if ((item = parse_target(p)) && !jinja_expect(p, TOKEN_OPERATOR, ")"))
            item = NULL;
        if (!item || (tuple && !jinja_node_add(p, tuple, item)))
            return NULL;
        first = first ? first : item;
        if (!tuple && jinja_is(p, TOKEN_OPERATOR, ",") &&
            (!(tuple = jinja_node_new(p, NODE_TUPLE)) || !jinja_node_add(p, tuple, item)))
            return NULL;
    } while (jinja_skip(p, TOKEN_OPERATOR, ","));
    p->depth--;
    return tuple ? tuple : first;
}

/* ---- statements; the name is read ---- */

static bool end_tag(struct jinja_parser *p)
{
    return jinja_expect(p, TOKEN_TAG_END, NULL);
}

/* The body up to {% end %}, which is read. */
static struct jinja_node *body_to(struct jinja_parser *p, const char *end)
{
    const char *const ends[] = {end, NULL};
    struct jinja_node *body = parse_body(p, ends);
    return body && jinja_expect(p, TOKEN_NAME, end) && end_tag(p) ? body : NULL;
}

static bool parse_for(struct jinja_parser *p, struct jinja_node *node)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    if (!(node->a = parse_target(p)) || !jinja_expect(p, TOKEN_NAME, "in") ||
        !(node->b = jinja_parse_tuple(p, false)))
        return false;
    if (jinja_skip(p, TOKEN_NAME, "if") && !(node->c = jinja_parse_expression(p, true)))
        return false;
    node->recursive = jinja_skip(p, TOKEN_NAME, "recursive");
    if (!end_tag(p) || !(node->body = parse_body(p, ends)))
        return false;
    if (jinja_skip(p, TOKEN_NAME, "else"))
        return end_tag(p) && (node->other = body_to(p, "endfor"));
    return jinja_expect(p, TOKEN_NAME, "endfor") && end_tag(p);
}

static bool parse_if(struct jinja_parser *p, struct jinja_node *node)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    for (;;) {
        if (!(node->a = jinja_parse_tuple(p, true)) || !end_tag(p) || !(node->body = parse_body(p, ends)))
            return false;
        if (!jinja_is(p, TOKEN_NAME, "elif"))
            break;
        p->at++;
        struct jinja_node *next = jinja_node_new(p, NODE_IF);
        if (!next)
            return false;
        node->other = next;
        node = next;
    }
    if (jinja_skip(p, TOKEN_NAME, "else"))
        return end_tag(p) && (node->other = body_to(p, "endif"));
    return jinja_expect(p, TOKEN_NAME, "endif") && end_tag(p);
}

static bool parse_set(struct jinja_parser *p, struct jinja_node *node)
{
    if (!(node->a = parse_target(p)))
        return false;
    if (jinja_skip(p, TOKEN_OPERATOR, "="))
        return (node->b = jinja_parse_tuple(p, true)) && end_tag(p);
    node->kind = NODE_SET_BLOCK;
    if (jinja_is(p, TOKEN_OPERATOR, "|") && !(node->b = jinja_parse_filters(p, NULL)))
        return false;
    return end_tag(p) && (node->body = body_to(p, "endset"));
}

/* (a, b=1) of a macro. */
static bool parse_parameters(struct jinja_parser *p, struct jinja_node *node)
{
    if (!jinja_expect(p, TOKEN_OPERATOR, "("))
        return false;
    while (!jinja_skip(p, TOKEN_OPERATOR, ")")) {
        struct jinja_node *parameter = jinja_node_new(p, NODE_KEYWORD);
        if (!parameter || (node->count && !jinja_expect(p, TOKEN_OPERATOR, ",")))
            return false;
        parameter->text = jinja_here(p)->text;
        if (!jinja_expect(p, TOKEN_NAME, NULL) || !jinja_node_add(p, node, parameter) ||
            (jinja_skip(p, TOKEN_OPERATOR, "=") && !(parameter->a = jinja_parse_expression(p, true))))
            return false;
    }
    return true;
}

static bool parse_macro(struct jinja_parser *p, struct jinja_node *node)
{
    node->text = jinja_here(p)->text;
    return jinja_expect(p, TOKEN_NAME, NULL) && parse_parameters(p, node) && end_tag(p) &&
           (node->body = body_to(p, "endmacro"));
}

static bool parse_call_block(struct jinja_parser *p, struct jinja_node *node)
{
    node->text = (struct jinja_text){"caller", 6};
    if (jinja_is(p, TOKEN_OPERATOR, "(") && !parse_parameters(p, node))
        return false;
    node->a = jinja_parse_expression(p, true);
    if (node->a && node->a->kind != NODE_CALL)
        return jinja_refuse(p, MUSTER_E_INVALID, "a call block needs a call");
    return node->a && end_tag(p) && (node->body = body_to(p, "endcall"));
}

static bool parse_filtered(struct jinja_parser *p, struct jinja_node *node)
{
    struct jinja_node *first = jinja_parse_filter(p, NULL);
    node->b = first ? jinja_parse_filters(p, first) : NULL;
    return node->b && end_tag(p) && (node->body = body_to(p, "endfilter"));
}

static bool parse_with(struct jinja_parser *p, struct jinja_node *node)
{
    while (!jinja_is(p, TOKEN_TAG_END, NULL)) {
        struct jinja_node *set = jinja_node_new(p, NODE_SET);
        if (!set || (node->count && !jinja_expect(p, TOKEN_OPERATOR, ",")) ||
            !(set->a = parse_target_name(p)) || !jinja_expect(p, TOKEN_OPERATOR, "=") ||
            !(set->b = jinja_parse_expression(p, true)) || !jinja_node_add(p, node, set))
            return false;
    }
    return end_tag(p) && (node->body = body_to(p, "endwith"));
}

static bool parse_generation(struct jinja_parser *p, struct jinja_node *node)
{
    p->source->marks = true;
    return end_tag(p) && (node->body = body_to(p, "endgeneration"));
}

static bool parse_jump(struct jinja_parser *p, struct jinja_node *node)
{
    (void)node;
    return end_tag(p);
}

static const struct statement {
    const char *name;
    enum jinja_node_kind kind;
    bool (*parse)(struct jinja_parser *p, struct jinja_node *node);
} statements[] = {{"for", NODE_FOR, parse_for},
                  {"if", NODE_IF, parse_if},
                  {"set", NODE_SET, parse_set},
                  {"macro", NODE_MACRO, parse_macro},
                  {"call", NODE_CALL_BLOCK, parse_call_block},
                  {"filter", NODE_FILTERED, parse_filtered},
                  {"with", NODE_WITH, parse_with},
                  {"generation", NODE_GENERATION, parse_generation},
                  {"break", NODE_BREAK, parse_jump},
                  {"continue", NODE_CONTINUE, parse_jump}};

static struct jinja_node *parse_statement(struct jinja_parser *p)
{
    static const char *const known[] = {"extends", "include",    "import", "from",  "block", "print",
                                        "trans",   "autoescape", "do",     "debug", NULL};
    const struct jinja_token *t = jinja_here(p);
    const int length = (int)(t->text.length < 40 ? t->text.length : 40);
    if (t->kind != TOKEN_NAME)
        return jinja_refuse(p, MUSTER_E_INVALID, "a tag without the name of a statement");
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        if (!jinja_text_is(t->text, statements[i].name))
            continue;
        struct jinja_node *node = jinja_node_new(p, statements[i].kind);
        p->at++;
        return node && statements[i].parse(p, node) ? node : NULL;
    }
    for (int i = 0; known[i]; i++)
        if (jinja_text_is(t->text, known[i]))
            return jinja_refuse(p, MUSTER_E_UNSUPPORTED,
                                "the statement '%.*s' is not supported in a chat template", length,
                                t->text.data);
    return jinja_refuse(p, MUSTER_E_INVALID, "'%.*s' is no statement of Jinja that fits here", length,
                        t->text.data);
}

/* Adds a text, an output or a statement; 0: a tag of ends comes, and is read up to its name. */
static int parse_part(struct jinja_parser *p, const char *const *ends, struct jinja_node *body)
{
    struct jinja_node *node = NULL;
    if (jinja_is(p, TOKEN_TEXT, NULL)) {
        node = jinja_node_new(p, NODE_TEXT);
        if (node)
            node->text = jinja_here(p)->text;
        p->at++;
    } else if (jinja_is(p, TOKEN_OUTPUT, NULL)) {
        node = jinja_node_new(p, NODE_PRINT);
        p->at++;
        if (node && (!(node->a = jinja_parse_tuple(p, true)) || !jinja_expect(p, TOKEN_OUTPUT_END, NULL)))
            node = NULL;
    } else if (jinja_skip(p, TOKEN_TAG, NULL)) {
        for (int i = 0; ends && ends[i]; i++)
            if (jinja_is(p, TOKEN_NAME, ends[i]))
                return 0;
        node = parse_statement(p);
    } else if (ends) {
        (void)jinja_refuse(p, MUSTER_E_INVALID, "'%s' is missing", ends[0]);
    } else {
        (void)jinja_refuse(p, MUSTER_E_INVALID, "an end without a beginning");
    }
    return node && jinja_node_add(p, body, node) ? 1 : -1;
}

static struct jinja_node *parse_body(struct jinja_parser *p, const char *const *ends)
{
    struct jinja_node *body = jinja_node_new(p, NODE_BODY);
    if (p->depth >= JINJA_DEPTH)
        return jinja_refuse(p, MUSTER_E_LIMIT, "statements are nested more than %d deep", JINJA_DEPTH);
    p->depth++;
    for (int more = body ? 1 : -1; more;) {
        if (!ends && jinja_is(p, TOKEN_END, NULL))
            break;
        more = more < 0 ? more : parse_part(p, ends, body);
        if (more < 0)
            return NULL;
    }
    p->depth--;
    return body;
}

int jinja_parse_template(struct jinja_parser *p)
{
    p->source->body = parse_body(p, NULL);
    return p->source->body ? 0 : -1;
}

/* ---- a template ---- */

void jinja_destroy(struct jinja *source)
{
    if (!source)
        return;
    jinja_arena_free(&source->arena);
    mem_free(source->token);
    mem_free(source->name);
    mem_free(source);
}

struct jinja *jinja_compile(const char *name, const char *text, size_t length, struct muster_error *err)
{
    struct muster_error reason = {0};
    GUARD(guard_jinja) struct jinja *source = mem_calloc(1, sizeof *source);
    if (!source || !(source->name = mem_strdup(name))) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a template");
        return NULL;
    }
    source->arena.limit = JINJA_MEMORY;
    struct jinja_parser parser = {.source = source, .err = &reason};
    if (jinja_lex(source, text, length, &reason) < 0 || jinja_parse_template(&parser) < 0) {
        if (err)
            *err = reason;
        return NULL;
    }
    return take_pointer(&source);
}

bool jinja_marks(const struct jinja *source)
{
    return source->marks;
}

bool jinja_names(const struct jinja *source, const char *name)
{
    for (size_t i = 0; i < source->tokens; i++)
        if (source->token[i].kind == TOKEN_NAME && jinja_text_is(source->token[i].text, name))
            return true;
    return false;
}
