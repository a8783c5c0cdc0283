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

static bool has_workers(const struct node *node)
{
    return node->workers != WORKERS_NONE && node->workers != WORKERS_DONE;
}

/* At most one world trains. */
static void check_one_world(struct cluster *cluster)
{
    const struct node *first = NULL;
    for (int i = 0; i < CLUSTER_NODE_LIMIT; i++) {
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
    for (int a = 0; a < CLUSTER_NODE_LIMIT; a++)
        for (int b = a + 1; b < CLUSTER_NODE_LIMIT; b++) {
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
    if (restarts > cluster->options.max_restarts)
        cluster_break(cluster, "%" PRId64 " restarts of %" PRId64, restarts, cluster->options.max_restarts);
    if (restarts > (int64_t)cluster->faults)
        cluster_break(cluster, "%" PRId64 " restarts for %u faults", restarts, cluster->faults);
    if (restarts < cluster->seen_restarts || restarts > cluster->seen_restarts + 1)
        cluster_break(cluster, "restarts went from %" PRId64 " to %" PRId64, cluster->seen_restarts,
                      restarts);
    cluster->seen_restarts = restarts;
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
    int64_t since = instant_diff_ns(cluster->now, cluster->state_since);
    if ((state == JOB_STARTING || state == JOB_STOPPING || state == JOB_FINISHING) && since > 15 * NS_PER_S)
        cluster_break(cluster, "%s for %.3f s", roster_job_state_name(state), (double)since / NS_PER_S);
}

void cluster_check(struct cluster *cluster)
{
    check_progress(cluster);
    check_one_world(cluster);
    check_one_holder(cluster);
    check_restarts(cluster);
}

/* Ranks are 0..n-1, contiguous by node rank, and each node sees its part of the same world. */
void cluster_check_world(struct cluster *cluster, int node, const struct membership_world *world)
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
    if (self->saw_world && world->id.round <= self->highest_round)
        cluster_break(cluster, "%s acts on round %u after round %u", self->name, world->id.round,
                      self->highest_round);
    if (has_workers(self))
        cluster_break(cluster, "%s got round %u while it has workers of round %u", self->name,
                      world->id.round, self->world.id.round);
    if (world->id.round != (uint32_t)world->restart_count)
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
