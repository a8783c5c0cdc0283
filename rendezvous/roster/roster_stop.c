/* roster_stop.c - states of members and of the job, stops and verdicts. See roster_internal.h. */
#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/exit_code.h"
#include "rendezvous/failure/failure.h"
#include "rendezvous/roster/roster_internal.h"

void roster_act(struct roster_work *w, enum roster_action_kind kind, uint64_t session, int member,
                const char *reason)
{
    /* A member whose connection is down gets the missed actions when it joins again. */
    if (!session)
        return;
    assert(w->out->count < w->out->capacity);
    w->out->items[w->out->count++] =
        (struct roster_action){.kind = kind, .session = session, .member = member, .reason = reason};
}

void roster_set_state(struct roster *roster, struct roster_member *member, enum roster_member_state state)
{
    roster->count[member->state]--;
    member->state = state;
    roster->count[state]++;
    roster_slots_note_state(roster, member);
}

void roster_vacate(struct roster *roster, struct roster_member *member, enum roster_member_state state)
{
    if (roster_is_local(roster, member)) {
        roster->local_slot = -1;
        roster->host_left = true;
    }
    member->draining = member->proposed = false;
    member->held = (struct world_id){0};
    member->session = 0;
    roster_set_state(roster, member, state);
}

void roster_set_job_state(struct roster_work *w, enum roster_job_state state, int64_t timeout_ns)
{
    w->roster->state = state;
    w->roster->state_deadline = timeout_ns ? instant_add(w->now, timeout_ns) : INSTANT_NEVER;
    w->roster->regroup = w->roster->last_call = w->roster->missed_at =
        INSTANT_NEVER; /* timers of the state before */
}

static void stop_members(struct roster_work *w)
{
    struct roster *roster = w->roster;
    roster_set_job_state(w, JOB_STOPPING, roster->stop_grace_ns + roster->stop_timeout_ns);
    for (int i = 0; i < roster->slot_count; i++) {
        struct roster_member *member = &roster->members[i];
        if (!roster_has_workers(member) && member->state != MEMBER_DONE)
            continue;
        if (member->held.epoch) {
            member->was_done = member->state == MEMBER_DONE;
            roster_set_state(roster, member, MEMBER_STOPPING);
            roster_act(w, ROSTER_SEND_STOP, member->session, i, NULL);
        } else {
            roster_set_state(roster, member, MEMBER_JOINED);
        }
    }
}

static const char not_mended[] = "not restarted, since it reported an error that a restart does not mend";

void roster_begin_stop(struct roster_work *w)
{
    struct roster *roster = w->roster;
    char what[MUSTER_ERROR_TEXT - 100];
    failure_describe(roster_cause(roster), what, sizeof what);
    if (roster_cause(roster)->no_restart)
        (void)snprintf(roster->stop_reason, sizeof roster->stop_reason, "%s: %s", what, not_mended);
    else if (roster->restart_count < roster->max_restarts)
        (void)snprintf(roster->stop_reason, sizeof roster->stop_reason, "%s: restart %" PRId64 " of %" PRId64,
                       what, roster->restart_count + 1, roster->max_restarts);
    else
        (void)snprintf(roster->stop_reason, sizeof roster->stop_reason, "%s: no restarts left", what);
    roster->change = MEMBERSHIP_CHANGE_NONE;
    roster->stop_grace_ns = 0;
    stop_members(w);
}

void roster_begin_planned_stop(struct roster_work *w, enum membership_change change, int nodes,
                               int64_t grace_ns, const char *format, ...)
{
    struct roster *roster = w->roster;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(roster->stop_reason, sizeof roster->stop_reason, format, arguments);
    va_end(arguments);
    roster->change = change;
    nodes = nodes < roster->max_nodes ? nodes : roster->max_nodes;
    roster->next_nodes = nodes < roster->min_nodes || change == MEMBERSHIP_CHANGE_END ? 0 : nodes;
    roster->stop_grace_ns = grace_ns;
    stop_members(w);
}

/* The serving agent gets the verdict last, from roster_end_job: the server leaves with it. Its workers
 * stop now, like all others. */
void roster_give_verdict(struct roster_work *w, int code, bool failed, const char *format, ...)
{
    struct roster *roster = w->roster;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(roster->verdict_reason, sizeof roster->verdict_reason, format, arguments);
    va_end(arguments);
    roster->verdict_code = code;
    roster->verdict_failed = failed;
    memcpy(roster->stop_reason, roster->verdict_reason, sizeof roster->stop_reason);
    roster->change = MEMBERSHIP_CHANGE_NONE;
    roster_set_job_state(w, JOB_FINISHING, roster->exit_barrier_ns);
    for (int i = 0; i < roster->slot_count; i++) {
        struct roster_member *member = &roster->members[i];
        if (!roster_slot_taken(member))
            continue;
        bool runs = roster_has_workers(member);
        roster_set_state(roster, member, MEMBER_LEAVING);
        member->verdict_sent = i != roster->local_slot;
        if (member->verdict_sent)
            roster_act(w, ROSTER_SEND_VERDICT, member->session, i, NULL);
        else if (runs)
            roster_act(w, ROSTER_SEND_STOP, member->session, i, NULL);
    }
}

void roster_give_failure_verdict(struct roster_work *w)
{
    char what[MUSTER_ERROR_TEXT - 100];
    const struct worker_failure *cause = roster_cause(w->roster);
    failure_describe(cause, what, sizeof what);
    if (cause->no_restart)
        roster_give_verdict(w, failure_exit_code(cause), true, "%s; %s", what, not_mended);
    else
        roster_give_verdict(w, failure_exit_code(cause), true, "%s; restarts used: %" PRId64 " of %" PRId64,
                            what, w->roster->restart_count, w->roster->max_restarts);
}

void roster_end_job(struct roster_work *w)
{
    struct roster *roster = w->roster;
    roster_set_job_state(w, JOB_FINISHED, 0);
    if (roster->local_slot < 0)
        return;
    struct roster_member *member = &roster->members[roster->local_slot];
    member->verdict_sent = true;
    roster_act(w, ROSTER_SEND_VERDICT, member->session, roster->local_slot, NULL);
}
