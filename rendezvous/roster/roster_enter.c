/* roster_enter.c - JOIN: an agent takes its slot, comes back to it, or takes it over from an earlier start of
 * its name. roster_join.c decides which slot that is. */
#include <stdio.h>
#include <string.h>

#include "proto/base/text.h"
#include "rendezvous/roster/roster_internal.h"

void roster_note_received(struct roster_work *w, struct roster_member *member)
{
    member->last_received = w->now;
    member->lost_at = INSTANT_NEVER;
    if (!roster_is_local(w->roster, member))
        w->roster->loss_check =
            instant_min(w->roster->loss_check, instant_add(w->now, w->roster->lost_after_ns));
}

static void supersede(struct roster_work *w, struct roster_member *member)
{
    struct roster *roster = w->roster;
    (void)snprintf(roster->superseded, sizeof roster->superseded,
                   "superseded: agent \"%.128s\" was restarted and holds node rank %d now", member->name,
                   roster_slot_of(roster, member));
    roster_act(w, ROSTER_REFUSE, member->session, roster_slot_of(roster, member), roster->superseded);
    if (roster_lose(w, member, "its agent was restarted"))
        roster_begin_stop(w);
}

/* The agent was here before: its connection is new, and messages sent on the old one may be lost. */
static void rejoin(struct roster_work *w, struct roster_member *member)
{
    int slot = roster_slot_of(w->roster, member);
    const struct roster_join *join = w->event->join;
    member->session = w->event->session;
    member->number = w->event->number;
    roster_note_received(w, member);
    if (member->state == MEMBER_JOINED && join->held.epoch) {
        /* It was lost and came back, and a world that was on its way to it has reached it after all. */
        member->held = join->held;
        roster_set_state(w->roster, member, MEMBER_ORPHANED);
    }
    roster_act(w, ROSTER_ACCEPT, member->session, slot, NULL);
    if (member->state == MEMBER_ASSIGNED)
        roster_act(w, ROSTER_SEND_WORLD, member->session, slot, NULL);
    else if (member->state == MEMBER_STOPPING || member->state == MEMBER_ORPHANED)
        roster_act(w, ROSTER_SEND_STOP, member->session, slot, NULL);
    else if (member->state == MEMBER_LEAVING && member->verdict_sent)
        roster_act(w, ROSTER_SEND_VERDICT, member->session, slot, NULL);
    if (member->evicted && !member->draining)
        roster_act(w, ROSTER_SEND_GO, member->session, slot, NULL);
}

static void fill_slot(struct roster_work *w, struct roster_member *member)
{
    struct roster *roster = w->roster;
    const struct roster_join *join = w->event->join;
    /* An agent that was given up and comes back may repeat earlier reports. An agent whose successor is here
     * does not come back. */
    bool another = !agent_incarnation_equal(member->incarnation, join->incarnation);
    roster_slots_forget(roster, member);
    if (another)
        member->sequence = 0;
    if (another && strcmp(member->name, join->agent_name) == 0)
        member->superseded[member->superseded_count++ % ROSTER_SUPERSEDED_KEPT] = member->incarnation;
    member->session = w->event->session;
    member->number = w->event->number;
    member->incarnation = join->incarnation;
    member->local_world_size = join->local_world_size;
    member->store_port = join->store_port;
    member->vote_port = join->vote_port;
    (void)snprintf(member->vote_addr, sizeof member->vote_addr, "%s", join->vote_addr ? join->vote_addr : "");
    member->held = join->held;
    member->draining = member->evicted = member->verdict_sent = false;
    member->last = join->last;
    member->lapsed = join->lapsed;
    member->wanted_rank = join->node_rank;
    member->arrival = ++roster->arrivals;
    if (strcmp(member->name, join->agent_name) != 0)
        member->group_rank = -1;
    if (roster->elastic && join->last.epoch && join->epoch != roster->epoch) {
        member->group_rank = join->last_rank; /* in another server's world: it keeps its place */
        member->round = join->last.round;
    }
    if (join->local) {
        roster->local_slot = roster_slot_of(roster, member);
        roster->host_left = false;
    }
    (void)snprintf(member->name, sizeof member->name, "%s", join->agent_name);
    (void)snprintf(member->role, sizeof member->role, "%s", join->role);
    (void)snprintf(member->program, sizeof member->program, "%s", join->program ? join->program : "");
    member->command = join->command;
    member->contents = join->contents;
    member->endpoints = join->endpoints;
    (void)snprintf(member->store_addr, sizeof member->store_addr, "%s", join->store_addr);
    roster_slots_remember(roster, member);
}

