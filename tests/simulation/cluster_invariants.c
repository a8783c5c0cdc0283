/* cluster_invariants.c - conditions at any instant of a simulated job: worlds, ranks, leases, restarts,
 * verdicts. See cluster.h for the list. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tests/simulation/cluster_internal.h"

const char *invariant_name(enum invariant invariant)
{
#define INVARIANT_NAME(symbol, name, meaning) [symbol] = (name),
    static const char *const names[] = {INVARIANTS(INVARIANT_NAME)};
    return (unsigned)invariant < INVARIANT_COUNT ? names[invariant] : "?";
}

const char *invariant_meaning(enum invariant invariant)
{
#define INVARIANT_MEANING(symbol, name, meaning) [symbol] = (meaning),
    static const char *const meanings[] = {INVARIANTS(INVARIANT_MEANING)};
    return (unsigned)invariant < INVARIANT_COUNT ? meanings[invariant] : "?";
}

void cluster_break(struct cluster *cluster, enum invariant invariant, const char *format, ...)
{
    if (cluster->broken)
        return;
    cluster->broken = invariant;
    int used = snprintf(cluster->broken_text, sizeof cluster->broken_text,
                        "%s at %.3f s: ", invariant_name(invariant), (double)cluster->now.ns / NS_PER_S);
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(cluster->broken_text + used, sizeof cluster->broken_text - (size_t)used, format,
                    arguments);
    va_end(arguments);
}

static bool same_incarnation(struct agent_incarnation a, struct agent_incarnation b)
{
    return a.high == b.high && a.low == b.low;
}

/* An agent that stands still cannot stop its workers. It stops them first when it goes on; this look may come
 * before that in the same instant. An agent that has left lets them save and end. */
static bool works(const struct cluster *cluster, const struct node *node)
{
    bool saves = node->group.state == GROUP_SAVING && node->membership_left;
    return (node->workers == WORKERS_STARTING || node->workers == WORKERS_RUNNING) &&
           node->frozen_until.ns < cluster->now.ns && !saves;
}

static int find_world(const struct cluster *cluster, struct world_id id)
{
    for (int i = 0; i < WORLDS_KEPT; i++)
        if (id.epoch && world_id_equal(cluster->worlds[i].id, id))
            return i;
    return -1;
}

/* -- at any instant
 * ------------------------------------------------------------------------------------------------ */

/* A world trains as long as each of its ranks works or has done its part: the workers of a node that was cut
 * off run on for a while, but without the others they get nowhere. (In a static world where another agent
 * took a rank over, the former owner, which cannot be informed, may go on alone: there is no lease.) An
 * agent whose clock stood while its machine did cannot know that its lease is over, before the server tells
 * it. */
static bool trains(const struct cluster *cluster, const struct seen_world *world)
{
    for (int rank = 0; rank < world->nodes; rank++) {
        const struct node *node = &cluster->nodes[world->rank[rank].node];
        if (world->rank[rank].done && !(cluster->replaced_ranks && !cluster->options.elastic))
            continue;
        if (!world->rank[rank].informed || node->slept || !works(cluster, node) ||
            !world_id_equal(node->world.id, world->id) ||
            !same_incarnation(node->incarnation, world->rank[rank].incarnation))
            return false;
    }
    return true;
}

static void check_one_trains(struct cluster *cluster)
{
    unsigned looked_at = 0;
    const struct seen_world *first = NULL;
    for (int i = 0; i < cluster->used; i++) {
        const struct node *node = &cluster->nodes[i];
        int place = works(cluster, node) ? find_world(cluster, node->world.id) : -1;
        if (place < 0 || looked_at & 1u << place)
            continue;
        looked_at |= 1u << place;
        const struct seen_world *world = &cluster->worlds[place];
        if (!trains(cluster, world))
            continue;
        if (first)
            cluster_break(cluster, INVARIANT_ONE_TRAINS, "rounds %u and %u train at the same time",
                          first->id.round, world->id.round);
        first = world;
    }
}

/* At most one world has workers; so strictly only in a static world, where a rank has to come back. */
static void check_one_world(struct cluster *cluster)
{
    const struct node *first = NULL;
    for (int i = 0; i < cluster->used; i++) {
        const struct node *node = &cluster->nodes[i];
        if (!has_workers(node))
            continue;
        if (!first)
            first = node;
        else if (!world_id_equal(first->world.id, node->world.id))
            cluster_break(cluster, INVARIANT_ONE_TRAINS,
                          "workers of round %u run on %s while those of round %u run on %s",
                          first->world.id.round, first->name, node->world.id.round, node->name);
    }
}

