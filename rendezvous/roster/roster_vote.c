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
        if (member->state == MEMBER_JOINED && !member->proposed &&
            (!first || member->arrival < first->arrival))
            first = member;
    }
    return first;
}

/* 0 but in a static world, where the serving agent keeps the rank that it claims. */
static int serving_rank(const struct roster *roster)
{
    for (int rank = 0; rank < roster->world_nodes; rank++)
        if (roster->by_rank[rank] == roster->local_slot)
            return rank;
    return 0;
}

void roster_fill_record(const struct roster *roster, struct world_record *record)
{
    const struct roster_member *spare = first_spare(roster);
    const int first = serving_rank(roster);
    *record = (struct world_record){.epoch = roster->epoch,
                                    .round = roster->id.round,
                                    .nodes = roster->world_nodes,
                                    .restart_count = roster->restart_count};
    record->voter_count = record_voter_count(record->nodes, spare != NULL);
    for (int i = 0; i < record->voter_count; i++) {
        const int rank = record_voter_rank(i, record->voter_count, record->nodes);
        record->voters[i] = voter_of(
            rank < 0 ? spare : &roster->members[roster->by_rank[(first + rank) % roster->world_nodes]]);
    }
}
