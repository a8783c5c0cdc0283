/* parse.c - the expressions of a template, by jinja2's grammar. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "proto/base/text.h"
#include "trainer/chat/jinja_internal.h"

const struct jinja_token *jinja_here(const struct jinja_parser *p)
{
    return &p->source->token[p->at];
}

void *jinja_refuse(struct jinja_parser *p, enum muster_error_code code, const char *format, ...)
{
    char text[300];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments); /* a longer text is cut */
    va_end(arguments);
    (void)error_set(p->err, code, "%s:%d: %s", p->source->name, jinja_here(p)->line, text);
    return NULL;
}

static void *parse_no_memory(struct jinja_parser *p)
{
    (void)error_set(p->err, MUSTER_E_NOMEM, "no memory for a template");
    return NULL;
}

bool jinja_is(const struct jinja_parser *p, enum jinja_token_kind kind, const char *text)
{
    const struct jinja_token *t = jinja_here(p);
    return t->kind == kind && (!text || jinja_text_is(t->text, text));
}

bool jinja_skip(struct jinja_parser *p, enum jinja_token_kind kind, const char *text)
{
    const bool is = jinja_is(p, kind, text);
    p->at += is && kind != TOKEN_END;
    return is;
}

static void *unexpected(struct jinja_parser *p, const char *wanted)
{
    static const char *const names[] = {
        [TOKEN_TEXT] = "text", [TOKEN_OUTPUT] = "'{{'",  [TOKEN_OUTPUT_END] = "'}}'",
        [TOKEN_TAG] = "'{%'",  [TOKEN_TAG_END] = "'%}'", [TOKEN_END] = "the end of the template"};
    const struct jinja_token *t = jinja_here(p);
    const char *name = names[t->kind < TOKEN_NAME || t->kind == TOKEN_END ? t->kind : TOKEN_TEXT];
    if (t->kind >= TOKEN_NAME && t->kind < TOKEN_END)
        return jinja_refuse(p, MUSTER_E_INVALID, "'%.*s' stands where %s is needed",
                            (int)(t->text.length < 40 ? t->text.length : 40), t->text.data, wanted);
    return jinja_refuse(p, MUSTER_E_INVALID, "%s stands where %s is needed", name, wanted);
}

bool jinja_expect(struct jinja_parser *p, enum jinja_token_kind kind, const char *text)
{
    if (jinja_skip(p, kind, text))
        return true;
    char wanted[64];
    (void)snprintf(wanted, sizeof wanted, text ? "'%s'" : "%s", /* a longer text is cut */
                   text                       ? text
                   : kind == TOKEN_NAME       ? "a name"
                   : kind == TOKEN_TAG_END    ? "'%}'"
                   : kind == TOKEN_OUTPUT_END ? "'}}'"
                                              : "an end");
    (void)unexpected(p, wanted);
    return false;
}

struct jinja_node *jinja_node_new(struct jinja_parser *p, enum jinja_node_kind kind)
{
    struct jinja_node *node = jinja_arena_take(&p->source->arena, sizeof *node);
    if (!node)
        return parse_no_memory(p);
    node->kind = kind;
    node->line = jinja_here(p)->line;
    return node;
}

bool jinja_node_add(struct jinja_parser *p, struct jinja_node *node, struct jinja_node *item)
{
    if (!item)
        return false;
    if (node->count == node->capacity) {
        const size_t more = node->capacity * 2 + 4;
        struct jinja_node **grown = jinja_arena_take(&p->source->arena, more * sizeof *grown);
        if (!grown)
            return parse_no_memory(p);
        if (node->count)
            memcpy(grown, node->item, node->count * sizeof *grown);
        node->item = grown;
        node->capacity = more;
    }
    node->item[node->count++] = item;
    return true;
}

static struct jinja_node *node_of(struct jinja_parser *p, enum jinja_node_kind kind, struct jinja_node *a,
                                  struct jinja_node *b)
{
    struct jinja_node *node = a && b ? jinja_node_new(p, kind) : NULL;
    if (node) {
        node->a = a;
        node->b = b;
        node->line = a->line;
    }
    return node;
}

static struct jinja_node *node_of_one(struct jinja_parser *p, enum jinja_node_kind kind, struct jinja_node *a)
{
    struct jinja_node *node = node_of(p, kind, a, a);
    if (node)
        node->b = NULL;
    return node;
}

