/* cluster_agent.c - one agent of a simulated cluster: its table (launcher/policy/worker_group.c), its
 * membership, as rendezvous/membership.c keeps it, and its loop. Stands for launcher/agent*.c. */
#include "proto/exit_code.h"
#include "tests/simulation/cluster_internal.h"

enum { EXIT_MS = 5 };

/* -- the membership
 * ------------------------------------------------------------------------------------------------------ */

static void tell_server(struct cluster *cluster, int i, struct roster_event *event)
{
    struct server *server = cluster->nodes[i].server;
    if (server && !server->closing)
        cluster_local_step(cluster, i, event);
}

void cluster_report(struct cluster *cluster, int i, enum membership_report_kind kind,
                    const struct worker_failure *failure)
{
    struct node *node = &cluster->nodes[i];
    struct world_id id = node->world.id;
    if (node->membership_over || node->membership_left || !id.epoch || !world_id_equal(id, node->current))
        return;
    if (kind == MEMBERSHIP_REPORT_STOPPED)
        node->current = (struct world_id){0};
    node->past.held_done |= kind == MEMBERSHIP_REPORT_DONE;
    if (node->client) {
        struct muster_error err;
        if (client_report(node->client, id, kind, failure, node_time(cluster, node), &err))
            cluster_break(cluster, INVARIANT_PROTOCOL, "%s: %s", node->name, err.text);
        cluster_plan_turn(cluster, i);
        return;
    }
    const bool serves = node->server && i == cluster->endpoint;
    if (cluster->options.votes && !serves) {
        cluster_need((void *)report_queue_push(&node->reports, id, kind, failure, ++node->sequence,
                                               node_time(cluster, node)));
        return;
    }
    struct roster_event event = {.kind = ROSTER_REPORT};
    event.report.id = id;
    event.report.kind = kind;
    event.report.sequence = ++node->sequence;
    event.report.failure = failure;
    tell_server(cluster, i, &event);
}

void cluster_report_again(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    struct worker_failure failure;
    struct roster_event event = {.kind = ROSTER_REPORT};
    for (const struct pending_report *report = node->reports.first; report; report = report->next) {
        if (!report_queue_failure(report, node_time(cluster, node), &failure))
            continue;
        event.report.id = report->id;
        event.report.kind = report->kind;
        event.report.sequence = report->sequence;
        event.report.failure = &failure;
        tell_server(cluster, i, &event);
    }
    report_queue_forget(&node->reports, UINT64_MAX);
}

void cluster_miss_peer(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    if (node->workers != WORKERS_RUNNING || node->membership_over || node->membership_left)
        return;
    cluster_say(cluster, node, "a worker misses its peer");
    cluster->faults++; /* where a node is done */
    cluster->misses++;
    if (node->client) {
        client_miss(node->client, node->world.rank_base, node_time(cluster, node));
        cluster_plan_turn(cluster, i);
        return;
    }
    struct roster_event event = {.kind = ROSTER_BEAT, .missing = 1 + node->world.rank_base};
    tell_server(cluster, i, &event);
}

static void leave(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    if (node->membership_left)
        return;
    node->membership_left = true;
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
    if (node->membership_left || node->membership_over)
        return;
    if (node->client) {
        client_drain(node->client, node->group.exit_code, node->group.shutdown_grace_ns);
        return;
    }
    struct roster_event event = {
        .kind = ROSTER_DRAIN, .exit_code = node->group.exit_code, .grace_ns = node->group.shutdown_grace_ns};
    tell_server(cluster, i, &event);
}

/* -- the table
 * ---------------------------------------------------------------------------------------------------- */

void cluster_look_for_the_end(struct cluster *cluster, int i)
{
    const struct node *node = &cluster->nodes[i];
    if (worker_group_wants_empty(&node->group) && !has_workers(node))
        cluster_agent_event(cluster, i, &(struct worker_group_event){.kind = GROUP_EMPTY}, NULL);
}

