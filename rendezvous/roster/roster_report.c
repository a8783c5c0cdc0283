/* roster_report.c - reports about an agent's workers, in each state of its member. See roster.h. */
#include "proto/base/error.h"
#include "rendezvous/roster/roster_internal.h"

enum report_outcome {
    REPORT_UNKNOWN, /* no such pair: the agent violated the protocol */
    REPORT_CROSSED, /* crossed our STOP or verdict: nothing to do */
    REPORT_RUNS,
    REPORT_FAILS,
    REPORT_COLLECT, /* one more failure of a world that is stopping */
    REPORT_ENDS,
    REPORT_ENDED,  /* before our STOP arrived: it does not keep the others from working */
    REPORT_BREAKS, /* a world that might have continued under a new server */
    REPORT_STOPS,
    REPORT_RETIRES,  /* it was done, and has ended its part of the world by itself */
    REPORT_GIVES_UP, /* its lease had expired, or it took the server for lost */
};

/* States without a world of the report's id are excluded before: their reports are stale. State that a new
 * server took over from an agent's JOIN is reported to it once more. Columns: RUNNING, FAILED, DONE,
 * STOPPED. */
static const unsigned char report_table[MEMBER_STATE_COUNT][4] = {
    [MEMBER_EMPTY] = {REPORT_UNKNOWN, REPORT_UNKNOWN, REPORT_UNKNOWN, REPORT_UNKNOWN},
    [MEMBER_JOINED] = {REPORT_UNKNOWN, REPORT_UNKNOWN, REPORT_UNKNOWN, REPORT_UNKNOWN},
    [MEMBER_ASSIGNED] = {REPORT_RUNS, REPORT_FAILS, REPORT_ENDS, REPORT_GIVES_UP},
    [MEMBER_RUNNING] = {REPORT_CROSSED, REPORT_FAILS, REPORT_ENDS, REPORT_GIVES_UP},
    [MEMBER_DONE] = {REPORT_CROSSED, REPORT_UNKNOWN, REPORT_CROSSED, REPORT_RETIRES},
    [MEMBER_DONE_GONE] = {REPORT_UNKNOWN, REPORT_UNKNOWN, REPORT_UNKNOWN, REPORT_UNKNOWN},
    [MEMBER_KEEPS] = {REPORT_CROSSED, REPORT_BREAKS, REPORT_ENDED, REPORT_STOPS},
    [MEMBER_STOPPING] = {REPORT_CROSSED, REPORT_COLLECT, REPORT_ENDED, REPORT_STOPS},
    [MEMBER_STOPPED] = {REPORT_UNKNOWN, REPORT_UNKNOWN, REPORT_UNKNOWN, REPORT_UNKNOWN},
    [MEMBER_ORPHANED] = {REPORT_CROSSED, REPORT_CROSSED, REPORT_CROSSED, REPORT_STOPS},
    [MEMBER_LEAVING] = {REPORT_CROSSED, REPORT_CROSSED, REPORT_CROSSED, REPORT_CROSSED},
};

static void collect(struct roster_work *w, const struct roster_member *member)
{
    const struct worker_failure *failure = w->event->report.failure;
    w->roster->dead = true;
    if (w->roster->state == JOB_STOPPING && w->roster->change)
        return; /* it ended after its STOP */
    int64_t age = failure->age_ns > 0 ? failure->age_ns : 0;
    roster_record(w, failure, member->group_rank, (struct instant){w->now.ns - age});
}

static void on_stopped(struct roster *roster, struct roster_member *member)
{
    roster->dead |= member->state == MEMBER_STOPPING && !member->was_done;
    member->held = (struct world_id){0};
    if (member->draining)
        roster_set_state(roster, member, MEMBER_LEAVING);
    else
        roster_set_state(roster, member, member->state == MEMBER_STOPPING ? MEMBER_STOPPED : MEMBER_JOINED);
}

/* The server did not answer it for a lease or, in a static world, seemed to be lost: it has stopped its
 * workers by itself. */
static void on_gives_up(struct roster_work *w, struct roster_member *member)
{
    struct roster *roster = w->roster;
    roster_record_lost(w, member, NULL);
    roster->dead = true;
    member->held = (struct world_id){0};
    roster_set_state(roster, member, MEMBER_STOPPED);
    roster_begin_stop(w);
}

