/* cluster_agent.c - one agent of a simulated cluster: its table (launcher/group.c), its seat, as
 * rendezvous/membership.c keeps it, and its workers. Stands for launcher/agent*.c. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "launcher/server_choice.h"
#include "proto/exit_code.h"
#include "tests/simulation/cluster_internal.h"

enum { EXIT_MS = 5, KILLED_MS = 10 };

static const int64_t kill_bound_ns = 3 * NS_PER_S, clean_bound_ns = 5 * NS_PER_S;

/* -- the seat
 * ------------------------------------------------------------------------------------------------------ */

static void tell_server(struct cluster *cluster, int i, struct roster_event *event)
{
    struct server *server = cluster->nodes[i].server;
    if (server && !server->closing)
        cluster_local_step(cluster, i, event);
}

static void report(struct cluster *cluster, int i, enum membership_report_kind kind,
                   const struct worker_failure *failure)
{
    struct node *node = &cluster->nodes[i];
    struct world_id id = node->world.id;
    if (node->seat_over || node->seat_left || !id.epoch || !world_id_equal(id, node->current))
        return;
    if (kind == MEMBERSHIP_REPORT_STOPPED)
        node->current = (struct world_id){0};
    if (node->client) {
        struct muster_error err;
        if (client_report(node->client, id, kind, failure, node_time(cluster, node), &err))
            cluster_break(cluster, INVARIANT_PROTOCOL, "%s: %s", node->name, err.text);
        cluster_plan_turn(cluster, i);
        return;
    }
    struct roster_event event = {.kind = ROSTER_REPORT};
    event.report.id = id;
    event.report.kind = kind;
    event.report.sequence = ++node->sequence;
    event.report.failure = failure;
    tell_server(cluster, i, &event);
}

static void leave(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    if (node->seat_left)
        return;
    node->seat_left = true;
    if (node->client) {
        client_leave(node->client, node->group.exit_code);
        return;
    }
    struct roster_event event = {.kind = ROSTER_LEAVE, .exit_code = node->group.exit_code};
    tell_server(cluster, i, &event);
}

static void drain(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    if (node->seat_left || node->seat_over)
        return;
    if (node->client) {
        client_drain(node->client, node->group.exit_code, node->group.shutdown_grace_ns);
        return;
    }
    struct roster_event event = {
        .kind = ROSTER_DRAIN, .exit_code = node->group.exit_code, .grace_ns = node->group.shutdown_grace_ns};
    tell_server(cluster, i, &event);
}

/* -- the workers
 * --------------------------------------------------------------------------------------------------- */

static void set_workers(struct cluster *cluster, struct node *node, enum worker_phase phase)
{
    node->workers = phase;
    node->batch++;
    cluster->changed = true;
}

static void start_workers(struct cluster *cluster, int i)
{
    set_workers(cluster, &cluster->nodes[i], WORKERS_STARTING);
    cluster->nodes[i].failed = 0;
    cluster->nodes[i].saving = false;
    cluster_after(cluster, cluster->options.start_ns, i, HAPPEN_STARTED);
}

static void end_workers(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    if (node->workers != WORKERS_STARTING && node->workers != WORKERS_RUNNING)
        return;
    bool none = node->workers == WORKERS_STARTING;
    set_workers(cluster, node, WORKERS_ENDING);
    if (!node->stuck)
        cluster_after(cluster, none ? 0 : cluster->options.stop_ns, i, HAPPEN_ENDED);
}

/* They save, and end by themselves; until then they work. */
static void let_workers_save(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    if (node->saving || (node->workers != WORKERS_STARTING && node->workers != WORKERS_RUNNING))
        return;
    node->saving = true;
    uint64_t luck = cluster_luck(cluster, (uint64_t)i, node->batch, 6);
    cluster_after(cluster, (int64_t)(luck % (uint64_t)(2 * cluster->options.grace_ns)), i, HAPPEN_ENDED);
}

static void kill_workers(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    if (has_workers(node) && !node->stuck)
        cluster_after(cluster, KILLED_MS * NS_PER_MS, i, HAPPEN_ENDED);
}

