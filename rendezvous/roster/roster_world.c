/* roster_world.c - the ranks of a world, the events of actions, and queries. See roster.h. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "proto/base/text.h"
#include "proto/exit_code.h"
#include "rendezvous/failure/failure.h"
#include "rendezvous/roster/pace.h"
#include "rendezvous/roster/roster_internal.h"
#include "rendezvous/roster/world.h"

/* Ranks are contiguous by group rank; role ranks are the same sum over the nodes of one role. One pass finds
 * the running sums with the first node of each role at hand, a second gives every node its role's total. Jobs
 * have one or two roles, so the search through role heads is short. */
void roster_assign_ranks(struct roster *roster)
{
    int rank = 0;
    const int local_size = roster->local_slot >= 0 ? roster->members[roster->local_slot].local_world_size : 0;
    for (int i = 0; i < roster->world_nodes; i++) {
        struct roster_member *member = &roster->members[roster->by_rank[i]];
        if (!member->local_world_size) /* never here (roster_return.c): as a rule all nodes have one size */
            member->local_world_size = local_size;
        member->rank_base = rank;
        rank += member->local_world_size;
        member->role_rank_base = 0;
        member->role_world_size = member->local_world_size;
        for (int head = 0; head < i; head++) {
            struct roster_member *first = &roster->members[roster->by_rank[head]];
            if (first->role_rank_base == 0 && strcmp(first->role, member->role) == 0) {
                member->role_rank_base = first->role_world_size;
                first->role_world_size += member->local_world_size;
                break;
            }
        }
    }
    roster->world_size = rank;
    for (int i = 1; i < roster->world_nodes;
         i++) { /* ranks 0 to n-1, each held by one: these follow the node's */
        const struct roster_member *before = &roster->members[roster->by_rank[i - 1]];
        const struct roster_member *member = &roster->members[roster->by_rank[i]];
        assert(member != before && member->rank_base == before->rank_base + before->local_world_size);
    }
    for (int i = 0; i < roster->world_nodes; i++) {
        struct roster_member *member = &roster->members[roster->by_rank[i]];
        for (int head = 0; member->role_rank_base && head < i; head++) {
            const struct roster_member *first = &roster->members[roster->by_rank[head]];
            if (first->role_rank_base == 0 && strcmp(first->role, member->role) == 0) {
                member->role_world_size = first->role_world_size;
                break;
            }
        }
    }
}

static void fill_world(const struct roster *roster, int slot, struct membership_world *world)
{
    const struct roster_member *member = &roster->members[slot];
    const struct roster_member *first = &roster->members[roster->by_rank[0]];
    if (!first->store_port && roster->local_slot >= 0)
        first = &roster->members[roster->local_slot]; /* the store is the serving agent's */
    *world = (struct membership_world){
        .id = member->held,
        .group_rank = member->group_rank,
        .group_world_size = roster->world_nodes,
        .rank_base = member->rank_base,
        .world_size = roster->world_size,
        .role_rank_base = member->role_rank_base,
        .role_world_size = member->role_world_size,
        .restart_count = roster->restart_count,
        .master_port = first->store_port,
    };
    (void)snprintf(world->master_addr, sizeof world->master_addr, "%s", first->store_addr);
}

void roster_move_store(struct roster *roster, uint16_t port)
{
    if (roster->local_slot >= 0)
        roster->members[roster->local_slot].store_port = port;
}

/* The first cause, and the others by their distance in time from it. */
static void fill_causes(const struct roster *roster, struct membership_event *event)
{
    event->failure = *roster_cause(roster);
    event->other_total = roster->seen_total - 1;
    for (int i = 1; i < roster->seen_count; i++) {
        struct failure_brief *other = &event->others[event->other_count++];
        *other = failure_brief_of(&roster->seen[i].failure);
        other->after_ns = instant_diff_ns(roster->seen[i].key.at, roster->seen[0].key.at);
    }
}

/* Why workers of an earlier world are stopped. */
static const char *orphan_reason(const struct roster *roster, int slot)
{
    return roster->members[slot].held.epoch == roster->epoch
               ? "the server had lost this node, and the job goes on in another round"
               : "the server was restarted, and the job goes on in another round";
}

