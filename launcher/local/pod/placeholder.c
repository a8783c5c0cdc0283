/* placeholder.c - see placeholder.h. */
#include "launcher/local/pod/placeholder.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static size_t name_length(const char *text)
{
    size_t length = 0;
    if (isdigit((unsigned char)*text))
        return 0;
    while (isalnum((unsigned char)text[length]) || text[length] == '_')
        length++;
    return length;
}

enum { LENGTH_LIMIT = 200 }; /* bytes of a placeholder: the cost of a hostile file stays linear */

/* Length of "open ... close" at text, in one line; 0: it does not stand there. */
static size_t enclosed(const char *text, const char *open, const char *close)
{
    size_t length = strlen(open), last = strlen(close);
    if (strncmp(text, open, length) != 0)
        return 0;
    for (size_t i = length; i < LENGTH_LIMIT && text[i] && text[i] != '\n'; i++)
        if (!strncmp(text + i, close, last))
            return i + last;
    return 0;
}

/* A mark with a name between two equal or matching signs; a space or a sign inside makes it plain text. */
static size_t marked(const char *text, const char *open, const char *close)
{
    size_t length = enclosed(text, open, close), edges = strlen(open) + strlen(close);
    if (length <= edges)
        return 0;
    for (size_t i = strlen(open); i < length - strlen(close); i++)
        if (!isalnum((unsigned char)text[i]) && !strchr("_-. ", text[i]))
            return 0;
    return length;
}

static bool is_helm(const char *text, size_t length)
{
    static const char *const words[] = {".Values", ".Release", ".Chart",   ".Files", ".Capabilities",
                                        "include", "toYaml",   "template", "range",  "tpl"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        for (size_t k = 0; k < length; k++)
            if (!strncmp(text + k, words[i], strlen(words[i])))
                return true;
    return false;
}

/* What begins at text, and its length. */
static enum placeholder_kind begins(const char *text, size_t *length)
{
    if ((*length = enclosed(text, "${{", "}}")) || (*length = enclosed(text, "{%", "%}")))
        return PLACEHOLDER_BRACES;
    if ((*length = enclosed(text, "{{", "}}")))
        return is_helm(text, *length) ? PLACEHOLDER_HELM : PLACEHOLDER_BRACES;
    if (!strncmp(text, "${", 2) && name_length(text + 2) && (*length = enclosed(text, "${", "}")))
        return PLACEHOLDER_SHELL;
    if (!strncmp(text, "$(", 2) && name_length(text + 2) && (*length = enclosed(text, "$(", ")")))
        return PLACEHOLDER_PARENS;
    if (*text == '$' && (*length = name_length(text + 1))) {
        ++*length;
        return PLACEHOLDER_SHELL;
    }
    if ((*length = marked(text, "<", ">")) || (*length = marked(text, "@", "@")) ||
        (*length = marked(text, "%", "%")) || (*length = marked(text, "__", "__")))
        return PLACEHOLDER_MARK;
    return PLACEHOLDER_NONE;
}

static struct placeholder taken(enum placeholder_kind kind, const char *text, size_t length)
{
    struct placeholder found = {.kind = kind};
    size_t limit = sizeof found.text - 1;
    (void)snprintf(found.text, sizeof found.text, "%.*s", (int)(length < limit ? length : limit), text);
    return found;
}

struct placeholder placeholder_in_text(const char *text)
{
    for (; text && *text; text++) {
        size_t length = 0;
        enum placeholder_kind kind = begins(text, &length);
        if (kind != PLACEHOLDER_NONE)
            return taken(kind, text, length);
    }
    return (struct placeholder){0};
}

bool placeholder_is_variable(const char *text)
{
    size_t length = 0;
    return text && begins(text, &length) == PLACEHOLDER_SHELL && !text[length];
}

struct placeholder placeholder_in_node(const struct tree_node *node)
{
    bool braces = node->kind == TREE_MAP && node->count == 1 && node->entries[0].value->kind == TREE_NULL;
    if (!braces)
        return placeholder_in_text(node->text);
    struct placeholder found = {.kind = PLACEHOLDER_BRACES};
    (void)snprintf(found.text, sizeof found.text, "{%.90s}", node->entries[0].key);
    return found;
}

struct placeholder placeholder_in_file(const char *text, size_t length, int *line)
{
    bool comment = false;
    *line = 1;
    for (size_t i = 0; i + 1 < length && text[i]; i++) {
        bool begin = i == 0 || text[i - 1] == '\n' || text[i - 1] == ' ';
        *line += text[i] == '\n';
        comment = text[i] == '\n' ? false : comment || (text[i] == '#' && begin);
        if (comment || text[i] != '{' || (text[i + 1] != '{' && text[i + 1] != '%'))
            continue;
        size_t taken_length = 0;
        enum placeholder_kind kind = begins(text + i, &taken_length);
        if (kind != PLACEHOLDER_NONE)
            return taken(kind, text + i, taken_length);
    }
    return (struct placeholder){0};
}

const char *placeholder_advice(enum placeholder_kind kind)
{
    switch (kind) {
    case PLACEHOLDER_SHELL:
        return "set the variable and run envsubst over the file first (envsubst < FILE | muster local -f -)";
    case PLACEHOLDER_PARENS:
        return "only env, command and args expand $(NAME); run kustomize, or the template's own tool, first";
    case PLACEHOLDER_HELM:
        return "this is a Helm template; render the chart first (helm template CHART | muster local -f -)";
    case PLACEHOLDER_BRACES:
        return "this is a template; run the tool that it is written for first";
    default:
        return "this is a placeholder; write a value in its place";
    }
}