int roster_on_report(struct roster_work *w)
{
    struct roster *roster = w->roster;
    struct roster_member *member = &roster->members[w->event->member];
    enum membership_report_kind kind = w->event->report.kind;
    if ((unsigned)kind > MEMBERSHIP_REPORT_STOPPED ||
        (kind == MEMBERSHIP_REPORT_FAILED && !w->event->report.failure))
        return error_set(w->err, MUSTER_E_INVALID, "a report of kind %d without what it needs", (int)kind);
    if (w->event->report.sequence <= member->sequence)
        return 0; /* a duplicate */
    struct world_id id = w->event->report.id;
    bool current = member->held.epoch && world_id_equal(id, member->held);
    enum report_outcome outcome = current ? report_table[member->state][kind] : REPORT_CROSSED;
    if (outcome == REPORT_UNKNOWN && member->state == MEMBER_DONE && !world_id_equal(id, roster->id))
        outcome = REPORT_CROSSED; /* workers of a world before, which are told to stop */
    if (outcome == REPORT_UNKNOWN)
        return error_set(w->err, MUSTER_E_STATE, "agent \"%.128s\" reports %s while it is %s", member->name,
                         roster_report_name(kind), roster_member_state_name(member->state));
    member->sequence = w->event->report.sequence;
    switch (outcome) {
    case REPORT_RUNS:
        member->ended = 0;
        roster_set_state(roster, member, MEMBER_RUNNING);
        break;
    case REPORT_ENDS:
        roster_set_state(roster, member, MEMBER_DONE);
        break;
    case REPORT_ENDED:
        member->was_done = true;
        break;
    case REPORT_BREAKS:
        roster_set_state(roster, member, MEMBER_ORPHANED);
        roster_act(w, ROSTER_SEND_STOP, member->session, roster_slot_of(roster, member), NULL);
        break;
    case REPORT_FAILS:
        collect(w, member);
        roster_begin_stop(w);
        break;
    case REPORT_COLLECT:
        collect(w, member);
        break;
    case REPORT_STOPS:
        on_stopped(roster, member);
        break;
    case REPORT_RETIRES:
        member->held = (struct world_id){0}; /* it needs no STOP */
        break;
    case REPORT_GIVES_UP:
        on_gives_up(w, member);
        break;
    default:
        return 0;
    }
    roster_settle(w);
    return 0;
}

/* --- ranks that have lost a peer --- */

static bool has_rank(const struct roster_member *member, int rank)
{
    return rank >= member->rank_base && rank - member->rank_base < member->local_world_size;
}

static const struct roster_member *find_ended(const struct roster *roster)
{
    for (int i = 0; i < roster->slot_count; i++) {
        const struct roster_member *member = &roster->members[i];
        if (member->state == MEMBER_DONE || member->state == MEMBER_DONE_GONE ||
            (member->state == MEMBER_RUNNING && has_rank(member, member->ended - 1)))
            return member;
    }
    return NULL;
}

/* A silent node may have the lost peer: it sends something again, or its loss ends the round. */
static bool all_heard(const struct roster_work *w)
{
    const struct roster *roster = w->roster;
    for (int i = 0; i < roster->slot_count; i++) {
        const struct roster_member *member = &roster->members[i];
        if (member->state == MEMBER_RUNNING && i != roster->local_slot && i != w->event->member &&
            (member->lost_at.ns != INSTANT_NEVER.ns || member->last_received.ns <= roster->missed_at.ns))
            return false;
    }
    return true;
}

/* A rank without its peer ends with an error in a few seconds, and takes its state along. A node whose worker
 * has exited 0 fails the round before that. A loss of another kind will be reported, or be found by its
 * silence. Where the ranks of all nodes miss a peer at once, few of these messages matter. */
int roster_on_beat(struct roster_work *w)
{
    static const int64_t again_ns = NS_PER_S / 10;
    struct roster *roster = w->roster;
    struct roster_member *member = roster_sender(w);
    const int rank = w->event->missing - 1;
    if (member->state == MEMBER_KEEPS && w->event->ended)
        member->ended = w->event->ended; /* its ranks are known when its world goes on */
    if (member->state != MEMBER_RUNNING || roster->state != JOB_RUNNING)
        return 0;
    if (has_rank(member, w->event->ended - 1))
        member->ended = w->event->ended;
    if (!has_rank(member, rank))
        return 0;
    if (roster->missed_at.ns == INSTANT_NEVER.ns) {
        roster->missed_at = w->now;
        roster->judge_at = instant_add(w->now, again_ns);
    }
    if (!instant_reached(w->now, roster->judge_at))
        return 0;
    roster->judge_at = instant_add(w->now, again_ns);
    const struct roster_member *ended = find_ended(roster);
    if (!ended || !all_heard(w))
        return 0;
    roster_record_needed(w, ended, rank);
    roster_begin_stop(w);
    roster_settle(w);
    return 0;
}