/* No two agents have workers under one rank of one world. */
static void check_one_holder(struct cluster *cluster)
{
    signed char holder[WORLDS_KEPT][CLUSTER_NODE_LIMIT];
    bool used[WORLDS_KEPT] = {false};
    for (int i = 0; i < cluster->used; i++) {
        const struct node *node = &cluster->nodes[i];
        int place = has_workers(node) ? find_world(cluster, node->world.id) : -1;
        if (place < 0)
            continue;
        if (!used[place])
            for (int rank = 0; rank < CLUSTER_NODE_LIMIT; rank++)
                holder[place][rank] = -1;
        used[place] = true;
        signed char *held = &holder[place][node->world.group_rank];
        if (*held >= 0)
            cluster_break(cluster, INVARIANT_ONE_HOLDER, "%s and %s both hold rank %d of round %u",
                          cluster->nodes[*held].name, node->name, node->world.group_rank,
                          node->world.id.round);
        *held = (signed char)i;
    }
}

void cluster_check_lease(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    const struct server *server = cluster->nodes[cluster->endpoint].server;
    if (cluster->options.votes)
        return; /* two worlds in a row share a node, and need no lease */
    int64_t lease_ns = roster_lease_ns(server->roster);
    if (node->cut_at.ns == INT64_MAX || instant_add(node->stood_until, lease_ns).ns > node->cut_at.ns)
        return;
    int64_t cut_ns = instant_diff_ns(cluster->now, node->cut_at);
    if (cut_ns < lease_ns)
        return; /* an earlier cut's */
    /* In the instant of its thaw its turn may come after this look. */
    if (node->frozen_until.ns >= cluster->now.ns)
        cluster_at(cluster, instant_add(node->frozen_until, 50 * NS_PER_MS), i, HAPPEN_LEASE_OVER);
    else if (works(cluster, node))
        cluster_break(cluster, INVARIANT_LEASE, "%s works %.3f s after it was cut off", node->name,
                      (double)cut_ns / NS_PER_S);
}

/* The budget is kept, and no restart is spent without a cause. */
static void check_restarts(struct cluster *cluster)
{
    const struct roster *roster = cluster_roster(cluster);
    if (!roster || cluster->nodes[cluster->endpoint].phase != NODE_UP)
        return;
    int64_t restarts = roster_restart_count(roster), seen = cluster->seen_restarts;
    const bool gathers = cluster->record.epoch && roster_state(roster) == JOB_FORMING;
    if (restarts == seen || gathers) /* an elected server says so when it knows the members */
        return;
    bool over = roster_state(roster) >= JOB_FINISHING; /* for the restart that would be one too many */
    if (restarts > cluster->options.max_restarts + over)
        cluster_break(cluster, INVARIANT_BUDGET, "%" PRId64 " restarts of %" PRId64, restarts,
                      cluster->options.max_restarts);
    bool returned = cluster->server_lives > 1 && restarts > seen; /* it hears of others' count */
    if (!returned && restarts != seen + 1)
        cluster_break(cluster, INVARIANT_COUNTED_ONCE, "restarts went from %" PRId64 " to %" PRId64, seen,
                      restarts);
    if (restarts > (int64_t)cluster->faults)
        cluster_break(cluster, INVARIANT_COUNTED_ONCE, "%" PRId64 " restarts for %u faults", restarts,
                      cluster->faults);
    cluster->seen_restarts = restarts;
}

/* All of them read only what sets `changed`, or the time of what HAPPEN_LEASE_OVER looks at. */
void cluster_check(struct cluster *cluster)
{
    if (cluster->changed) {
        cluster->changed = false;
        if (!cluster->leapt)
            check_one_trains(cluster);
        if (!cluster->options.elastic && !cluster->replaced_ranks && !cluster->options.votes)
            check_one_world(cluster);
        check_one_holder(cluster);
        check_restarts(cluster);
        cluster_count_ready(cluster);
    }
    cluster_check_progress(cluster);
}

/* -- when a world is told
 * ------------------------------------------------------------------------------------------ */

void cluster_note_ended(struct cluster *cluster, struct world_id id)
{
    int place = find_world(cluster, id);
    if (place >= 0 && cluster->worlds[place].ended_at.ns == INT64_MAX)
        cluster->worlds[place].ended_at = cluster->now;
}

