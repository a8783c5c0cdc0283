/* placeholder.h - finds places that a template engine should have filled: $NAME, ${NAME}, {{ .Values.x }},
 * <name> (pure). */
#ifndef MUSTER_LAUNCHER_LOCAL_POD_PLACEHOLDER_H
#define MUSTER_LAUNCHER_LOCAL_POD_PLACEHOLDER_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/tree/tree.h"

enum placeholder_kind {
    PLACEHOLDER_NONE,
    PLACEHOLDER_SHELL,  /* $NAME, ${NAME}, ${NAME:-default}: envsubst */
    PLACEHOLDER_PARENS, /* $(NAME): kustomize, OpenShift */
    PLACEHOLDER_HELM,   /* {{ .Values.x }}, {{ include "x" . }} */
    PLACEHOLDER_BRACES, /* {{ x }}, {% x %}, ${{ x }}, {x}: Jinja, GitHub Actions, Python */
    PLACEHOLDER_MARK,   /* <name>, @NAME@, %NAME%, __NAME__: filled in by hand or by sed */
};

struct placeholder {
    enum placeholder_kind kind;
    char text[100]; /* as it is written in the file */
};

/* The first one in a text that no program expands: any mark of a template there is a leftover. */
struct placeholder placeholder_in_text(const char *text);
/* Whether the whole text is $NAME or ${NAME}, which only a shell or envsubst expands. */
bool placeholder_is_variable(const char *text);
/* The same of a value: {NAME} is a mapping in YAML. */
struct placeholder placeholder_in_node(const struct tree_node *node);
/* The first {{ }} or {% %} of a file that is no YAML or JSON, comments left out; *line is its line. text ends
 * with a zero byte. */
struct placeholder placeholder_in_file(const char *text, size_t length, int *line);
/* The way out: "run envsubst over the file first". */
const char *placeholder_advice(enum placeholder_kind kind);

#endif
