/* roster_job.c - the job as a whole: new worlds, and the only place that decides whether the job's state must
 * change. See roster.h. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "proto/exit_code.h"
#include "rendezvous/failure/failure.h"
#include "rendezvous/roster/roster_internal.h"

bool roster_lose(struct roster_work *w, struct roster_member *member, const char *why)
{
    struct roster *roster = w->roster;
    bool must_stop = roster_has_workers(member);
    roster->last_loss = w->now;
    /* A draining member has already announced that it leaves. */
    if (must_stop || (member->state == MEMBER_STOPPING && !member->draining))
        roster_record_lost(w, member, why);
    /* An orphaned member has a new lease since it came back, and may not have received its STOP. */
    if (must_stop || member->state == MEMBER_ORPHANED ||
        (member->state == MEMBER_STOPPING && !member->was_done))
        roster_fence_from(roster, member->last_received);
    roster_vacate(roster, member, member->state == MEMBER_DONE ? MEMBER_DONE_GONE : MEMBER_EMPTY);
    return must_stop;
}

/* -- from round to round
 * ------------------------------------------------------------------------------------------ */

/* Begins a world that is formed or taken over. */
static void begin_world(struct roster_work *w)
{
    struct roster *roster = w->roster;
    roster_assign_ranks(roster);
    roster_return_describe(roster);
    roster->world_out = roster->world_seen = true;
    roster->formed_at = roster->fence = w->now;
    for (int rank = 0; rank < roster->world_nodes; rank++) {
        struct roster_member *member = &roster->members[roster->by_rank[rank]];
        member->group_rank = rank;
        member->round = roster->id.round;
    }
}

void roster_form_world(struct roster_work *w)
{
    struct roster *roster = w->roster;
    begin_world(w);
    roster->dead = false;
    roster->refused_count = 0;
    roster_set_job_state(w, JOB_STARTING, 0);
    for (int rank = 0; rank < roster->world_nodes; rank++) {
        int slot = roster->by_rank[rank];
        struct roster_member *member = &roster->members[slot];
        member->held = roster->id;
        if (roster->waiting_lost_ns > roster->lost_after_ns) { /* from now on it beats more often */
            member->last_received = w->now;
            roster->loss_check = instant_min(roster->loss_check, instant_add(w->now, roster->lost_after_ns));
        }
        roster_set_state(roster, member, MEMBER_ASSIGNED);
        roster_act(w, ROSTER_SEND_WORLD, member->session, slot, NULL);
    }
}

/* The voters decide about the world of by_rank. */
static void propose_world(struct roster_work *w)
{
    struct roster *roster = w->roster;
    roster->proposed = true;
    roster->last_call = INSTANT_NEVER;
    for (int rank = 0; rank < roster->world_nodes; rank++)
        roster->members[roster->by_rank[rank]].proposed = true;
    roster_act(w, ROSTER_PROPOSE, roster->members[roster->local_slot].session, roster->local_slot, NULL);
}

/* The former serving agent has nothing left to do; nor has the present one if it is in its place. */
void roster_adopt_world(struct roster_work *w)
{
    struct roster *roster = w->roster;
    begin_world(w);
    roster_set_job_state(w, JOB_RUNNING, 0);
    for (int rank = 0; rank < roster->world_nodes; rank++) {
        struct roster_member *member = &roster->members[roster->by_rank[rank]];
        bool runs = member->state == MEMBER_KEEPS && !member->was_done;
        const bool gone = !roster_slot_taken(member);
        roster_set_state(roster, member, runs ? MEMBER_RUNNING : gone ? MEMBER_DONE_GONE : MEMBER_DONE);
    }
}

/* One round of splitmix64: neighbouring streaks get unrelated numbers. */
static uint64_t backoff_mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

int64_t roster_backoff_ns(int64_t base_ns, int64_t cap_ns, int64_t streak, uint64_t jitter)
{
    enum { STEPS = 1024 };
    int64_t wait = base_ns < cap_ns ? base_ns : cap_ns;
    if (wait <= 0 || streak < 2)
        return 0;
    for (int64_t i = 2; i < streak && wait < cap_ns; i++)
        wait = wait > cap_ns / 2 ? cap_ns : wait * 2;
    int64_t part =
        (int64_t)(backoff_mix(jitter + (uint64_t)streak) % (STEPS + 1)); /* 0 to STEPS: -25 % to +25 % */
    return wait - wait / 4 + wait / 2 / STEPS * part;
}

/* How long the next world is delayed from now: not at all after a planned stop or for the first failure in a
 * row. The workers' stop is a part of the wait. */
static int64_t hold_back(struct roster_work *w)
{
    struct roster *roster = w->roster;
    assert(roster->hold_until.ns == INSTANT_NEVER.ns); /* or the last world had not formed */
    if (!roster_has_failed(roster))
        return 0;
    bool lasted = instant_diff_ns(roster->failed_at, roster->formed_at) > roster->backoff_cap_ns;
    roster->streak = lasted ? 1 : roster->streak + 1;
    int64_t wait =
        roster_backoff_ns(roster->backoff_ns, roster->backoff_cap_ns, roster->streak, roster->jitter);
    struct instant until = instant_add(roster->failed_at, wait);
    if (instant_reached(w->now, until))
        return 0;
    roster->hold_until = until;
    return instant_diff_ns(until, w->now);
}

