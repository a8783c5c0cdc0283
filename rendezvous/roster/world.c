/* world.c - see world.h. */
#include "rendezvous/roster/world.h"

#include <stddef.h>
#include <string.h>

const char *membership_eviction_name(enum membership_eviction state)
{
    static const char *const names[] = {
#define EVICTION_NAME(symbol, name, meaning) name,
        MEMBERSHIP_EVICTIONS(EVICTION_NAME)
#undef EVICTION_NAME
    };
    return (unsigned)state < EVICTION_COUNT ? names[state] : "?";
}

static const size_t small_part = offsetof(struct membership_event, failure);

void membership_event_clear(struct membership_event *event)
{
    memset(event, 0, small_part);
}

void membership_event_copy(struct membership_event *to, const struct membership_event *from)
{
    memcpy(to, from, from->failed ? sizeof *to : small_part);
}