/* Whether a spare's place is taken by another agent of its own name: by the same job, started once more. A
 * pod that was restarted has the slot of its name. */
static bool is_double(const struct roster *roster, int slot)
{
    const struct roster_member *member = slot < 0 ? NULL : &roster->members[slot];
    if (!member || member->group_rank >= 0)
        return false;
    for (int i = 0; i < roster->world_nodes; i++) {
        const struct roster_member *other = &roster->members[roster->by_rank[i]];
        if (other != member && other->state != MEMBER_EMPTY && !strcmp(other->name, member->name))
            return true;
    }
    return false;
}

void roster_fill_event(const struct roster *roster, const struct roster_action *action,
                       struct membership_event *event)
{
    membership_event_clear(event);
    const char *reason = "";
    switch (action->kind) {
    case ROSTER_SEND_WORLD:
        event->kind = MEMBERSHIP_EVENT_WORLD;
        fill_world(roster, action->member, &event->world);
        reason = roster->restart_reason;
        event->failed_class = roster->restart_class;
        break;
    case ROSTER_SEND_STOP:
        event->kind = MEMBERSHIP_EVENT_STOP;
        event->stopped = roster->members[action->member].held;
        event->planned = roster->change && roster->members[action->member].state == MEMBER_STOPPING;
        if (event->planned) {
            event->grace_ns = roster->stop_grace_ns;
            event->change = roster->change;
            event->next_nodes = roster->next_nodes;
        }
        reason = roster->members[action->member].state == MEMBER_ORPHANED ||
                         !world_id_equal(event->stopped, roster->id)
                     ? orphan_reason(roster, action->member)
                     : roster->stop_reason;
        break;
    case ROSTER_SEND_VERDICT:
        event->kind = MEMBERSHIP_EVENT_VERDICT;
        event->exit_code = roster->verdict_code;
        event->doubled = is_double(roster, action->member);
        event->failed = roster->verdict_failed;
        if (roster->verdict_failed)
            fill_causes(roster, event);
        reason = roster->verdict_reason;
        break;
    case ROSTER_SEND_EVICTION:
        event->kind = MEMBERSHIP_EVENT_EVICTION;
        event->number = roster->eviction.number;
        event->eviction = roster->eviction.state;
        event->agent = roster->eviction.agent;
        reason = roster->eviction.text;
        break;
    case ROSTER_SEND_GO:
        event->kind = MEMBERSHIP_EVENT_GO;
        reason = "an operator has asked for it (muster drain)";
        break;
    default:
        event->kind = MEMBERSHIP_EVENT_REFUSED;
        reason = action->reason ? action->reason : "";
        break;
    }
    (void)snprintf(event->reason, sizeof event->reason, "%s", reason);
}

int roster_slot_count(const struct roster *roster)
{
    return roster->slot_count;
}

enum roster_job_state roster_state(const struct roster *roster)
{
    return roster->state;
}

enum roster_member_state roster_member_state(const struct roster *roster, int member)
{
    return member >= 0 && member < roster->slot_count ? roster->members[member].state : MEMBER_EMPTY;
}

struct world_id roster_world_id(const struct roster *roster)
{
    return roster->world_out ? roster->id : (struct world_id){0};
}

int64_t roster_restart_count(const struct roster *roster)
{
    return roster->restart_count;
}

int roster_verdict_code(const struct roster *roster)
{
    return roster->verdict_code;
}

uint64_t roster_epoch(const struct roster *roster)
{
    return roster->epoch;
}

int64_t roster_lease_ns(const struct roster *roster)
{
    return roster->lease_ns;
}

struct agent_incarnation roster_incarnation(const struct roster *roster, int member)
{
    return member >= 0 && member < roster->slot_count ? roster->members[member].incarnation
                                                      : (struct agent_incarnation){0};
}

uint64_t roster_report_sequence(const struct roster *roster, int member)
{
    return member >= 0 && member < roster->slot_count ? roster->members[member].sequence : 0;
}