/* ---- primaries ---- */

static struct jinja_node *constant(struct jinja_parser *p, struct jinja_value value)
{
    struct jinja_node *node = jinja_node_new(p, NODE_CONSTANT);
    if (node)
        node->value = value;
    return node;
}

/* Texts next to each other are one. */
static struct jinja_node *parse_texts(struct jinja_parser *p)
{
    struct jinja_node *node = constant(p, jinja_string(jinja_here(p)->text.data, jinja_here(p)->text.length));
    if (!node)
        return NULL;
    for (p->at++; jinja_is(p, TOKEN_STRING, NULL); p->at++) {
        const struct jinja_text more = jinja_here(p)->text, text = node->value.text;
        char *both = jinja_arena_take(&p->source->arena, text.length + more.length + 1);
        if (!both)
            return parse_no_memory(p);
        memcpy(both, text.data, text.length);
        memcpy(both + text.length, more.data, more.length);
        node->value = jinja_string(both, text.length + more.length);
    }
    return node;
}

static struct jinja_node *parse_number(struct jinja_parser *p)
{
    const struct jinja_token *t = jinja_here(p);
    char digits[304];
    size_t length = 0;
    int64_t number = 0;
    double real = 0;
    for (size_t i = 0; i < t->text.length && length + 1 < sizeof digits; i++)
        if (t->text.data[i] != '_')
            digits[length++] = t->text.data[i];
    digits[length] = '\0';
    const bool read = t->kind == TOKEN_INTEGER ? text_int64(digits, &number) : text_double(digits, &real);
    if (!read)
        return jinja_refuse(p, MUSTER_E_UNSUPPORTED, "the number %.40s is too large", digits);
    struct jinja_node *node = constant(p, t->kind == TOKEN_INTEGER ? jinja_int(number) : jinja_real(real));
    p->at++;
    return node;
}

/* Items up to the bracket `close`. */
static struct jinja_node *parse_items(struct jinja_parser *p, enum jinja_node_kind kind, const char *close)
{
    struct jinja_node *node = jinja_node_new(p, kind);
    p->at++;
    while (node && !jinja_skip(p, TOKEN_OPERATOR, close)) {
        if (node->count && !jinja_expect(p, TOKEN_OPERATOR, ","))
            return NULL;
        if (node->count && jinja_skip(p, TOKEN_OPERATOR, close))
            break;
        if (!jinja_node_add(p, node, jinja_parse_expression(p, true)))
            return NULL;
        if (kind == NODE_DICT && (!jinja_expect(p, TOKEN_OPERATOR, ":") ||
                                  !jinja_node_add(p, node, jinja_parse_expression(p, true))))
            return NULL;
    }
    return node;
}

static struct jinja_node *parse_parentheses(struct jinja_parser *p)
{
    struct jinja_node *empty = jinja_node_new(p, NODE_TUPLE);
    p->at++;
    if (jinja_skip(p, TOKEN_OPERATOR, ")"))
        return empty;
    struct jinja_node *inside = jinja_parse_tuple(p, true);
    return inside && jinja_expect(p, TOKEN_OPERATOR, ")") ? inside : NULL;
}

static struct jinja_node *parse_name(struct jinja_parser *p)
{
    const struct jinja_text name = jinja_here(p)->text;
    const bool yes = jinja_text_is(name, "true") || jinja_text_is(name, "True"),
               no = jinja_text_is(name, "false") || jinja_text_is(name, "False"),
               none = jinja_text_is(name, "none") || jinja_text_is(name, "None");
    struct jinja_node *node = yes || no ? constant(p, jinja_bool(yes))
                              : none    ? constant(p, jinja_none())
                                        : jinja_node_new(p, NODE_NAME);
    if (node)
        node->text = name;
    p->at++;
    return node;
}

struct jinja_node *jinja_parse_primary(struct jinja_parser *p)
{
    switch (jinja_here(p)->kind) {
    case TOKEN_NAME:
        return parse_name(p);
    case TOKEN_STRING:
        return parse_texts(p);
    case TOKEN_INTEGER:
    case TOKEN_REAL:
        return parse_number(p);
    case TOKEN_OPERATOR:
        if (jinja_is(p, TOKEN_OPERATOR, "("))
            return parse_parentheses(p);
        if (jinja_is(p, TOKEN_OPERATOR, "["))
            return parse_items(p, NODE_LIST, "]");
        if (jinja_is(p, TOKEN_OPERATOR, "{"))
            return parse_items(p, NODE_DICT, "}");
        break;
    case TOKEN_TEXT:
    case TOKEN_OUTPUT:
    case TOKEN_OUTPUT_END:
    case TOKEN_TAG:
    case TOKEN_TAG_END:
    case TOKEN_END:
        break;
    }
    return unexpected(p, "an expression");
}

