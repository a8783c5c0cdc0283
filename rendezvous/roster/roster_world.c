/* roster_world.c - creation of a roster, the ranks of a world, and queries. See roster.h. */
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

static int64_t or_default(int64_t value, int64_t initial)
{
    return value > 0 ? value : initial;
}

static int check_options(const struct roster_options *options, struct muster_error *err)
{
    if (options->min_nodes < 1 || options->min_nodes > options->max_nodes ||
        options->max_nodes > ROSTER_MEMBER_LIMIT ||
        (!options->elastic && options->min_nodes != options->max_nodes))
        return error_set(err, MUSTER_E_INVALID, "nnodes %d:%d is not in 1..%d%s", options->min_nodes,
                         options->max_nodes, ROSTER_MEMBER_LIMIT,
                         options->elastic ? "" : ", or not one number in a static world");
    if (!options->job_id || strlen(options->job_id) >= MEMBERSHIP_NAME_LIMIT)
        return error_set(err, MUSTER_E_INVALID, "the job id is missing or longer than %d bytes",
                         MEMBERSHIP_NAME_LIMIT - 1);
    if (!options->epoch || options->join_timeout_ns <= 0)
        return error_set(err, MUSTER_E_INVALID, "a roster needs an epoch and a join timeout above 0");
    return 0;
}

int roster_slots(bool elastic, int max_nodes)
{
    enum { SPARES = 16 };
    return elastic ? 2 * max_nodes + SPARES : max_nodes;
}

static const int64_t lease_before_last_call_ns = 2 * NS_PER_S;

/* 20 s, less if the last call is too short for it, and never less than the time after which a node is
 * lost. */
static int64_t lease_of(const struct roster *roster)
{
    const int64_t longest_ns = 20 * NS_PER_S;
    int64_t lease = roster->last_call_ns - lease_before_last_call_ns;
    if (lease > longest_ns)
        lease = longest_ns;
    return lease > roster->lost_after_ns ? lease : roster->lost_after_ns;
}

static void take_options(struct roster *roster, const struct roster_options *options)
{
    (void)snprintf(roster->job_id, sizeof roster->job_id, "%s", options->job_id);
    roster->elastic = options->elastic;
    roster->min_nodes = options->min_nodes;
    roster->max_nodes = options->max_nodes;
    roster->max_restarts = options->max_restarts;
    roster->join_timeout_ns = options->join_timeout_ns;
    roster->lost_after_ns = or_default(options->lost_after_ns, pace_lost_ns(options->max_nodes));
    roster->waiting_lost_ns = or_default(options->lost_after_ns, pace_waiting_lost_ns(options->max_nodes));
    roster->stop_timeout_ns = or_default(options->stop_timeout_ns, 60 * NS_PER_S);
    roster->votes = options->votes;
    if (options->before)
        roster->lost_server = *options->before;
    roster->continues = roster->dead = options->continues; /* who serves needs no lease to end */
    roster->exit_barrier_ns = or_default(options->exit_barrier_ns, 300 * NS_PER_S);
    roster->restart_count = options->restart_count;
    roster->backoff_ns = options->backoff_ns;
    roster->backoff_cap_ns = options->backoff_cap_ns;
    roster->jitter = options->jitter;
    roster->last_call_ns = or_default(options->last_call_ns, 30 * NS_PER_S);
    roster->regroup_wait_ns = roster->regroup_ns = or_default(options->regroup_ns, 10 * NS_PER_S);
    roster->notice_ns = or_default(options->notice_ns, 30 * NS_PER_S);
    if (options->elastic)
        roster->lease_ns = lease_of(roster);
}