void cluster_workers_started(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    if (node->workers != WORKERS_STARTING)
        return;
    node->workers = WORKERS_RUNNING;
    report(cluster, i, MEMBERSHIP_REPORT_RUNNING, NULL);
    if (cluster->calm)
        cluster_schedule(cluster, &(struct happening){.at = instant_add(cluster->now, cluster->calm_run_ns),
                                                      .kind = HAPPEN_STEP,
                                                      .step = STEP_FINISH,
                                                      .node = i,
                                                      .batch = node->batch});
}

static void look_for_the_end(struct cluster *cluster, int i)
{
    const struct node *node = &cluster->nodes[i];
    if (group_wants_empty(&node->group) && !has_workers(node))
        cluster_agent_event(cluster, i, &(struct group_event){.kind = GROUP_EMPTY}, NULL);
}

void cluster_workers_ended(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    set_workers(cluster, node, WORKERS_NONE);
    if (node->group.state == GROUP_SAVING)
        cluster_agent_event(cluster, i, &(struct group_event){.kind = GROUP_SUCCESS}, NULL);
    look_for_the_end(cluster, i);
}

void cluster_fail_worker(struct cluster *cluster, int i, bool follows)
{
    struct node *node = &cluster->nodes[i];
    enum group_state state = node->group.state;
    bool told = node->workers == WORKERS_ENDING && state == GROUP_STOPPING;
    bool runs = node->workers == WORKERS_RUNNING &&
                (state == GROUP_RUNNING || state == GROUP_DRAINING || state == GROUP_SAVING);
    int local = node->failed;
    if ((!runs && !told) || local == cluster->options.local_world_size[i])
        return;
    node->failed++;
    struct worker_failure failure = {.rank = node->world.rank_base + local,
                                     .local_rank = local,
                                     .pid = 1000 * (local + 1) + i,
                                     .exit_code = follows ? 1 : -1,
                                     .signal = follows ? 0 : SIGKILL,
                                     .told = told,
                                     .step = -1};
    if (follows)
        (void)snprintf(failure.tail, sizeof failure.tail, "Connection closed by peer");
    (void)snprintf(failure.host, sizeof failure.host, "%s", node->name);
    cluster_say(cluster, node, follows ? "a worker loses its peer" : "a worker is killed");
    cluster->faults++;
    cluster->round_exits++;
    cluster_agent_event(cluster, i, &(struct group_event){.kind = GROUP_FAILURE}, &failure);
}

void cluster_finish_workers(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    enum group_state state = node->group.state;
    if (node->workers != WORKERS_RUNNING || (state != GROUP_RUNNING && state != GROUP_DRAINING))
        return;
    cluster_say(cluster, node, "is done");
    set_workers(cluster, node, WORKERS_DONE);
    cluster_note_done(cluster, i);
    cluster_agent_event(cluster, i, &(struct group_event){.kind = GROUP_SUCCESS}, NULL);
}

/* -- the table
 * ---------------------------------------------------------------------------------------------------- */

static void execute(struct cluster *cluster, int i, enum group_action action,
                    const struct worker_failure *failure)
{
    struct node *node = &cluster->nodes[i];
    switch (action) {
    case GROUP_REPORT_FAILED:
        report(cluster, i, MEMBERSHIP_REPORT_FAILED, failure);
        break;
    case GROUP_REPORT_DONE:
        report(cluster, i, MEMBERSHIP_REPORT_DONE, NULL);
        break;
    case GROUP_DRAIN:
        drain(cluster, i);
        break;
    case GROUP_LEAVE:
        leave(cluster, i);
        break;
    case GROUP_ANNOUNCE:
        let_workers_save(cluster, i);
        break;
    case GROUP_TERMINATE:
        end_workers(cluster, i);
        break;
    case GROUP_KILL:
        kill_workers(cluster, i);
        break;
    case GROUP_NAME_STUCK:
        cluster_say(cluster, node, "cannot kill its workers");
        break;
    case GROUP_CLEAN:
        cluster_agent_event(cluster, i, &(struct group_event){.kind = GROUP_CLEANED}, NULL);
        break;
    case GROUP_REPORT_STOPPED:
        report(cluster, i, MEMBERSHIP_REPORT_STOPPED, NULL);
        break;
    case GROUP_START:
        start_workers(cluster, i);
        break;
    case GROUP_EXIT:
        cluster_after(cluster, EXIT_MS * NS_PER_MS, i, HAPPEN_EXIT);
        break;
    default: /* GROUP_REMIND */
        break;
    }
}

