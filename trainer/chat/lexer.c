/* lexer.c - cuts a template into texts, tags and the tokens of expressions, with the blanks that tags take.
 */
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "trainer/chat/jinja_internal.h"

struct lexer {
    struct jinja *source;
    const char *text;
    size_t length, at;
    int line;
    bool line_starts; /* the last tag took the end of its line */
    struct muster_error *err;
};

static int lex_error(const struct lexer *l, const char *what)
{
    return error_set(l->err, MUSTER_E_INVALID, "%s:%d: %s", l->source->name, l->line, what);
}

static int add_token(struct lexer *l, enum jinja_token_kind kind, const char *data, size_t length)
{
    struct jinja *t = l->source;
    if (t->tokens == t->capacity) {
        const size_t more = t->capacity * 2 + 64;
        struct jinja_token *grown = mem_realloc(t->token, more, sizeof *grown);
        if (!grown)
            return error_set(l->err, MUSTER_E_NOMEM, "no memory for a template");
        t->token = grown;
        t->capacity = more;
    }
    t->token[t->tokens++] = (struct jinja_token){kind, l->line, {data, length}};
    return 0;
}

static void lexer_advance(struct lexer *l, size_t bytes)
{
    for (; bytes && l->at < l->length; bytes--)
        l->line += l->text[l->at++] == '\n';
}

static bool starts(const struct lexer *l, size_t at, const char *with)
{
    const size_t length = strlen(with);
    return l->length - at >= length && !memcmp(l->text + at, with, length);
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* After a tag: '-' takes all blanks, nothing but '+' takes the end of a line where the tag is a block. */
static void take_blanks(struct lexer *l, char sign, bool block)
{
    const size_t from = l->at;
    if (sign == '-')
        while (l->at < l->length && is_space(l->text[l->at]))
            lexer_advance(l, 1);
    else if (block && sign != '+' && l->at < l->length && l->text[l->at] == '\n')
        lexer_advance(l, 1);
    l->line_starts = l->at > from && l->text[l->at - 1] == '\n';
}

/* The text in front of a tag at `end`, without the blanks that the tag takes. */
static int add_template_text(struct lexer *l, size_t end, char sign, bool block)
{
    const size_t from = l->at;
    size_t last = end;
    if (sign == '-') {
        while (last > from && is_space(l->text[last - 1]))
            last--;
    } else if (block && sign != '+') {
        size_t line = end;
        while (line > from && is_space(l->text[line - 1]) && l->text[line - 1] != '\n')
            line--;
        if (line > from ? l->text[line - 1] == '\n' : l->line_starts)
            last = line;
    }
    const int added = last > from ? add_token(l, TOKEN_TEXT, l->text + from, last - from) : 0;
    lexer_advance(l, end - from);
    return added;
}

/* ---- expressions ---- */

static int hex_digits(const char *at, size_t digits, size_t left, uint32_t *out)
{
    *out = 0;
    if (left < digits)
        return -1;
    for (size_t i = 0; i < digits; i++) {
        const char c = at[i], lower = (char)(c | 0x20);
        if (!((c >= '0' && c <= '9') || (lower >= 'a' && lower <= 'f')))
            return -1;
        *out = *out * 16 + (uint32_t)(c <= '9' ? c - '0' : lower - 'a' + 10);
    }
    return 0;
}

/* An escape after its backslash, as Python reads it; an unknown one stays. Returns its bytes; -1: broken. */
static int add_escape(struct buffer *out, const char *at, size_t left)
{
    static const char plain[] = "\\'\"abfnrtv", means[] = "\\'\"\a\b\f\n\r\t\v";
    const char *known = at[0] ? strchr(plain, at[0]) : NULL;
    uint32_t c = 0;
    if (known) {
        (void)buffer_append(out, &means[known - plain], 1); /* out remembers a failure */
        return 1;
    }
    if (at[0] == '\n')
        return 1;
    if (at[0] >= '0' && at[0] <= '7') {
        int n = 0;
        for (; n < 3 && (size_t)n < left && at[n] >= '0' && at[n] <= '7'; n++)
            c = c * 8 + (uint32_t)(at[n] - '0');
        jinja_add_character(out, c);
        return n;
    }
    const size_t digits = at[0] == 'x' ? 2 : at[0] == 'u' ? 4 : at[0] == 'U' ? 8 : 0;
    if (!digits) {
        (void)buffer_text(out, "\\"); /* out remembers a failure */
        return 0;
    }
    if (hex_digits(at + 1, digits, left - 1, &c) < 0 || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000))
        return -1;
    jinja_add_character(out, c);
    return 1 + (int)digits;
}

