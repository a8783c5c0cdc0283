/* evaluate.c - expressions and statements of a page, evaluated while they are parsed.
 *
 *     expression = and { "or" and }      and = not { "and" not }       not = "not" not | compare
 *     compare = sum [ ("==" | "!=" | "<" | "<=" | ">" | ">=") sum ]     sum = product { ("+" | "-") product }
 *     product = part { ("*" | "/" | "//" | "%") part }                  part = "-" part | simple { "["
 * expression "]" } simple = number | 'text' | name | name "(" arguments ")" | "(" expression ")"
 *
 * if(condition, a, b) evaluates a or b alone; "and" and "or" stop where the result is known. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/pages/page_internal.h"

enum { DEPTH = 40 };

static int expression(struct page_run *run, struct page_value *out);

static void skip_blanks(struct page_run *run)
{
    while (*run->at == ' ' || *run->at == '\t' || *run->at == '\n')
        run->at++;
}

/* Takes a sign or a word, a word only as a whole. */
static bool take_token(struct page_run *run, const char *token)
{
    const size_t length = strlen(token);
    skip_blanks(run);
    if (strncmp(run->at, token, length) != 0)
        return false;
    if (isalpha((unsigned char)*token) && (isalnum((unsigned char)run->at[length]) || run->at[length] == '_'))
        return false;
    run->at += length;
    return true;
}

static int need(struct page_run *run, const char *token)
{
    return take_token(run, token) ? 0 : page_fail(run, "'%s' is missing before '%.24s'", token, run->at);
}

/* A name, or "" with no error. */
static void take_name(struct page_run *run, char *name, size_t room)
{
    size_t length = 0;
    skip_blanks(run);
    while (isalnum((unsigned char)run->at[length]) || run->at[length] == '_')
        length++;
    *name = '\0';
    if (length && length < room && !isdigit((unsigned char)*run->at)) {
        memcpy(name, run->at, length);
        name[length] = '\0';
        run->at += length;
    }
}

bool page_is_true(const struct page_value *value)
{
    switch (value->kind) {
    case PAGE_NONE:
        return false;
    case PAGE_NUMBER:
    case PAGE_FLAG:
        return value->number != 0;
    case PAGE_TEXT:
    case PAGE_JSON:
    case PAGE_ROPE:
    case PAGE_ROWS:
        break;
    }
    return true;
}

struct page_value page_number(double number)
{
    return (struct page_value){.kind = PAGE_NUMBER, .number = number};
}

static bool is_number(const struct page_value *value)
{
    return value->kind == PAGE_NUMBER || value->kind == PAGE_FLAG;
}

int page_whole(struct page_run *run, const struct page_value *value, const char *what, int64_t least,
               int64_t most, int64_t *out)
{
    if (!is_number(value) || value->number != floor(value->number) || value->number < (double)least ||
        value->number > (double)most)
        return page_fail(run, "%s is %s%g; it must be a whole number from %lld to %lld", what,
                         is_number(value) ? "" : "no number, ", value->number, (long long)least,
                         (long long)most);
    *out = (int64_t)value->number;
    return 0;
}

struct page_value *page_variable(struct page_run *run, const char *name)
{
    for (int i = 0; i < run->variable_count; i++)
        if (!strcmp(run->variables[i].name, name))
            return &run->variables[i].value;
    return NULL;
}

int page_set(struct page_run *run, const char *name, const struct page_value *value)
{
    struct page_value *old = page_variable(run, name);
    if (old) {
        *old = *value;
        return 0;
    }
    if (run->variable_count == PAGE_VARIABLES)
        return page_fail(run, "a page has at most %d names", PAGE_VARIABLES);
    struct page_variable *variable = &run->variables[run->variable_count++];
    (void)snprintf(variable->name, sizeof variable->name, "%s", name); /* fits: take_name */
    variable->value = *value;
    return 0;
}

/* ---- calls ---- */

static const struct page_function *find_function(const char *name)
{
    const struct page_function *const tables[] = {page_key_functions, page_operation_functions};
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const struct page_function *f = tables[t]; f->name; f++)
            if (!strcmp(f->name, name))
                return f;
    return NULL;
}

/* The index of a parameter, whose name ends at a blank or "?"; -1: the function has none of that name. name
 * NULL: the parameter of that number, to see whether it is optional. Returns the number of parameters in
 * *count. */
