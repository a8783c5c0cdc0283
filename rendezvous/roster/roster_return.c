/* roster_return.c - a new server of a job, which learns the job's former state from its agents. See roster.h.
 *
 * In a job of one voter the server was started again, and knows nothing: the record was the lost server's
 * alone. An elected server has the record: the round, the voters, and the restart count at the time of that
 * round. Both need the members' JOINs for the rest: workers that may go on since the server had nothing left
 * to do (KEEPS), workers that still end (ORPHANED), and a server that left in order, which costs no restart.
 * Nodes that were done may have gone before: the lost server's heartbeats had their ranks, and the JOINs of
 * the others pass them on.
 */
#include <stdio.h>
#include <string.h>

#include "proto/exit_code.h"
#include "rendezvous/failure/failure.h"
#include "rendezvous/roster/roster_internal.h"

/* In the world of the server before. */
static int former_rank(const struct roster *roster, const struct roster_member *member)
{
    return roster->elastic ? member->group_rank : roster_slot_of(roster, member);
}

/* Marks in scratch the ranks of that world whose nodes are here, or were done. Their number. */
static int mark_known(struct roster *roster, int nodes)
{
    int known = roster->before_done_count;
    memcpy(roster->scratch, roster->before_done, (size_t)nodes * sizeof *roster->scratch);
    for (int i = 0; i < roster->slot_count; i++) {
        const struct roster_member *member = &roster->members[i];
        const int rank = former_rank(roster, member);
        if (!roster_slot_taken(member) || !world_id_equal(member->last, roster->before) || rank < 0 ||
            rank >= nodes || roster->scratch[rank])
            continue;
        roster->scratch[rank] = 1;
        known++;
    }
    return known;
}

/* In an elastic world: the only rank whose agent is neither here nor was done. If there are several, as a
 * rule the server had rank 0. */
static int elastic_lost_rank(struct roster *roster)
{
    const int nodes = roster->before_nodes;
    if (mark_known(roster, nodes) != nodes - 1)
        return nodes && roster->scratch[0] ? -1 : 0;
    int rank = 0;
    while (roster->scratch[rank])
        rank++;
    return rank;
}

/* The rank that the lost agent had. In a static world it is the rank of the agent of its name, or the only
 * rank whose agent is missing or new; -1: unknown. */
static int lost_rank(struct roster *roster, const char *name)
{
    int missing = -1;
    if (roster->elastic)
        return elastic_lost_rank(roster);
    if (!roster->lost_server.name[0])
        return roster->local_slot;
    for (int i = 0; i < roster->slot_count; i++) {
        const bool taken = roster_slot_taken(&roster->members[i]);
        if (taken && !strcmp(roster->members[i].name, name))
            return i;
        if (!taken || !world_id_equal(roster->members[i].last, roster->before))
            missing = missing == -1 ? i : -2;
    }
    return missing < 0 ? -1 : missing;
}

/* The loss of the server before this one, as a cause. A server that was started again is in its place. A
 * server that begins again itself has lost voters. */
static struct worker_failure lost_server(struct roster *roster)
{
    const bool voter = !roster->continues && roster->lost_server.name[0];
    const char *name = roster->lost_server.name[0] ? roster->lost_server.name
                       : roster->local_slot >= 0   ? roster->members[roster->local_slot].name
                                                   : "the serving node";
    struct worker_failure failure = {
        .rank = -1, .local_rank = -1, .exit_code = EXIT_CODE_NODE, .lost_node = true};
    failure.group_rank = lost_rank(roster, name);
    if (failure.group_rank == 0)
        failure.rank = 0;
    (void)snprintf(failure.host, sizeof failure.host, "%s", name);
    (void)snprintf(failure.message, sizeof failure.message,
                   voter ? "and so are most voters of round %u" : "it served the job in round %u",
                   roster->before.round);
    return failure;
}

static void end_for_lost_server(struct roster_work *w)
{
    struct roster *roster = w->roster;
    const struct worker_failure failure = lost_server(roster);
    if (roster->restart_count > roster->max_restarts)
        roster->restart_count = roster->max_restarts; /* there is none for this loss */
    roster_record(w, &failure, failure.group_rank, roster->created);
    roster_give_failure_verdict(w);
}

/* Each restart had a world. The last one may have been left before any member of this one saw it. An elected
 * server knows its round. */
static void count_at_least(struct roster *roster, int64_t restarts)
{
    if (roster->restart_count < restarts)
        roster->restart_count = restarts < ROSTER_RESTARTS_LIMIT ? restarts : ROSTER_RESTARTS_LIMIT;
    if (!roster->continues && (int64_t)roster->id.round < roster->restart_count)
        roster->id.round = (uint32_t)roster->restart_count;
}

void roster_return_describe(struct roster *roster)
{
    if (roster->world_seen || !roster->restart_class)
        return;
    const struct worker_failure failure = lost_server(roster);
    failure_describe(&failure, roster->restart_reason, sizeof roster->restart_reason);
}