static void execute(struct cluster *cluster, int i, enum worker_group_action action,
                    const struct worker_failure *failure)
{
    struct node *node = &cluster->nodes[i];
    switch (action) {
    case GROUP_REPORT_FAILED:
        cluster_report(cluster, i, MEMBERSHIP_REPORT_FAILED, failure);
        break;
    case GROUP_REPORT_DONE:
        cluster_report(cluster, i, MEMBERSHIP_REPORT_DONE, NULL);
        break;
    case GROUP_DRAIN:
        drain(cluster, i);
        break;
    case GROUP_LEAVE:
        leave(cluster, i);
        break;
    case GROUP_ANNOUNCE:
        cluster_let_workers_save(cluster, i);
        break;
    case GROUP_TERMINATE:
        cluster_stop_workers(cluster, i);
        break;
    case GROUP_KILL:
        cluster_kill_workers(cluster, i);
        break;
    case GROUP_NAME_STUCK:
        cluster_say(cluster, node, "cannot kill its workers");
        break;
    case GROUP_CLEAN:
        cluster_agent_event(cluster, i, &(struct worker_group_event){.kind = GROUP_CLEANED}, NULL);
        break;
    case GROUP_REPORT_STOPPED:
        cluster_report(cluster, i, MEMBERSHIP_REPORT_STOPPED, NULL);
        break;
    case GROUP_START:
        cluster_start_workers(cluster, i);
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
        cluster_agent_event(cluster, i, &(struct worker_group_event){.kind = GROUP_DEADLINE}, NULL);
    else
        plan_deadline(cluster, i);
}

void cluster_agent_event(struct cluster *cluster, int i, const struct worker_group_event *event,
                         const struct worker_failure *failure)
{
    struct node *node = &cluster->nodes[i];
    struct muster_error err;
    unsigned actions;
    node->group.listens = cluster->options.listens[i] && node->workers == WORKERS_RUNNING;
    if (worker_group_step(&node->group, event, node_time(cluster, node), &actions, &err)) {
        cluster_break(cluster, INVARIANT_PROTOCOL, "%s: %s", node->name, err.text);
        return;
    }
    cluster->changed = true;
    plan_deadline(cluster, i);
    unsigned life = node->life;
    for (int action = 0; action < GROUP_ACTION_COUNT && node->life == life; action++)
        if (actions & 1u << action)
            execute(cluster, i, (enum worker_group_action)action, failure);
    if (node->life == life)
        cluster_look_for_the_end(cluster, i);
}

static void take_stop(struct cluster *cluster, int i, const struct membership_event *event)
{
    struct node *node = &cluster->nodes[i];
    cluster_say(cluster, node, "stops round %u: %s", event->stopped.round, event->reason);
    cluster_check_notice(cluster, i, event);
    if (!world_id_equal(event->stopped, node->world.id))
        cluster_break(cluster, INVARIANT_OLD_WORLD, "%s is told to stop round %u, but has round %u",
                      node->name, event->stopped.round, node->world.id.round);
    node->current = event->stopped;
    struct worker_group_event stop = {
        .kind = GROUP_STOP, .grace_ns = event->grace_ns, .planned = event->planned};
    cluster_agent_event(cluster, i, &stop, NULL);
}

void cluster_take_event(struct cluster *cluster, int i, const struct membership_event *event)
{
    struct node *node = &cluster->nodes[i];
    if (node->group.state == GROUP_OVER || node->membership_over)
        return;
    client_note_event(event, &node->past, &node->stops);
    switch (event->kind) {
    case MEMBERSHIP_EVENT_WORLD:
        cluster_say(cluster, node, "starts workers %d-%d of %d, round %u", event->world.rank_base,
                    event->world.rank_base + cluster->options.local_world_size[i] - 1,
                    event->world.world_size, event->world.id.round);
        cluster_check_world(cluster, i, &event->world);
        node->world = event->world;
        node->current = event->world.id;
        cluster_agent_event(cluster, i, &(struct worker_group_event){.kind = GROUP_WORLD}, NULL);
        break;
    case MEMBERSHIP_EVENT_STOP:
        take_stop(cluster, i, event);
        break;
    case MEMBERSHIP_EVENT_VERDICT:
        cluster_say(cluster, node, "verdict %d: %s", event->exit_code, event->reason);
        cluster_check_verdict(cluster, i, event);
        cluster_check_notice(cluster, i, event);
        node->membership_over = node->judged = true;
        node->verdict = event->exit_code;
        cluster_agent_event(
            cluster, i, &(struct worker_group_event){.kind = GROUP_VERDICT, .exit_code = event->exit_code},
            NULL);
        break;
    case MEMBERSHIP_EVENT_EVICTION: /* nobody asks */
    case MEMBERSHIP_EVENT_GO:
        break;
    case MEMBERSHIP_EVENT_REFUSED:
        cluster_say(cluster, node, "refused: %s", event->reason);
        cluster_check_refusal(cluster, i, event->reason);
        node->membership_over = true;
        cluster_agent_event(cluster, i,
                            &(struct worker_group_event){.kind = GROUP_LOST, .exit_code = EXIT_CODE_FAILURE},
                            NULL);
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
    struct instant received = client_last_received(node->client);
    if (received.ns != node->received_at.ns)
        node->patience_ns = shortest_ns;
    node->received_at = received;
    if (instant_diff_ns(now, received) < node->patience_ns)
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
        cluster_digest_client(cluster, node->client, now);
        take_events(cluster, i);
        cluster_plan_turn(cluster, i);
        return;
    }
    cluster_say(cluster, node, "lost its membership: %s", err.text);
    /* Nobody serves, and it was given up; or its loss is one restart too many. */
    bool none_left = node->saw_world && node->world.restart_count >= cluster->options.max_restarts;
    cluster->may_fail |= !cluster_server(cluster) || none_left;
    client_destroy(node->client);
    node->client = NULL;
    node->membership_over = true;
    cluster_agent_event(cluster, i,
                        &(struct worker_group_event){.kind = GROUP_LOST, .exit_code = EXIT_CODE_NODE}, NULL);
}
