/* cluster_life.c - how an agent of a simulated cluster starts and ends: the serving agent, its JOIN, its
 * is new with each start. */
#include <stdio.h>
#include <string.h>

#include "launcher/policy/server_choice.h"
#include "proto/exit_code.h"
#include "tests/simulation/cluster_internal.h"

static const int64_t kill_bound_ns = 3 * NS_PER_S, clean_bound_ns = 5 * NS_PER_S;

static bool asker_is_there; /* whether the asker is there: server_choice's questions have no context */

static bool is_local(const char *address)
{
    return strcmp(address, "10.0.0.1") == 0 && asker_is_there;
}

static const char *address_at(const void *context, int index)
{
    (void)context;
    return index == 0 ? "10.0.0.1" : NULL;
}

/* The name that an agent has for its machine; on some machines that is the endpoint's. */
static struct server_question question_of(const struct cluster *cluster, int i)
{
    const struct node *node = &cluster->nodes[i];
    bool own_name = is_at_endpoint(cluster, i) && cluster->options.own_name;
    asker_is_there = is_at_endpoint(cluster, i);
    return (struct server_question){.endpoint = "endpoint",
                                    .is_host = -1,
                                    .host_name = own_name ? "endpoint" : node->name,
                                    .full_name = "",
                                    .is_local = is_local};
}

/* As launcher/agent/agent_server.c has it. */
static bool serves(const struct cluster *cluster, int i)
{
    const struct server_question question = question_of(cluster, i);
    if (cluster->record.epoch)
        return false; /* another agent serves, or will */
    if (!cluster->options.elastic)
        return cluster->nodes[i].claimed_rank == 0;
    return server_choose(&question) == SERVER_CHOICE_SERVE ||
           server_choose_resolved(&question, address_at, NULL);
}

struct roster_join cluster_join_of(const struct cluster *cluster, int i, bool local)
{
    static const char *const roles[CLUSTER_ROLES] = {"trainer", "evaluator", "reader"};
    const struct node *node = &cluster->nodes[i];
    return (struct roster_join){
        .protocol_version = ROSTER_PROTOCOL_VERSION,
        .job_id = node->foreign ? "another" : "job",
        .min_nodes = cluster->options.min_nodes,
        .max_nodes = cluster->options.max_nodes,
        .elastic = cluster->options.elastic,
        .agent_name = node->name,
        .node_rank = node->claimed_rank,
        .incarnation = node->incarnation,
        .local_world_size = cluster->options.local_world_size[i],
        .role = roles[cluster->options.role[i]],
        .store_addr = node->name,
        .store_port = 29500,
        .vote_port = cluster->options.votes ? 1 : 0,
        .local = local,
    };
}

void cluster_add_past(const struct node *node, struct roster_join *join)
{
    join->held = node->current;
    join->held_done = node->past.held_done;
    join->last = node->past.last;
    join->last_nodes = node->past.last_nodes;
    join->last_rank = node->past.last_rank;
    join->restart_count = node->past.restart_count;
    join->server_left = node->past.server_left;
    join->lapsed = node->past.lapsed;
    join->server_done = node->past.server_done;
    rank_ranges_copy(&join->done, &node->past.done);
    join->epoch = node->past.epoch;
}

void cluster_open_client(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    struct roster_join past = {0};
    cluster_new_connection(cluster, node);
    cluster->links[i] = (struct sim_link){cluster, i};
    cluster_add_past(node, &past);
    const struct client_options options = {
        .join = cluster_join_of(cluster, i, false),
        .join_timeout_ns = cluster->options.join_timeout_ns,
        .max_restarts = cluster->options.max_restarts,
        .server = "node0",
        .send = cluster_client_sends,
        .context = &cluster->links[i],
        .past = past.epoch ? &past : NULL,
        .stops = node->stops,
        .sequence = node->sequence,
        .numbers = node->numbers,
        .reports = &node->reports,
    };
    node->client = cluster_need(client_create(&options, node_time(cluster, node), NULL));
    node->server_life = cluster->server_lives;
    client_set_voted(node->client, past.epoch && cluster_has_successor(cluster));
    cluster_turn(cluster, i);
}