static void plan_deadline(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    struct instant due = real_time(cluster, node, node->group.deadline);
    if (due.ns == node->group_at.ns)
        return;
    node->group_at = due;
    if (due.ns != INT64_MAX)
        cluster_at(cluster, due, i, HAPPEN_DEADLINE);
}

void cluster_deadline(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    node->group_at = INSTANT_NEVER;
    if (instant_reached(node_time(cluster, node), node->group.deadline))
        cluster_agent_event(cluster, i, &(struct group_event){.kind = GROUP_DEADLINE}, NULL);
    else
        plan_deadline(cluster, i);
}

void cluster_agent_event(struct cluster *cluster, int i, const struct group_event *event,
                         const struct worker_failure *failure)
{
    struct node *node = &cluster->nodes[i];
    struct muster_error err;
    unsigned actions;
    node->group.listens = cluster->options.listens[i] && node->workers == WORKERS_RUNNING;
    if (group_step(&node->group, event, node_time(cluster, node), &actions, &err)) {
        cluster_break(cluster, INVARIANT_PROTOCOL, "%s: %s", node->name, err.text);
        return;
    }
    cluster->changed = true;
    plan_deadline(cluster, i);
    unsigned life = node->life;
    for (int action = 0; action < GROUP_ACTION_COUNT && node->life == life; action++)
        if (actions & 1u << action)
            execute(cluster, i, (enum group_action)action, failure);
    if (node->life == life)
        look_for_the_end(cluster, i);
}

static void take_stop(struct cluster *cluster, int i, const struct membership_event *event)
{
    struct node *node = &cluster->nodes[i];
    cluster_say(cluster, node, "stops round %u: %s", event->stopped.round, event->reason);
    if (!world_id_equal(event->stopped, node->world.id))
        cluster_break(cluster, INVARIANT_OLD_WORLD, "%s is told to stop round %u, but has round %u",
                      node->name, event->stopped.round, node->world.id.round);
    node->current = event->stopped;
    struct group_event stop = {.kind = GROUP_STOP, .grace_ns = event->grace_ns, .planned = event->planned};
    cluster_agent_event(cluster, i, &stop, NULL);
}

void cluster_take_event(struct cluster *cluster, int i, const struct membership_event *event)
{
    struct node *node = &cluster->nodes[i];
    if (node->group.state == GROUP_OVER || node->seat_over)
        return;
    switch (event->kind) {
    case MEMBERSHIP_EVENT_WORLD:
        cluster_say(cluster, node, "starts workers %d-%d of %d, round %u", event->world.rank_base,
                    event->world.rank_base + cluster->options.local_world_size[i] - 1,
                    event->world.world_size, event->world.id.round);
        cluster_check_world(cluster, i, &event->world);
        node->world = event->world;
        node->current = event->world.id;
        cluster_agent_event(cluster, i, &(struct group_event){.kind = GROUP_WORLD}, NULL);
        break;
    case MEMBERSHIP_EVENT_STOP:
        take_stop(cluster, i, event);
        break;
    case MEMBERSHIP_EVENT_VERDICT:
        cluster_say(cluster, node, "verdict %d: %s", event->exit_code, event->reason);
        cluster_check_verdict(cluster, i, event);
        node->seat_over = node->judged = true;
        node->verdict = event->exit_code;
        cluster_agent_event(
            cluster, i, &(struct group_event){.kind = GROUP_VERDICT, .exit_code = event->exit_code}, NULL);
        break;
    case MEMBERSHIP_EVENT_REFUSED:
        cluster_say(cluster, node, "refused: %s", event->reason);
        node->seat_over = true;
        cluster_agent_event(cluster, i,
                            &(struct group_event){.kind = GROUP_LOST, .exit_code = EXIT_CODE_FAILURE}, NULL);
        break;
    }
}

