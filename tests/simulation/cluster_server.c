/* cluster_server.c - the side of a simulated cluster that serves: a roster, and its transport. Stands
 * for rendezvous/server/transport_server.c and routes.c. */
#include <stdlib.h>

#include "proto/base/mem.h"
#include "tests/simulation/cluster_internal.h"

struct server *cluster_server(struct cluster *cluster)
{
    struct node *node = &cluster->nodes[cluster->endpoint];
    return node->phase == NODE_UP ? node->server : NULL;
}

/* -1: its connection is no more. */
static int node_of_session(const struct cluster *cluster, uint64_t session)
{
    int i = cluster->sessions[session].node;
    return cluster->nodes[i].session == session ? i : -1;
}

static void to_client(struct cluster *cluster, const struct server *server,
                      const struct roster_action *action)
{
    static struct wire_message message;
    int i = node_of_session(cluster, action->session);
    struct session *session = &cluster->sessions[action->session];
    if (action->kind == ROSTER_ACCEPT)
        session->slot = action->member;
    if (i < 0 || server != cluster->nodes[cluster->endpoint].server)
        return; /* lost on the way, or of a server that is cut off */
    if (action->kind == ROSTER_ACCEPT) {
        message.kind = WIRE_ACCEPT;
        message.member = action->member;
        message.sequence = roster_report_sequence(server->roster, action->member);
        message.lease_ns = roster_lease_ns(server->roster);
        message.epoch = roster_epoch(server->roster);
        message.number = session->number;
    } else if (action->kind == ROSTER_AGAIN) {
        message.kind = WIRE_AGAIN;
        message.proof = action->proof;
    } else if (action->kind == ROSTER_HANDOVER) {
        message.kind = WIRE_HANDOVER;
        message.id = roster_world_id(server->roster);
        message.restart_count = roster_restart_count(server->roster);
    } else {
        message.kind = WIRE_EVENT;
        roster_fill_event(server->roster, action, &message.event);
    }
    cluster_server_sends(cluster, i, &message);
}

static void to_agent(struct cluster *cluster, int i, const struct roster_action *action)
{
    struct server *server = cluster->nodes[i].server;
    if (action->kind == ROSTER_ACCEPT)
        server->local_slot = action->member;
    if (action->kind == ROSTER_ACCEPT || action->kind == ROSTER_AGAIN)
        return;
    if (action->kind == ROSTER_PROPOSE) {
        cluster_propose(cluster, i);
        return;
    }
    struct membership_event *event = event_queue_push(&server->local);
    if (!event) {
        cluster_break(cluster, INVARIANT_PROTOCOL,
                      "more events wait for the serving agent than there is room");
        return;
    }
    roster_fill_event(server->roster, action, event);
    if (!server->local_woken)
        cluster_after(cluster, 0, i, HAPPEN_LOCAL);
    server->local_woken = true;
}

static void plan_tick(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    struct server *server = node->server;
    struct instant due = real_time(cluster, node, roster_deadline(server->roster));
    if (due.ns >= server->tick_at.ns && server->tick_at.ns > cluster->now.ns)
        return; /* it looks early, and again */
    server->tick_at = due;
    if (due.ns != INT64_MAX)
        cluster_at(cluster, due, i, HAPPEN_TICK);
}

void cluster_close_server(struct cluster *cluster, int i)
{
    struct server *server = cluster->nodes[i].server;
    server->closing = true;
    server->held = roster_holds_server(server->roster);
    if (!server->held)
        cluster_after(cluster, 2 * NS_PER_S, i, HAPPEN_CLOSE);
}