/* The next round; a planned one costs nothing. */
static void form_again(struct roster_work *w)
{
    struct roster *roster = w->roster;
    int64_t wait = hold_back(w);
    roster->restart_count += roster_has_failed(roster);
    roster->id = (struct world_id){roster->epoch, roster->id.round + 1};
    roster->world_out = false;
    roster->restart_reason[0] = '\0';
    roster->restart_class = 0;
    if (roster_has_failed(roster)) {
        failure_describe(roster_cause(roster), roster->restart_reason, sizeof roster->restart_reason);
        roster->restart_class = 1 + (int)failure_class_of(roster_cause(roster));
    }
    roster->change = MEMBERSHIP_CHANGE_NONE;
    roster->seen_count = roster->seen_total = 0;
    roster->leave_code = 0;
    roster->regrouping = true;
    for (int i = 0; i < roster->slot_count; i++) {
        struct roster_member *member = &roster->members[i];
        if (member->state == MEMBER_STOPPED)
            roster_set_state(roster, member, member->draining ? MEMBER_LEAVING : MEMBER_JOINED);
        else if (member->state == MEMBER_DONE_GONE)
            roster_set_state(roster, member, MEMBER_EMPTY);
        member->verdict_sent = false;
    }
    roster_set_job_state(w, JOB_FORMING, wait + roster->join_timeout_ns);
}

/* A failure during the stop still consumes a restart on the next server. Draining members leave in any
 * case. */
void roster_depart(struct roster_work *w)
{
    struct roster *roster = w->roster;
    roster->restart_count += roster_has_failed(roster);
    roster_set_job_state(w, JOB_DEPARTED, 0);
    for (int i = 0; i < roster->slot_count; i++) {
        const struct roster_member *member = &roster->members[i];
        if (roster_slot_taken(member) && i != roster->local_slot && !member->draining)
            roster_act(w, ROSTER_HANDOVER, member->session, i, NULL);
    }
}

/* All have stopped, or never will. */
static void decide(struct roster_work *w)
{
    struct roster *roster = w->roster;
    if (roster_is_spent(roster))
        roster_give_failure_verdict(w);
    else if (roster->departs)
        roster_depart(w);
    else if (roster->leave_code && roster->change)
        roster_give_verdict(w, roster->leave_code, false, "%s", roster->stop_reason);
    else if (roster->leave_code)
        roster_give_verdict(w, roster->leave_code, false,
                            "an agent left with exit code %d while the world was stopping",
                            roster->leave_code);
    else
        form_again(w);
}

/* The hosting agent leaves, and the server with it: a world would lose it before its workers run, and an
 * agent that serves next may not learn of them. */
static bool host_goes(const struct roster *roster)
{
    return roster->host_left ||
           (roster->local_slot >= 0 && roster->members[roster->local_slot].state == MEMBER_LEAVING);
}

/* The proposer is the first voter of its world, and so a node of it. An elected server may have workers of
 * the last world, which end first: a world without that server would count it among the voters again, as the
 * spare. */
static bool proposer_waits(const struct roster *roster)
{
    return roster->votes &&
           (roster->local_slot < 0 || roster->members[roster->local_slot].state == MEMBER_ORPHANED);
}

static bool is_apart(const struct roster *roster, int slot)
{
    return slot >= 0 && roster->members[slot].state == MEMBER_JOINED && !roster->members[slot].session;
}

/* A member whose connection is down is back in a moment, or lost. A world with it might lose it at once, at
 * the cost of a restart. */
static bool are_in_touch(struct roster_work *w)
{
    struct roster *roster = w->roster;
    if (is_apart(roster, roster->apart) && !instant_reached(w->now, roster->state_deadline))
        return false;
    roster->apart = -1;
    for (int i = 0; i < roster->slot_count && roster->apart < 0; i++)
        if (is_apart(roster, i) && !instant_reached(w->now, roster->state_deadline))
            roster->apart = i;
    return roster->apart < 0;
}

static bool is_due(struct roster_work *w)
{
    struct roster *roster = w->roster;
    if (roster->hold_until.ns != INSTANT_NEVER.ns)
        return false;
    if (proposer_waits(roster) || host_goes(roster)) {
        roster->last_call = INSTANT_NEVER;
        return false;
    }
    return roster->elastic ? roster_elastic_is_ready(w) : roster->count[MEMBER_JOINED] == roster->slot_count;
}

static bool is_ready(struct roster_work *w)
{
    if (is_due(w))
        return are_in_touch(w);
    w->roster->apart = -1;
    return false;
}

/* One transition, if one is due. */
static bool settle_once(struct roster_work *w)
{
    struct roster *roster = w->roster;
    const int *count = roster->count;
    enum roster_job_state before = roster->state;
    switch (roster->state) {
    case JOB_FORMING:
        if (roster->proposed || roster_return_ends(w))
            break;
        if (count[MEMBER_KEEPS])
            return roster_return_settle(w);
        if (roster_return_counts(w))
            return true;
        if (!is_ready(w))
            break;
        if (roster->elastic)
            roster->world_nodes = roster_elastic_choose(roster);
        if (roster->votes)
            propose_world(w);
        else
            roster_form_world(w);
        break;
    case JOB_STARTING:
    case JOB_RUNNING:
        if (count[MEMBER_DONE] + count[MEMBER_DONE_GONE] == roster->world_nodes)
            roster_give_verdict(w, EXIT_CODE_OK, false, "all workers exited 0");
        else if (roster->state == JOB_STARTING && count[MEMBER_ASSIGNED] == 0)
            roster_set_job_state(w, JOB_RUNNING, 0);
        break;
    case JOB_STOPPING:
        if (count[MEMBER_STOPPING] == 0)
            decide(w);
        break;
    case JOB_FINISHING:
        if (!roster_has_remote(roster))
            roster_end_job(w);
        break;
    default:
        break;
    }
    return roster->state != before;
}

void roster_settle(struct roster_work *w)
{
    while (settle_once(w))
        ;
    if (w->roster->elastic)
        roster_elastic_plan_regroup(w);
}
