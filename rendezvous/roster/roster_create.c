/* roster_create.c - creation of a roster from its options. See roster.h. */
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "rendezvous/roster/pace.h"
#include "rendezvous/roster/roster_internal.h"

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

/* 20 s, less if the last call is too short for it, and never less than the time after which a node is
 * lost. */
static int64_t lease_of(const struct roster *roster)
{
    const int64_t longest_ns = 20 * NS_PER_S;
    int64_t lease = roster->last_call_ns - ROSTER_LEASE_BEFORE_LAST_CALL_NS;
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
        roster->by_rank = mem_calloc(5 * (size_t)slots, sizeof *roster->by_rank);
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
    roster->before_done = roster->by_name + slots;
    roster->slot_count = slots;
    roster_slots_init(roster);
    roster->local_slot = roster->apart = -1;
    roster->epoch = options->epoch;
    roster->id = (struct world_id){options->epoch, options->round};
    roster->count[MEMBER_EMPTY] = slots;
    roster->state_deadline = instant_add(now, options->join_timeout_ns);
    roster->loss_check = roster->last_call = roster->regroup = roster->hold_until = INSTANT_NEVER;
    roster->missed_at = roster->absent_until = INSTANT_NEVER;
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