/* How many actions there were. */
static size_t take(struct cluster *cluster, int i, const struct roster_event *event)
{
    struct node *node = &cluster->nodes[i];
    struct server *server = node->server;
    struct muster_error err;
    enum roster_job_state state = roster_state(server->roster);
    struct world_id id = roster_world_id(server->roster);
    if (i == cluster->endpoint)
        cluster_note_word(cluster, event);
    if (roster_step(server->roster, event, node_time(cluster, node), &server->actions, &err)) {
        cluster_break(cluster, INVARIANT_PROTOCOL, "%s in %s: %s", roster_event_name(event->kind),
                      roster_job_state_name(state), err.text);
        return 0;
    }
    cluster_digest_roster(cluster, server->roster, &server->actions);
    if (roster_state(server->roster) != state) {
        cluster->changed = true;
        if ((state == JOB_STARTING || state == JOB_RUNNING) && roster_state(server->roster) > JOB_RUNNING)
            cluster_note_ended(cluster, id);
        cluster_say(cluster, i == cluster->endpoint ? NULL : node, "%s%s -> %s",
                    i == cluster->endpoint ? "" : "its own job ", roster_job_state_name(state),
                    roster_job_state_name(roster_state(server->roster)));
        if (i == cluster->endpoint)
            cluster_enter(cluster, roster_state(server->roster));
        cluster->ran |= i == cluster->endpoint && roster_state(server->roster) == JOB_RUNNING;
    }
    for (size_t k = 0; k < server->actions.count; k++) {
        const struct roster_action *action = &server->actions.items[k];
        if (action->kind == ROSTER_ACCEPT && action->member < CLUSTER_NODE_LIMIT)
            server->slot_session[action->member] = action->session;
        if (action->session == LOCAL_SESSION)
            to_agent(cluster, i, action);
        else
            to_client(cluster, server, action);
    }
    plan_tick(cluster, i);
    if (cluster->options.votes)
        cluster_revise_voters(cluster, i);
    if (server->held && !roster_holds_server(server->roster))
        cluster_close_server(cluster, i);
    if (server->closing && !roster_has_remote(server->roster))
        cluster_after(cluster, 0, i, HAPPEN_CLOSE);
    return server->actions.count;
}

void cluster_local_step(struct cluster *cluster, int i, struct roster_event *event)
{
    event->session = LOCAL_SESSION;
    event->member = cluster->nodes[i].server->local_slot;
    (void)take(cluster, i, event);
}

void cluster_local_events(struct cluster *cluster, int i)
{
    static struct membership_event event;
    struct server *server = cluster->nodes[i].server;
    server->local_woken = false;
    while (event_queue_pop(&server->local, &event)) {
        const struct node *node = &cluster->nodes[i];
        const bool repeated = cluster->options.votes && event.kind == MEMBERSHIP_EVENT_STOP &&
                              (node->stops || !world_id_equal(event.stopped, node->current));
        if (!repeated) /* a new server stops the world before, whose workers it has stopped already */
            cluster_take_event(cluster, i, &event);
    }
}

void cluster_server_receives(struct cluster *cluster, uint64_t number, const struct wire_message *message)
{
    struct server *server = cluster_server(cluster);
    struct session *session = &cluster->sessions[number];
    struct roster_event event = {.session = number, .member = session->slot};
    if (message->kind == WIRE_JOIN || message->kind == WIRE_BEAT)
        session->number = message->number;
    switch (message->kind) {
    case WIRE_JOIN:
        event.kind = ROSTER_JOIN;
        event.join = &message->join;
        event.number = message->number;
        break;
    case WIRE_LEAVE:
        event.kind = ROSTER_LEAVE;
        event.exit_code = message->exit_code;
        break;
    case WIRE_DRAIN:
        event.kind = ROSTER_DRAIN;
        event.exit_code = message->exit_code;
        event.grace_ns = message->grace_ns;
        break;
    case WIRE_REPORT:
        event.kind = ROSTER_REPORT;
        event.report.id = message->id;
        event.report.kind = message->report;
        event.report.sequence = message->sequence;
        event.report.failure = &message->failure;
        break;
    default:
        event.kind = ROSTER_BEAT;
        event.missing = message->missing;
        break;
    }
    bool answer = take(cluster, cluster->endpoint, &event) == 0 && event.kind == ROSTER_BEAT;
    int i = node_of_session(cluster, number);
    if (event.kind == ROSTER_JOIN && i < 0) /* no answer can be sent there */
        cluster_schedule(cluster, &(struct happening){.at = cluster->now,
                                                      .kind = HAPPEN_BROKEN,
                                                      .node = cluster->sessions[number].node,
                                                      .session = number});
    if (answer && i >= 0) {
        static struct wire_message beat = {.kind = WIRE_BEAT};
        beat.number = message->number;
        beat.sequence = roster_report_sequence(server->roster, event.member);
        beat.server_done = roster_server_done(server->roster);
        beat.server_works = roster_server_works(server->roster);
        rank_ranges_copy(&beat.done, roster_done_ranks(server->roster));
        cluster_server_sends(cluster, i, &beat);
    }
}

