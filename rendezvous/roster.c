/* roster.c - the state machine of roster.h: events in, actions out.
 *
 * Each handler does its part and ends in settle(), the one place that looks whether the job's state must
 * change. settle() needs only the counts of members by state, so it costs O(1) until something happens to
 * everybody. */
#include "rendezvous/roster.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/exit_code.h"
#include "rendezvous/backoff.h"
#include "rendezvous/failure.h"
#include "rendezvous/roster_internal.h"

/* What one step works on. */
struct step {
    struct roster *roster;
    const struct roster_event *event;
    struct instant now;
    struct roster_actions *out;
    struct muster_error *err;
};

static void settle(struct step *s);

static void act(struct step *s, enum roster_action_kind kind, uint64_t session, int member,
                const char *reason)
{
    /* A member whose connection is down is sent what it missed when it joins again. */
    if (!session)
        return;
    assert(s->out->count < s->out->capacity);
    s->out->items[s->out->count++] = (struct roster_action){kind, session, member, reason};
}

static int slot_of(const struct roster *roster, const struct roster_member *member)
{
    return (int)(member - roster->members);
}

static void set_state(struct roster *roster, struct roster_member *member, enum roster_member_state state)
{
    roster->count[member->state]--;
    member->state = state;
    roster->count[state]++;
}

/* The agent is gone; state is EMPTY or DONE_GONE. */
static void vacate(struct roster *roster, struct roster_member *member, enum roster_member_state state)
{
    if (member->local)
        roster->local_slot = -1;
    member->local = false;
    member->holds_world = false;
    member->session = 0;
    set_state(roster, member, state);
}

static void heard(struct step *s, struct roster_member *member)
{
    member->last_heard = s->now;
    if (!member->local)
        s->roster->loss_check =
            instant_min(s->roster->loss_check, instant_add(s->now, s->roster->lost_after_ns));
}

/* -- causes
 * ------------------------------------------------------------------------------------------------------- */

static void record(struct roster *roster, const struct worker_failure *failure, int slot, struct instant at)
{
    enum { KEPT = FAILURE_OTHERS_LIMIT + 1 };
    struct roster_cause cause = {failure_key_of(failure, at), failure_brief_of(failure)};
    cause.brief.group_rank = slot;
    int place = roster->seen_count;
    while (place > 0 && failure_key_compare(&cause.key, &roster->seen[place - 1].key) < 0)
        place--;
    roster->seen_total++;
    if (place == KEPT)
        return;
    if (roster->seen_count < KEPT)
        roster->seen_count++;
    memmove(&roster->seen[place + 1], &roster->seen[place],
            (size_t)(roster->seen_count - place - 1) * sizeof *roster->seen);
    roster->seen[place] = cause;
    if (place > 0)
        return;
    roster->failed = true;
    roster->cause = *failure;
    roster->cause.group_rank = slot;
    roster->cause_at = at;
}

/* The node held workers of the world, and nobody will ever say what became of them. */
static void record_lost(struct roster *roster, const struct roster_member *member)
{
    struct worker_failure failure = {
        .rank = member->rank_base,
        .local_rank = -1,
        .group_rank = slot_of(roster, member),
        .exit_code = EXIT_CODE_NODE,
        .lost_node = true,
    };
    (void)snprintf(failure.host, sizeof failure.host, "%s", member->name);
    record(roster, &failure, failure.group_rank, member->last_heard);
}

/* -- transitions of the job
 * --------------------------------------------------------------------------------------- */

static void set_job_state(struct step *s, enum roster_job_state state, int64_t timeout_ns)
{
    s->roster->state = state;
    s->roster->state_deadline = timeout_ns ? instant_add(s->now, timeout_ns) : INSTANT_NEVER;
}