/* All that an agent knows begins anew; its machine, and its server's memory for the tests, stay. */
static void renew(struct cluster *cluster, int i, int rank, int named_after)
{
    const struct cluster_options *options = &cluster->options;
    struct node *node = &cluster->nodes[i];
    node->phase = NODE_UP;
    node->life++;
    node->start_number = ++cluster->starts;
    node->claimed_rank = rank;
    node->named_after = named_after;
    (void)snprintf(node->name, sizeof node->name, "node%d", named_after);
    node->incarnation = (struct agent_incarnation){cluster_luck(cluster, (uint64_t)i, node->life, 1),
                                                   cluster_luck(cluster, (uint64_t)i, node->life, 2)};
    node->group = (struct worker_group){.shutdown_grace_ns = options->grace_ns,
                                        .restart_grace_ns = options->grace_ns,
                                        .kill_bound_ns = kill_bound_ns,
                                        .clean_bound_ns = clean_bound_ns,
                                        .deadline = INSTANT_NEVER,
                                        .drains = options->elastic,
                                        .ends_together = !options->elastic && options->max_nodes > 1};
    node->group_at = node->turn_at = node->cut_at = INSTANT_NEVER;
    node->hurried = node->terminated = node->judged = node->membership_left = node->membership_over = false;
    node->cut[TO_SERVER] = node->cut[TO_AGENT] = node->slept = node->stuck = node->saw_world = node->parted =
        false;
    node->exited_at = (struct instant){0};
    node->current = node->last_world = (struct world_id){0};
    node->world = (struct membership_world){0};
    node->sequence = node->numbers = 0;
    node->past = (struct roster_join){0};
    node->stops = node->gone = false;
    node->registration++;
    node->stood_until = node->frozen_until = node->not_before[TO_SERVER] = node->not_before[TO_AGENT] =
        (struct instant){0};
    cluster_set_workers(cluster, node, WORKERS_NONE);
}

void cluster_start_agent(struct cluster *cluster, int i, int rank, int named_after)
{
    struct node *node = &cluster->nodes[i];
    cluster->used = i < cluster->used ? cluster->used : i + 1;
    bool taken = cluster_server(cluster) != NULL; /* the port */
    renew(cluster, i, rank, named_after);
    if (rank >= 0)
        cluster_say(cluster, node, "joins as node rank %d", rank);
    else
        cluster_say(cluster, node, "joins");
    struct roster_join join = cluster_join_of(cluster, i, serves(cluster, i));
    taken &= join.local && is_at_endpoint(cluster, i);
    if (join.local && !taken) {
        cluster_open_server(cluster, i, &join);
        return;
    }
    if (taken || cluster->options.votes) {
        cluster_free_server(node->server); /* a former life's */
        node->server = NULL;
    }
    if (taken && !server_choice_joins_holder(join.elastic, false, true)) {
        cluster_say(cluster, node, "finds its port taken");
        node->membership_over = true;
        cluster_agent_event(cluster, i,
                            &(struct worker_group_event){.kind = GROUP_LOST, .exit_code = EXIT_CODE_FAILURE},
                            NULL);
        return;
    }
    cluster_open_client(cluster, i);
}

/* -- the end
 * ----------------------------------------------------------------------------------------------------- */

void cluster_end_agent(struct cluster *cluster, int i, int exit_code)
{
    struct node *node = &cluster->nodes[i];
    node->phase = NODE_EXITED;
    node->ended_at = cluster->now;
    node->exit_code = exit_code;
    node->life++;
    cluster_set_workers(cluster, node, WORKERS_NONE);
    client_destroy(node->client);
    node->client = NULL;
    report_queue_forget(&node->reports, UINT64_MAX);
}

void cluster_exit_agent(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    int code = node->group.exit_code;
    struct server *server = node->server;
    /* Processes that it could not kill stay, but belong to no agent. */
    if (server && !server->closing && roster_has_remote(server->roster) &&
        (roster_state(server->roster) >= JOB_DEPARTED || roster_holds_server(server->roster))) {
        cluster_close_server(cluster, i);
        return;
    }
    if (node->client)
        client_finish(node->client);
    cluster_say(cluster, node, "exits %d", code);
    node->exited_at = cluster->now;
    if (server)
        for (int other = 0; i == cluster->endpoint && other < cluster->used; other++)
            cluster_break_seen(cluster, other);
    if (server && i == cluster->endpoint && cluster_has_successor(cluster))
        cluster_lose_server(cluster, true);
    cluster_end_agent(cluster, i, code);
    bool again = code == EXIT_CODE_NODE || code == EXIT_CODE_TERMINATED; /* as its controller does */
    if (cluster->calm && again && !node->stuck && !node->replaced && !node->foreign &&
        !cluster_is_over(cluster))
        cluster_schedule(cluster, &(struct happening){.at = instant_add(cluster->now, NS_PER_S),
                                                      .kind = HAPPEN_STEP,
                                                      .step = STEP_START,
                                                      .node = i,
                                                      .value = node->claimed_rank});
}
