/* conditions.c - see lifecycle.h. */
#include "launcher/local/run/lifecycle.h"

#include <stddef.h>
#include <string.h>

const char *condition_name(enum condition_type type)
{
#define CONDITION_NAME(symbol, name) [symbol] = (name),
    static const char *const names[] = {CONDITION_TYPES(CONDITION_NAME)};
#undef CONDITION_NAME
    return (unsigned)type < CONDITION_TYPE_COUNT ? names[type] : "?";
}

const struct condition *conditions_find(const struct conditions *c, enum condition_type type)
{
    for (int i = 0; i < c->count; i++)
        if (c->list[i].type == type)
            return &c->list[i];
    return NULL;
}

bool conditions_hold(const struct conditions *c, enum condition_type type)
{
    const struct condition *found = conditions_find(c, type);
    return found && found->status;
}

static bool replaces(enum condition_type new, enum condition_type old)
{
    return new == old || (new == CONDITION_RUNNING &&old == CONDITION_RESTARTING) ||
           (new == CONDITION_RESTARTING &&old == CONDITION_RUNNING);
}

bool conditions_set(struct conditions *c, enum condition_type type, bool status, const char *reason)
{
    const struct condition *known = conditions_find(c, type);
    if (conditions_hold(c, CONDITION_FAILED) || conditions_hold(c, CONDITION_SUCCEEDED))
        return false;
    if (known && known->status == status && !strcmp(known->reason, reason))
        return false;
    int kept = 0;
    for (int i = 0; i < c->count; i++) {
        struct condition old = c->list[i];
        if (replaces(type, old.type))
            continue;
        if (old.type == CONDITION_RUNNING && (type == CONDITION_SUCCEEDED || type == CONDITION_FAILED))
            old.status = false;
        c->list[kept++] = old;
    }
    c->list[kept++] = (struct condition){type, status, reason};
    c->count = kept;
    return true;
}