static int find_parameter(const struct page_function *f, const char *name, int number, bool *optional,
                          int *count)
{
    int found = -1;
    *count = 0;
    for (const char *p = f->parameters; *p; (*count)++) {
        const size_t length = strcspn(p, " ?");
        if (name ? strlen(name) == length && !strncmp(p, name, length) : *count == number) {
            found = *count;
            *optional = p[length] == '?';
        }
        p += length + (p[length] == '?');
        p += *p == ' ';
    }
    return found;
}

/* "name =" of an argument; the place stays where it is no such thing. */
static bool take_argument_name(struct page_run *run, char *name, size_t room)
{
    const char *before = run->at;
    take_name(run, name, room);
    skip_blanks(run);
    if (*name && run->at[0] == '=' && run->at[1] != '=') {
        run->at++;
        return true;
    }
    run->at = before;
    return false;
}

static int arguments_of(struct page_run *run, const struct page_function *f, struct page_value *arguments)
{
    bool given[PAGE_ARGUMENTS] = {0}, optional;
    int number = 0, count;
    (void)find_parameter(f, "", 0, &optional, &count);
    while (!take_token(run, ")")) {
        char name[32];
        struct page_value value;
        if (number > 0 && need(run, ",") < 0)
            return -1;
        const bool named = take_argument_name(run, name, sizeof name);
        const int index = named ? find_parameter(f, name, 0, &optional, &count) : number;
        if (index < 0 || index >= count || given[index])
            return page_fail(run, "%s(%s) has no argument %s%.31s, or has it twice", f->name, f->parameters,
                             named ? "" : "number ", named ? name : "after the last");
        if (expression(run, &value) < 0)
            return -1;
        arguments[index] = value;
        given[index] = true;
        number++;
    }
    for (int i = 0; i < count; i++)
        if (find_parameter(f, NULL, i, &optional, &count) >= 0 && !given[i] && !optional)
            return page_fail(run, "%s(%s) lacks its argument number %d", f->name, f->parameters, i + 1);
    return 0;
}

/* Evaluates an expression, or parses it alone. */
static int expression_if(struct page_run *run, bool evaluates, struct page_value *out)
{
    run->skips += !evaluates;
    const int result = expression(run, out);
    run->skips -= !evaluates;
    return result;
}

static int choice(struct page_run *run, struct page_value *out)
{
    struct page_value condition, other;
    if (expression(run, &condition) < 0 || need(run, ",") < 0)
        return -1;
    const bool first = page_is_true(&condition);
    if (expression_if(run, first, out) < 0 || need(run, ",") < 0 || expression_if(run, !first, &other) < 0)
        return -1;
    if (!first)
        *out = other;
    return need(run, ")");
}

static int call(struct page_run *run, const char *name, struct page_value *out)
{
    struct page_value arguments[PAGE_ARGUMENTS] = {0};
    if (!strcmp(name, "if"))
        return choice(run, out);
    const struct page_function *f = find_function(name);
    if (!f)
        return page_fail(run, "there is no function %s", name);
    if (arguments_of(run, f, arguments) < 0)
        return -1;
    return run->skips ? 0 : f->call(run, arguments, out);
}

/* ---- parts ---- */

static int quoted_text(struct page_run *run, struct page_value *out)
{
    const char *end = strchr(run->at, '\'');
    if (!end || end - run->at >= (long)sizeof out->text)
        return page_fail(run, "a text ends with ' and has at most %zu characters", sizeof out->text - 1);
    out->kind = PAGE_TEXT;
    memcpy(out->text, run->at, (size_t)(end - run->at));
    out->text[end - run->at] = '\0';
    run->at = end + 1;
    return 0;
}

static int named(struct page_run *run, struct page_value *out)
{
    char name[32];
    take_name(run, name, sizeof name);
    if (!*name)
        return page_fail(run, "an expression is expected before '%.24s'", run->at);
    if (take_token(run, "("))
        return call(run, name, out);
    if (!strcmp(name, "none"))
        return 0;
    if (!strcmp(name, "true") || !strcmp(name, "false")) {
        *out = (struct page_value){.kind = PAGE_FLAG, .number = *name == 't'};
        return 0;
    }
    if (!strcmp(name, "layer") && run->layer >= 0) {
        *out = page_number(run->layer);
        return 0;
    }
    const struct page_value *value = page_variable(run, name);
    if (!value && !run->skips)
        return page_fail(run, "the name %s has no value here", name);
    if (value)
        *out = *value;
    return 0;
}