static void form_world(struct step *s)
{
    struct roster *roster = s->roster;
    roster_assign_ranks(roster);
    roster->formed_at = s->now;
    roster->world_out = true;
    set_job_state(s, JOB_STARTING, 0);
    for (int i = 0; i < roster->slot_count; i++) {
        struct roster_member *member = &roster->members[i];
        member->holds_world = true;
        member->round = roster->id.round;
        set_state(roster, member, MEMBER_ASSIGNED);
        act(s, ROSTER_SEND_WORLD, member->session, i, NULL);
    }
}

static void begin_stop(struct step *s)
{
    struct roster *roster = s->roster;
    char what[MUSTER_ERROR_TEXT - 100];
    failure_describe(&roster->cause, what, sizeof what);
    if (roster->restart_count < roster->max_restarts)
        (void)snprintf(roster->stop_reason, sizeof roster->stop_reason, "%s: restart %lld of %lld", what,
                       (long long)roster->restart_count + 1, (long long)roster->max_restarts);
    else
        (void)snprintf(roster->stop_reason, sizeof roster->stop_reason, "%s: no restarts left", what);
    set_job_state(s, JOB_STOPPING, roster->stop_timeout_ns);
    for (int i = 0; i < roster->slot_count; i++) {
        struct roster_member *member = &roster->members[i];
        if (member->state != MEMBER_ASSIGNED && member->state != MEMBER_RUNNING &&
            member->state != MEMBER_DONE)
            continue;
        if (member->holds_world) {
            set_state(roster, member, MEMBER_STOPPING);
            act(s, ROSTER_SEND_STOP, member->session, i, NULL);
        } else {
            set_state(roster, member, MEMBER_JOINED);
        }
    }
}

static void restart(struct step *s)
{
    struct roster *roster = s->roster;
    bool lasted = instant_diff_ns(s->now, roster->formed_at) > roster->backoff_cap_ns;
    roster->streak = lasted ? 1 : roster->streak + 1;
    int64_t wait =
        backoff_wait_ns(roster->backoff_ns, roster->backoff_cap_ns, roster->streak, roster->jitter);
    roster->hold_until = wait ? instant_add(s->now, wait) : INSTANT_NEVER;
    roster->restart_count++;
    roster->id.round++;
    roster->world_out = false;
    roster->failed = false;
    roster->seen_count = roster->seen_total = 0;
    roster->leave_code = 0;
    for (int i = 0; i < roster->slot_count; i++) {
        struct roster_member *member = &roster->members[i];
        if (member->state == MEMBER_STOPPED)
            set_state(roster, member, MEMBER_JOINED);
        else if (member->state == MEMBER_DONE_GONE)
            set_state(roster, member, MEMBER_EMPTY);
    }
    set_job_state(s, JOB_FORMING, wait + roster->join_timeout_ns);
}

/* The serving agent gets the verdict last, from end_job: when it leaves, the server goes with it. Its workers
 * stop now, like everybody's. */