/* -- the loop
 * ------------------------------------------------------------------------------------------------------ */

void cluster_plan_turn(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    if (!node->client || is_frozen(cluster, node))
        return;
    struct instant due = real_time(cluster, node, client_deadline(node->client));
    if (due.ns == node->turn_at.ns)
        return;
    node->turn_at = due;
    if (due.ns != INT64_MAX)
        cluster_at(cluster, due, i, HAPPEN_TURN);
}

static void take_events(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    static struct membership_event event;
    while (node->client && client_take_event(node->client, &event))
        cluster_take_event(cluster, i, &event);
}

/* A connection on which nothing comes is made anew, as the carrier does. */
static void renew_connection(struct cluster *cluster, int i, struct instant now)
{
    static const int64_t shortest_ns = 5 * NS_PER_S, longest_ns = 60 * NS_PER_S;
    struct node *node = &cluster->nodes[i];
    struct instant heard = client_heard(node->client);
    if (heard.ns != node->heard_at.ns)
        node->patience_ns = shortest_ns;
    node->heard_at = heard;
    if (instant_diff_ns(now, heard) < node->patience_ns)
        return;
    node->patience_ns = 2 * node->patience_ns < longest_ns ? 2 * node->patience_ns : longest_ns;
    cluster_break_connection(cluster, i);
    if (!cluster_server(cluster) || node->cut[TO_SERVER]) /* a process that stands still takes connections */
        client_broken(node->client, now);
}

void cluster_turn(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    struct muster_error err;
    node->turn_at = INSTANT_NEVER;
    if (!node->client || is_frozen(cluster, node))
        return;
    struct instant now = node_time(cluster, node);
    client_wake(node->client, now);
    renew_connection(cluster, i, now);
    take_events(cluster, i);
    if (client_turn(node->client, now, &err) == 0) {
        take_events(cluster, i);
        cluster_plan_turn(cluster, i);
        return;
    }
    cluster_say(cluster, node, "lost its seat: %s", err.text);
    /* Nobody serves, and it was given up; or its loss is one restart too many. */
    bool none_left = node->saw_world && node->world.restart_count >= cluster->options.max_restarts;
    cluster->may_fail |= !cluster_server(cluster) || none_left;
    client_destroy(node->client);
    node->client = NULL;
    node->seat_over = true;
    cluster_agent_event(cluster, i, &(struct group_event){.kind = GROUP_LOST, .exit_code = EXIT_CODE_NODE},
                        NULL);
}

/* -- from start to end
 * -------------------------------------------------------------------------------------------- */

static const char *asking; /* the name of the node that asks: server_choice's questions have no context */

static bool is_numeric(const char *text)
{
    (void)text;
    return false;
}

static bool is_local(const char *address)
{
    return strcmp(address, "10.0.0.1") == 0 && strcmp(asking, "node0") == 0;
}

static const char *address_at(const void *context, int index)
{
    (void)context;
    return index == 0 ? "10.0.0.1" : NULL;
}

/* As launcher/agent_serve.c has it. */
static bool serves(const struct cluster *cluster, const struct node *node)
{
    const struct server_question question = {.endpoint = "endpoint",
                                             .is_host = -1,
                                             .host_name = node->name,
                                             .full_name = "",
                                             .is_numeric = is_numeric,
                                             .is_local = is_local};
    if (!cluster->options.elastic)
        return node->claimed_rank == 0;
    asking = node->name;
    return server_choose(&question) == SERVER_CHOICE_SERVE ||
           server_choose_resolved(&question, address_at, NULL);
}

static struct roster_join join_of(const struct cluster *cluster, int i, bool local)
{
    static const char *const roles[CLUSTER_ROLES] = {"trainer", "evaluator", "reader"};
    const struct node *node = &cluster->nodes[i];
    return (struct roster_join){
        .protocol_version = ROSTER_PROTOCOL_VERSION,
        .job_id = "job",
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
        .local = local,
    };
}

