/* roster.c - the state machine of roster.h: events in, actions out. Reports are handled in
 * roster_report.c.
 *
 * Each handler does its part and ends in roster_settle() (roster_job.c), the only place that decides
 * whether the job's state must change. That needs only the counts of members by state, so it costs O(1)
 * until an action concerns all members. */
#include "rendezvous/roster/roster.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/text.h"
#include "proto/exit_code.h"
#include "rendezvous/roster/roster_internal.h"

/* Agents connect again after 10 ms, and send a beat on the new connection. An elastic world replaces a lost
 * agent, so its loss costs the time until it is noticed. */
static int64_t reconnect_ns(const struct roster *roster)
{
    return roster->elastic ? NS_PER_S / 2 : NS_PER_S;
}

static void note_received(struct roster_work *w, struct roster_member *member)
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

/* -- JOIN
 * ---------------------------------------------------------------------------------------------------------
 */

/* The agent was here before: its connection is new, and messages sent on the old one may be lost. */
static void rejoin(struct roster_work *w, struct roster_member *member)
{
    int slot = roster_slot_of(w->roster, member);
    const struct roster_join *join = w->event->join;
    member->session = w->event->session;
    member->number = w->event->number;
    note_received(w, member);
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
    note_received(w, member);
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
 * the one before: what is later is asked for once more, which only a live agent follows. */
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

static int on_join(struct roster_work *w)
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
static int on_join_late(struct roster_work *w)
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

/* -- LEAVE, BEAT, DISCONNECT
 * -------------------------------------------------------------------------------------- */

/* An agent that joins late looks for the next server as well; a member may have missed the handover
 * notice. */
static int on_join_departed(struct roster_work *w)
{
    roster_act(w, ROSTER_HANDOVER, w->event->session, -1, NULL);
    return 0;
}

/* A BEAT, of which roster_step has recorded the time; a REPORT when the verdict is out, or the server leaves.
 */
static int roster_ignore(struct roster_work *w)
{
    (void)w;
    return 0;
}

/* A broken connection is re-established in a moment if the agent lives. */
static int on_disconnect(struct roster_work *w)
{
    struct roster_member *member = roster_sender(w);
    member->session = 0;
    member->lost_at = instant_add(w->now, reconnect_ns(w->roster));
    if (member->lost_at.ns < w->roster->awake.ns)
        member->lost_at = w->roster->awake;
    if (!roster_is_local(w->roster, member))
        w->roster->loss_check = instant_min(w->roster->loss_check, member->lost_at);
    return 0;
}

/* -- TICK
 * ---------------------------------------------------------------------------------------------------------
 */

static void check_losses(struct roster_work *w)
{
    struct roster *roster = w->roster;
    bool must_stop = false;
    struct instant next = INSTANT_NEVER;
    for (int i = 0; i < roster->slot_count; i++) {
        struct roster_member *member = &roster->members[i];
        if (!roster_slot_taken(member) || i == roster->local_slot)
            continue;
        int64_t silence = member->state == MEMBER_JOINED ? roster->waiting_lost_ns : roster->lost_after_ns;
        struct instant limit = instant_min(member->lost_at, instant_add(member->last_received, silence));
        if (instant_reached(w->now, limit))
            must_stop |= roster_lose(w, member, NULL);
        else
            next = instant_min(next, limit);
    }
    roster->loss_check = next;
    if (must_stop && roster->state != JOB_STOPPING)
        roster_begin_stop(w);
}

static int on_tick(struct roster_work *w)
{
    struct roster *roster = w->roster;
    if (instant_reached(w->now, roster->loss_check)) {
        check_losses(w);
        roster_settle(w);
    }
    if (instant_reached(w->now, roster->regroup))
        roster_elastic_regroup(w);
    return 0;
}

static void give_up_forming(struct roster_work *w)
{
    struct roster *roster = w->roster;
    char missing[MUSTER_ERROR_TEXT - 120] = "";
    double seconds = (double)roster->join_timeout_ns / NS_PER_S;
    if (roster->proposed) {
        roster_give_verdict(w, EXIT_CODE_NODE, false,
                            "no majority of the last round's voters answered within %.4g s (--join-timeout)",
                            seconds);
        return;
    }
    if (roster->elastic) {
        roster_join_describe_refused(roster, missing, sizeof missing);
        roster_give_verdict(w, EXIT_CODE_NODE, false,
                            "%d of at least %d nodes joined within %.4g s (--join-timeout)%s",
                            roster->count[MEMBER_JOINED], roster->min_nodes, seconds, missing);
        return;
    }
    (void)snprintf(missing, sizeof missing, "not all of them stopped their workers");
    if (roster->count[MEMBER_EMPTY])
        roster_describe_missing(roster, missing, sizeof missing);
    roster_join_describe_refused(roster, missing, sizeof missing);
    roster_give_verdict(w, EXIT_CODE_NODE, false, "%d of %d nodes joined within %.4g s (--join-timeout); %s",
                        roster->slot_count - roster->count[MEMBER_EMPTY], roster->slot_count, seconds,
                        missing);
}

/* The last call ends with the join timeout. */
static int on_tick_forming(struct roster_work *w)
{
    struct roster *roster = w->roster;
    (void)on_tick(w);
    if (instant_reached(w->now, roster->hold_until))
        roster->hold_until = INSTANT_NEVER;
    if (instant_reached(w->now, roster->gathering))
        roster->gathering = INSTANT_NEVER;
    if (instant_reached(w->now, roster->absent_until))
        roster->absent_until = INSTANT_NEVER;
    if (roster->elastic && instant_reached(w->now, roster->state_deadline))
        roster->last_call = instant_min(roster->last_call, w->now);
    roster_settle(w);
    if (roster->state != JOB_FORMING || !instant_reached(w->now, roster->state_deadline))
        return 0;
    give_up_forming(w);
    roster_settle(w);
    return 0;
}

/* Agents that live but cannot stop their workers: the node is unfit, and a new round would conflict with
 * the old workers. An elastic world can continue without such a node, unless it serves. */
static int on_tick_stopping(struct roster_work *w)
{
    struct roster *roster = w->roster;
    (void)on_tick(w);
    if (roster->state != JOB_STOPPING || !instant_reached(w->now, roster->state_deadline))
        return 0;
    int stuck = 0;
    while (roster->members[stuck].state != MEMBER_STOPPING)
        stuck++;
    bool serves = roster->local_slot >= 0 && roster->members[roster->local_slot].state == MEMBER_STOPPING;
    char who[MUSTER_ERROR_TEXT - 100];
    roster_describe_member(roster, &roster->members[stuck], who, sizeof who);
    if (roster->elastic && !serves)
        roster_elastic_evict_stuck(w);
    else if (roster_is_spent(roster))
        roster_give_failure_verdict(w);
    else
        roster_give_verdict(w, EXIT_CODE_NODE, roster_has_failed(roster),
                            "%s did not stop its workers within %.4g s", who,
                            (double)(roster->stop_grace_ns + roster->stop_timeout_ns) / NS_PER_S);
    roster_settle(w);
    return 0;
}

static int on_tick_finishing(struct roster_work *w)
{
    (void)on_tick(w);
    if (w->roster->state == JOB_FINISHING && instant_reached(w->now, w->roster->state_deadline))
        roster_end_job(w);
    return 0;
}

/* -- the table
 * ---------------------------------------------------------------------------------------------------- */

/* Columns: JOIN, LEAVE, DRAIN, REPORT, BEAT, DISCONNECT, TICK, CHOSEN, EVICT. */
static int (*const step_table[JOB_STATE_COUNT][ROSTER_EVENT_COUNT])(struct roster_work *) = {
    [JOB_FORMING] = {on_join, roster_on_leave_forming, roster_on_drain, roster_on_report, roster_on_beat,
                     on_disconnect, on_tick_forming, roster_on_chosen, roster_on_evict},
    [JOB_STARTING] = {on_join, roster_on_leave_running, roster_on_drain, roster_on_report, roster_ignore,
                      on_disconnect, on_tick, roster_on_chosen_late, roster_on_evict},
    [JOB_RUNNING] = {on_join, roster_on_leave_running, roster_on_drain, roster_on_report, roster_on_beat,
                     on_disconnect, on_tick, roster_on_chosen_late, roster_on_evict},
    [JOB_STOPPING] = {on_join, roster_on_leave_stopping, roster_on_drain, roster_on_report, roster_ignore,
                      on_disconnect, on_tick_stopping, roster_on_chosen_late, roster_on_evict},
    [JOB_DEPARTED] = {on_join_departed, roster_on_leave_finishing, roster_on_drain, roster_ignore,
                      roster_ignore, on_disconnect, on_tick, roster_on_chosen_late, roster_on_evict},
    [JOB_FINISHING] = {on_join_late, roster_on_leave_finishing, roster_on_drain, roster_ignore, roster_ignore,
                       on_disconnect, on_tick_finishing, roster_on_chosen_late, roster_on_evict_late},
    [JOB_FINISHED] = {on_join_late, roster_on_leave_finishing, roster_on_drain, roster_ignore, roster_ignore,
                      on_disconnect, on_tick_finishing, roster_on_chosen_late, roster_on_evict_late},
};

static bool holds_slot(const struct roster *roster, const struct roster_event *event)
{
    return event->member >= 0 && event->member < roster->slot_count &&
           roster->members[event->member].session == event->session;
}

/* A JOIN that another one of its agent has overtaken: it came by a connection that was closed. Its sender may
 * have got workers since, may be lost, or may have left. */
static bool is_overtaken(const struct roster *roster, const struct roster_event *event)
{
    const int slot = roster_slots_find(roster, event->join->incarnation, false);
    return slot >= 0 && event->number && event->number < roster->members[slot].number;
}

/* What roster_internal.h says of a roster at all times, as far as it costs nothing to look. */
static void roster_check(const struct roster *roster)
{
    int slots = 0;
    for (int state = 0; state < MEMBER_STATE_COUNT; state++) {
        assert(roster->count[state] >= 0);
        slots += roster->count[state];
    }
    assert(slots == roster->slot_count);
    assert(roster->world_nodes >= 0 && roster->world_nodes <= roster->slot_count);
    assert(roster->held_once >= 0 && roster->held_once <= roster->slot_count);
    assert(roster->seen_count >= 0 && roster->seen_count <= FAILURE_OTHERS_LIMIT + 1);
    assert(roster->seen_count <= roster->seen_total);
    assert(roster->state == JOB_FORMING || roster->state == JOB_STOPPING || roster->state == JOB_FINISHING ||
           roster->state_deadline.ns == INSTANT_NEVER.ns);
    assert(roster->state == JOB_RUNNING || roster->state == JOB_STARTING ||
           roster->regroup.ns == INSTANT_NEVER.ns);
}

int roster_step(struct roster *roster, const struct roster_event *event, struct instant now,
                struct roster_actions *out, struct muster_error *err)
{
    struct roster_work w = {.roster = roster, .event = event, .now = now, .out = out, .err = err};
    out->count = 0;
    if ((unsigned)event->kind >= ROSTER_EVENT_COUNT)
        return error_set(err, MUSTER_E_INVALID, "event %d is not known", (int)event->kind);
    const bool own = event->kind == ROSTER_TICK || event->kind == ROSTER_CHOSEN;
    if (!own && !event->session)
        return error_set(err, MUSTER_E_INVALID, "%s without a session", roster_event_name(event->kind));
    if (event->kind == ROSTER_JOIN && !event->join)
        return error_set(err, MUSTER_E_INVALID, "JOIN without an identity");
    if (event->kind == ROSTER_JOIN && is_overtaken(roster, event))
        return 0;
    if (event->kind == ROSTER_EVICT && !event->evict)
        return error_set(err, MUSTER_E_INVALID, "EVICT without a node");
    if (event->kind != ROSTER_JOIN && !own) {
        if (!holds_slot(roster, event)) {
            if (event->kind == ROSTER_BEAT || event->kind == ROSTER_REPORT)
                roster_act(&w, ROSTER_AGAIN, event->session, -1, NULL);
            return 0;
        }
        if (event->kind != ROSTER_DISCONNECT)
            note_received(&w, &roster->members[event->member]);
    }
    int result = step_table[roster->state][event->kind](&w);
    roster_check(roster);
    return result;
}