static void take_slot(struct roster_work *w, struct roster_member *member)
{
    struct roster *roster = w->roster;
    const struct roster_join *join = w->event->join;
    fill_slot(w, member);
    roster_note_received(w, member);
    roster_act(w, ROSTER_ACCEPT, member->session, roster_slot_of(roster, member), NULL);
    if (member->state == MEMBER_DONE_GONE && roster->state != JOB_STOPPING) {
        /* Its part of this round is done: it waits with the others. An earlier start of it that was
         * suspended may have workers of a world before. */
        roster_set_state(roster, member, MEMBER_DONE);
        if (join->held.epoch && !world_id_equal(join->held, roster->id))
            roster_act(w, ROSTER_SEND_STOP, member->session, roster_slot_of(roster, member), NULL);
    } else if (join->held.epoch && roster_return_keeps(roster, join)) {
        member->was_done = join->held_done;
        member->ended = 0;
        member->group_rank = join->last_rank;
        roster_set_state(roster, member, MEMBER_KEEPS);
    } else if (join->held.epoch) {
        /* It was given up while it was cut off, or the server was lost; its workers belong to an earlier
         * world. */
        roster_set_state(roster, member, MEMBER_ORPHANED);
        roster_act(w, ROSTER_SEND_STOP, member->session, roster_slot_of(roster, member), NULL);
    } else {
        roster_set_state(roster, member, MEMBER_JOINED);
    }
    if (join->epoch && join->epoch != roster->epoch)
        roster_on_return(w, join);
}

/* Known by the agent that has got AGAIN about this holder in that second. */
static uint64_t proof_of(const struct roster *roster, const struct roster_member *holder,
                         const struct roster_join *join, int64_t second)
{
    uint64_t proof = text_hash(TEXT_HASH_START, &roster->epoch, sizeof roster->epoch);
    proof = text_hash(proof, &second, sizeof second);
    proof = text_hash(proof, &holder->incarnation, sizeof holder->incarnation);
    proof = text_hash(proof, &join->incarnation, sizeof join->incarnation);
    return proof ? proof : 1;
}

/* A JOIN may have been under way while its agent ended and the next start of it took the rank. That one may
 * be out of reach now, and come back. So a JOIN has to be repeated at once, with the answer of this second or
 * the second before: a later JOIN is asked for once more, which only a live agent follows. */
static bool must_prove(struct roster_work *w, const struct roster_member *holder)
{
    const struct roster_join *join = w->event->join;
    const int64_t second = w->now.ns / NS_PER_S;
    const uint64_t proof = proof_of(w->roster, holder, join, second);
    const bool another = !w->roster->elastic && holder->name[0] && /* the slot's last agent */
                         !agent_incarnation_equal(holder->incarnation, join->incarnation) &&
                         strcmp(holder->name, join->agent_name) == 0;
    if ((!another && !roster_slot_taken(holder)) || join->local || join->proof == proof ||
        join->proof == proof_of(w->roster, holder, join, second - 1))
        return false;
    roster_act(w, ROSTER_AGAIN, w->event->session, -1, NULL);
    w->out->items[w->out->count - 1].proof = proof;
    return true;
}

int roster_on_join(struct roster_work *w)
{
    struct roster *roster = w->roster;
    const struct roster_join *join = w->event->join;
    int slot = -1;
    if (roster_join_fits(roster, join, roster->refusal, sizeof roster->refusal))
        slot = roster_join_slot(roster, join, roster->refusal, sizeof roster->refusal);
    if (slot < 0) {
        roster_join_note_refused(roster, join);
        roster_act(w, ROSTER_REFUSE, w->event->session, -1, roster->refusal);
        return 0;
    }
    roster_join_note_joined(roster, join->agent_name);
    struct roster_member *member = &roster->members[slot];
    if (roster_slot_taken(member) && agent_incarnation_equal(member->incarnation, join->incarnation)) {
        rejoin(w, member);
        roster_settle(w);
        return 0;
    }
    if (must_prove(w, member))
        return 0;
    if (roster_slot_taken(member))
        supersede(w, member);
    take_slot(w, member);
    roster_settle(w);
    return 0;
}

/* The job is over: joining and remaining agents get the verdict (again). */
int roster_on_join_late(struct roster_work *w)
{
    struct roster *roster = w->roster;
    const struct roster_join *join = w->event->join;
    if (!roster_join_fits(roster, join, roster->refusal, sizeof roster->refusal)) {
        roster_join_note_refused(roster, join);
        roster_act(w, ROSTER_REFUSE, w->event->session, -1, roster->refusal);
        return 0;
    }
    int slot = roster_slots_find(roster, join->incarnation, true);
    if (slot >= 0) {
        rejoin(w, &roster->members[slot]);
    } else {
        roster_act(w, ROSTER_SEND_VERDICT, w->event->session, -1, NULL);
    }
    return 0;
}

/* An agent that joins late looks for the next server as well; a member may have missed the handover
 * notice. */
int roster_on_join_departed(struct roster_work *w)
{
    roster_act(w, ROSTER_HANDOVER, w->event->session, -1, NULL);
    return 0;
}