/* ---- after a primary: attributes, items, calls, filters, tests ---- */

/* Adds the arguments in parentheses, if there are some. */
static bool parse_arguments(struct jinja_parser *p, struct jinja_node *node)
{
    if (!jinja_skip(p, TOKEN_OPERATOR, "("))
        return true;
    for (bool first = true; !jinja_skip(p, TOKEN_OPERATOR, ")"); first = false) {
        if (!first && !jinja_expect(p, TOKEN_OPERATOR, ","))
            return false;
        if (!first && jinja_skip(p, TOKEN_OPERATOR, ")"))
            return true;
        struct jinja_node *argument;
        if (jinja_skip(p, TOKEN_OPERATOR, "*")) {
            argument = node_of_one(p, NODE_SPREAD, jinja_parse_expression(p, true));
        } else if (jinja_skip(p, TOKEN_OPERATOR, "**")) {
            argument = node_of_one(p, NODE_SPREAD2, jinja_parse_expression(p, true));
        } else if (jinja_is(p, TOKEN_NAME, NULL) && p->source->token[p->at + 1].kind == TOKEN_OPERATOR &&
                   jinja_text_is(p->source->token[p->at + 1].text, "=")) {
            const struct jinja_text name = jinja_here(p)->text;
            p->at += 2;
            argument = node_of_one(p, NODE_KEYWORD, jinja_parse_expression(p, true));
            if (argument)
                argument->text = name;
        } else {
            argument = jinja_parse_expression(p, true);
        }
        if (!jinja_node_add(p, node, argument))
            return false;
    }
    return true;
}

/* a[b], or a slice. */
static struct jinja_node *parse_item(struct jinja_parser *p, struct jinja_node *of)
{
    struct jinja_node *part[3] = {NULL, NULL, NULL};
    int parts = 0;
    bool slice = false;
    while (!jinja_is(p, TOKEN_OPERATOR, "]")) {
        if (jinja_skip(p, TOKEN_OPERATOR, ":")) {
            slice = true;
            if (++parts == 3)
                return unexpected(p, "']'");
        } else if (part[parts] || !(part[parts] = parts || slice ? jinja_parse_expression(p, true)
                                                                 : jinja_parse_tuple(p, true))) {
            return p->err && p->err->code ? NULL : unexpected(p, "']'");
        }
    }
    p->at++;
    if (!slice)
        return part[0] ? node_of(p, NODE_ITEM, of, part[0]) : unexpected(p, "an index");
    struct jinja_node *node = node_of_one(p, NODE_SLICE, of);
    if (node) {
        node->item = jinja_arena_take(&p->source->arena, sizeof part);
        if (!node->item)
            return parse_no_memory(p);
        memcpy(node->item, part, sizeof part);
        node->count = 3;
    }
    return node;
}

static struct jinja_node *parse_call(struct jinja_parser *p, struct jinja_node *of)
{
    struct jinja_node *node = node_of_one(p, NODE_CALL, of);
    return node && parse_arguments(p, node) ? node : NULL;
}

static struct jinja_node *parse_postfix(struct jinja_parser *p, struct jinja_node *node)
{
    while (node) {
        if (jinja_skip(p, TOKEN_OPERATOR, ".")) {
            const struct jinja_text name = jinja_here(p)->text;
            if (jinja_is(p, TOKEN_INTEGER, NULL)) {
                node = node_of(p, NODE_ITEM, node, parse_number(p));
                continue;
            }
            if (!jinja_expect(p, TOKEN_NAME, NULL))
                return NULL;
            node = node_of_one(p, NODE_ATTRIBUTE, node);
            if (node)
                node->text = name;
        } else if (jinja_skip(p, TOKEN_OPERATOR, "[")) {
            node = parse_item(p, node);
        } else if (jinja_is(p, TOKEN_OPERATOR, "(")) {
            node = parse_call(p, node);
        } else {
            break;
        }
    }
    return node;
}

