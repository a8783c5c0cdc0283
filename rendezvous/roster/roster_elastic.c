/* roster_elastic.c - the rules of an elastic world: the last call, choice of members and ranks, new nodes,
 * drains, and nodes that do not stop. See roster.h. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/exit_code.h"
#include "rendezvous/roster/roster_internal.h"

enum { REGROUP_WAIT_FACTOR = 32 };

static const int64_t gather_ns = NS_PER_S; /* from a new node to the change, so that others can join too */

/* For different clock rates, and to kill processes that do not end. */
static const int64_t fence_margin_ns = 2 * NS_PER_S;

void roster_fence_from(struct roster *roster, struct instant renewed)
{
    struct instant stopped = instant_add(renewed, roster->lease_ns + fence_margin_ns);
    roster->fence = roster->fence.ns > stopped.ns ? roster->fence : stopped;
}

/* -- forming
 * ------------------------------------------------------------------------------------------------------ */

bool roster_is_accounted_for(const struct roster *roster)
{
    int stopped = 0;
    if (!roster->before.epoch || roster->world_seen ||
        roster->count[MEMBER_JOINED] < roster->before_nodes - 1)
        return false; /* as a rule, without a look at all slots: each JOIN asks */
    for (int i = 0; i < roster->slot_count; i++) {
        const struct roster_member *member = &roster->members[i];
        stopped +=
            member->state == MEMBER_JOINED && !member->lapsed && world_id_equal(member->last, roster->before);
    }
    return stopped >= roster->before_nodes - 1;
}

/* After a stop there is no last call if min_nodes are left: new nodes change the world when they join. The
 * first world has one, whose length also keeps a server that has just started, and may not be the job's
 * first, from forming a second world next to a world unknown to it: the leases of that world's agents are
 * shorter. */
bool roster_elastic_is_ready(struct roster_work *w)
{
    struct roster *roster = w->roster;
    int present = roster->count[MEMBER_JOINED];
    bool accounted = roster_is_accounted_for(roster);
    int64_t call_ns = roster->continues && !roster->world_seen ? gather_ns : roster->last_call_ns;
    roster->regrouping |= accounted;
    if (!roster->dead && !accounted && !instant_reached(w->now, roster->fence)) {
        roster->last_call = present >= roster->min_nodes ? roster->fence : INSTANT_NEVER;
        return false;
    }
    if (present >= roster->max_nodes)
        return true;
    if (present < roster->min_nodes) {
        roster->regrouping = false;
        roster->last_call = INSTANT_NEVER;
        return false;
    }
    if (roster->last_call.ns == INT64_MAX)
        roster->last_call = instant_add(w->now, roster->regrouping ? 0 : call_ns);
    return instant_reached(w->now, roster->last_call) || (roster->continues && accounted);
}

/* Natural order of names: numbers inside by their value, node2 before node10. */
static int compare_names(const char *a, const char *b)
{
    while (*a && *b) {
        if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
            a += strspn(a, "0");
            b += strspn(b, "0");
            size_t a_digits = strspn(a, "0123456789"), b_digits = strspn(b, "0123456789");
            if (a_digits != b_digits)
                return a_digits < b_digits ? -1 : 1;
            int order = strncmp(a, b, a_digits);
            if (order)
                return order;
            a += a_digits;
            b += b_digits;
        } else if (*a != *b) {
            return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
        } else {
            a++;
            b++;
        }
    }
    return (unsigned char)*a - (unsigned char)*b;
}

static bool was_in_last_world(const struct roster *roster, const struct roster_member *member)
{
    return member->group_rank >= 0 && member->round + 1 == roster->id.round;
}

/* Order of choice: the hosting agent, the last world by rank, then by name, then by arrival. */
static bool comes_before(const struct roster *roster, int a, int b)
{
    const struct roster_member *x = &roster->members[a], *y = &roster->members[b];
    bool x_was_in = was_in_last_world(roster, x), y_was_in = was_in_last_world(roster, y);
    if (a == roster->local_slot || b == roster->local_slot)
        return a == roster->local_slot;
    if (x_was_in != y_was_in)
        return x_was_in;
    if (x_was_in && x->group_rank != y->group_rank)
        return x->group_rank < y->group_rank;
    int order = compare_names(x->name, y->name);
    return order ? order < 0 : x->arrival < y->arrival;
}

/* Shell's sort, since qsort may allocate. */
static void sort_candidates(const struct roster *roster, int *slots, int count)
{
    static const int gaps[] = {1750, 701, 301, 132, 57, 23, 10, 4, 1};
    for (size_t g = 0; g < sizeof gaps / sizeof *gaps; g++)
        for (int i = gaps[g]; i < count; i++) {
            int slot = slots[i], place = i;
            for (; place >= gaps[g] && comes_before(roster, slot, slots[place - gaps[g]]); place -= gaps[g])
                slots[place] = slots[place - gaps[g]];
            slots[place] = slot;
        }
}

