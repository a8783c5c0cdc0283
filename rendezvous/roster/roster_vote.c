/* roster_vote.c - a world that the voters decide about before it is sent out. See roster.h. */
#include <stdio.h>

#include "rendezvous/roster/roster_internal.h"

int roster_on_chosen(struct roster_work *w)
{
    struct roster *roster = w->roster;
    bool whole = true;
    if (!roster->proposed)
        return 0;
    for (int rank = 0; rank < roster->world_nodes; rank++) {
        const struct roster_member *member = &roster->members[roster->by_rank[rank]];
        whole = whole && member->proposed && member->state == MEMBER_JOINED;
    }
    roster->proposed = false;
    for (int i = 0; i < roster->slot_count; i++)
        roster->members[i].proposed = false;
    if (whole) {
        roster_form_world(w);
    } else {
        roster->id.round++; /* this one has no world */
        roster->regrouping = true;
    }
    roster_settle(w);
    return 0;
}

int roster_on_chosen_late(struct roster_work *w)
{
    w->roster->proposed = false;
    return 0;
}

static struct voter voter_of(const struct roster_member *member)
{
    struct voter voter = {.incarnation = member->incarnation, .port = member->vote_port};
    (void)snprintf(voter.name, sizeof voter.name, "%s", member->name);
    (void)snprintf(voter.address, sizeof voter.address, "%s", member->vote_addr);
    return voter;
}

/* The spare that joined first; NULL: there is none. */
static const struct roster_member *first_spare(const struct roster *roster)
{
    const struct roster_member *first = NULL;
    for (int i = 0; i < roster->slot_count; i++) {
        const struct roster_member *member = &roster->members[i];
        if (member->state == MEMBER_JOINED && !member->proposed && roster_may_vote(roster, i) &&
            (!first || member->arrival < first->arrival))
            first = member;
    }
    return first;
}

static int serving_rank(const struct roster *roster)
{
    for (int rank = 0; rank < roster->world_nodes; rank++)
        if (roster->by_rank[rank] == roster->local_slot)
            return rank;
    return 0;
}

/* The members that may vote, by rank from the serving agent's on, as slots. Their number. */
static int list_electors(const struct roster *roster, int *slots)
{
    const int first = serving_rank(roster);
    int count = 0;
    for (int i = 0; i < roster->world_nodes; i++) {
        const int slot = roster->by_rank[(first + i) % roster->world_nodes];
        if (roster_may_vote(roster, slot))
            slots[count++] = slot;
    }
    return count;
}

void roster_fill_record(const struct roster *roster, struct world_record *record)
{
    int *slots = roster->scratch;
    const int electors = list_electors(roster, slots);
    const struct roster_member *spare = electors == 2 ? first_spare(roster) : NULL;
    *record = (struct world_record){.epoch = roster->epoch,
                                    .round = roster->id.round,
                                    .nodes = roster->world_nodes,
                                    .restart_count = roster->restart_count};
    record->voter_count = record_voter_count(electors, spare != NULL);
    for (int i = 0; i < record->voter_count; i++) {
        const int place = record_voter_rank(i, record->voter_count, electors);
        record->voters[i] = voter_of(place < 0 ? spare : &roster->members[slots[place]]);
    }
}

/* A node whose workers are done may be lost while the others go on, and come back, as another agent too. The
 * same holds for a spare. */
static bool misses_voter(const struct roster *roster, const struct world_record *known)
{
    for (int i = 0; i < known->voter_count; i++)
        if (roster_slots_find(roster, known->voters[i].incarnation, true) < 0)
            return true;
    return false;
}

bool roster_revise_record(const struct roster *roster, const struct world_record *known,
                          struct world_record *record)
{
    if (roster->state != JOB_RUNNING ||
        (roster_most_voters(roster) <= known->voter_count && !misses_voter(roster, known)))
        return false;
    roster_fill_record(roster, record);
    bool same = record->voter_count == known->voter_count;
    for (int i = 0; same && i < known->voter_count; i++)
        same = record_find_voter(known, record->voters[i].incarnation) >= 0;
    return !same;
}