struct jinja_node *jinja_parse_filter(struct jinja_parser *p, struct jinja_node *of)
{
    struct jinja_node *node = jinja_node_new(p, NODE_FILTER);
    if (!node)
        return NULL;
    node->a = of;
    node->text = jinja_here(p)->text;
    return jinja_expect(p, TOKEN_NAME, NULL) && parse_arguments(p, node) ? node : NULL;
}

/* An argument without parentheses: `is divisibleby 3`. */
static bool takes_argument(const struct jinja_parser *p)
{
    const struct jinja_token *t = jinja_here(p);
    if (t->kind == TOKEN_NAME)
        return !jinja_text_is(t->text, "else") && !jinja_text_is(t->text, "or") &&
               !jinja_text_is(t->text, "and") && !jinja_text_is(t->text, "is") &&
               !jinja_text_is(t->text, "if") && !jinja_text_is(t->text, "in") &&
               !jinja_text_is(t->text, "not") && !jinja_text_is(t->text, "recursive");
    return t->kind == TOKEN_STRING || t->kind == TOKEN_INTEGER || t->kind == TOKEN_REAL ||
           (t->kind == TOKEN_OPERATOR && (jinja_text_is(t->text, "[") || jinja_text_is(t->text, "{")));
}

static struct jinja_node *parse_test(struct jinja_parser *p, struct jinja_node *of)
{
    const bool no = jinja_skip(p, TOKEN_NAME, "not");
    struct jinja_node *node = node_of_one(p, NODE_TEST, of);
    if (!node)
        return NULL;
    node->text = jinja_here(p)->text;
    if (!jinja_expect(p, TOKEN_NAME, NULL) || !parse_arguments(p, node))
        return NULL;
    if (!node->count && takes_argument(p) &&
        !jinja_node_add(p, node, parse_postfix(p, jinja_parse_primary(p))))
        return NULL;
    return no ? node_of_one(p, NODE_NOT, node) : node;
}

struct jinja_node *jinja_parse_filters(struct jinja_parser *p, struct jinja_node *node)
{
    for (bool more = true; more;) {
        if (jinja_skip(p, TOKEN_OPERATOR, "|"))
            node = jinja_parse_filter(p, node);
        else if (node && jinja_skip(p, TOKEN_NAME, "is"))
            node = parse_test(p, node);
        else if (node && jinja_is(p, TOKEN_OPERATOR, "("))
            node = parse_call(p, node);
        else
            more = false;
        more = more && node;
    }
    return node;
}

/* ---- operators ---- */

static struct jinja_node *parse_unary(struct jinja_parser *p, bool filters)
{
    if (p->depth >= JINJA_DEPTH)
        return jinja_refuse(p, MUSTER_E_LIMIT, "expressions are nested more than %d deep", JINJA_DEPTH);
    p->depth++;
    struct jinja_node *node;
    if (jinja_skip(p, TOKEN_OPERATOR, "-"))
        node = node_of_one(p, NODE_NEGATE, parse_unary(p, false));
    else if (jinja_skip(p, TOKEN_OPERATOR, "+"))
        node = parse_unary(p, false);
    else
        node = parse_postfix(p, jinja_parse_primary(p));
    p->depth--;
    return node && filters ? jinja_parse_filters(p, node) : node;
}

/* Levels of operators, the strongest last; each is left associative. */
static const char *const levels[][5] = {{"+", "-"}, {"~"}, {"*", "/", "//", "%"}, {"**"}};
enum { LEVELS = sizeof levels / sizeof *levels, CONCAT = 1 };

static struct jinja_node *parse_level(struct jinja_parser *p, int level)
{
    if (level == LEVELS)
        return parse_unary(p, true);
    struct jinja_node *left = parse_level(p, level + 1);
    for (int i = 0; left && i < 5 && levels[level][i];) {
        if (!jinja_is(p, TOKEN_OPERATOR, levels[level][i])) {
            i++;
            continue;
        }
        const struct jinja_text sign = jinja_here(p)->text;
        p->at++;
        struct jinja_node *right = parse_level(p, level + 1);
        if (level == CONCAT && right && left->kind == NODE_CONCAT) {
            left = jinja_node_add(p, left, right) ? left : NULL;
        } else if (level == CONCAT) {
            struct jinja_node *node = right ? jinja_node_new(p, NODE_CONCAT) : NULL;
            left = node && jinja_node_add(p, node, left) && jinja_node_add(p, node, right) ? node : NULL;
        } else {
            left = node_of(p, NODE_BINARY, left, right);
            if (left)
                left->text = sign;
        }
        i = 0;
    }
    return left;
}

