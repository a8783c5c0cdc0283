/* scalar.c - see scalar.h. */
#include "trainer/formats/scalar.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/text.h"

/* 010, +07, 0_1: octal in YAML 1.1 (PyYAML, Kubernetes), decimal in YAML 1.2. */
static bool is_ambiguous(const struct tree_node *node)
{
    const char *text = node->text;
    if (node->kind != TREE_INT)
        return false;
    text += *text == '-' || *text == '+';
    return *text == '0' && (isdigit((unsigned char)text[1]) || text[1] == '_');
}

bool scalar_is_null(const char *text)
{
    static const char *const words[] = {"null", "Null", "NULL", "~"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(text, words[i]))
            return true;
    return false;
}

bool scalar_is_list(const char *text)
{
    const size_t length = strlen(text);
    return length >= 2 && text[0] == '[' && text[length - 1] == ']';
}

bool scalar_number(const struct tree_node *node, double *out)
{
    if (!node->text || node->kind == TREE_BOOL || node->kind == TREE_NULL || is_ambiguous(node))
        return false;
    if (text_double(node->text, out))
        return true;
    if (node->kind == TREE_INT)
        *out = (double)node->integer;
    else if (node->kind == TREE_FLOAT && strchr(node->text, '_'))
        *out = node->real;
    else
        return false;
    return true;
}

const char *scalar_text(const struct tree_node *node, const struct knob *knob, char number[SCALAR_SIZE],
                        const char *where, struct muster_error *err)
{
    const bool counts = knob->type == KNOB_INT || knob->type == KNOB_BYTES || knob->type == KNOB_DOUBLE;
    if (!node->text || node->kind == TREE_NULL) {
        (void)error_set(err, MUSTER_E_INVALID, "%s: %s found where a single value is expected", where,
                        tree_kind_name(node->kind));
        return NULL;
    }
    if (knob->text >= KNOB_PATH && node->kind == TREE_BOOL) {
        (void)error_set(
            err, MUSTER_E_INVALID,
            "%s: '%s' is a boolean where a path is expected: leave the key out for none, or write "
            "\"%s\" for a file of this name",
            where, node->text, node->text);
        return NULL;
    }
    if (counts && is_ambiguous(node)) {
        (void)error_set(err, MUSTER_E_INVALID,
                        "%s: '%s' is octal in YAML 1.1 and decimal in YAML 1.2: leave out the 0 in front, or "
                        "write 0o for octal",
                        where, node->text);
        return NULL;
    }
    if (counts && node->kind == TREE_INT)
        (void)snprintf(number, SCALAR_SIZE, "%lld", (long long)node->integer); /* fits */
    else if (counts && node->kind == TREE_FLOAT && strchr(node->text, '_'))
        (void)snprintf(number, SCALAR_SIZE, "%.17g", node->real); /* fits */
    else
        return node->text;
    return number;
}
