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

/* -- BEAT, DISCONNECT
 * ----------------------------------------------------------------------------------------------- */

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
    [JOB_FORMING] = {roster_on_join, roster_on_leave_forming, roster_on_drain, roster_on_report,
                     roster_on_beat, on_disconnect, on_tick_forming, roster_on_chosen, roster_on_evict},
    [JOB_STARTING] = {roster_on_join, roster_on_leave_running, roster_on_drain, roster_on_report,
                      roster_ignore, on_disconnect, on_tick, roster_on_chosen_late, roster_on_evict},
    [JOB_RUNNING] = {roster_on_join, roster_on_leave_running, roster_on_drain, roster_on_report,
                     roster_on_beat, on_disconnect, on_tick, roster_on_chosen_late, roster_on_evict},
    [JOB_STOPPING] = {roster_on_join, roster_on_leave_stopping, roster_on_drain, roster_on_report,
                      roster_ignore, on_disconnect, on_tick_stopping, roster_on_chosen_late, roster_on_evict},
    [JOB_DEPARTED] = {roster_on_join_departed, roster_on_leave_finishing, roster_on_drain, roster_ignore,
                      roster_ignore, on_disconnect, on_tick, roster_on_chosen_late, roster_on_evict},
    [JOB_FINISHING] = {roster_on_join_late, roster_on_leave_finishing, roster_on_drain, roster_ignore,
                       roster_ignore, on_disconnect, on_tick_finishing, roster_on_chosen_late,
                       roster_on_evict_late},
    [JOB_FINISHED] = {roster_on_join_late, roster_on_leave_finishing, roster_on_drain, roster_ignore,
                      roster_ignore, on_disconnect, on_tick_finishing, roster_on_chosen_late,
                      roster_on_evict_late},
};

static bool holds_slot(const struct roster *roster, const struct roster_event *event)
{
    return event->member >= 0 && event->member < roster->slot_count &&
           roster->members[event->member].session == event->session;
}

/* A JOIN that a later JOIN of its agent has overtaken: it came by a connection that was closed. Its sender
 * may have got workers since, may be lost, or may have left. */
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
            roster_note_received(&w, &roster->members[event->member]);
    }
    int result = step_table[roster->state][event->kind](&w);
    roster_check(roster);
    return result;
}