/* Gives the rank to the slot if it is in the world and free. */
static bool take_rank(struct roster *roster, int rank, int nodes, int slot)
{
    if (rank < 0 || rank >= nodes || roster->by_rank[rank] >= 0)
        return false;
    roster->by_rank[rank] = slot;
    return true;
}

static int list_candidates(struct roster *roster)
{
    int count = 0;
    for (int i = 0; i < roster->slot_count; i++)
        if (roster->members[i].state == MEMBER_JOINED)
            roster->scratch[count++] = i;
    sort_candidates(roster, roster->scratch, count);
    return count < roster->max_nodes ? count : roster->max_nodes;
}

/* Rank 0. A server that was elected keeps its rank in a world of the same size, so that no workers change
 * their places. */
static int server_rank(const struct roster *roster, int slot, int nodes)
{
    const bool same_size = nodes == (roster->world_seen ? roster->world_nodes : roster->before_nodes);
    return same_size && was_in_last_world(roster, &roster->members[slot]) ? roster->members[slot].group_rank
                                                                          : 0;
}

/* Assign requested ranks first, then ranks of the previous round; assigned slots become -1 in chosen[]. */
int roster_elastic_choose(struct roster *roster)
{
    enum { NONE = -1 };
    int nodes = list_candidates(roster), *chosen = roster->scratch;
    for (int rank = 0; rank < nodes; rank++)
        roster->by_rank[rank] = NONE;
    if (nodes && chosen[0] == roster->local_slot &&
        take_rank(roster, server_rank(roster, chosen[0], nodes), nodes, chosen[0]))
        chosen[0] = NONE;
    for (int i = 0; i < nodes; i++)
        if (chosen[i] != NONE && take_rank(roster, roster->members[chosen[i]].wanted_rank, nodes, chosen[i]))
            chosen[i] = NONE;
    for (int i = 0; i < nodes; i++)
        if (chosen[i] != NONE && take_rank(roster, roster->members[chosen[i]].group_rank, nodes, chosen[i]))
            chosen[i] = NONE;
    for (int i = 0, rank = 0; i < nodes; i++)
        if (chosen[i] != NONE)
            while (!take_rank(roster, rank, nodes, chosen[i]))
                rank++;
    return nodes;
}

/* -- new members
 * ---------------------------------------------------------------------------------------------------- */

/* A world with a finished member is about to end: it is left alone. */
void roster_elastic_plan_regroup(struct roster_work *w)
{
    struct roster *roster = w->roster;
    const int *count = roster->count;
    if (roster->state != JOB_RUNNING || !count[MEMBER_JOINED] || roster->world_nodes >= roster->max_nodes ||
        count[MEMBER_DONE] + count[MEMBER_DONE_GONE] > 0) {
        roster->regroup = INSTANT_NEVER;
        return;
    }
    if (roster->regroup.ns != INT64_MAX)
        return;
    struct instant gathered = instant_add(w->now, gather_ns);
    struct instant allowed = instant_add(roster->formed_at, roster->regroup_wait_ns);
    roster->regroup = gathered.ns > allowed.ns ? gathered : allowed;
}

void roster_elastic_regroup(struct roster_work *w)
{
    struct roster *roster = w->roster;
    int nodes = roster->world_nodes + roster->count[MEMBER_JOINED];
    /* A node that joins and leaves repeatedly must not keep the others from working. */
    bool short_lived = instant_diff_ns(w->now, roster->formed_at) < 4 * roster->regroup_wait_ns;
    if (!short_lived)
        roster->regroup_wait_ns = roster->regroup_ns;
    else if (roster->regroup_wait_ns < REGROUP_WAIT_FACTOR * roster->regroup_ns)
        roster->regroup_wait_ns *= 2;
    roster_begin_planned_stop(w, MEMBERSHIP_CHANGE_JOIN, nodes, roster->notice_ns,
                              "%d more node%s joined: the world grows from %d to %d",
                              roster->count[MEMBER_JOINED], roster->count[MEMBER_JOINED] > 1 ? "s" : "",
                              roster->world_nodes, nodes < roster->max_nodes ? nodes : roster->max_nodes);
}

/* -- leaving members
 * ------------------------------------------------------------------------------------------------ */

/* The next world when one member of this one leaves: spares join. */
static int nodes_without_one(const struct roster *roster)
{
    return roster->world_nodes - 1 + roster->count[MEMBER_JOINED];
}

/* SIGTERM (eviction) does not end the job; INT, HUP or QUIT from a user to the serving agent does. */
static bool departs_with(const struct roster *roster, const struct roster_member *member, int code)
{
    return roster_is_local(roster, member) && code == EXIT_CODE_TERMINATED;
}