/* list[number] */
static int item(struct page_run *run, struct page_value *out)
{
    struct page_value index;
    int64_t at;
    if (expression(run, &index) < 0 || need(run, "]") < 0)
        return -1;
    if (run->skips)
        return 0;
    if (out->kind != PAGE_JSON)
        return page_fail(run, "[ ] takes an item of a list, and the value before is none");
    if (page_whole(run, &index, "the number of an item", 0, (int64_t)json_array_size(out->json) - 1, &at) < 0)
        return -1;
    const json_t *json = json_array_get(out->json, (size_t)at);
    if (json_is_string(json)) {
        *out = (struct page_value){.kind = PAGE_TEXT};
        if (json_string_length(json) >= sizeof out->text)
            return page_fail(run, "item %lld of the list is longer than %zu characters", (long long)at,
                             sizeof out->text - 1);
        memcpy(out->text, json_string_value(json), json_string_length(json) + 1);
    } else if (json_is_number(json)) {
        *out = page_number(json_number_value(json));
    } else if (json_is_boolean(json)) {
        *out = (struct page_value){.kind = PAGE_FLAG, .number = json_is_true(json)};
    } else {
        return page_fail(run, "item %lld of the list is no number, text, true or false", (long long)at);
    }
    return 0;
}

static int part(struct page_run *run, struct page_value *out)
{
    *out = (struct page_value){.kind = PAGE_NONE};
    if (take_token(run, "-")) {
        if (part(run, out) < 0)
            return -1;
        if (!run->skips && !is_number(out))
            return page_fail(run, "- is of numbers");
        *out = page_number(-out->number);
        return 0;
    }
    int result;
    skip_blanks(run);
    if (isdigit((unsigned char)*run->at) || (*run->at == '.' && isdigit((unsigned char)run->at[1]))) {
        char *end;
        *out = page_number(strtod(run->at, &end));
        run->at = end;
        result = 0;
    } else if (take_token(run, "'")) {
        result = quoted_text(run, out);
    } else if (take_token(run, "(")) {
        result = expression(run, out) < 0 ? -1 : need(run, ")");
    } else {
        result = named(run, out);
    }
    while (result == 0 && take_token(run, "["))
        result = item(run, out);
    return result;
}

/* ---- operators ---- */

static int arithmetic(struct page_run *run, const char *sign, struct page_value *a,
                      const struct page_value *b)
{
    if (run->skips)
        return 0;
    if (!is_number(a) || !is_number(b))
        return page_fail(run, "%s is of numbers", sign);
    const double x = a->number, y = b->number;
    if ((*sign == '/' || *sign == '%') && y == 0)
        return page_fail(run, "%g %s 0 has no value", x, sign);
    *a = page_number(*sign == '+'          ? x + y
                     : *sign == '-'        ? x - y
                     : *sign == '*'        ? x * y
                     : !strcmp(sign, "//") ? floor(x / y)
                     : *sign == '%'        ? x - y * floor(x / y)
                                           : x / y);
    return 0;
}

static int product(struct page_run *run, struct page_value *out)
{
    static const char *const signs[] = {"*", "//", "/", "%", NULL};
    if (part(run, out) < 0)
        return -1;
    for (const char *const *sign = signs; *sign;) {
        struct page_value other;
        if (!take_token(run, *sign)) {
            sign++;
            continue;
        }
        if (part(run, &other) < 0 || arithmetic(run, *sign, out, &other) < 0)
            return -1;
        sign = signs;
    }
    return 0;
}

static int sum(struct page_run *run, struct page_value *out)
{
    if (product(run, out) < 0)
        return -1;
    for (;;) {
        struct page_value other;
        const char *sign = take_token(run, "+") ? "+" : take_token(run, "-") ? "-" : NULL;
        if (!sign)
            return 0;
        if (product(run, &other) < 0 || arithmetic(run, sign, out, &other) < 0)
            return -1;
    }
}

static bool equal(const struct page_value *a, const struct page_value *b)
{
    if (is_number(a) && is_number(b))
        return a->number == b->number;
    return a->kind == b->kind && (a->kind != PAGE_TEXT || !strcmp(a->text, b->text));
}

