/* world.c - see world.h. */
#include "rendezvous/roster/world.h"

#include <stddef.h>
#include <string.h>

static const size_t small_part = offsetof(struct membership_event, failure);

void membership_event_clear(struct membership_event *event)
{
    memset(event, 0, small_part);
}

void membership_event_copy(struct membership_event *to, const struct membership_event *from)
{
    memcpy(to, from, from->failed ? sizeof *to : small_part);
}