static void give_verdict(struct step *s, int code, bool failed, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void give_verdict(struct step *s, int code, bool failed, const char *format, ...)
{
    struct roster *roster = s->roster;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(roster->verdict_reason, sizeof roster->verdict_reason, format, arguments);
    va_end(arguments);
    roster->verdict_code = code;
    roster->verdict_failed = failed;
    memcpy(roster->stop_reason, roster->verdict_reason, sizeof roster->stop_reason);
    set_job_state(s, JOB_FINISHING, roster->exit_barrier_ns);
    for (int i = 0; i < roster->slot_count; i++) {
        struct roster_member *member = &roster->members[i];
        if (!roster_seat_taken(member))
            continue;
        bool runs = member->state == MEMBER_ASSIGNED || member->state == MEMBER_RUNNING;
        set_state(roster, member, MEMBER_LEAVING);
        member->verdict_sent = !member->local;
        if (!member->local)
            act(s, ROSTER_SEND_VERDICT, member->session, i, NULL);
        else if (runs)
            act(s, ROSTER_SEND_STOP, member->session, i, NULL);
    }
}

static void give_failure_verdict(struct step *s)
{
    char what[MUSTER_ERROR_TEXT - 100];
    failure_describe(&s->roster->cause, what, sizeof what);
    give_verdict(s, failure_exit_code(&s->roster->cause), true, "%s; restarts used: %lld of %lld", what,
                 (long long)s->roster->restart_count, (long long)s->roster->max_restarts);
}

static void end_job(struct step *s)
{
    struct roster *roster = s->roster;
    set_job_state(s, roster->verdict_code == EXIT_CODE_OK ? JOB_FINISHED : JOB_FAILED, 0);
    if (roster->local_slot < 0)
        return;
    struct roster_member *member = &roster->members[roster->local_slot];
    member->verdict_sent = true;
    act(s, ROSTER_SEND_VERDICT, member->session, roster->local_slot, NULL);
}

/* Everybody has stopped, or will never. */
static void decide(struct step *s)
{
    struct roster *roster = s->roster;
    if (roster->restart_count >= roster->max_restarts)
        give_failure_verdict(s);
    else if (roster->leave_code)
        give_verdict(s, roster->leave_code, false,
                     "an agent left with exit code %d while the world was stopping", roster->leave_code);
    else
        restart(s);
}

/* One transition, if one is due. */
static bool settle_once(struct step *s)
{
    struct roster *roster = s->roster;
    const int *count = roster->count;
    enum roster_job_state before = roster->state;
    switch (roster->state) {
    case JOB_FORMING:
        if (count[MEMBER_JOINED] == roster->slot_count && roster->hold_until.ns == INSTANT_NEVER.ns)
            form_world(s);
        break;
    case JOB_STARTING:
    case JOB_RUNNING:
        if (count[MEMBER_DONE] + count[MEMBER_DONE_GONE] == roster->slot_count)
            give_verdict(s, EXIT_CODE_OK, false, "all workers exited 0");
        else if (roster->state == JOB_STARTING && count[MEMBER_ASSIGNED] == 0)
            set_job_state(s, JOB_RUNNING, 0);
        break;
    case JOB_STOPPING:
        if (count[MEMBER_STOPPING] == 0)
            decide(s);
        break;
    case JOB_FINISHING:
        if (!roster_has_remote(roster))
            end_job(s);
        break;
    default:
        break;
    }
    return roster->state != before;
}

static void settle(struct step *s)
{
    while (settle_once(s))
        ;
}

/* -- members that go
 * ---------------------------------------------------------------------------------------------- */

/* The agent behind a seat is gone without a word. Returns whether the world must stop for it. */
static bool lose(struct step *s, struct roster_member *member)
{
    struct roster *roster = s->roster;
    bool must_stop = member->state == MEMBER_ASSIGNED || member->state == MEMBER_RUNNING;
    /* In FORMING a STOPPING member is one that came back with workers of a round that was given up already.
     */
    if (must_stop || (member->state == MEMBER_STOPPING && roster->state == JOB_STOPPING))
        record_lost(roster, member);
    vacate(roster, member, member->state == MEMBER_DONE ? MEMBER_DONE_GONE : MEMBER_EMPTY);
    return must_stop;
}

static void supersede(struct step *s, struct roster_member *member)
{
    struct roster *roster = s->roster;
    (void)snprintf(roster->superseded, sizeof roster->superseded,
                   "superseded: agent \"%.128s\" was started again and holds node rank %d now", member->name,
                   slot_of(roster, member));
    act(s, ROSTER_REFUSE, member->session, slot_of(roster, member), roster->superseded);
    member->superseded[member->superseded_count++ % ROSTER_SUPERSEDED_KEPT] = member->incarnation;
    if (lose(s, member))
        begin_stop(s);
}

/* -- JOIN
 * ---------------------------------------------------------------------------------------------------------
 */

/* The agent was here before: its connection is new, and what was sent to the old one may be lost. */
static void rejoin(struct step *s, struct roster_member *member)
{
    int slot = slot_of(s->roster, member);
    member->session = s->event->session;
    heard(s, member);
    act(s, ROSTER_ACCEPT, member->session, slot, NULL);
    if (member->state == MEMBER_ASSIGNED)
        act(s, ROSTER_SEND_WORLD, member->session, slot, NULL);
    else if (member->state == MEMBER_STOPPING)
        act(s, ROSTER_SEND_STOP, member->session, slot, NULL);
    else if (member->state == MEMBER_LEAVING && member->verdict_sent)
        act(s, ROSTER_SEND_VERDICT, member->session, slot, NULL);
}

static void take_seat(struct step *s, struct roster_member *member)
{
    struct roster *roster = s->roster;
    const struct roster_join *join = s->event->join;
    bool holds = join->held.epoch != 0;
    /* An agent that was given up and comes back may repeat what it had reported before. */
    if (!roster_incarnation_equal(member->incarnation, join->incarnation))
        member->sequence = 0;
    member->session = s->event->session;
    member->incarnation = join->incarnation;
    member->local_world_size = join->local_world_size;
    member->store_port = join->store_port;
    member->holds_world = holds;
    member->round = join->held.round;
    member->local = join->local;
    if (join->local)
        roster->local_slot = slot_of(roster, member);
    (void)snprintf(member->name, sizeof member->name, "%s", join->agent_name);
    (void)snprintf(member->role, sizeof member->role, "%s", join->role);
    (void)snprintf(member->store_addr, sizeof member->store_addr, "%s", join->store_addr);
    heard(s, member);
    act(s, ROSTER_ACCEPT, member->session, slot_of(roster, member), NULL);
    if (member->state == MEMBER_DONE_GONE) {
        /* Its part of this round is done: it waits with the others. */
        set_state(roster, member, MEMBER_DONE);
    } else if (holds) {
        /* It was given up while it was cut off; its workers belong to a world that is over. */
        set_state(roster, member, MEMBER_STOPPING);
        act(s, ROSTER_SEND_STOP, member->session, slot_of(roster, member), NULL);
    } else {
        set_state(roster, member, MEMBER_JOINED);
    }
}

static int on_join(struct step *s)
{
    struct roster *roster = s->roster;
    const struct roster_join *join = s->event->join;
    int slot = -1;
    if (roster_join_fits(roster, join, roster->refusal, sizeof roster->refusal))
        slot = roster_join_slot(roster, join, roster->refusal, sizeof roster->refusal);
    if (slot < 0) {
        act(s, ROSTER_REFUSE, s->event->session, -1, roster->refusal);
        return 0;
    }
    struct roster_member *member = &roster->members[slot];
    if (roster_seat_taken(member) && roster_incarnation_equal(member->incarnation, join->incarnation)) {
        rejoin(s, member);
        return 0;
    }
    if (roster_seat_taken(member))
        supersede(s, member);
    take_seat(s, member);
    settle(s);
    return 0;
}

/* The job is over: whoever comes is told how it ended, and whoever is still here is told again. */
static int on_join_late(struct step *s)
{
    struct roster *roster = s->roster;
    const struct roster_join *join = s->event->join;
    if (!roster_join_fits(roster, join, roster->refusal, sizeof roster->refusal)) {
        act(s, ROSTER_REFUSE, s->event->session, -1, roster->refusal);
        return 0;
    }
    for (int i = 0; i < roster->slot_count; i++) {
        struct roster_member *member = &roster->members[i];
        if (roster_seat_taken(member) && roster_incarnation_equal(member->incarnation, join->incarnation)) {
            rejoin(s, member);
            return 0;
        }
    }
    act(s, ROSTER_SEND_VERDICT, s->event->session, -1, NULL);
    return 0;
}

/* -- LEAVE, BEAT, DISCONNECT
 * -------------------------------------------------------------------------------------- */

static struct roster_member *sender(struct step *s)
{
    return &s->roster->members[s->event->member];
}

/* Nothing is closed for the others: the rank may be taken by another agent until the join timeout. */
static int on_leave_forming(struct step *s)
{
    vacate(s->roster, sender(s), MEMBER_EMPTY);
    settle(s);
    return 0;
}

static int on_leave_running(struct step *s)
{
    struct roster_member *member = sender(s);
    if (member->state == MEMBER_DONE) {
        vacate(s->roster, member, MEMBER_DONE_GONE);
    } else {
        int code = s->event->exit_code ? s->event->exit_code : EXIT_CODE_FAILURE;
        vacate(s->roster, member, MEMBER_EMPTY);
        give_verdict(s, code, false, "agent \"%.128s\" (node rank %d) left with exit code %d", member->name,
                     slot_of(s->roster, member), code);
    }
    settle(s);
    return 0;
}

/* The failure that stopped the world stays its cause; without the leaver it cannot be restarted, though. */
static int on_leave_stopping(struct step *s)
{
    if (!s->roster->leave_code)
        s->roster->leave_code = s->event->exit_code ? s->event->exit_code : EXIT_CODE_FAILURE;
    vacate(s->roster, sender(s), MEMBER_EMPTY);
    settle(s);
    return 0;
}

static int on_leave_finishing(struct step *s)
{
    vacate(s->roster, sender(s), MEMBER_EMPTY);
    settle(s);
    return 0;
}

static int on_beat(struct step *s)
{
    (void)s; /* roster_step has noted the time */
    return 0;
}

/* A connection may come back; the agent is lost when it stays silent. */
static int on_disconnect(struct step *s)
{
    sender(s)->session = 0;
    return 0;
}

/* -- REPORT
 * ------------------------------------------------------------------------------------------------------- */

enum report_outcome {
    REPORT_UNKNOWN, /* no such pair: the agent broke the protocol */
    REPORT_CROSSED, /* crossed our STOP or verdict: nothing to do */
    REPORT_RUNS,
    REPORT_FAILS,
    REPORT_COLLECT, /* one more failure of a world that is stopping */
    REPORT_ENDS,
    REPORT_STOPS,
};

/* States without a world of the report's id do not get here: their reports are stale. Columns: RUNNING,
 * FAILED, DONE, STOPPED. */
static const unsigned char report_table[MEMBER_STATE_COUNT][4] = {
    [MEMBER_EMPTY] = {REPORT_UNKNOWN, REPORT_UNKNOWN, REPORT_UNKNOWN, REPORT_UNKNOWN},
    [MEMBER_JOINED] = {REPORT_UNKNOWN, REPORT_UNKNOWN, REPORT_UNKNOWN, REPORT_UNKNOWN},
    [MEMBER_ASSIGNED] = {REPORT_RUNS, REPORT_FAILS, REPORT_ENDS, REPORT_UNKNOWN},
    [MEMBER_RUNNING] = {REPORT_UNKNOWN, REPORT_FAILS, REPORT_ENDS, REPORT_UNKNOWN},
    [MEMBER_DONE] = {REPORT_UNKNOWN, REPORT_UNKNOWN, REPORT_UNKNOWN, REPORT_UNKNOWN},
    [MEMBER_DONE_GONE] = {REPORT_UNKNOWN, REPORT_UNKNOWN, REPORT_UNKNOWN, REPORT_UNKNOWN},
    [MEMBER_STOPPING] = {REPORT_CROSSED, REPORT_COLLECT, REPORT_CROSSED, REPORT_STOPS},
    [MEMBER_STOPPED] = {REPORT_UNKNOWN, REPORT_UNKNOWN, REPORT_UNKNOWN, REPORT_UNKNOWN},
    [MEMBER_LEAVING] = {REPORT_CROSSED, REPORT_CROSSED, REPORT_CROSSED, REPORT_CROSSED},
};

static void collect(struct step *s, const struct roster_member *member)
{
    const struct worker_failure *failure = s->event->report.failure;
    /* In FORMING it is about a world that was given up, and has been paid for. */
    if (s->roster->state == JOB_FORMING)
        return;
    int64_t age = failure->age_ns > 0 ? failure->age_ns : 0;
    record(s->roster, failure, slot_of(s->roster, member), (struct instant){s->now.ns - age});
}

static int on_report(struct step *s)
{
    struct roster *roster = s->roster;
    struct roster_member *member = sender(s);
    enum membership_report_kind kind = s->event->report.kind;
    if ((unsigned)kind > MEMBERSHIP_REPORT_STOPPED ||
        (kind == MEMBERSHIP_REPORT_FAILED && !s->event->report.failure))
        return error_set(s->err, MUSTER_E_INVALID, "a report of kind %d without what it needs", (int)kind);
    if (s->event->report.sequence <= member->sequence)
        return 0; /* a duplicate */
    struct world_id id = s->event->report.id;
    bool current = member->holds_world && id.epoch == roster->id.epoch && id.round == member->round;
    enum report_outcome outcome = current ? report_table[member->state][kind] : REPORT_CROSSED;
    if (outcome == REPORT_UNKNOWN)
        return error_set(s->err, MUSTER_E_STATE, "node rank %d reports %s while it is %s",
                         slot_of(roster, member), roster_report_name(kind),
                         roster_member_state_name(member->state));
    member->sequence = s->event->report.sequence;
    switch (outcome) {
    case REPORT_RUNS:
        set_state(roster, member, MEMBER_RUNNING);
        break;
    case REPORT_ENDS:
        set_state(roster, member, MEMBER_DONE);
        break;
    case REPORT_FAILS:
        collect(s, member);
        begin_stop(s);
        break;
    case REPORT_COLLECT:
        collect(s, member);
        break;
    case REPORT_STOPS:
        member->holds_world = false;
        set_state(roster, member, roster->state == JOB_FORMING ? MEMBER_JOINED : MEMBER_STOPPED);
        break;
    default:
        return 0;
    }
    settle(s);
    return 0;
}

static int on_report_late(struct step *s)
{
    (void)s; /* the verdict is out */
    return 0;
}

/* -- TICK
 * ---------------------------------------------------------------------------------------------------------
 */

static void check_losses(struct step *s)
{
    struct roster *roster = s->roster;
    bool must_stop = false;
    struct instant next = INSTANT_NEVER;
    for (int i = 0; i < roster->slot_count; i++) {
        struct roster_member *member = &roster->members[i];
        if (!roster_seat_taken(member) || member->local)
            continue;
        struct instant limit = instant_add(member->last_heard, roster->lost_after_ns);
        if (instant_reached(s->now, limit))
            must_stop |= lose(s, member);
        else
            next = instant_min(next, limit);
    }
    roster->loss_check = next;
    if (must_stop && roster->state != JOB_STOPPING)
        begin_stop(s);
}

static int on_tick(struct step *s)
{
    if (instant_reached(s->now, s->roster->loss_check)) {
        check_losses(s);
        settle(s);
    }
    return 0;
}

static int on_tick_forming(struct step *s)
{
    struct roster *roster = s->roster;
    (void)on_tick(s);
    if (roster->state == JOB_FORMING && instant_reached(s->now, roster->hold_until)) {
        roster->hold_until = INSTANT_NEVER;
        settle(s);
    }
    if (roster->state != JOB_FORMING || !instant_reached(s->now, roster->state_deadline))
        return 0;
    char missing[MUSTER_ERROR_TEXT - 120];
    roster_describe_missing(roster, missing, sizeof missing);
    give_verdict(s, EXIT_CODE_NODE, false, "%d of %d nodes joined within %.4g s; missing: %s",
                 roster->slot_count - roster->count[MEMBER_EMPTY], roster->slot_count,
                 (double)roster->join_timeout_ns / NS_PER_S,
                 missing[0] ? missing : "none, but not all stopped");
    settle(s);
    return 0;
}

/* Agents that live but cannot stop their workers: the node is unfit, and a new round would meet the old
 * workers. */
static int on_tick_stopping(struct step *s)
{
    struct roster *roster = s->roster;
    (void)on_tick(s);
    if (roster->state != JOB_STOPPING || !instant_reached(s->now, roster->state_deadline))
        return 0;
    int stuck = 0;
    while (roster->members[stuck].state != MEMBER_STOPPING)
        stuck++;
    if (roster->restart_count >= roster->max_restarts)
        give_failure_verdict(s);
    else
        give_verdict(s, EXIT_CODE_NODE, true,
                     "node rank %d (agent \"%.128s\") did not stop its workers within %.4g s", stuck,
                     roster->members[stuck].name, (double)roster->stop_timeout_ns / NS_PER_S);
    settle(s);
    return 0;
}

static int on_tick_finishing(struct step *s)
{
    (void)on_tick(s);
    if (s->roster->state == JOB_FINISHING && instant_reached(s->now, s->roster->state_deadline))
        end_job(s);
    return 0;
}

/* -- the table
 * ---------------------------------------------------------------------------------------------------- */

/* Columns: JOIN, LEAVE, REPORT, BEAT, DISCONNECT, TICK. */
static int (*const step_table[JOB_STATE_COUNT][ROSTER_EVENT_COUNT])(struct step *) = {
    [JOB_FORMING] = {on_join, on_leave_forming, on_report, on_beat, on_disconnect, on_tick_forming},
    [JOB_STARTING] = {on_join, on_leave_running, on_report, on_beat, on_disconnect, on_tick},
    [JOB_RUNNING] = {on_join, on_leave_running, on_report, on_beat, on_disconnect, on_tick},
    [JOB_STOPPING] = {on_join, on_leave_stopping, on_report, on_beat, on_disconnect, on_tick_stopping},
    [JOB_FINISHING] = {on_join_late, on_leave_finishing, on_report_late, on_beat, on_disconnect,
                       on_tick_finishing},
    [JOB_FINISHED] = {on_join_late, on_leave_finishing, on_report_late, on_beat, on_disconnect,
                      on_tick_finishing},
    [JOB_FAILED] = {on_join_late, on_leave_finishing, on_report_late, on_beat, on_disconnect,
                    on_tick_finishing},
};

static bool holds_slot(const struct roster *roster, const struct roster_event *event)
{
    return event->member >= 0 && event->member < roster->slot_count &&
           roster->members[event->member].session == event->session;
}

int roster_step(struct roster *roster, const struct roster_event *event, struct instant now,
                struct roster_actions *out, struct muster_error *err)
{
    struct step s = {.roster = roster, .event = event, .now = now, .out = out, .err = err};
    out->count = 0;
    if ((unsigned)event->kind >= ROSTER_EVENT_COUNT)
        return error_set(err, MUSTER_E_INVALID, "event %d is not known", (int)event->kind);
    if (event->kind != ROSTER_TICK && !event->session)
        return error_set(err, MUSTER_E_INVALID, "%s without a session", roster_event_name(event->kind));
    if (event->kind == ROSTER_JOIN && !event->join)
        return error_set(err, MUSTER_E_INVALID, "JOIN without an identity");
    if (event->kind != ROSTER_JOIN && event->kind != ROSTER_TICK) {
        if (!holds_slot(roster, event)) {
            if (event->kind == ROSTER_BEAT || event->kind == ROSTER_REPORT)
                act(&s, ROSTER_AGAIN, event->session, -1, NULL);
            return 0;
        }
        if (event->kind != ROSTER_DISCONNECT)
            heard(&s, &roster->members[event->member]);
    }
    return step_table[roster->state][event->kind](&s);
}