/* The serving agent was lost with its workers: that costs a restart, once. */
static void count_loss(struct roster_work *w, int64_t used)
{
    struct roster *roster = w->roster;
    if (roster->before_counted)
        return;
    roster->before_counted = true;
    count_at_least(roster, used + 1);
    roster->restart_class = 1 + FAILURE_LOST_NODE;
    if (roster->restart_count > roster->max_restarts && !roster->continues)
        end_for_lost_server(w);
}

/* Its workers have stopped, or failed, after their agents had said that they go on. */
bool roster_return_counts(struct roster_work *w)
{
    struct roster *roster = w->roster;
    if (!roster->before.epoch || roster->before_counted || roster->world_seen)
        return false;
    count_loss(w, roster->restart_count);
    return true;
}

bool roster_return_ends(struct roster_work *w)
{
    struct roster *roster = w->roster;
    if (!roster->continues || roster->world_seen || roster->restart_count <= roster->max_restarts)
        return false;
    if (roster->gathering.ns != INSTANT_NEVER.ns && !roster_is_accounted_for(roster))
        return true;
    end_for_lost_server(w);
    return true;
}

/* The nodes of the former world that were done, by the last heartbeat that this agent has received from its
 * server. */
static void note_done(struct roster *roster, const struct roster_join *join)
{
    if (!join->server_done || !join->done.count || !world_id_equal(join->last, roster->before))
        return;
    if (!roster->before_done_count)
        roster->absent_until = instant_add(roster->created, roster->lost_after_ns);
    for (int i = 0; i < join->done.count; i++)
        for (int rank = join->done.items[i].first; rank <= join->done.items[i].last; rank++) {
            if (rank >= roster->before_nodes || rank >= roster->slot_count || roster->before_done[rank])
                continue;
            roster->before_done[rank] = 1;
            roster->before_done_count++;
        }
}

void roster_on_return(struct roster_work *w, const struct roster_join *join)
{
    struct roster *roster = w->roster;
    if (roster->state != JOB_FORMING || roster->world_seen)
        return; /* a world of this life came first */
    if (roster->elastic)
        roster_fence_from(roster, roster->created);
    bool left = join->server_left;
    if (left)
        count_at_least(roster, join->restart_count);
    /* The server that left reported the restart count of its last world, including the members that it had
     * lost by then. */
    if (left && world_id_equal(join->last, roster->before))
        roster->before_counted = true;
    if (!join->last.epoch || (roster->before.epoch && roster->before.round >= join->last.round)) {
        note_done(roster, join);
        return; /* it had no world, or a known world */
    }
    roster->before = join->last;
    roster->before_nodes = join->last_nodes < roster->slot_count ? join->last_nodes : roster->slot_count;
    roster->before_counted = left;
    roster->before_done_count = 0;
    memset(roster->before_done, 0, (size_t)roster->slot_count * sizeof *roster->before_done);
    note_done(roster, join);
    if (roster->id.round <= join->last.round)
        roster->id.round = join->last.round + 1;
    if (left)
        return; /* it was stopped on purpose */
    if (!roster_return_keeps(roster, join))
        count_loss(w, join->restart_count);
    else
        count_at_least(roster, join->restart_count);
}

bool roster_return_keeps(const struct roster *roster, const struct roster_join *join)
{
    return roster->state == JOB_FORMING && !roster->world_seen && !roster->proposed &&
           join->held.epoch != roster->epoch && join->server_done && world_id_equal(join->last, join->held);
}

static void stop_former_world(struct roster_work *w)
{
    struct roster *roster = w->roster;
    for (int i = 0; i < roster->slot_count; i++) {
        struct roster_member *member = &roster->members[i];
        if (member->state != MEMBER_KEEPS)
            continue;
        roster_set_state(roster, member, MEMBER_ORPHANED);
        roster_act(w, ROSTER_SEND_STOP, member->session, i, NULL);
    }
    /* They work until they receive it, which may be never. */
    if (roster->elastic)
        roster_fence_from(roster, w->now);
    count_loss(w, roster->restart_count);
}

/* A slot for the former serving agent, which was a member too: that of the next agent of its name, if it is
 * here. */
static int place_lost_server(struct roster *roster)
{
    int slot = roster_slots_named(roster, roster->lost_server.name);
    while (slot >= 0 && roster->members[slot].state != MEMBER_JOINED)
        slot = roster_slots_named_after(roster, slot);
    if (slot >= 0)
        return slot;
    slot = roster_slots_blank(roster);
    if (slot < 0)
        return -1;
    struct roster_member *member = &roster->members[slot];
    (void)snprintf(member->name, sizeof member->name, "%s", roster->lost_server.name);
    member->incarnation = roster->lost_server.incarnation;
    roster_slots_remember(roster, member);
    return slot;
}

