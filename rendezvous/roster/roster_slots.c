/* roster_slots.c - finds the slot of an incarnation or of a name, and a free one, without a scan of all
 * slots: thousands of agents join within a second. See roster_internal.h.
 *
 * Two chained tables of all slots ever used, by the values of their last agent. */
#include <string.h>

#include "proto/base/text.h"
#include "rendezvous/roster/roster_internal.h"

enum { NONE = -1 };

static int *incarnation_bucket(const struct roster *roster, struct agent_incarnation incarnation)
{
    uint64_t hash = text_hash(TEXT_HASH_START, &incarnation, sizeof incarnation);
    return &roster->by_incarnation[hash % (uint64_t)roster->slot_count];
}

static int *name_bucket(const struct roster *roster, const char *name)
{
    return &roster->by_name[text_hash(TEXT_HASH_START, name, strlen(name)) % (uint64_t)roster->slot_count];
}

void roster_slots_init(struct roster *roster)
{
    for (int i = 0; i < roster->slot_count; i++)
        roster->by_incarnation[i] = roster->by_name[i] = NONE;
}

void roster_slots_remember(struct roster *roster, struct roster_member *member)
{
    int slot = roster_slot_of(roster, member);
    int *incarnation = incarnation_bucket(roster, member->incarnation);
    int *name = name_bucket(roster, member->name);
    member->next_incarnation = *incarnation;
    *incarnation = slot;
    member->next_name = *name;
    *name = slot;
    roster->held_once++;
    member->used = true;
    while (roster->blank < roster->slot_count && roster->members[roster->blank].used)
        roster->blank++;
}

void roster_slots_forget(struct roster *roster, struct roster_member *member)
{
    if (!member->used)
        return;
    int slot = roster_slot_of(roster, member);
    int *link = incarnation_bucket(roster, member->incarnation);
    while (*link != slot)
        link = &roster->members[*link].next_incarnation;
    *link = member->next_incarnation;
    link = name_bucket(roster, member->name);
    while (*link != slot)
        link = &roster->members[*link].next_name;
    *link = member->next_name;
    roster->held_once--;
}

/* When a crowd that was lost comes back, it fills the slots from the first on: each is passed once. */
void roster_slots_note_state(struct roster *roster, const struct roster_member *member)
{
    int slot = roster_slot_of(roster, member);
    if (!roster_slot_taken(member) && slot < roster->free_from)
        roster->free_from = slot;
    while (roster->free_from < roster->slot_count && roster_slot_taken(&roster->members[roster->free_from]))
        roster->free_from++;
}

int roster_slots_find(const struct roster *roster, struct agent_incarnation incarnation, bool taken)
{
    int found = NONE;
    for (int slot = *incarnation_bucket(roster, incarnation); slot != NONE;
         slot = roster->members[slot].next_incarnation) {
        const struct roster_member *member = &roster->members[slot];
        if ((found == NONE || slot < found) && (!taken || roster_slot_taken(member)) &&
            agent_incarnation_equal(member->incarnation, incarnation))
            found = slot;
    }
    return found;
}

int roster_slots_left_by(const struct roster *roster, const char *name)
{
    int found = NONE;
    for (int slot = *name_bucket(roster, name); slot != NONE; slot = roster->members[slot].next_name) {
        const struct roster_member *member = &roster->members[slot];
        if ((found == NONE || slot < found) && !roster_slot_taken(member) && !strcmp(member->name, name))
            found = slot;
    }
    return found;
}

static int next_named(const struct roster *roster, int slot, const char *name)
{
    while (slot != NONE && strcmp(roster->members[slot].name, name) != 0)
        slot = roster->members[slot].next_name;
    return slot;
}

int roster_slots_named(const struct roster *roster, const char *name)
{
    return next_named(roster, *name_bucket(roster, name), name);
}

int roster_slots_named_after(const struct roster *roster, int slot)
{
    return next_named(roster, roster->members[slot].next_name, roster->members[slot].name);
}

int roster_slots_blank(const struct roster *roster)
{
    return roster->blank < roster->slot_count ? roster->blank : NONE;
}

int roster_slots_free(const struct roster *roster, bool kept_too)
{
    int gone = roster->count[MEMBER_EMPTY] + roster->count[MEMBER_DONE_GONE];
    if (gone == roster->slot_count - roster->held_once) /* nobody has left */
        return roster_slots_blank(roster);
    for (int slot = roster->free_from; slot < roster->slot_count; slot++)
        if (roster->members[slot].state == MEMBER_EMPTY ||
            (kept_too && roster->members[slot].state == MEMBER_DONE_GONE))
            return slot;
    return NONE;
}
