/* accelerate_values.c - see accelerate_values.h. */
#include "launcher/accelerate/accelerate_values.h"

#include <ctype.h>
#include <string.h>

#include "proto/base/mem.h"
#include "proto/base/text.h"

bool accelerate_is_value(const struct tree_node *node)
{
    for (const char *at = node->kind == TREE_TEXT ? node->text : ""; *at; at++)
        if (iscntrl((unsigned char)*at))
            return false;
    return node->kind == TREE_BOOL || node->kind == TREE_INT || node->kind == TREE_FLOAT ||
           node->kind == TREE_TEXT;
}

const char *accelerate_shown(const char *text, char scratch[ACCELERATE_SHOWN_SIZE])
{
    size_t length = strnlen(text, ACCELERATE_SHOWN_SIZE - 1);
    for (size_t i = 0; i < length; i++)
        scratch[i] = iscntrl((unsigned char)text[i]) ? '?' : text[i];
    scratch[length] = '\0';
    return scratch;
}

char *accelerate_print(const struct tree_node *node, enum accelerate_form form)
{
    char *text = NULL;
    if (node->kind == TREE_BOOL)
        text = mem_strdup(node->boolean ? "True" : "False");
    else if (node->kind == TREE_INT)
        text = mem_printf("%lld", (long long)node->integer);
    else if (accelerate_is_value(node))
        text = mem_strdup(node->text);
    for (char *at = text; at && *at && form != ACCELERATE_AS_IS; at++)
        *at = (char)(form == ACCELERATE_LOWER ? tolower((unsigned char)*at) : toupper((unsigned char)*at));
    return text;
}

bool accelerate_bool(const struct tree_node *node, bool *out)
{
    if (node->kind == TREE_BOOL)
        *out = node->boolean;
    return node->kind == TREE_BOOL || (node->kind == TREE_TEXT && text_bool(node->text, out));
}

bool accelerate_int(const struct tree_node *node, int64_t *out)
{
    if (node->kind == TREE_INT)
        *out = node->integer;
    return node->kind == TREE_INT || (node->kind == TREE_TEXT && text_int64(node->text, out));
}

bool accelerate_is_empty(const struct tree_node *node)
{
    switch (node->kind) {
    case TREE_NULL:
        return true;
    case TREE_BOOL:
        return !node->boolean;
    case TREE_TEXT:
        return !*node->text;
    case TREE_LIST:
    case TREE_MAP:
        return node->count == 0;
    default:
        return false;
    }
}