void cluster_tick(struct cluster *cluster, int i)
{
    struct roster_event tick = {.kind = ROSTER_TICK};
    cluster->nodes[i].server->tick_at = INSTANT_NEVER;
    (void)take(cluster, i, &tick);
}

void cluster_wake_server(struct cluster *cluster, int i, int64_t gap_ns)
{
    static const int64_t stood_still_ns = 1250 * NS_PER_MS; /* as the carrier has it */
    struct node *node = &cluster->nodes[i];
    if (gap_ns >= stood_still_ns)
        roster_wake(node->server->roster, node_time(cluster, node));
}

void cluster_connection_broken(struct cluster *cluster, uint64_t session)
{
    struct roster_event event = {
        .kind = ROSTER_DISCONNECT, .session = session, .member = cluster->sessions[session].slot};
    struct server *server = cluster_server(cluster);
    if (!server)
        return;
    if (event.member >= 0 && event.member < CLUSTER_NODE_LIMIT &&
        server->slot_session[event.member] == session)
        server->slot_session[event.member] = 0;
    (void)take(cluster, cluster->endpoint, &event);
}

void cluster_free_server(struct server *server)
{
    if (!server)
        return;
    roster_actions_free(&server->actions);
    roster_destroy(server->roster);
    mem_free(server);
}

void cluster_open_server(struct cluster *cluster, int i, const struct roster_join *join)
{
    const struct cluster_options *options = &cluster->options;
    struct node *node = &cluster->nodes[i];
    struct roster_options roster = {
        .job_id = "job",
        .min_nodes = options->min_nodes,
        .max_nodes = options->max_nodes,
        .elastic = options->elastic,
        .last_call_ns = options->last_call_ns,
        .regroup_ns = options->regroup_ns,
        .notice_ns = options->grace_ns,
        .max_restarts = options->max_restarts,
        .backoff_ns = options->backoff_ns,
        .backoff_cap_ns = 4 * options->backoff_ns,
        .jitter = cluster_luck(cluster, (uint64_t)i, node->life, 3),
        .epoch = cluster_luck(cluster, (uint64_t)i, node->life,
                              4 + (options->votes ? cluster->server_lives << 8 : 0)) |
                 1,
        .join_timeout_ns = options->join_timeout_ns,
        .stop_timeout_ns = options->grace_ns + 2 * node->group.kill_bound_ns + node->group.clean_bound_ns,
        .votes = options->votes,
    };
    if (cluster->record.epoch) {
        roster.continues = true;
        roster.before = &cluster->record.voters[0];
        roster.round = cluster->record.round + 1;
    }
    cluster_free_server(node->server);
    struct server *server = node->server = cluster_need(mem_calloc(1, sizeof *server));
    server->roster = cluster_need(roster_create(&roster, node_time(cluster, node), NULL));
    if (roster_actions_init(&server->actions, roster_slot_count(server->roster), NULL))
        abort();
    server->tick_at = INSTANT_NEVER;
    server->state_since = cluster->now;
    server->local_slot = -1;
    if (is_at_endpoint(cluster, i)) {
        cluster->endpoint = i;
        node->session = 0;
        cluster->server_lives++;
        cluster->seen_restarts = 0;
        cluster->verdict = -1;
        cluster->finished = false; /* the state is soft */
        cluster->ending = cluster->drained = (struct world_id){0};
        /* Which of two agents of one name came last is forgotten as well, and both may go. */
        cluster->may_fail |= cluster->replaced_ranks && cluster->server_lives > 1;
        for (int other = 0; cluster->half_open && other < cluster->used; other++)
            cluster_break_seen(cluster, other);
        cluster->half_open = false;
        cluster_enter(cluster, JOB_FORMING);
    }
    node->past.epoch = roster.epoch;
    struct roster_event event = {.kind = ROSTER_JOIN, .join = join};
    cluster_local_step(cluster, i, &event);
}