/* The operator of a comparison at this place; NULL: none. */
static const char *comparison(struct jinja_parser *p)
{
    static const char *const operators[] = {"==", "!=", "<=", ">=", "<", ">", NULL};
    for (int i = 0; operators[i]; i++)
        if (jinja_skip(p, TOKEN_OPERATOR, operators[i]))
            return operators[i];
    if (jinja_skip(p, TOKEN_NAME, "in"))
        return "in";
    if (!jinja_is(p, TOKEN_NAME, "not") || p->source->token[p->at + 1].kind != TOKEN_NAME ||
        !jinja_text_is(p->source->token[p->at + 1].text, "in"))
        return NULL;
    p->at += 2;
    return "not in";
}

static struct jinja_node *parse_comparison(struct jinja_parser *p)
{
    struct jinja_node *left = parse_level(p, 0), *node = NULL;
    const char *sign;
    while (left && (sign = comparison(p))) {
        struct jinja_node *operand = node_of_one(p, NODE_OPERAND, parse_level(p, 0));
        node = node ? node : node_of_one(p, NODE_COMPARE, left);
        if (!node || !jinja_node_add(p, node, operand))
            return NULL;
        operand->text = (struct jinja_text){sign, strlen(sign)};
    }
    return node ? node : left;
}

static struct jinja_node *parse_not(struct jinja_parser *p)
{
    int negations = 0;
    while (jinja_skip(p, TOKEN_NAME, "not"))
        if (++negations > JINJA_DEPTH)
            return jinja_refuse(p, MUSTER_E_LIMIT, "more than %d negations", JINJA_DEPTH);
    struct jinja_node *node = parse_comparison(p);
    for (; node && negations; negations--)
        node = node_of_one(p, NODE_NOT, node);
    return node;
}

static struct jinja_node *parse_and(struct jinja_parser *p)
{
    struct jinja_node *left = parse_not(p);
    while (left && jinja_skip(p, TOKEN_NAME, "and"))
        left = node_of(p, NODE_AND, left, parse_not(p));
    return left;
}

static struct jinja_node *parse_or(struct jinja_parser *p)
{
    struct jinja_node *left = parse_and(p);
    while (left && jinja_skip(p, TOKEN_NAME, "or"))
        left = node_of(p, NODE_OR, left, parse_and(p));
    return left;
}

struct jinja_node *jinja_parse_expression(struct jinja_parser *p, bool condition)
{
    if (p->depth >= JINJA_DEPTH)
        return jinja_refuse(p, MUSTER_E_LIMIT, "expressions are nested more than %d deep", JINJA_DEPTH);
    p->depth++;
    struct jinja_node *node = parse_or(p);
    while (node && condition && jinja_skip(p, TOKEN_NAME, "if")) {
        node = node_of(p, NODE_CONDITION, node, parse_or(p));
        if (node && jinja_skip(p, TOKEN_NAME, "else") && !(node->c = jinja_parse_expression(p, true)))
            node = NULL;
    }
    p->depth--;
    return node;
}

struct jinja_node *jinja_parse_tuple(struct jinja_parser *p, bool condition)
{
    struct jinja_node *first = jinja_parse_expression(p, condition), *node = NULL;
    while (first && jinja_skip(p, TOKEN_OPERATOR, ",")) {
        node = node ? node : jinja_node_new(p, NODE_TUPLE);
        if (!node || (!node->count && !jinja_node_add(p, node, first)))
            return NULL;
        if (jinja_is(p, TOKEN_TAG_END, NULL) || jinja_is(p, TOKEN_OUTPUT_END, NULL) ||
            jinja_is(p, TOKEN_OPERATOR, ")") || jinja_is(p, TOKEN_OPERATOR, "]") ||
            jinja_is(p, TOKEN_OPERATOR, "=") || jinja_is(p, TOKEN_NAME, "in"))
            break;
        if (!jinja_node_add(p, node, jinja_parse_expression(p, condition)))
            return NULL;
    }
    return node ? node : first;
}
