/* cluster_invariants.c - what must hold after every event of a simulated job. See cluster.h. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "tests/simulation/cluster_internal.h"

void cluster_break(struct cluster *cluster, const char *format, ...)
{
    if (cluster->broken[0])
        return;
    int used =
        snprintf(cluster->broken, sizeof cluster->broken,
                 "seed %" PRIu64 " at %.3f s: ", cluster->options.seed, (double)cluster->now.ns / NS_PER_S);
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(cluster->broken + used, sizeof cluster->broken - (size_t)used, format, arguments);
    va_end(arguments);
}

static bool roster_incarnation_same(struct roster_incarnation a, struct roster_incarnation b)
{
    return a.high == b.high && a.low == b.low;
}

static bool has_workers(const struct node *node)
{
    return node->workers != WORKERS_NONE && node->workers != WORKERS_DONE;
}

static bool works(const struct cluster *cluster, const struct node *node)
{
    return (node->workers == WORKERS_STARTING || node->workers == WORKERS_RUNNING) &&
           instant_reached(cluster->now, node->frozen_until);
}

static struct seen_world *find_world(struct cluster *cluster, struct world_id id)
{
    for (int i = 0; i < WORLDS_KEPT; i++)
        if (world_id_equal(cluster->worlds[i].id, id))
            return &cluster->worlds[i];
    return NULL;
}

/* A world trains as long as each of its ranks works or has done its part: the workers of a node that was cut
 * off run on for a while, but without the others they get nowhere. */
static bool trains(const struct cluster *cluster, const struct seen_world *world)
{
    for (int rank = 0; rank < world->nodes; rank++) {
        const struct node *node = &cluster->nodes[world->rank[rank].node];
        if (world->rank[rank].done)
            continue;
        if (!world->rank[rank].told || !works(cluster, node) || !world_id_equal(node->world.id, world->id) ||
            !roster_incarnation_same(node->incarnation, world->rank[rank].incarnation))
            return false;
    }
    return true;
}

/* A node that is cut off does not work beyond its lease. */
static void check_leases(struct cluster *cluster)
{
    int64_t lease = roster_lease_ns(cluster->roster);
    for (int i = 1; i < cluster->used; i++) {
        const struct node *node = &cluster->nodes[i];
        if (node->cut && works(cluster, node) && instant_diff_ns(cluster->now, node->cut_at) > lease)
            cluster_break(cluster, "%s works %.3f s after it was cut off", node->name,
                          (double)instant_diff_ns(cluster->now, node->cut_at) / NS_PER_S);
    }
}

static void check_one_trains(struct cluster *cluster)
{
    const struct seen_world *first = NULL;
    for (int i = 0; i < cluster->used; i++) {
        const struct node *node = &cluster->nodes[i];
        const struct seen_world *world = works(cluster, node) ? find_world(cluster, node->world.id) : NULL;
        if (!world || world == first || !trains(cluster, world))
            continue;
        if (first)
            cluster_break(cluster, "rounds %u and %u train at the same time", first->id.round,
                          world->id.round);
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
            cluster_break(cluster, "workers of round %u run on %s while those of round %u run on %s",
                          first->world.id.round, first->name, node->world.id.round, node->name);
    }
}

/* Each rank of a round is held by one incarnation: no two live agents have workers under one rank. */
static void check_one_holder(struct cluster *cluster)
{
    for (int a = 0; a < cluster->used; a++)
        for (int b = a + 1; b < cluster->used; b++) {
            const struct node *x = &cluster->nodes[a], *y = &cluster->nodes[b];
            if (has_workers(x) && has_workers(y) && world_id_equal(x->world.id, y->world.id) &&
                x->world.group_rank == y->world.group_rank)
                cluster_break(cluster, "%s and %s both hold rank %d of round %u", x->name, y->name,
                              x->world.group_rank, x->world.id.round);
        }
}

