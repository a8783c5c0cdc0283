/* cluster_script.c - the outside of a simulated cluster: its making, what a test asks to happen, what it
 * reads. See cluster.h. */
#include <stdio.h>
#include <stdlib.h>

#include "proto/base/mem.h"
#include "tests/simulation/cluster_internal.h"

static void at(struct cluster *cluster, int64_t at_ms, int node, enum happening_kind kind)
{
    cluster_schedule(cluster, (struct happening){.at = {at_ms * NS_PER_MS},
                                                 .kind = kind,
                                                 .node = node,
                                                 .rank = cluster->options.elastic ? -1 : node});
}

void cluster_start(struct cluster *cluster, int64_t at_ms, int node)
{
    at(cluster, at_ms, node, HAPPEN_START);
}

void cluster_claim(struct cluster *cluster, int64_t at_ms, int node, int rank)
{
    cluster_schedule(
        cluster,
        (struct happening){.at = {at_ms * NS_PER_MS}, .kind = HAPPEN_START, .node = node, .rank = rank});
}

void cluster_crash(struct cluster *cluster, int64_t at_ms, int node)
{
    at(cluster, at_ms, node, HAPPEN_CRASH);
}

void cluster_cut(struct cluster *cluster, int64_t at_ms, int node)
{
    at(cluster, at_ms, node, HAPPEN_CUT);
}

void cluster_heal(struct cluster *cluster, int64_t at_ms, int node)
{
    at(cluster, at_ms, node, HAPPEN_HEAL);
}

void cluster_follow(struct cluster *cluster, int64_t at_ms, int node)
{
    at(cluster, at_ms, node, HAPPEN_FOLLOW);
}

void cluster_reset(struct cluster *cluster, int64_t at_ms, int node)
{
    at(cluster, at_ms, node, HAPPEN_BREAK);
}

void cluster_freeze(struct cluster *cluster, int64_t at_ms, int node, int64_t for_ms)
{
    cluster_schedule(cluster, (struct happening){.at = {at_ms * NS_PER_MS},
                                                 .kind = HAPPEN_FREEZE,
                                                 .node = node,
                                                 .value = for_ms * NS_PER_MS});
}

void cluster_kill(struct cluster *cluster, int64_t at_ms, int node)
{
    at(cluster, at_ms, node, HAPPEN_KILL);
}

void cluster_finish(struct cluster *cluster, int64_t at_ms, int node)
{
    at(cluster, at_ms, node, HAPPEN_FINISH);
}

void cluster_term(struct cluster *cluster, int64_t at_ms, int node)
{
    at(cluster, at_ms, node, HAPPEN_TERM);
}

void cluster_calm(struct cluster *cluster, int64_t at_ms, int64_t run_ms)
{
    cluster_schedule(
        cluster,
        (struct happening){.at = {at_ms * NS_PER_MS}, .kind = HAPPEN_CALM, .value = run_ms * NS_PER_MS});
}

static void fill_defaults(struct cluster_options *options)
{
    if (!options->join_timeout_ns)
        options->join_timeout_ns = 60 * NS_PER_S;
    if (!options->elastic)
        options->min_nodes = options->max_nodes = options->nodes;
    if (options->elastic && !options->nodes)
        options->nodes = CLUSTER_NODE_LIMIT;
    if (!options->delay_max_ns)
        options->delay_min_ns = options->delay_max_ns = NS_PER_MS;
    if (!options->start_ns)
        options->start_ns = 100 * NS_PER_MS;
    if (!options->stop_ns)
        options->stop_ns = 100 * NS_PER_MS;
    for (int i = 0; i < CLUSTER_NODE_LIMIT; i++)
        if (!options->local_world_size[i])
            options->local_world_size[i] = 1;
}

void cluster_make_roster(struct cluster *cluster)
{
    struct roster_options roster = {
        .job_id = "job",
        .min_nodes = cluster->options.min_nodes,
        .max_nodes = cluster->options.max_nodes,
        .elastic = cluster->options.elastic,
        .last_call_ns = cluster->options.last_call_ns,
        .regroup_ns = cluster->options.regroup_ns,
        .max_restarts = cluster->options.max_restarts,
        .epoch = cluster_draw(cluster) | 1,
        .join_timeout_ns = cluster->options.join_timeout_ns,
    };
    roster_destroy(cluster->roster);
    cluster->roster = cluster_need(roster_create(&roster, cluster->now, NULL));
    cluster->tick_at = INSTANT_NEVER;
    cluster->seen_restarts = 0;
    cluster->verdict = -1;
    cluster->server_lives++;
}

struct cluster *cluster_create(const struct cluster_options *options)
{
    struct cluster *cluster = cluster_need(mem_calloc(1, sizeof *cluster));
    cluster->options = *options;
    fill_defaults(&cluster->options);
    cluster->random = options->seed;
    cluster->last_session = LOCAL_SESSION;
    cluster->tick_at = INSTANT_NEVER;
    cluster->verdict = -1;
    cluster_make_roster(cluster);
    if (roster_actions_init(&cluster->actions, roster_slot_count(cluster->roster), NULL))
        abort();
    for (int i = 0; i < CLUSTER_NODE_LIMIT; i++) {
        struct node *node = &cluster->nodes[i];
        (void)snprintf(node->name, sizeof node->name, "node%d", i);
        node->claimed_rank = options->elastic ? -1 : i;
        node->verdict = node->exit_code = -1;
    }
    return cluster;
}

void cluster_destroy(struct cluster *cluster)
{
    if (!cluster)
        return;
    for (size_t i = 0; i < cluster->count; i++)
        mem_free(cluster->heap[i].message);
    for (int i = 0; i < CLUSTER_NODE_LIMIT; i++)
        client_destroy(cluster->nodes[i].client);
    mem_free(cluster->heap);
    buffer_free(&cluster->trace);
    roster_actions_free(&cluster->actions);
    roster_destroy(cluster->roster);
    mem_free(cluster);
}

const char *cluster_trace(const struct cluster *cluster)
{
    return cluster->trace.data ? cluster->trace.data : "";
}

const char *cluster_broken(const struct cluster *cluster)
{
    return cluster->broken[0] ? cluster->broken : NULL;
}

int cluster_exit_code(const struct cluster *cluster, int node)
{
    return cluster->nodes[node].phase == NODE_EXITED ? cluster->nodes[node].exit_code : -1;
}

const struct roster *cluster_roster(const struct cluster *cluster)
{
    return cluster->roster;
}
