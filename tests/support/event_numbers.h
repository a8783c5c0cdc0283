/* event_numbers.h - the numbers of a membership event in one order, for the digests that goldens hold. */
#ifndef MUSTER_TESTS_EVENT_NUMBERS_H
#define MUSTER_TESTS_EVENT_NUMBERS_H

#include <stdint.h>
#include <string.h>

#include "rendezvous/roster/world.h"

enum { EVENT_NUMBERS = 21 };

/* All of the event but its texts and failures. */
static inline void event_numbers(const struct membership_event *event, int64_t numbers[EVENT_NUMBERS])
{
    const struct membership_world *world = &event->world;
    const int64_t all[EVENT_NUMBERS] = {
        event->kind,         world->group_rank,        world->group_world_size, world->rank_base,
        world->world_size,   world->role_rank_base,    world->role_world_size,  world->restart_count,
        world->master_port,  event->planned,           event->grace_ns,         event->change,
        event->next_nodes,   event->exit_code,         event->failed,           event->other_count,
        event->other_total,  (int64_t)world->id.epoch, world->id.round,         (int64_t)event->stopped.epoch,
        event->stopped.round};
    memcpy(numbers, all, sizeof all);
}

#endif
