/* roster_text.c - the roster as text: names, and which nodes are missing or waited for. See roster.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/text.h"
#include "rendezvous/roster/roster_internal.h"

#define ROSTER_NAME(symbol, name, meaning) [symbol] = (name),

const char *roster_job_state_name(enum roster_job_state state)
{
    static const char *const names[] = {ROSTER_JOB_STATES(ROSTER_NAME)};
    return (unsigned)state < JOB_STATE_COUNT ? names[state] : "?";
}

const char *roster_member_state_name(enum roster_member_state state)
{
    static const char *const names[] = {ROSTER_MEMBER_STATES(ROSTER_NAME)};
    return (unsigned)state < MEMBER_STATE_COUNT ? names[state] : "?";
}

const char *roster_event_name(enum roster_event_kind kind)
{
    static const char *const names[] = {ROSTER_EVENTS(ROSTER_NAME)};
    return (unsigned)kind < ROSTER_EVENT_COUNT ? names[kind] : "?";
}

const char *roster_action_name(enum roster_action_kind kind)
{
    static const char *const names[] = {ROSTER_ACTIONS(ROSTER_NAME)};
    return (unsigned)kind < ROSTER_ACTION_COUNT ? names[kind] : "?";
}

const char *roster_report_name(enum membership_report_kind kind)
{
    static const char *const names[] = {
        [MEMBERSHIP_REPORT_RUNNING] = "RUNNING",
        [MEMBERSHIP_REPORT_FAILED] = "FAILED",
        [MEMBERSHIP_REPORT_DONE] = "DONE",
        [MEMBERSHIP_REPORT_STOPPED] = "STOPPED",
    };
    return (unsigned)kind < sizeof names / sizeof names[0] ? names[kind] : "?";
}

/* The last of the empty slots from first on that can be listed together: a rank that had a holder is
 * listed with its name. */
static int end_of_range(const struct roster *roster, int first)
{
    int last = first;
    while (!roster->members[first].name[0] && last + 1 < roster->slot_count &&
           !roster_slot_taken(&roster->members[last + 1]) && !roster->members[last + 1].name[0])
        last++;
    return last;
}

void roster_describe_missing(const struct roster *roster, char *out, size_t size)
{
    enum { RANGES_SHOWN = 8 };
    int ranges = 0, left = roster->count[MEMBER_EMPTY] + roster->count[MEMBER_DONE_GONE];
    out[0] = '\0';
    (void)text_append(out, size, "missing rank%s", left > 1 ? "s" : "");
    for (int i = 0; i < roster->slot_count; i++) {
        const struct roster_member *member = &roster->members[i];
        if (roster_slot_taken(member))
            continue;
        if (ranges == RANGES_SHOWN) {
            (void)text_append(out, size, " and %d more", left);
            return;
        }
        int last = end_of_range(roster, i);
        (void)text_append(out, size, "%s %d", ranges ? "," : "", i);
        if (last > i)
            (void)text_append(out, size, "-%d", last);
        if (member->name[0])
            (void)text_append(out, size, " (last held by \"%.64s\")", member->name);
        left -= last - i + 1;
        i = last;
        ranges++;
    }
}

void roster_describe_member(const struct roster *roster, const struct roster_member *member, char *out,
                            size_t size)
{
    int rank = roster->elastic ? member->group_rank : roster_slot_of(roster, member);
    if (rank >= 0 && (!roster->elastic || member->round == roster->id.round))
        (void)snprintf(out, size, "agent \"%.128s\" (node rank %d)", member->name, rank);
    else
        (void)snprintf(out, size, "agent \"%.128s\"", member->name);
}

/* While there is a world, for agents without it: spares, new nodes, and members that stopped before the
 * others. */
static void describe_waiting(const struct roster *roster, char *out, size_t size)
{
    bool works = roster->state == JOB_STARTING || roster->state == JOB_RUNNING;
    int stopping = roster->count[MEMBER_STOPPING];
    if (roster->count[MEMBER_JOINED] + roster->count[MEMBER_STOPPED] == 0)
        return;
    if (roster->state == JOB_STOPPING)
        (void)text_append(out, size, "the workers of round %u are still being stopped on %d node%s",
                          (unsigned)roster->id.round, stopping, stopping == 1 ? "" : "s");
    else if (works && roster->world_nodes >= roster->max_nodes)
        (void)text_append(out, size, "the world has its %d nodes: a spare waits for one to leave",
                          roster->world_nodes);
    else if (works)
        (void)text_append(out, size,
                          "a world of %d nodes is running: new nodes are gathered until it makes room",
                          roster->world_nodes);
}

void roster_describe_progress(const struct roster *roster, char *out, size_t size)
{
    out[0] = '\0';
    if (roster->state != JOB_FORMING) {
        describe_waiting(roster, out, size);
        return;
    }
    int present = roster->count[MEMBER_JOINED];
    if (roster->proposed) {
        (void)text_append(out, size, "%d nodes; waiting for a majority of the last round's voters",
                          roster->world_nodes);
    } else if (!roster->elastic) {
        (void)text_append(out, size, "%d of %d nodes", present, roster->slot_count);
        if (roster->count[MEMBER_EMPTY] > 0) {
            (void)text_append(out, size, ", ");
            size_t used = strlen(out);
            roster_describe_missing(roster, out + used, size - used);
        }
    } else if (present < roster->min_nodes) {
        (void)text_append(out, size, "%d of at least %d node%s", present, roster->min_nodes,
                          roster->min_nodes > 1 ? "s" : "");
    } else {
        (void)text_append(out, size, "%d of %d to %d nodes; last call of %.4g s for more", present,
                          roster->min_nodes, roster->max_nodes, (double)roster->last_call_ns / NS_PER_S);
    }
    if (roster->refused_count)
        (void)text_append(out, size, "; agent \"%.64s\" was refused", roster->refused_name);
}

int roster_format(const struct roster *roster, struct buffer *out)
{
    buffer_printf(out, "%s round %u restarts %" PRId64 "/%" PRId64 ":", roster_job_state_name(roster->state),
                  roster->id.round, roster->restart_count, roster->max_restarts);
    for (int i = 0; i < roster->slot_count; i++)
        if (!roster->elastic || roster->members[i].state != MEMBER_EMPTY)
            buffer_printf(out, " %d=%s", i, roster_member_state_name(roster->members[i].state));
    return out->failed ? -1 : 0;
}
