/* config_variables.c - variables of the environment that are probably meant to be a setting's (pure); see
 * config.h. */
#include <stdio.h>
#include <string.h>

#include "launcher/config/config_internal.h"
#include "proto/base/text.h"
#include "proto/env_names.h"

enum { NAME_SIZE = 64 };

/* Variables between launcher and worker, and those of other parts of muster: none is a spelling mistake. */
static bool is_known_variable(const char *name)
{
    static const char *const others[] = {
#define NAME(symbol, name, meaning) name,
        MUSTER_ENV_NAMES(NAME)
#undef NAME
            "MUSTER_CUDA_MODULE",
        "MUSTER_HOSTS_PLACED",
        "MUSTER_LIBRARY",
        "MUSTER_SSH",
        "MUSTER_TEMPLATE_FD",
        "MUSTER_TEMPLATE_KEPT",
    };
    const struct knob_table *table = config_table();
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (!strcmp(name, others[i]))
            return true;
    for (size_t i = 0; i < table->count; i++)
        if (table->knobs[i].env && !strcmp(name, table->knobs[i].env))
            return true;
    return false;
}

const char *config_meant_variable(const char *name)
{
    const struct knob_table *table = config_table();
    const size_t prefix = !strncmp(name, "PET_", 4) ? 4 : !strncmp(name, "MUSTER_", 7) ? 7 : 0;
    const char *nearest = NULL;
    if (!prefix || is_known_variable(name))
        return NULL;
    /* a quarter of the name, and at most three letters: a user's own variables may have the prefix too */
    size_t limit = (strlen(name) - prefix) / 4;
    limit = limit < 1 ? 1 : limit > 3 ? 3 : limit;
    for (size_t i = 0; i < table->count; i++) {
        const char *env = table->knobs[i].env;
        const bool same_kind = env && !table->knobs[i].refused && !strncmp(env, name, prefix);
        const size_t distance = same_kind ? text_distance(env, name) : limit + 1;
        if (distance > limit || (nearest && distance == limit))
            continue;
        limit = distance;
        nearest = env;
    }
    return nearest;
}

int config_warn_of_variables(struct run_config *config, char *const *environment, struct muster_error *err)
{
    for (; *environment; environment++) {
        char name[NAME_SIZE];
        const size_t length = strcspn(*environment, "=");
        if (length >= sizeof name)
            continue;
        (void)snprintf(name, sizeof name, "%.*s", (int)length, *environment);
        const char *meant = config_meant_variable(name);
        if (meant &&
            config_warn(config, err, "%s is not a setting's variable and has no effect: is %s meant?", name,
                        meant) < 0)
            return -1;
    }
    return 0;
}
