/* facts.c - see facts.h. */
#include "launcher/local/pod/facts.h"

#include <string.h>

#include "proto/base/mem.h"

bool facts_add(struct facts *facts, const char *name, char *value)
{
    if (!value || facts->count == FACTS_LIMIT) {
        mem_free(value);
        return false;
    }
    facts->list[facts->count++] = (struct fact){name, value};
    return true;
}

bool facts_add_number(struct facts *facts, const char *name, int64_t value)
{
    return facts_add(facts, name, mem_printf("%lld", (long long)value));
}

const char *facts_find(const struct facts *facts, const char *name)
{
    for (int i = facts->count - 1; i >= 0; i--)
        if (!strcmp(facts->list[i].name, name))
            return facts->list[i].value;
    return NULL;
}

void facts_free(struct facts *facts)
{
    for (int i = 0; i < facts->count; i++)
        mem_free(facts->list[i].value);
    facts->count = 0;
}