/* What crosses on the way may be late by a moment; not by as long as it takes to give a node up. */
static void check_fresh(struct cluster *cluster, const struct node *self, struct world_id id)
{
    int64_t again_ns = cluster->options.loss_percent ? 3 * NS_PER_S : 0; /* both ways */
    int64_t on_its_way_ns = 2 * NS_PER_S + 2 * cluster->options.delay_max_ns + again_ns;
    int place = find_world(cluster, id);
    if (place < 0 || self->slept || cluster->worlds[place].ended_at.ns == INT64_MAX)
        return;
    int64_t late_ns = instant_diff_ns(cluster->now, cluster->worlds[place].ended_at);
    if (late_ns > on_its_way_ns)
        cluster_break(cluster, INVARIANT_OLD_WORLD, "%s starts round %u %.3f s after it was over", self->name,
                      id.round, (double)late_ns / NS_PER_S);
}

/* Not so where a node that stood still has got a world from so long ago that it is kept no longer. */
static bool is_newest(const struct cluster *cluster, struct world_id id)
{
    for (int i = 0; i < WORLDS_KEPT; i++)
        if (cluster->worlds[i].id.epoch == id.epoch && cluster->worlds[i].id.round > id.round)
            return false;
    return true;
}

static struct seen_world *see_world(struct cluster *cluster, const struct membership_world *world)
{
    int place = find_world(cluster, world->id);
    if (place >= 0)
        return &cluster->worlds[place];
    if (is_newest(cluster, world->id))
        cluster->round_exits = 0;
    struct seen_world *seen = &cluster->worlds[cluster->worlds_seen++ % WORLDS_KEPT];
    *seen = (struct seen_world){.id = world->id,
                                .ended_at = INSTANT_NEVER,
                                .nodes = world->group_world_size,
                                .size = world->world_size};
    return seen;
}

/* In an elastic world a node rank is a wish: who does not get it finds another there who wanted it, or, under
 * rank 0, the serving agent. */
static void check_wishes(struct cluster *cluster, const struct seen_world *seen)
{
    for (int i = 0; i < seen->nodes; i++) {
        const struct node *node = &cluster->nodes[seen->rank[i].node];
        int wish = node->claimed_rank, holder;
        if (wish < 0 || wish >= seen->nodes || wish == i || i == 0)
            continue;
        holder = seen->rank[wish].node;
        if (cluster->nodes[holder].claimed_rank != wish && wish != 0)
            cluster_break(cluster, INVARIANT_RANKS,
                          "%s wanted rank %d and got %d; %s has it, and did not ask", node->name, wish, i,
                          cluster->nodes[holder].name);
    }
}

/* The ranks of a world, as far as its members have been told them without a gap from 0. */
static void check_sums(struct cluster *cluster, const struct seen_world *seen)
{
    int expected = 0, of_role[CLUSTER_ROLES] = {0}, i = 0;
    for (; i < seen->nodes && seen->rank[i].informed; i++) {
        int role = seen->rank[i].role;
        if (seen->rank[i].base != expected || seen->rank[i].role_base != of_role[role])
            cluster_break(cluster, INVARIANT_RANKS,
                          "rank %d of round %u starts at %d, in its role at %d, instead of %d and %d", i,
                          seen->id.round, seen->rank[i].base, seen->rank[i].role_base, expected,
                          of_role[role]);
        expected += seen->rank[i].size;
        of_role[role] += seen->rank[i].size;
    }
    if (i < seen->nodes)
        return;
    if (expected != seen->size)
        cluster_break(cluster, INVARIANT_RANKS, "%d workers in a world of %d", expected, seen->size);
    for (i = 0; i < seen->nodes && !cluster->options.votes; i++)
        if (strcmp(seen->rank[i].master, cluster->nodes[seen->rank[0].node].name) != 0)
            cluster_break(cluster, INVARIANT_RANKS, "%s was told %s for the store, and %s is rank 0",
                          cluster->nodes[seen->rank[i].node].name, seen->rank[i].master,
                          cluster->nodes[seen->rank[0].node].name);
    for (i = 0; i < seen->nodes; i++)
        if (seen->rank[i].role_size != of_role[seen->rank[i].role])
            cluster_break(cluster, INVARIANT_RANKS, "%d workers in a role of %d", of_role[seen->rank[i].role],
                          seen->rank[i].role_size);
    if (cluster->options.elastic)
        check_wishes(cluster, seen);
}