/* The budget is kept, and no restart is spent without a cause. */
static void check_restarts(struct cluster *cluster)
{
    int64_t restarts = roster_restart_count(cluster->roster);
    bool over =
        roster_state(cluster->roster) >= JOB_FINISHING; /* for the restart that would be one too many */
    if (restarts > cluster->options.max_restarts + over)
        cluster_break(cluster, "%" PRId64 " restarts of %" PRId64, restarts, cluster->options.max_restarts);
    if (restarts > (int64_t)cluster->faults)
        cluster_break(cluster, "%" PRId64 " restarts for %u faults", restarts, cluster->faults);
    bool counted_on = cluster->server_lives > 1 && restarts > cluster->seen_restarts;
    if (!counted_on && (restarts < cluster->seen_restarts || restarts > cluster->seen_restarts + 1))
        cluster_break(cluster, "restarts went from %" PRId64 " to %" PRId64, cluster->seen_restarts,
                      restarts);
    cluster->seen_restarts = restarts;
}

/* Agents that could be in a world, and are in no other. */
static int count_ready(const struct cluster *cluster)
{
    int ready = 0;
    for (int i = 0; i < cluster->used; i++) {
        const struct node *node = &cluster->nodes[i];
        ready += node->phase == NODE_UP && !node->cut && node->verdict < 0 && !node->draining &&
                 instant_reached(cluster->now, node->frozen_until) && node->workers == WORKERS_NONE;
    }
    return cluster->nodes[0].phase == NODE_UP && cluster->nodes[0].verdict < 0 ? ready : 0;
}

/* An elastic world forms within the last call when enough nodes are alive and connected. */
static void check_forming(struct cluster *cluster)
{
    int ready = count_ready(cluster);
    if (ready != cluster->ready_nodes || roster_state(cluster->roster) != JOB_FORMING) {
        cluster->ready_nodes = ready;
        cluster->ready_since = cluster->now;
    }
    int64_t last_call = cluster->options.last_call_ns ? cluster->options.last_call_ns : 30 * NS_PER_S;
    int64_t since = instant_diff_ns(cluster->now, cluster->ready_since);
    if (ready >= cluster->options.min_nodes && since > last_call + 10 * NS_PER_S)
        cluster_break(cluster, "%d nodes are ready for %.3f s and form no world", ready,
                      (double)since / NS_PER_S);
}

/* A job may run, or wait for somebody to join, as long as it likes; starting and stopping have an end, which
 * is far below the time-outs that would hide a lost message: detection, the slowest stop or start, and some
 * round trips. */
static void check_progress(struct cluster *cluster)
{
    enum roster_job_state state = roster_state(cluster->roster);
    if (state != cluster->state) {
        cluster->state = state;
        cluster->state_since = cluster->now;
    }
    if (cluster_has_no_server(cluster))
        return; /* nor does the server */
    if (cluster->options.elastic)
        check_forming(cluster);
    int64_t since = instant_diff_ns(cluster->now, cluster->state_since);
    if ((state == JOB_STARTING || state == JOB_STOPPING || state == JOB_FINISHING) && since > 15 * NS_PER_S)
        cluster_break(cluster, "%s for %.3f s", roster_job_state_name(state), (double)since / NS_PER_S);
}

void cluster_check(struct cluster *cluster)
{
    check_progress(cluster);
    check_one_trains(cluster);
    if (cluster->options.elastic)
        check_leases(cluster);
    else if (!cluster->options.strangers)
        check_one_world(cluster);
    check_one_holder(cluster);
    check_restarts(cluster);
}

static struct seen_world *see_world(struct cluster *cluster, const struct membership_world *world)
{
    struct seen_world *seen = find_world(cluster, world->id);
    if (seen)
        return seen;
    seen = &cluster->worlds[cluster->worlds_seen++ % WORLDS_KEPT];
    *seen = (struct seen_world){.id = world->id, .nodes = world->group_world_size, .size = world->world_size};
    return seen;
}

