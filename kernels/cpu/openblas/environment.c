/* environment.c - see environment.h. */
#include "kernels/cpu/openblas/environment.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/mem.h"

/* One list of ours, linked to the list before: what is reachable is no leak. */
struct kept_list {
    struct kept_list *before;
    char *entries[];
};

static void take_out(const char *assigned)
{
    char name[64];
    const size_t length = strcspn(assigned, "=");
    if (length >= sizeof name)
        return;
    memcpy(name, assigned, length);
    name[length] = '\0';
    (void)unsetenv(name); /* fails for an empty name alone */
}

bool environment_with(const char *assigned, void (*act)(void))
{
    static struct kept_list *kept; /* written by one thread at a time, and never read by another */
    char **const old = environ;
    size_t count = 0, length = strlen(assigned) + 1;
    while (old && old[count])
        count++;
    struct kept_list *list = mem_calloc(1, sizeof *list + (count + 2) * sizeof(char *) + length);
    if (!list)
        return false;
    char *entry = (char *)&list->entries[count + 2];
    memcpy(entry, assigned, length);
    list->entries[0] = entry;
    for (size_t i = 0; i < count; i++)
        list->entries[i + 1] = old[i];
    list->before = kept;
    kept = list;

    __atomic_store_n(&environ, list->entries, __ATOMIC_RELEASE);
    act();
    char **expected = list->entries;
    if (!__atomic_compare_exchange_n(&environ, &expected, old, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        take_out(assigned);
    return true;
}