static void check_ranks(struct cluster *cluster, int node, const struct membership_world *world)
{
    const struct node *self = &cluster->nodes[node];
    struct seen_world *seen = see_world(cluster, world);
    int rank = world->group_rank, nodes = world->group_world_size;
    bool served_elsewhere = self->server && !is_at_endpoint(cluster, node);
    if (nodes < cluster->options.min_nodes || nodes > cluster->options.max_nodes || rank < 0 ||
        rank >= nodes || nodes != seen->nodes || world->world_size != seen->size) {
        cluster_break(cluster, INVARIANT_RANKS, "%s got rank %d of %d nodes with %d workers", self->name,
                      rank, nodes, world->world_size);
        return;
    }
    if (seen->rank[rank].informed && !same_incarnation(seen->rank[rank].incarnation, self->incarnation))
        cluster_break(cluster, INVARIANT_ONE_HOLDER, "%s and %s both got rank %d of round %u", self->name,
                      cluster->nodes[seen->rank[rank].node].name, rank, world->id.round);
    if (self->server && !served_elsewhere && rank != 0 && !cluster->record.epoch)
        cluster_break(cluster, INVARIANT_RANKS, "the serving agent got rank %d", rank);
    seen->rank[rank].informed = true;
    seen->rank[rank].node = node;
    seen->rank[rank].incarnation = self->incarnation;
    seen->rank[rank].base = world->rank_base;
    seen->rank[rank].size = cluster->options.local_world_size[node];
    seen->rank[rank].role = cluster->options.role[node];
    seen->rank[rank].role_base = world->role_rank_base;
    seen->rank[rank].role_size = world->role_world_size;
    (void)snprintf(seen->rank[rank].master, sizeof seen->rank[rank].master, "%.15s", world->master_addr);
    check_sums(cluster, seen);
}

void cluster_note_done(struct cluster *cluster, int node)
{
    const struct membership_world *world = &cluster->nodes[node].world;
    int place = find_world(cluster, world->id);
    if (place >= 0)
        cluster->worlds[place].rank[world->group_rank].done = true;
}

/* Whose successor has been in a world of this server comes into none any more. */
static void check_superseded(struct cluster *cluster, int i, struct world_id id)
{
    const struct node *self = &cluster->nodes[i];
    if (!self->replaced || self->slept || !self->saw_world || self->last_world.epoch != id.epoch)
        return;
    for (int k = 0; k < cluster->used; k++) {
        const struct node *twin = &cluster->nodes[k];
        if (k != i && twin->named_after == i && twin->phase == NODE_UP && twin->saw_world &&
            twin->last_world.epoch == id.epoch && self->last_world.round < twin->last_world.round &&
            twin->last_world.round < id.round) /* an older one has crossed on the way: check_fresh */
            cluster_break(cluster, INVARIANT_ONE_HOLDER,
                          "%s is in round %u, and its successor was in round %u", self->name, id.round,
                          twin->last_world.round);
    }
}

void cluster_check_refusal(struct cluster *cluster, int i, const char *reason)
{
    static const char superseded[] = "superseded:";
    const int64_t on_its_way_ns = 2 * NS_PER_S + 2 * cluster->options.delay_max_ns;
    const struct node *self = &cluster->nodes[i];
    if (strncmp(reason, superseded, sizeof superseded - 1) != 0)
        return;
    for (int k = 0; k < cluster->used; k++) {
        const struct node *other = &cluster->nodes[k];
        if (k != i && other->named_after == self->named_after &&
            (other->phase == NODE_UP || other->start_number > self->start_number ||
             instant_diff_ns(cluster->now, other->ended_at) < on_its_way_ns))
            return; /* both live, or did a moment ago: the later JOIN counts */
    }
    cluster_break(cluster, INVARIANT_SUCCESSOR, "%s is the last start of its name, and was refused: %s",
                  self->name, reason);
}

