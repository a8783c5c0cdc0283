/* tree_scalar.c - the meaning of a YAML scalar, in the dialect of Kubernetes' tools (pure).
 *
 * YAML 1.1 with the habits of their reader: y, yes, on and the like are booleans, integers may be octal
 * (010, 0o10), binary or hexadecimal and may hold underscores, dates stay text. */
#include "proto/tree/tree_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/text.h"

enum { NUMBER_LIMIT = 400 }; /* digits of a number; longer text is text */

static bool one_of(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (!strcmp(text, *words))
            return true;
    return false;
}

static bool is_null(const char *text)
{
    static const char *const words[] = {"", "~", "null", "Null", "NULL", NULL};
    return one_of(text, words);
}

static bool is_bool(const char *text, bool *out)
{
    static const char *const yes[] = {"y",    "Y",    "yes", "Yes", "YES", "true",
                                      "True", "TRUE", "on",  "On",  "ON",  NULL};
    static const char *const no[] = {"n",     "N",     "no",  "No",  "NO",  "false",
                                     "False", "FALSE", "off", "Off", "OFF", NULL};
    *out = one_of(text, yes);
    return *out || one_of(text, no);
}

/* An integer with an optional sign and prefix; false where it is none or does not fit 64 bits. */
static bool is_int(const char *text, int64_t *out)
{
    bool negative = *text == '-';
    uint64_t value = 0;
    unsigned base = 10;
    text += *text == '-' || *text == '+';
    if (text[0] == '0' && text[1]) {
        static const char marks[] = "xXoObB";
        const char *mark = strchr(marks, text[1]);
        base = !mark ? 8 : mark < marks + 2 ? 16 : mark < marks + 4 ? 8 : 2;
        text += mark ? 2 : 1;
    }
    if (!*text)
        return false;
    for (; *text; text++) {
        unsigned digit = *text >= '0' && *text <= '9'   ? (unsigned)(*text - '0')
                         : *text >= 'a' && *text <= 'f' ? (unsigned)(*text - 'a' + 10)
                         : *text >= 'A' && *text <= 'F' ? (unsigned)(*text - 'A' + 10)
                                                        : 99;
        if (digit >= base || __builtin_mul_overflow(value, base, &value) ||
            __builtin_add_overflow(value, digit, &value))
            return false;
    }
    if (value > (uint64_t)INT64_MAX + negative)
        return false;
    *out = (int64_t)(negative ? -value : value);
    return true;
}

/* Digits with at most one point and an exponent, as a number. */
static bool is_decimal(const char *text, double *out)
{
    const char *at = text + (*text == '-' || *text == '+');
    size_t before = strspn(at, "0123456789"), after = 0;
    at += before;
    if (*at == '.') {
        after = strspn(++at, "0123456789");
        at += after;
    }
    if (!before && !after)
        return false;
    if (*at == 'e' || *at == 'E') {
        at += 1 + (at[1] == '-' || at[1] == '+');
        size_t exponent = strspn(at, "0123456789");
        if (!exponent)
            return false;
        at += exponent;
    }
    return !*at && text_double(text + (*text == '+'), out);
}

static bool is_float(const char *text, double *out)
{
    static const char *const infinite[] = {".inf", ".Inf", ".INF", NULL};
    static const char *const none[] = {".nan", ".NaN", ".NAN", NULL};
    bool sign = *text == '-' || *text == '+';
    if (one_of(text, none))
        *out = NAN;
    else if (one_of(text + sign, infinite))
        *out = *text == '-' ? -INFINITY : INFINITY;
    else
        return is_decimal(text, out);
    return true;
}

static void resolve_plain(struct tree_node *node)
{
    char digits[NUMBER_LIMIT + 1];
    size_t length = 0;
    node->kind = TREE_TEXT;
    if (is_null(node->text)) {
        node->kind = TREE_NULL;
        return;
    }
    if (is_bool(node->text, &node->boolean)) {
        node->kind = TREE_BOOL;
        return;
    }
    if (!strchr("+-.0123456789", node->text[0]))
        return;
    for (const char *at = node->text; *at; at++) {
        if (length == NUMBER_LIMIT)
            return;
        if (*at != '_')
            digits[length++] = *at;
    }
    digits[length] = 0;
    if (is_int(digits, &node->integer))
        node->kind = TREE_INT;
    else if (is_float(digits, &node->real))
        node->kind = TREE_FLOAT;
}

bool tree_tag_is_foreign(const char *tag)
{
    static const char core[] = "tag:yaml.org,2002:", python[] = "python";
    const size_t length = sizeof core - 1;
    if (!tag || !strcmp(tag, "!"))
        return false;
    return strncmp(tag, core, length) != 0 || !strncmp(tag + length, python, sizeof python - 1);
}

bool tree_resolve(struct tree_node *node, bool plain, const char *tag)
{
    static const char core[] = "tag:yaml.org,2002:";
    static const struct {
        const char *name;
        enum tree_kind kind;
    } tags[] = {{"null", TREE_NULL}, {"bool", TREE_BOOL}, {"int", TREE_INT}, {"float", TREE_FLOAT}};
    if (!tag) {
        if (plain)
            resolve_plain(node);
        else
            node->kind = TREE_TEXT;
        return true;
    }
    node->tagged = tree_tag_is_foreign(tag);
    node->kind = TREE_TEXT; /* !!str, the lone "!" and unknown tags */
    if (strncmp(tag, core, sizeof core - 1))
        return true;
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++) {
        if (strcmp(tag + sizeof core - 1, tags[i].name))
            continue;
        resolve_plain(node);
        if (node->kind == TREE_INT && tags[i].kind == TREE_FLOAT) {
            node->real = (double)node->integer;
            node->kind = TREE_FLOAT;
        }
        return node->kind == tags[i].kind;
    }
    return strcmp(tag + sizeof core - 1, "binary") != 0; /* bytes cannot be passed on as text */
}
