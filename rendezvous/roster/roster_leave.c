/* roster_leave.c - agents that leave or have to: LEAVE and DRAIN, by the job's state. The rules of an elastic
 * world are in roster_elastic.c. See roster.h. */
#include <stdio.h>

#include "proto/base/error.h"
#include "proto/exit_code.h"
#include "rendezvous/roster/roster_internal.h"

static int leave_code(const struct roster_work *w)
{
    return w->event->exit_code ? w->event->exit_code : EXIT_CODE_FAILURE;
}

/* Other members are not affected: the rank may be taken by another agent until the join timeout. If the
 * server leaves, all have stopped for the last world, and its restart count is the one to report. */
int roster_on_leave_forming(struct roster_work *w)
{
    struct roster *roster = w->roster;
    const bool departs = roster_elastic_departs(roster, roster_sender(w), leave_code(w));
    roster_vacate(roster, roster_sender(w), MEMBER_EMPTY);
    if (departs) {
        roster->id.round--;
        roster->world_out = true;
        roster_depart(w);
    }
    roster_settle(w);
    return 0;
}

/* It has joined since the world was formed, or was given up. If the hosting agent leaves, so does the server.
 */
static bool leaves_no_world(const struct roster *roster, const struct roster_member *member)
{
    return (member->state == MEMBER_JOINED || member->state == MEMBER_ORPHANED) &&
           !roster_is_local(roster, member);
}

int roster_on_leave_running(struct roster_work *w)
{
    struct roster *roster = w->roster;
    struct roster_member *member = roster_sender(w);
    char who[MUSTER_ERROR_TEXT - 100];
    if (member->state == MEMBER_DONE && !roster_is_local(roster, member)) {
        roster_vacate(roster, member, MEMBER_DONE_GONE);
    } else if (leaves_no_world(roster, member)) {
        roster_vacate(roster, member, MEMBER_EMPTY);
    } else if (roster->elastic) {
        roster_elastic_on_leave(w, member, leave_code(w));
    } else {
        roster_describe_member(roster, member, who, sizeof who);
        roster_vacate(roster, member, MEMBER_EMPTY);
        roster_give_verdict(w, leave_code(w), false, "%s left with exit code %d", who, leave_code(w));
    }
    roster_settle(w);
    return 0;
}

/* The failure that stopped the world stays its cause; without this agent it cannot be restarted, though. */
int roster_on_leave_stopping(struct roster_work *w)
{
    struct roster *roster = w->roster;
    struct roster_member *member = roster_sender(w);
    char who[MUSTER_ERROR_TEXT - 100];
    if (roster->elastic) {
        roster_elastic_on_leave(w, member, leave_code(w));
    } else if (leaves_no_world(roster, member)) { /* its rank is free for another */
        roster_vacate(roster, member, MEMBER_EMPTY);
    } else if (roster->change &&
               roster_is_local(roster, member)) { /* the others keep the time that they were given */
        roster_describe_member(roster, member, who, sizeof who);
        roster_vacate(roster, member, MEMBER_EMPTY);
        roster_give_verdict(w, leave_code(w), false, "%s, which serves the job, left with exit code %d", who,
                            leave_code(w));
    } else {
        if (!roster->leave_code)
            roster->leave_code = leave_code(w);
        roster_vacate(roster, member, MEMBER_EMPTY);
    }
    roster_settle(w);
    return 0;
}

/* A static world cannot continue without a node: the job ends, with a notice to all. Without workers, or
 * if it ends already, there is nothing to save. */
static int on_drain_static(struct roster_work *w)
{
    struct roster *roster = w->roster;
    struct roster_member *member = roster_sender(w);
    char who[MUSTER_ERROR_TEXT - 100];
    bool runs = roster->state == JOB_STARTING || roster->state == JOB_RUNNING;
    if (!(runs && roster_has_workers(member)) && roster->state != JOB_STOPPING)
        return 0;
    if (leaves_no_world(roster, member))
        return 0;
    if (!roster->leave_code)
        roster->leave_code = leave_code(w);
    member->draining = true;
    if (runs) {
        roster_describe_member(roster, member, who, sizeof who);
        roster_begin_planned_stop(w, MEMBERSHIP_CHANGE_END, 0, w->event->grace_ns,
                                  "%s was stopped, and the job ends with it", who);
    }
    roster_settle(w);
    return 0;
}

int roster_on_drain(struct roster_work *w)
{
    if (w->event->grace_ns < 0)
        return error_set(w->err, MUSTER_E_INVALID, "DRAIN with a grace below 0");
    return w->roster->elastic ? roster_elastic_on_drain(w) : on_drain_static(w);
}

int roster_on_leave_finishing(struct roster_work *w)
{
    roster_vacate(w->roster, roster_sender(w), MEMBER_EMPTY);
    roster_settle(w);
    return 0;
}