/* The ranks of an elastic world, as far as its members have been told them. */
static void check_ranks(struct cluster *cluster, int node, const struct membership_world *world)
{
    struct node *self = &cluster->nodes[node];
    struct seen_world *seen = see_world(cluster, world);
    int rank = world->group_rank, nodes = world->group_world_size;
    if (nodes < cluster->options.min_nodes || nodes > cluster->options.max_nodes || rank < 0 ||
        rank >= nodes || nodes != seen->nodes || world->world_size != seen->size) {
        cluster_break(cluster, "%s got rank %d of %d nodes with %d workers", self->name, rank, nodes,
                      world->world_size);
        return;
    }
    if (seen->rank[rank].told && !roster_incarnation_same(seen->rank[rank].incarnation, self->incarnation))
        cluster_break(cluster, "%s and %s both got rank %d of round %u", self->name,
                      cluster->nodes[seen->rank[rank].node].name, rank, world->id.round);
    if (node == 0 && rank != 0)
        cluster_break(cluster, "the serving agent got rank %d", rank);
    seen->rank[rank].told = true;
    seen->rank[rank].node = node;
    seen->rank[rank].incarnation = self->incarnation;
    seen->rank[rank].base = world->rank_base;
    seen->rank[rank].size = cluster->options.local_world_size[node];
    int expected = 0;
    for (int i = 0; i < nodes && seen->rank[i].told; i++) {
        if (seen->rank[i].base != expected)
            cluster_break(cluster, "rank %d of round %u starts at %d instead of %d", i, world->id.round,
                          seen->rank[i].base, expected);
        expected += seen->rank[i].size;
        if (i == nodes - 1 && expected != world->world_size)
            cluster_break(cluster, "%d workers in a world of %d", expected, world->world_size);
    }
}

void cluster_note_done(struct cluster *cluster, int node)
{
    const struct membership_world *world = &cluster->nodes[node].world;
    struct seen_world *seen = find_world(cluster, world->id);
    if (seen)
        seen->rank[world->group_rank].done = true;
}

/* Ranks are 0..n-1, contiguous by node rank, and each node sees its part of the same world. */
static void check_static_ranks(struct cluster *cluster, int node, const struct membership_world *world)
{
    struct node *self = &cluster->nodes[node];
    int base = 0, total = 0;
    for (int i = 0; i < cluster->options.nodes; i++) {
        if (i < world->group_rank)
            base += cluster->options.local_world_size[i];
        total += cluster->options.local_world_size[i];
    }
    if (world->rank_base != base || world->world_size != total ||
        world->group_world_size != cluster->options.nodes)
        cluster_break(cluster, "%s got ranks from %d of %d instead of from %d of %d", self->name,
                      world->rank_base, world->world_size, base, total);
    if (world->id.round != (uint32_t)world->restart_count)
        cluster_break(cluster, "round %u after %" PRId64 " restarts", world->id.round, world->restart_count);
}

void cluster_check_world(struct cluster *cluster, int node, const struct membership_world *world)
{
    struct node *self = &cluster->nodes[node];
    check_ranks(cluster, node, world);
    if (!cluster->options.elastic)
        check_static_ranks(cluster, node, world);
    if (self->saw_world && world->id.round <= self->highest_round && world->id.epoch == self->world.id.epoch)
        cluster_break(cluster, "%s acts on round %u after round %u", self->name, world->id.round,
                      self->highest_round);
    if (has_workers(self))
        cluster_break(cluster, "%s got round %u while it has workers of round %u", self->name,
                      world->id.round, self->world.id.round);
    if (world->id.round < (uint32_t)world->restart_count)
        cluster_break(cluster, "round %u after %" PRId64 " restarts", world->id.round, world->restart_count);
    self->saw_world = true;
    self->highest_round = world->id.round;
}

/* One verdict for the whole job. */
void cluster_check_verdict(struct cluster *cluster, int node, int exit_code)
{
    if (cluster->verdict >= 0 && cluster->verdict != exit_code)
        cluster_break(cluster, "%s was told %d, others %d", cluster->nodes[node].name, exit_code,
                      cluster->verdict);
    cluster->verdict = exit_code;
}