struct world_id roster_server_done(const struct roster *roster)
{
    /* A restarted server must not form a world before the running members have registered. */
    bool kept =
        !roster->elastic || roster->last_call_ns >= roster->lease_ns + ROSTER_LEASE_BEFORE_LAST_CALL_NS;
    if (roster->local_slot < 0 || !roster->world_out || !kept)
        return (struct world_id){0};
    const enum roster_member_state state = roster->members[roster->local_slot].state;
    const bool spare = roster->state == JOB_RUNNING && state == MEMBER_JOINED; /* it was elected */
    bool done = state == MEMBER_DONE || spare ||
                (roster->state == JOB_FINISHING && roster->verdict_code == EXIT_CODE_OK);
    return done ? roster->id : (struct world_id){0};
}

bool roster_server_works(const struct roster *roster)
{
    return roster->local_slot >= 0 && roster_has_workers(&roster->members[roster->local_slot]);
}

/* In a world that runs the number of such nodes only grows. */
const struct rank_ranges *roster_done_ranks(struct roster *roster)
{
    const struct world_id id = roster_server_done(roster);
    const bool all = roster->state == JOB_FINISHING;
    const int known = !id.epoch ? 0
                      : all     ? roster->world_nodes
                                : roster->count[MEMBER_DONE] + roster->count[MEMBER_DONE_GONE];
    if (world_id_equal(id, roster->done_id) && known == roster->done_known)
        return &roster->done;
    roster->done_id = id;
    roster->done_known = known;
    roster->done.count = 0;
    for (int rank = 0; known && rank < roster->world_nodes; rank++) {
        const enum roster_member_state state = roster->members[roster->by_rank[rank]].state;
        if ((all || state == MEMBER_DONE || state == MEMBER_DONE_GONE) &&
            !rank_ranges_add(&roster->done, rank)) {
            roster->done.count = 0; /* a part of them would be of no use */
            break;
        }
    }
    return &roster->done;
}

void roster_wake(struct roster *roster, struct instant now)
{
    for (int i = 0; i < roster->slot_count; i++) {
        struct roster_member *member = &roster->members[i];
        if (!roster_slot_taken(member))
            continue;
        member->last_received = now;
        if (member->lost_at.ns != INSTANT_NEVER.ns)
            member->lost_at = instant_add(now, roster->lost_after_ns);
    }
    roster->loss_check = roster->awake = instant_add(now, roster->lost_after_ns);
    roster->missed_at = INSTANT_NEVER; /* nobody was heard since */
    /* The time until all have sent pending reports: a member that returns just before it would be lost
     * registers first, and is then asked for the rest. */
    struct instant all_heard = instant_add(roster->loss_check, roster->lost_after_ns);
    if (roster->state_deadline.ns < all_heard.ns)
        roster->state_deadline = all_heard;
}

bool roster_holds_server(const struct roster *roster)
{
    return roster->state == JOB_STOPPING && roster->departs;
}

struct instant roster_last_missed(const struct roster *roster)
{
    const bool well = roster->state > JOB_DEPARTED && !roster->verdict_code;
    return well ? roster->last_loss : INSTANT_NEVER;
}

int roster_remote_count(const struct roster *roster)
{
    int slots = roster->slot_count - roster->count[MEMBER_EMPTY] - roster->count[MEMBER_DONE_GONE];
    return slots - (roster->local_slot >= 0);
}

struct instant roster_deadline(const struct roster *roster)
{
    struct instant due = instant_min(roster->state_deadline, roster->loss_check);
    if (roster->state != JOB_FORMING)
        return instant_min(due, roster->regroup);
    due = instant_min(due, instant_min(roster->gathering, roster->absent_until));
    if (roster->hold_until.ns != INSTANT_NEVER.ns)
        return instant_min(due, roster->hold_until);
    if (roster->count[MEMBER_KEEPS] && roster->elastic)
        return instant_min(due, roster->fence);
    return roster->apart >= 0 ? due : instant_min(due, roster->last_call);
}

int roster_possible_voters(const struct roster *roster)
{
    int nodes = roster->world_nodes - roster->count[MEMBER_DONE_GONE], spares = roster->count[MEMBER_JOINED];
    for (int i = 0; i < roster->slot_count; i++) {
        const bool deaf = roster_slot_taken(&roster->members[i]) && !roster_may_vote(roster, i);
        nodes -= deaf && roster->members[i].state != MEMBER_JOINED;
        spares -= deaf && roster->members[i].state == MEMBER_JOINED;
    }
    return record_voter_count(nodes, spares);
}