/* All that an agent knows begins anew; its machine, and its server's memory for the tests, stay. */
static void renew(struct cluster *cluster, int i, int rank, int named_after)
{
    const struct cluster_options *options = &cluster->options;
    struct node *node = &cluster->nodes[i];
    node->phase = NODE_UP;
    node->life++;
    node->claimed_rank = rank;
    node->named_after = named_after;
    (void)snprintf(node->name, sizeof node->name, "node%d", named_after);
    node->incarnation = (struct roster_incarnation){cluster_luck(cluster, (uint64_t)i, node->life, 1),
                                                    cluster_luck(cluster, (uint64_t)i, node->life, 2)};
    node->group = (struct group){.shutdown_grace_ns = options->grace_ns,
                                 .restart_grace_ns = options->grace_ns,
                                 .kill_bound_ns = kill_bound_ns,
                                 .clean_bound_ns = clean_bound_ns,
                                 .deadline = INSTANT_NEVER,
                                 .drains = options->elastic,
                                 .ends_together = !options->elastic && options->max_nodes > 1};
    node->group_at = node->turn_at = node->cut_at = INSTANT_NEVER;
    node->terminated = node->judged = node->seat_left = node->seat_over = false;
    node->cut[TO_SERVER] = node->cut[TO_AGENT] = node->slept = node->stuck = node->saw_world = false;
    node->exited_at = (struct instant){0};
    node->current = node->last_world = (struct world_id){0};
    node->world = (struct membership_world){0};
    node->sequence = 0;
    node->registration++;
    node->stood_until = node->frozen_until = node->not_before[TO_SERVER] = node->not_before[TO_AGENT] =
        (struct instant){0};
    set_workers(cluster, node, WORKERS_NONE);
}

void cluster_start_agent(struct cluster *cluster, int i, int rank, int named_after)
{
    struct node *node = &cluster->nodes[i];
    cluster->used = i < cluster->used ? cluster->used : i + 1;
    renew(cluster, i, rank, named_after);
    if (rank >= 0)
        cluster_say(cluster, node, "joins as node rank %d", rank);
    else
        cluster_say(cluster, node, "joins");
    struct roster_join join = join_of(cluster, i, serves(cluster, node));
    if (join.local) {
        cluster_open_server(cluster, i, &join);
        return;
    }
    cluster_new_connection(cluster, node);
    cluster->links[i] = (struct sim_link){cluster, i};
    struct client_options options = {
        .join = join,
        .join_timeout_ns = cluster->options.join_timeout_ns,
        .max_restarts = cluster->options.max_restarts,
        .server = "node0",
        .send = cluster_client_sends,
        .context = &cluster->links[i],
    };
    node->client = cluster_need(client_create(&options, node_time(cluster, node), NULL));
    cluster_turn(cluster, i);
}

void cluster_end_agent(struct cluster *cluster, int i, int exit_code)
{
    struct node *node = &cluster->nodes[i];
    node->phase = NODE_EXITED;
    node->exit_code = exit_code;
    node->life++;
    set_workers(cluster, node, WORKERS_NONE);
    client_destroy(node->client);
    node->client = NULL;
}

void cluster_exit_agent(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    int code = node->group.exit_code;
    struct server *server = node->server;
    /* Those that it could not kill stay, but they belong to nobody. */
    if (server && !server->closing && roster_state(server->roster) >= JOB_FINISHING &&
        roster_has_remote(server->roster)) {
        server->closing = true;
        cluster_after(cluster, 2 * NS_PER_S, i, HAPPEN_CLOSE);
        return;
    }
    if (node->client)
        client_finish(node->client);
    cluster_say(cluster, node, "exits %d", code);
    node->exited_at = cluster->now;
    if (server)
        for (int other = 1; i == ENDPOINT && other < cluster->used; other++)
            cluster_break_seen(cluster, other);
    cluster_end_agent(cluster, i, code);
    bool again = code == EXIT_CODE_NODE || code == EXIT_CODE_TERMINATED; /* what its controller does */
    if (cluster->calm && again && !node->stuck && !node->replaced && !cluster_is_over(cluster))
        cluster_schedule(cluster, &(struct happening){.at = instant_add(cluster->now, NS_PER_S),
                                                      .kind = HAPPEN_STEP,
                                                      .step = STEP_START,
                                                      .node = i,
                                                      .value = node->claimed_rank});
}
