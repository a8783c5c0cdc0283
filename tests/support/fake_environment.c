/* fake_environment.c - see fake_environment.h. */
#include "tests/support/fake_environment.h"

#include <stdio.h>
#include <string.h>

enum { VALUES_KEPT = 16, VALUE_SIZE = 512 };

const char *fake_environment(void *context, const char *name)
{
    static _Thread_local char values[VALUES_KEPT][VALUE_SIZE]; /* ranks are threads */
    static _Thread_local unsigned turn;
    size_t length = strlen(name);
    for (const char *at = context; at && *at;) {
        size_t word = strcspn(at, " ");
        if (!strncmp(at, name, length) && at[length] == '=') {
            char *value = values[turn++ % VALUES_KEPT];
            (void)snprintf(value, VALUE_SIZE, "%.*s", (int)(word - length - 1), at + length + 1);
            return value;
        }
        at += word + strspn(at + word, " ");
    }
    return NULL;
}