static int comparison(struct page_run *run, struct page_value *out)
{
    static const char *const signs[] = {"==", "!=", "<=", ">=", "<", ">"};
    struct page_value other;
    if (sum(run, out) < 0)
        return -1;
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        if (!take_token(run, signs[i]))
            continue;
        if (sum(run, &other) < 0)
            return -1;
        if (i >= 2 && !run->skips && (!is_number(out) || !is_number(&other)))
            return page_fail(run, "%s is of numbers", signs[i]);
        const double x = out->number, y = other.number;
        const bool results[] = {equal(out, &other), !equal(out, &other), x <= y, x >= y, x<y, x> y};
        *out = (struct page_value){.kind = PAGE_FLAG, .number = results[i]};
        return 0;
    }
    return 0;
}

static int negation(struct page_run *run, struct page_value *out)
{
    int turns = 0;
    while (take_token(run, "not"))
        turns++;
    if (comparison(run, out) < 0)
        return -1;
    if (turns)
        *out = (struct page_value){.kind = PAGE_FLAG, .number = page_is_true(out) != (turns % 2 == 1)};
    return 0;
}

/* The value that decides is the result: "a or b" is a, unless it is none, 0 or false. */
static int both(struct page_run *run, struct page_value *out)
{
    if (negation(run, out) < 0)
        return -1;
    while (take_token(run, "and")) {
        struct page_value other;
        const bool goes_on = page_is_true(out);
        run->skips += !goes_on;
        const int result = negation(run, &other);
        run->skips -= !goes_on;
        if (result < 0)
            return -1;
        if (goes_on)
            *out = other;
    }
    return 0;
}

static int expression(struct page_run *run, struct page_value *out)
{
    if (++run->depth > DEPTH)
        return page_fail(run, "an expression is nested more than %d times", DEPTH);
    if (both(run, out) < 0)
        return -1;
    while (take_token(run, "or")) {
        struct page_value other;
        const bool goes_on = !page_is_true(out);
        run->skips += !goes_on;
        const int result = both(run, &other);
        run->skips -= !goes_on;
        if (result < 0)
            return -1;
        if (goes_on)
            *out = other;
    }
    run->depth--;
    return 0;
}

/* ---- statements ---- */

static int begin(struct page_run *run, const struct tree_node *node)
{
    run->node = node;
    run->skips = run->depth = 0;
    run->at =
        node->kind == TREE_LIST || node->kind == TREE_MAP || node->kind == TREE_NULL ? NULL : node->text;
    return run->at ? 0 : page_fail(run, "%s is where a statement is expected", tree_kind_name(node->kind));
}

static int end(struct page_run *run)
{
    skip_blanks(run);
    return *run->at ? page_fail(run, "'%.24s' follows the end of the statement", run->at) : 0;
}

int page_expression(struct page_run *run, const struct tree_node *node, struct page_value *out)
{
    return begin(run, node) < 0 || expression(run, out) < 0 ? -1 : end(run);
}

/* The condition after "when", which is outside of texts; NULL: none. */
static const char *find_condition(const char *text)
{
    bool quoted = false;
    for (const char *p = text; *p; p++) {
        quoted ^= *p == '\'';
        if (!quoted && p > text && p[-1] == ' ' && !strncmp(p, "when ", 5))
            return p + 5;
    }
    return NULL;
}

int page_statement(struct page_run *run, const struct tree_node *node)
{
    char name[32];
    struct page_value value = {.kind = PAGE_NONE}, condition;
    if (begin(run, node) < 0)
        return -1;
    const char *when = find_condition(run->at);
    bool wanted = true;
    if (when) {
        const char *start = run->at;
        run->at = when;
        if (expression(run, &condition) < 0 || end(run) < 0)
            return -1;
        wanted = page_is_true(&condition);
        run->at = start;
    }
    run->skips = !wanted;
    const bool sets = take_argument_name(run, name, sizeof name);
    if (expression(run, &value) < 0)
        return -1;
    if (when ? !take_token(run, "when") || run->at > when : end(run) < 0)
        return page_fail(run, "'%.24s' follows the end of the statement", run->at);
    run->skips = 0;
    return sets && wanted ? page_set(run, name, &value) : 0;
}