struct roster *roster_create(const struct roster_options *options, struct instant now,
                             struct muster_error *err)
{
    if (check_options(options, err))
        return NULL;
    int slots = roster_slots(options->elastic, options->max_nodes);
    struct roster *roster =
        mem_calloc(1, sizeof(struct roster) + (size_t)slots * sizeof(struct roster_member));
    if (roster)
        roster->by_rank = mem_calloc(4 * (size_t)slots, sizeof *roster->by_rank);
    if (!roster || !roster->by_rank) {
        roster_destroy(roster);
        error_set(err, MUSTER_E_NOMEM, "no memory for a roster of %d nodes", options->max_nodes);
        return NULL;
    }
    take_options(roster, options);
    roster->created = now;
    roster->scratch = roster->by_rank + slots;
    roster->by_incarnation = roster->scratch + slots;
    roster->by_name = roster->by_incarnation + slots;
    roster->slot_count = slots;
    roster_slots_init(roster);
    roster->local_slot = roster->apart = -1;
    roster->epoch = options->epoch;
    roster->id = (struct world_id){options->epoch, options->round};
    roster->count[MEMBER_EMPTY] = slots;
    roster->state_deadline = instant_add(now, options->join_timeout_ns);
    roster->loss_check = roster->last_call = roster->regroup = roster->hold_until = INSTANT_NEVER;
    roster->last_loss = INSTANT_NEVER;
    roster->gathering = options->continues ? instant_add(now, NS_PER_S) : INSTANT_NEVER;
    for (int i = 0; i < slots; i++) {
        roster->members[i].group_rank = -1;
        roster->members[i].lost_at = INSTANT_NEVER;
        roster->by_rank[i] = i; /* for ever in a static world */
    }
    if (!options->elastic)
        roster->world_nodes = slots;
    return roster;
}

void roster_destroy(struct roster *roster)
{
    if (roster)
        mem_free(roster->by_rank);
    mem_free(roster);
}

int roster_slot_count(const struct roster *roster)
{
    return roster->slot_count;
}

int roster_actions_init(struct roster_actions *actions, int slots, struct muster_error *err)
{
    /* A step sends at most three messages to each member (a tick may remove members that do not stop, and
     * give all a world or the verdict), one to a superseded agent, and an ACCEPT or refusal to the sender. */
    size_t capacity = 3 * (size_t)slots + 4;
    actions->items = mem_calloc(capacity, sizeof *actions->items);
    if (!actions->items)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the actions of %d nodes", slots);
    actions->count = 0;
    actions->capacity = capacity;
    return 0;
}

void roster_actions_free(struct roster_actions *actions)
{
    mem_free(actions->items);
    *actions = (struct roster_actions){0};
}

/* Ranks are contiguous by group rank; role ranks are the same sum over the nodes of one role. One pass finds
 * the running sums with the first node of each role at hand, a second gives every node its role's total. Jobs
 * have one or two roles, so the search through role heads is short. */
void roster_assign_ranks(struct roster *roster)
{
    int rank = 0;
    for (int i = 0; i < roster->world_nodes; i++) {
        struct roster_member *member = &roster->members[roster->by_rank[i]];
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
    for (int slot = 0; slot < roster->slot_count; slot++)
        if (roster->members[slot].local)
            roster->members[slot].store_port = port;
}

/* The first cause, and the others by their distance in time from it. */
static void fill_causes(const struct roster *roster, struct membership_event *event)
{
    event->failure = *roster_cause(roster);
    event->other_total = roster->seen_total - 1;
    for (int i = 1; i < roster->seen_count; i++) {
        struct failure_brief *other = &event->others[event->other_count++];
        *other = failure_brief_of(&roster->records[roster->seen[i].record]);
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
    for (int i = 0; i < roster->slot_count; i++)
        if (i != slot && roster->members[i].group_rank >= 0 && !strcmp(roster->members[i].name, member->name))
            return true;
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
        event->planned = roster->planned && roster->members[action->member].state == MEMBER_STOPPING;
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
    bool kept = !roster->elastic || roster->last_call_ns >= roster->lease_ns + lease_before_last_call_ns;
    if (roster->local_slot < 0 || !roster->world_out || !kept)
        return (struct world_id){0};
    bool done = roster->members[roster->local_slot].state == MEMBER_DONE ||
                (roster->state == JOB_FINISHING && roster->verdict_code == EXIT_CODE_OK);
    return done ? roster->id : (struct world_id){0};
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
    due = instant_min(due, roster->gathering);
    if (roster->hold_until.ns != INSTANT_NEVER.ns)
        return instant_min(due, roster->hold_until);
    if (roster->count[MEMBER_KEEPS] && roster->elastic)
        return instant_min(due, roster->fence);
    return roster->apart >= 0 ? due : instant_min(due, roster->last_call);
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