static int lex_string(struct lexer *l)
{
    const char quote = l->text[l->at];
    scope_buffer out = {0};
    size_t at = l->at + 1;
    for (; at < l->length && l->text[at] != quote; at++) {
        if (l->text[at] != '\\') {
            (void)buffer_append(&out, l->text + at, 1); /* out remembers a failure */
            continue;
        }
        const int bytes = at + 1 < l->length ? add_escape(&out, l->text + at + 1, l->length - at - 1) : -1;
        if (bytes < 0)
            return lex_error(l, "an escape in a text is not valid");
        at += (size_t)bytes;
    }
    if (at >= l->length)
        return lex_error(l, "a text in quotes does not end");
    char *copy = out.failed ? NULL : jinja_arena_take(&l->source->arena, out.length + 1);
    if (!copy)
        return error_set(l->err, MUSTER_E_NOMEM, "no memory for a template");
    if (out.length)
        memcpy(copy, out.data, out.length);
    if (add_token(l, TOKEN_STRING, copy, out.length) < 0)
        return -1;
    lexer_advance(l, at + 1 - l->at);
    return 0;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_name(char c)
{
    const char lower = (char)(c | 0x20);
    return (lower >= 'a' && lower <= 'z') || is_digit(c) || c == '_' || (unsigned char)c >= 0x80;
}

static int lex_number(struct lexer *l)
{
    size_t end = l->at;
    enum jinja_token_kind kind = TOKEN_INTEGER;
    while (end < l->length && (is_digit(l->text[end]) || l->text[end] == '_'))
        end++;
    if (end + 1 < l->length && l->text[end] == '.' && is_digit(l->text[end + 1])) {
        kind = TOKEN_REAL;
        for (end++; end < l->length && is_digit(l->text[end]);)
            end++;
    }
    if (end + 1 < l->length && (l->text[end] | 0x20) == 'e') {
        const size_t sign = l->text[end + 1] == '-' || l->text[end + 1] == '+';
        if (end + 1 + sign < l->length && is_digit(l->text[end + 1 + sign])) {
            kind = TOKEN_REAL;
            for (end += 1 + sign; end < l->length && is_digit(l->text[end]);)
                end++;
        }
    }
    if (end - l->at > 300)
        return lex_error(l, "a number is too long");
    const int added = add_token(l, kind, l->text + l->at, end - l->at);
    lexer_advance(l, end - l->at);
    return added;
}

static int lex_operator(struct lexer *l)
{
    static const char *const pairs[] = {"==", "!=", ">=", "<=", "//", "**", NULL};
    for (int i = 0; pairs[i]; i++)
        if (starts(l, l->at, pairs[i])) {
            const int added = add_token(l, TOKEN_OPERATOR, l->text + l->at, 2);
            lexer_advance(l, 2);
            return added;
        }
    if (!strchr("+-/*%~[](){}><=.:|,;", l->text[l->at]) || !l->text[l->at])
        return lex_error(l, "a character that no expression has");
    const int added = add_token(l, TOKEN_OPERATOR, l->text + l->at, 1);
    lexer_advance(l, 1);
    return added;
}

static int lex_expression_token(struct lexer *l)
{
    const char c = l->text[l->at];
    if (c == '"' || c == '\'')
        return lex_string(l);
    if (is_digit(c))
        return lex_number(l);
    if (!is_name(c))
        return lex_operator(l);
    size_t end = l->at;
    while (end < l->length && is_name(l->text[end]))
        end++;
    const int added = add_token(l, TOKEN_NAME, l->text + l->at, end - l->at);
    lexer_advance(l, end - l->at);
    return added;
}

/* The tokens up to the end of a tag, which is no end inside of brackets. */
static int lex_tag(struct lexer *l, bool block)
{
    const char *close = block ? "%}" : "}}";
    const int begun = l->line;
    int brackets = 0;
    for (;;) {
        while (l->at < l->length && is_space(l->text[l->at]))
            lexer_advance(l, 1);
        if (l->at == l->length) {
            l->line = begun;
            return lex_error(l, "a tag does not end");
        }
        const char c = l->text[l->at];
        const bool sign = (c == '-' || (block && c == '+')) && starts(l, l->at + 1, close);
        if (!brackets && (sign || starts(l, l->at, close))) {
            if (add_token(l, block ? TOKEN_TAG_END : TOKEN_OUTPUT_END, l->text + l->at, 0) < 0)
                return -1;
            lexer_advance(l, sign ? 3 : 2);
            take_blanks(l, sign ? c : '\0', block);
            return 0;
        }
        brackets += (c == '(' || c == '[' || c == '{') - (c == ')' || c == ']' || c == '}');
        if (brackets < 0)
            return lex_error(l, "a bracket is closed that was not opened");
        if (lex_expression_token(l) < 0)
            return -1;
    }
}

/* ---- the template ---- */

static int lex_comment(struct lexer *l)
{
    const char *end = memmem(l->text + l->at + 2, l->length - l->at - 2, "#}", 2);
    if (!end)
        return lex_error(l, "a comment does not end");
    const char sign = end > l->text + l->at + 2 ? end[-1] : '\0';
    lexer_advance(l, (size_t)(end - l->text) + 2 - l->at);
    take_blanks(l, sign, true);
    return 0;
}

/* The place after `{%- NAME -%}` at `at`, with its signs; 0: another tag. */
static size_t tag_named(const struct lexer *l, size_t at, const char *name, char *before, char *after)
{
    size_t to = at + 2;
    *before = to < l->length ? l->text[to] : '\0';
    to += *before == '-' || *before == '+';
    while (to < l->length && is_space(l->text[to]))
        to++;
    if (!starts(l, to, name))
        return 0;
    to += strlen(name);
    while (to < l->length && is_space(l->text[to]))
        to++;
    *after = to < l->length ? l->text[to] : '\0';
    to += *after == '-' || *after == '+';
    return starts(l, to, "%}") ? to + 2 : 0;
}

/* 1: there was no raw block. */
static int lex_raw(struct lexer *l)
{
    char before, after;
    const size_t begin = tag_named(l, l->at, "raw", &before, &after);
    if (!begin)
        return 1;
    lexer_advance(l, begin - l->at);
    take_blanks(l, after, false);
    for (size_t at = l->at; at + 1 < l->length; at++) {
        const size_t end = starts(l, at, "{%") ? tag_named(l, at, "endraw", &before, &after) : 0;
        if (!end)
            continue;
        l->line_starts = false;
        if (add_template_text(l, at, before, true) < 0)
            return -1;
        lexer_advance(l, end - at);
        take_blanks(l, after, true);
        return 0;
    }
    return lex_error(l, "a raw block does not end");
}

static int lex_next(struct lexer *l)
{
    size_t at = l->at;
    while (at < l->length && !(starts(l, at, "{{") || starts(l, at, "{%") || starts(l, at, "{#")))
        at++;
    const char kind = at < l->length ? l->text[at + 1] : '\0',
               sign = at + 2 < l->length ? l->text[at + 2] : '\0';
    if (add_template_text(l, at, kind ? sign : '+', kind != '{') < 0)
        return -1;
    if (!kind)
        return 0;
    if (kind == '#')
        return lex_comment(l);
    const int raw = kind == '%' ? lex_raw(l) : 1;
    if (raw <= 0)
        return raw;
    if (add_token(l, kind == '%' ? TOKEN_TAG : TOKEN_OUTPUT, l->text + at, 0) < 0)
        return -1;
    lexer_advance(l, sign == '-' || sign == '+' ? 3 : 2);
    return lex_tag(l, kind == '%');
}

int jinja_lex(struct jinja *source, const char *text, size_t length, struct muster_error *err)
{
    char *copy = jinja_arena_take(&source->arena, length + 1);
    struct lexer l = {.source = source, .text = copy, .line = 1, .line_starts = true, .err = err};
    if (!copy)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a template");
    for (size_t i = 0; i < length; i++) /* all ends of lines are one character */
        if (text[i] != '\r')
            copy[l.length++] = text[i];
        else if (i + 1 == length || text[i + 1] != '\n')
            copy[l.length++] = '\n';
    l.length -= l.length && copy[l.length - 1] == '\n';
    while (l.at < l.length)
        if (lex_next(&l) < 0)
            return -1;
    return add_token(&l, TOKEN_END, "", 0);
}