void cluster_check_world(struct cluster *cluster, int i, const struct membership_world *world)
{
    struct node *self = &cluster->nodes[i];
    check_fresh(cluster, self, world->id);
    if (self->foreign)
        cluster_break(cluster, INVARIANT_RANKS, "%s is of another job and got rank %d", self->name,
                      world->group_rank);
    if (cluster->ending.epoch == world->id.epoch && world->id.round > cluster->ending.round)
        cluster_break(cluster, INVARIANT_DONE,
                      "%s starts round %u, and a node of round %u was asked to end, and the job with it",
                      self->name, world->id.round, cluster->ending.round);
    if (!cluster->options.elastic)
        check_superseded(cluster, i, world->id);
    check_ranks(cluster, i, world);
    if (!cluster->options.elastic && world->group_rank != self->claimed_rank)
        cluster_break(cluster, INVARIANT_RANKS, "%s claims rank %d and got %d", self->name,
                      self->claimed_rank, world->group_rank);
    if (self->saw_world && world->id.round <= self->last_world.round &&
        world->id.epoch == self->last_world.epoch)
        cluster_break(cluster, INVARIANT_OLD_WORLD, "%s acts on round %u after round %u", self->name,
                      world->id.round, self->last_world.round);
    if (has_workers(self))
        cluster_break(cluster, INVARIANT_CLEAN_START, "%s got round %u while it has workers of round %u",
                      self->name, world->id.round, self->world.id.round);
    if (world->id.round < (uint32_t)world->restart_count)
        cluster_break(cluster, INVARIANT_COUNTED_ONCE, "round %u after %" PRId64 " restarts", world->id.round,
                      world->restart_count);
    if (cluster->finished && !self->slept)
        cluster_break(cluster, INVARIANT_DONE, "%s starts round %u of a job that is done", self->name,
                      world->id.round);
    self->saw_world = true;
    self->last_world = world->id;
}

/* -- when the verdict is told
 * ------------------------------------------------------------------------------------- */

/* The named event has happened, and is named once. */
static void check_causes(struct cluster *cluster, const struct membership_event *verdict)
{
    const struct worker_failure *first = &verdict->failure;
    const bool needed = !first->lost_node && !first->pid; /* it exited 0, and another rank missed it */
    int workers = !first->lost_node && !needed;
    for (int i = 0; i < verdict->other_count; i++) {
        const struct failure_brief *a = &verdict->others[i];
        workers += a->pid != 0;
        bool twice = a->pid && a->pid == first->pid && a->rank == first->rank;
        for (int k = 0; k < i; k++)
            twice |= a->pid && a->pid == verdict->others[k].pid && a->rank == verdict->others[k].rank;
        if (twice)
            cluster_break(cluster, INVARIANT_ATTRIBUTED, "the verdict names rank %d (pid %d) twice", a->rank,
                          a->pid);
    }
    if (workers > (int)cluster->round_exits)
        cluster_break(cluster, INVARIANT_ATTRIBUTED, "the verdict names %d workers, %u have failed", workers,
                      cluster->round_exits);
    if (needed && !cluster->misses)
        cluster_break(cluster, INVARIANT_ATTRIBUTED,
                      "the verdict says that rank %d is needed, and none is missed", first->rank);
    if (!first->lost_node && !needed && !first->completes && !cluster->losses)
        cluster_break(cluster, INVARIANT_ATTRIBUTED,
                      "the verdict has what was known of rank %d (pid %d) first", first->rank, first->pid);
    if (first->lost_node && !cluster->losses)
        cluster_break(cluster, INVARIANT_ATTRIBUTED, "the verdict names a lost node, and none was lost");
}

void cluster_check_verdict(struct cluster *cluster, int i, const struct membership_event *verdict)
{
    const struct node *node = &cluster->nodes[i];
    const struct roster *roster = cluster_roster(cluster);
    bool of_this_life = node->saw_world ? roster && node->last_world.epoch == roster_epoch(roster)
                                        : cluster->server_lives == 1;
    if (node->foreign)
        cluster_break(cluster, INVARIANT_ONE_VERDICT, "%s is of another job and was told %d", node->name,
                      verdict->exit_code);
    if ((node->server && !is_at_endpoint(cluster, i)) || !of_this_life)
        return; /* its own job's, or of a server that was lost with its knowledge */
    if (cluster->verdict >= 0 && cluster->verdict != verdict->exit_code)
        cluster_break(cluster, INVARIANT_ONE_VERDICT, "%s was told %d, others %d", node->name,
                      verdict->exit_code, cluster->verdict);
    cluster->verdict = verdict->exit_code;
    cluster->finished |= verdict->exit_code == 0;
    if (verdict->failed)
        check_causes(cluster, verdict);
}