/* A slot for an agent of the former world of which nothing is known but its rank. */
static int place_unknown(struct roster *roster)
{
    const int slot = roster_slots_blank(roster);
    if (slot >= 0)
        roster_slots_remember(roster, &roster->members[slot]);
    return slot;
}

/* Gives the ranks of agents that are not here a slot each. A server that was started again gets that of the
 * server before. */
static bool place_absent(struct roster *roster, int nodes)
{
    const bool anew = !roster->continues && roster->members[roster->local_slot].state != MEMBER_KEEPS;
    bool placed = false; /* the former server */
    for (int rank = 0; rank < nodes; rank++) {
        if (roster->by_rank[rank] >= 0)
            continue;
        if (placed)
            roster->by_rank[rank] = place_unknown(roster);
        else
            roster->by_rank[rank] = anew ? roster->local_slot : place_lost_server(roster);
        placed = true;
        if (roster->by_rank[rank] < 0)
            return false;
    }
    return placed || !anew;
}

/* Gives all members of the former world their ranks again. */
static bool take_ranks(struct roster *roster, int nodes)
{
    if (!roster->elastic)
        return true; /* they are the slots */
    for (int rank = 0; rank < nodes; rank++)
        roster->by_rank[rank] = -1;
    roster->world_nodes = nodes;
    for (int i = 0; i < roster->slot_count; i++) {
        const struct roster_member *member = &roster->members[i];
        if (member->state != MEMBER_KEEPS)
            continue;
        if (member->group_rank < 0 || member->group_rank >= nodes || roster->by_rank[member->group_rank] >= 0)
            return false;
        roster->by_rank[member->group_rank] = i;
    }
    return place_absent(roster, nodes);
}

int roster_return_slot(const struct roster *roster, const struct roster_join *join)
{
    const bool had = roster->state == JOB_RUNNING && join->held_done && join->last_rank >= 0 &&
                     join->last_rank < roster->world_nodes && world_id_equal(join->held, roster->id);
    const int slot = had ? roster->by_rank[join->last_rank] : -1;
    const bool unknown =
        slot >= 0 && roster->members[slot].state == MEMBER_DONE_GONE && !roster->members[slot].name[0];
    return unknown ? slot : -1;
}

/* In a static job every other agent without the former world takes the place of a lost member. The name
 * of a container may have changed with it: until the members are gathered any new agent may be this one. */
static bool may_replace_server(const struct roster *roster, const struct roster_member *member)
{
    return roster->continues && member->state == MEMBER_JOINED &&
           !world_id_equal(member->last, roster->before) &&
           (roster->gathering.ns != INSTANT_NEVER.ns || !strcmp(member->name, roster->lost_server.name));
}

/* Static: whether a new agent is that of a node that needs no workers any more. */
static bool was_done(const struct roster *roster, const struct roster_member *member)
{
    return roster->before_done_count ? roster->before_done[roster_slot_of(roster, member)]
                                     : may_replace_server(roster, member);
}

/* Whether all nodes of the former world are here that have something left to do. If it is not known
 * which were done, all but the server must be here. Done nodes are waited for as long as a silent node: they
 * want the verdict. */
static bool is_whole(const struct roster *roster, int keeping, int nodes)
{
    int known = roster->before_done_count;
    if (keeping == nodes - 1 || !known)
        return keeping == nodes - 1;
    for (int i = 0; i < roster->slot_count; i++) {
        const struct roster_member *member = &roster->members[i];
        const int rank = former_rank(roster, member);
        known += member->state == MEMBER_KEEPS && rank >= 0 && rank < nodes && !roster->before_done[rank];
    }
    return known >= nodes && roster->absent_until.ns == INSTANT_NEVER.ns;
}

/* Only a world without missing members can continue. */
bool roster_return_settle(struct roster_work *w)
{
    struct roster *roster = w->roster;
    int others = 0, keeping = 0, nodes = roster->elastic ? roster->before_nodes : roster->slot_count;
    for (int i = 0; i < roster->slot_count; i++) {
        const struct roster_member *member = &roster->members[i];
        if (!roster_slot_taken(member) || (i == roster->local_slot && !roster->continues))
            continue;
        /* there may be spares in an elastic job, and new agents of nodes that were done in a static one */
        others += member->state == MEMBER_KEEPS || world_id_equal(member->last, roster->before) ||
                  (!roster->elastic && !was_done(roster, member));
        keeping += member->state == MEMBER_KEEPS && world_id_equal(member->held, roster->before);
    }
    bool late = roster->elastic && instant_reached(w->now, roster->fence);
    bool whole = roster->local_slot >= 0 && is_whole(roster, keeping, nodes);
    if (keeping < others || keeping > nodes - !roster->before_done_count || (late && !whole) ||
        (whole && !take_ranks(roster, nodes))) {
        stop_former_world(w);
        return true;
    }
    if (!whole)
        return false;
    roster->id = roster->before;
    roster_adopt_world(w);
    return true;
}
