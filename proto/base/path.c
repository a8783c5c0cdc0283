/* path.c - see path.h. */
#include "proto/base/path.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"

static int refuse_variable(const char *text, struct muster_error *err)
{
    return error_set(
        err, MUSTER_E_INVALID,
        "'%s' has a variable, which is not replaced here: write the path itself, or let the shell "
        "or the template's own program replace it",
        text);
}

static int refuse_user(const char *text, struct muster_error *err)
{
    const int length = (int)strcspn(text, "/");
    return error_set(
        err, MUSTER_E_INVALID,
        "'%s' begins with %.*s, and the home folders of other users are not looked up: write the "
        "path itself, or ./%s for a file of this name",
        text, length, text, text);
}

int path_with_home(const char *text, const char *home, char **out, struct muster_error *err)
{
    *out = NULL;
    if (*text == '$' || strstr(text, "${") || strstr(text, "$(") || strstr(text, "{{"))
        return refuse_variable(text, err);
    if (!strcmp(text, "None"))
        return error_set(
            err, MUSTER_E_INVALID,
            "'None' is Python's: leave the key out, or write null (./None for a file of this name)");
    const bool of_home = *text == '~';
    if (of_home && text[1] && text[1] != '/')
        return refuse_user(text, err);
    if (of_home && (!home || !*home))
        return error_set(err, MUSTER_E_INVALID, "'%s': the home folder is not known, as HOME is not set",
                         text);
    const size_t length = of_home ? strlen(home) : 0;
    const char *rest = text + of_home;
    if (of_home && home[length - 1] == '/' && *rest == '/')
        rest++;
    *out = mem_printf("%s%s", of_home ? home : "", rest);
    return *out ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory for a path");
}

int path_expand(const char *text, char **out, struct muster_error *err)
{
    return path_with_home(text, getenv("HOME"), out, err);
}