/* Without a world of this server's it could not report the cost of the stop. */
bool roster_elastic_departs(const struct roster *roster, const struct roster_member *member, int code)
{
    return roster->elastic && departs_with(roster, member, code) && roster->world_seen;
}

bool roster_elastic_is_replaced(const struct roster *roster)
{
    return roster->votes && roster_possible_voters(roster) > 1;
}

static void stop_for_leaver(struct roster_work *w, const struct roster_member *member)
{
    struct roster *roster = w->roster;
    char who[MUSTER_ERROR_TEXT - 100];
    roster_describe_member(roster, member, who, sizeof who);
    if (departs_with(roster, member, w->event->exit_code) && roster_elastic_is_replaced(roster))
        roster_begin_planned_stop(w, MEMBERSHIP_CHANGE_LEAVE, nodes_without_one(roster), w->event->grace_ns,
                                  "%s leaves, and the server with it: another node takes over", who);
    else if (departs_with(roster, member, w->event->exit_code))
        roster_begin_planned_stop(w, MEMBERSHIP_CHANGE_LEAVE, 0, w->event->grace_ns,
                                  "%s leaves, and the server with it: the others wait for it to come back",
                                  who);
    else if (roster_is_local(roster, member))
        roster_begin_planned_stop(w, MEMBERSHIP_CHANGE_END, 0, w->event->grace_ns,
                                  "%s leaves: the server goes with it", who);
    else
        roster_begin_planned_stop(w, MEMBERSHIP_CHANGE_LEAVE, nodes_without_one(roster), w->event->grace_ns,
                                  "%s leaves: the others continue without it", who);
}

int roster_elastic_on_drain(struct roster_work *w)
{
    struct roster *roster = w->roster;
    struct roster_member *member = &roster->members[w->event->member];
    if (roster->state >= JOB_DEPARTED || member->draining)
        return 0;
    member->draining = true;
    roster->departs |= roster->state != JOB_FORMING && departs_with(roster, member, w->event->exit_code);
    if (member->state == MEMBER_JOINED || member->state == MEMBER_STOPPED)
        roster_set_state(roster, member, MEMBER_LEAVING);
    if (roster_has_workers(member))
        stop_for_leaver(w, member);
    roster_settle(w);
    return 0;
}

/* Without a DRAIN before it: there is no announced time for the others. */
static void depart(struct roster_work *w, const char *who)
{
    struct roster *roster = w->roster;
    roster->departs = true;
    if (roster->state != JOB_STOPPING)
        roster_begin_planned_stop(w, MEMBERSHIP_CHANGE_LEAVE, 0, roster->notice_ns,
                                  "%s left, and the server goes with it: %s", who,
                                  roster_elastic_is_replaced(roster) ? "another node takes over"
                                                                     : "the others wait for it to come back");
}

/* If the hosting agent leaves, so does the server. */
void roster_elastic_on_leave(struct roster_work *w, struct roster_member *member, int code)
{
    struct roster *roster = w->roster;
    bool had_workers = roster_has_workers(member), local = roster_is_local(roster, member);
    bool stops = had_workers || (member->state == MEMBER_STOPPING && !member->was_done);
    bool unfit = code == EXIT_CODE_NODE && stops, departs = departs_with(roster, member, code);
    roster->dead |= stops;
    char who[MUSTER_ERROR_TEXT - 100];
    roster_describe_member(roster, member, who, sizeof who);
    if (unfit)
        roster_record_lost(w, member, NULL);
    roster_vacate(roster, member, MEMBER_EMPTY);
    if (departs && roster->state != JOB_FORMING)
        depart(w, who);
    else if (local && roster->state != JOB_FORMING)
        roster_give_verdict(w, code, false, "%s, which serves the job, left with exit code %d", who, code);
    else if (had_workers && unfit)
        roster_begin_stop(w);
    else if (had_workers)
        roster_begin_planned_stop(w, MEMBERSHIP_CHANGE_LEAVE, nodes_without_one(roster), 0,
                                  "%s left with exit code %d", who, code);
}

void roster_elastic_evict_stuck(struct roster_work *w)
{
    struct roster *roster = w->roster;
    (void)snprintf(roster->refusal, sizeof roster->refusal,
                   "its workers did not stop within %.4g s: the others continue without this node",
                   (double)(roster->stop_grace_ns + roster->stop_timeout_ns) / NS_PER_S);
    for (int i = 0; i < roster->slot_count; i++) {
        struct roster_member *member = &roster->members[i];
        if (member->state != MEMBER_STOPPING)
            continue;
        roster_act(w, ROSTER_REFUSE, member->session, i, roster->refusal);
        roster_join_bar_agent(roster, member->incarnation);
        (void)roster_lose(w, member, NULL);
    }
}
