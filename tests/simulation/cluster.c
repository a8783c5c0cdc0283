/* cluster.c - see cluster.h. */
#include "tests/simulation/cluster.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/mem.h"
#include "proto/exit_code.h"
#include "tests/simulation/cluster_internal.h"

enum { EXIT_DELAY_MS = 5 };

static void trace(struct cluster *cluster, const struct node *node, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void trace(struct cluster *cluster, const struct node *node, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    buffer_printf(&cluster->trace, "%.3f %s %s\n", (double)cluster->now.ns / NS_PER_S,
                  node ? node->name : "job", text);
}

/* -- what is to happen
 * ---------------------------------------------------------------------------------------------- */

static void after(struct cluster *cluster, int64_t delay_ns, int node, enum happening_kind kind)
{
    cluster_schedule(cluster, (struct happening){.at = instant_add(cluster->now, delay_ns),
                                                 .kind = kind,
                                                 .node = node,
                                                 .rank = cluster->nodes[node].claimed_rank,
                                                 .life = cluster->nodes[node].life,
                                                 .batch = cluster->nodes[node].batch});
}

/* -- the network
 * -------------------------------------------------------------------------------------------------- */

static struct wire_message *copy_message(const struct wire_message *message)
{
    bool whole = message->kind == WIRE_EVENT || message->kind == WIRE_REPORT;
    size_t size = whole ? sizeof *message : offsetof(struct wire_message, texts);
    struct wire_message *copy = cluster_need(mem_calloc(1, size));
    memcpy(copy, message, size);
    return copy;
}

static void put_on_wire(struct cluster *cluster, int i, bool to_server, const struct wire_message *message)
{
    struct node *node = &cluster->nodes[i];
    int64_t span = cluster->options.delay_max_ns - cluster->options.delay_min_ns;
    int64_t delay =
        cluster->options.delay_min_ns + (span ? (int64_t)(cluster_draw(cluster) % (uint64_t)span) : 0);
    struct instant at = instant_add(cluster->now, delay);
    if (at.ns < node->last_arrival[to_server].ns)
        at = node->last_arrival[to_server];
    node->last_arrival[to_server] = at;
    struct happening arrival = {.at = at,
                                .kind = HAPPEN_ARRIVE,
                                .node = i,
                                .life = node->life,
                                .connection = node->connection,
                                .to_server = to_server,
                                .message = copy_message(message)};
    cluster_schedule(cluster, arrival);
    /* No transport of ours does this; the protocol must not mind. A JOIN is left out: one that comes after
     * its agent's LEAVE is a new agent to the roster, and on a connection nothing can come after a LEAVE. */
    if (message->kind != WIRE_JOIN &&
        (int)(cluster_draw(cluster) % 100) < cluster->options.duplicate_percent) {
        arrival.at = instant_add(at, (int64_t)(cluster_draw(cluster) % 2000) * NS_PER_MS);
        arrival.message = copy_message(message);
        cluster_schedule(cluster, arrival);
    }
}

static bool client_sends(void *context, const struct wire_message *message)
{
    const struct sim_link *link = context;
    if (link->cluster->nodes[link->node].cut)
        return false;
    put_on_wire(link->cluster, link->node, true, message);
    return true;
}

/* -- an agent and its workers
 * ------------------------------------------------------------------------------------- */

static void local_step(struct cluster *cluster, struct roster_event *event);

static void report(struct cluster *cluster, int i, enum membership_report_kind kind,
                   const struct worker_failure *failure)
{
    static uint64_t sequence; /* of the serving agent; only its growth matters */
    struct node *node = &cluster->nodes[i];
    if (kind == MEMBERSHIP_REPORT_DONE)
        cluster_note_done(cluster, i);
    if (node->client) {
        if (client_report(node->client, node->world.id, kind, failure, cluster->now, NULL))
            abort();
        return;
    }
    if (i != 0)
        return; /* it has lost its seat */
    struct roster_event event = {.kind = ROSTER_REPORT};
    event.report.id = node->world.id;
    event.report.kind = kind;
    event.report.sequence = ++sequence;
    event.report.failure = failure;
    local_step(cluster, &event);
}

static void end_agent(struct cluster *cluster, int i, enum node_phase phase, int exit_code)
{
    struct node *node = &cluster->nodes[i];
    node->phase = phase;
    node->exit_code = exit_code;
    node->life++;
    node->workers = WORKERS_NONE;
    client_destroy(node->client);
    node->client = NULL;
}

/* The agent stops its workers and goes. */
static void leave_soon(struct cluster *cluster, int i, int exit_code)
{
    struct node *node = &cluster->nodes[i];
    bool busy = node->workers != WORKERS_NONE && node->workers != WORKERS_DONE;
    node->verdict = node->draining ? EXIT_CODE_TERMINATED : exit_code;
    if (busy)
        node->workers = WORKERS_STOPPING;
    node->batch++;
    after(cluster, busy ? cluster->options.stop_ns : EXIT_DELAY_MS * NS_PER_MS, i, HAPPEN_EXIT);
}

static void on_world(struct cluster *cluster, int i, const struct membership_world *world)
{
    struct node *node = &cluster->nodes[i];
    trace(cluster, node, "starts workers %d-%d of %d, round %u", world->rank_base,
          world->rank_base + cluster->options.local_world_size[i] - 1, world->world_size, world->id.round);
    cluster_check_world(cluster, i, world);
    node->world = *world;
    node->workers = WORKERS_STARTING;
    node->batch++;
    after(cluster, cluster->options.start_ns, i, HAPPEN_STARTED);
}

static void on_event(struct cluster *cluster, int i, const struct membership_event *event)
{
    struct node *node = &cluster->nodes[i];
    if (node->verdict >= 0)
        return; /* on its way out */
    switch (event->kind) {
    case MEMBERSHIP_EVENT_WORLD:
        on_world(cluster, i, &event->world);
        break;
    case MEMBERSHIP_EVENT_STOP:
        trace(cluster, node, "stops round %u: %s", event->stopped.round, event->reason);
        if (!world_id_equal(event->stopped, node->world.id))
            cluster_break(cluster, "%s is told to stop round %u, but has round %u", node->name,
                          event->stopped.round, node->world.id.round);
        if (node->draining) { /* it leaves when they have stopped */
            leave_soon(cluster, i, EXIT_CODE_TERMINATED);
            break;
        }
        node->batch++;
        node->workers = WORKERS_STOPPING;
        after(cluster, cluster->options.stop_ns, i, HAPPEN_STOPPED);
        break;
    case MEMBERSHIP_EVENT_VERDICT:
        trace(cluster, node, "verdict %d: %s", event->exit_code, event->reason);
        cluster_check_verdict(cluster, i, event->exit_code);
        leave_soon(cluster, i, event->exit_code);
        break;
    case MEMBERSHIP_EVENT_REFUSED:
        trace(cluster, node, "refused: %s", event->reason);
        leave_soon(cluster, i, EXIT_CODE_NODE);
        break;
    }
}

static bool is_frozen(const struct cluster *cluster, const struct node *node)
{
    return !instant_reached(cluster->now, node->frozen_until);
}

/* One turn of a client agent's loop. */
static void turn(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    struct muster_error err;
    if (!node->client)
        return;
    if (is_frozen(cluster, node)) {
        node->turn_at = INSTANT_NEVER;
        return;
    }
    client_wake(node->client, cluster->now);
    struct membership_event event;
    while (client_take_event(node->client, &event))
        on_event(cluster, i, &event);
    if (client_turn(node->client, cluster->now, &err) == 0) {
        while (client_take_event(node->client, &event))
            on_event(cluster, i, &event);
        return;
    }
    trace(cluster, node, "lost its seat: %s", err.text);
    client_destroy(node->client);
    node->client = NULL;
    leave_soon(cluster, i, EXIT_CODE_NODE);
}

/* When a client's loop is to look again. */
static void schedule_turns(struct cluster *cluster)
{
    for (int i = 1; i < cluster->used; i++) {
        struct node *node = &cluster->nodes[i];
        if (!node->client || is_frozen(cluster, node))
            continue;
        struct instant due = client_deadline(node->client);
        if (due.ns == node->turn_at.ns || due.ns == INT64_MAX)
            continue;
        node->turn_at = due;
        cluster_schedule(cluster,
                         (struct happening){.at = due, .kind = HAPPEN_TURN, .node = i, .life = node->life});
    }
}

/* -- the serving side
 * --------------------------------------------------------------------------------------------- */

static int node_of_session(const struct cluster *cluster, uint64_t session)
{
    for (int i = 1; i < cluster->used; i++)
        if (cluster->nodes[i].session == session)
            return i;
    return -1;
}

static void to_client(struct cluster *cluster, const struct roster_action *action)
{
    static struct wire_message message;
    int i = node_of_session(cluster, action->session);
    if (i < 0 || cluster->nodes[i].cut)
        return; /* lost on the way */
    if (action->kind == ROSTER_ACCEPT) {
        cluster->nodes[i].slot = action->member;
        message.kind = WIRE_ACCEPT;
        message.member = action->member;
        message.sequence = roster_report_sequence(cluster->roster, action->member);
        message.lease_ns = roster_lease_ns(cluster->roster);
        message.epoch = roster_epoch(cluster->roster);
        message.number = cluster->nodes[i].number;
    } else if (action->kind == ROSTER_AGAIN) {
        message.kind = WIRE_AGAIN;
    } else {
        message.kind = WIRE_EVENT;
        roster_fill_event(cluster->roster, action, &message.event);
    }
    put_on_wire(cluster, i, false, &message);
}

static size_t roster_take(struct cluster *cluster, const struct roster_event *event)
{
    struct muster_error err;
    enum roster_job_state state = roster_state(cluster->roster);
    if (roster_step(cluster->roster, event, cluster->now, &cluster->actions, &err)) {
        cluster_break(cluster, "%s in %s: %s", roster_event_name(event->kind), roster_job_state_name(state),
                      err.text);
        return 0;
    }
    if (roster_state(cluster->roster) != state)
        trace(cluster, NULL, "%s -> %s", roster_job_state_name(state),
              roster_job_state_name(roster_state(cluster->roster)));
    size_t count = cluster->actions.count;
    struct membership_event local[EVENT_QUEUE_LIMIT];
    size_t locals = 0;
    for (size_t i = 0; i < count; i++) {
        const struct roster_action *action = &cluster->actions.items[i];
        if (action->session != LOCAL_SESSION)
            to_client(cluster, action);
        else if (action->kind != ROSTER_ACCEPT && action->kind != ROSTER_AGAIN)
            roster_fill_event(cluster->roster, action, &local[locals++]);
    }
    /* After the actions were read: handling may step the roster again. */
    for (size_t i = 0; i < locals; i++)
        on_event(cluster, 0, &local[i]);
    struct instant due = roster_deadline(cluster->roster);
    if (due.ns < cluster->tick_at.ns || cluster->tick_at.ns <= cluster->now.ns) {
        cluster->tick_at = due;
        if (due.ns != INT64_MAX)
            cluster_schedule(cluster, (struct happening){.at = due, .kind = HAPPEN_TICK});
    }
    return count;
}

static void local_step(struct cluster *cluster, struct roster_event *event)
{
    event->session = LOCAL_SESSION;
    event->member = cluster->nodes[0].slot;
    (void)roster_take(cluster, event);
}

static void server_receives(struct cluster *cluster, int i, const struct wire_message *message)
{
    struct node *node = &cluster->nodes[i];
    struct roster_event event = {.session = node->session, .member = node->slot};
    node->number = message->number;
    switch (message->kind) {
    case WIRE_JOIN:
        event.kind = ROSTER_JOIN;
        event.join = &message->join;
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
        break;
    }
    if (roster_take(cluster, &event) == 0 && event.kind == ROSTER_BEAT && !node->cut) {
        struct wire_message *beat = cluster_need(mem_calloc(1, sizeof *beat));
        beat->kind = WIRE_BEAT;
        beat->number = message->number;
        beat->sequence = roster_report_sequence(cluster->roster, node->slot);
        beat->server_done = roster_server_done(cluster->roster);
        put_on_wire(cluster, i, false, beat);
        mem_free(beat);
    }
}

/* -- happenings
 * --------------------------------------------------------------------------------------------------- */

static void new_connection(struct cluster *cluster, struct node *node)
{
    node->connection++;
    node->session = ++cluster->last_session;
    node->slot = -1;
    node->last_arrival[0] = node->last_arrival[1] = cluster->now;
}

static struct roster_join join_of(const struct cluster *cluster, int i)
{
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
        .role = "trainer",
        .store_addr = node->name,
        .store_port = 29500,
        .local = i == 0,
    };
}

static void start_agent(struct cluster *cluster, int i, int rank)
{
    struct node *node = &cluster->nodes[i];
    if (node->phase == NODE_UP)
        return;
    /* What it said last is not lost because its successor has a connection of its own. */
    if (node->exited_at.ns && instant_diff_ns(cluster->now, node->exited_at) < NS_PER_S) {
        cluster_schedule(cluster, (struct happening){.at = instant_add(node->exited_at, NS_PER_S),
                                                     .kind = HAPPEN_START,
                                                     .node = i,
                                                     .rank = rank});
        return;
    }
    node->phase = NODE_UP;
    cluster->used = i < cluster->used ? cluster->used : i + 1;
    node->life++;
    node->claimed_rank = rank;
    node->verdict = -1;
    node->cut = node->saw_world = node->draining = false;
    node->frozen_until = cluster->now;
    node->workers = WORKERS_NONE;
    node->turn_at = INSTANT_NEVER;
    node->world = (struct membership_world){0};
    node->incarnation = (struct roster_incarnation){cluster_draw(cluster), cluster_draw(cluster)};
    if (rank >= 0)
        trace(cluster, node, "joins as node rank %d", rank);
    else
        trace(cluster, node, "joins");
    struct roster_join join = join_of(cluster, i);
    if (i == 0) {
        if (node->life > 1)
            cluster_make_roster(cluster);
        struct roster_event event = {.kind = ROSTER_JOIN, .join = &join};
        local_step(cluster, &event);
        return;
    }
    new_connection(cluster, node);
    cluster->links[i] = (struct sim_link){cluster, i};
    struct client_options options = {
        .join = join,
        .join_timeout_ns = cluster->options.join_timeout_ns,
        .max_restarts = cluster->options.max_restarts,
        .server = "node0",
        .send = client_sends,
        .context = &cluster->links[i],
    };
    node->client = cluster_need(client_create(&options, cluster->now, NULL));
    turn(cluster, i);
}

static void fail_worker(struct cluster *cluster, int i, bool follows)
{
    struct node *node = &cluster->nodes[i];
    if (node->workers != WORKERS_RUNNING || node->verdict >= 0 || is_frozen(cluster, node))
        return;
    struct worker_failure failure = {.rank = node->world.rank_base,
                                     .pid = 1000 + i,
                                     .exit_code = follows ? 1 : -1,
                                     .signal = follows ? 0 : 9};
    if (follows)
        (void)snprintf(failure.tail, sizeof failure.tail, "Connection closed by peer");
    (void)snprintf(failure.host, sizeof failure.host, "%s", node->name);
    trace(cluster, node, follows ? "a worker loses its peer" : "a worker is killed");
    cluster->faults++;
    report(cluster, i, MEMBERSHIP_REPORT_FAILED, &failure);
}

static void finish_workers(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    if (node->workers != WORKERS_RUNNING || node->verdict >= 0 || is_frozen(cluster, node))
        return;
    trace(cluster, node, "is done");
    node->workers = WORKERS_DONE;
    report(cluster, i, MEMBERSHIP_REPORT_DONE, NULL);
}

static void workers_started(struct cluster *cluster, int i)
{
    cluster->nodes[i].workers = WORKERS_RUNNING;
    report(cluster, i, MEMBERSHIP_REPORT_RUNNING, NULL);
    if (cluster->calm)
        after(cluster, cluster->calm_run_ns, i, HAPPEN_FINISH);
}

static void drain(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    node->draining = true;
    after(cluster, NS_PER_S, i, HAPPEN_UNANSWERED);
    if (node->client) {
        client_drain(node->client, EXIT_CODE_TERMINATED, cluster->options.stop_ns);
    } else {
        struct roster_event event = {
            .kind = ROSTER_DRAIN, .exit_code = EXIT_CODE_TERMINATED, .grace_ns = cluster->options.stop_ns};
        local_step(cluster, &event);
    }
}

/* The agent goes at once, with a word. */
static void leave_now(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    if (node->client) {
        client_leave(node->client, EXIT_CODE_TERMINATED);
    } else {
        struct roster_event event = {.kind = ROSTER_LEAVE, .exit_code = EXIT_CODE_TERMINATED};
        local_step(cluster, &event);
    }
    leave_soon(cluster, i, EXIT_CODE_TERMINATED);
}

static void terminate(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    if (node->phase != NODE_UP || node->verdict >= 0 || node->draining || is_frozen(cluster, node))
        return;
    trace(cluster, node, "gets TERM");
    if (cluster->options.elastic && (node->workers == WORKERS_STARTING || node->workers == WORKERS_RUNNING))
        drain(cluster, i);
    else
        leave_now(cluster, i);
}

/* Nobody has answered the drain. */
static void drain_alone(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    if (node->verdict >= 0)
        return;
    trace(cluster, node, "goes alone");
    leave_now(cluster, i);
}

/* The server sees the connection end, unless the network is gone as well. */
static void tell_broken(struct cluster *cluster, int i)
{
    const struct node *node = &cluster->nodes[i];
    if (!node->client || node->cut)
        return;
    cluster_schedule(cluster,
                     (struct happening){.at = instant_add(cluster->now, cluster->options.delay_max_ns),
                                        .kind = HAPPEN_BROKEN,
                                        .node = i,
                                        .rank = node->slot,
                                        .session = node->session});
}

static void connection_broken(struct cluster *cluster, const struct happening *h)
{
    struct roster_event event = {.kind = ROSTER_DISCONNECT, .session = h->session, .member = h->rank};
    if (cluster->nodes[0].phase == NODE_UP)
        (void)roster_take(cluster, &event);
}

static void break_connection(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    if (node->phase != NODE_UP || node->cut || !node->client)
        return;
    trace(cluster, node, "has its connection broken");
    cluster->faults++; /* its last word may be lost with it */
    tell_broken(cluster, i);
    client_broken(node->client, cluster->now);
    new_connection(cluster, node);
}

static void crash(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    if (node->phase != NODE_UP)
        return;
    trace(cluster, node, "crashes");
    cluster->faults++;
    tell_broken(cluster, i);
    for (int other = 1; i == 0 && other < cluster->used; other++) {
        struct node *client = &cluster->nodes[other];
        new_connection(cluster, client);
        if (client->client && !client->cut)
            client_broken(client->client, cluster->now);
    }
    end_agent(cluster, i, NODE_EXITED, KILLED);
    if (cluster->calm)
        after(cluster, NS_PER_S, i, HAPPEN_START);
}

static void exit_agent(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    int code = node->verdict;
    if (node->client && node->draining)
        client_leave(node->client, code);
    else if (node->client)
        client_finish(node->client);
    trace(cluster, node, "exits %d", code);
    node->exited_at = cluster->now;
    if (i == 0 && node->draining) {
        struct roster_event event = {.kind = ROSTER_LEAVE, .exit_code = code};
        local_step(cluster, &event);
    }
    end_agent(cluster, i, NODE_EXITED, code);
    if (cluster->calm && code == EXIT_CODE_NODE && cluster->nodes[0].phase != NODE_EXITED &&
        roster_state(cluster->roster) < JOB_FINISHING)
        after(cluster, NS_PER_S, i, HAPPEN_START);
}

static void cut(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    if (node->phase != NODE_UP || node->cut)
        return;
    trace(cluster, node, "is cut off");
    cluster->faults++;
    node->cut = true;
    node->cut_at = cluster->now;
}

static void heal(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    if (!node->cut)
        return;
    trace(cluster, node, "is connected again");
    node->cut = false;
    new_connection(cluster, node);
}

static void freeze(struct cluster *cluster, int i, int64_t for_ns)
{
    struct node *node = &cluster->nodes[i];
    if (node->phase != NODE_UP || is_frozen(cluster, node))
        return;
    trace(cluster, node, "freezes for %.3f s", (double)for_ns / NS_PER_S);
    cluster->faults++;
    node->frozen_until = instant_add(cluster->now, for_ns);
    after(cluster, for_ns, i, HAPPEN_THAW);
}

static void begin_calm(struct cluster *cluster, int64_t run_ns)
{
    cluster->calm = true;
    cluster->calm_run_ns = run_ns;
    for (int i = 0; i < cluster->options.nodes || i < cluster->used; i++) {
        struct node *node = &cluster->nodes[i];
        heal(cluster, i);
        /* The server takes the roster with it; one that comes back knows nothing. */
        bool server_left = cluster->nodes[0].phase == NODE_EXITED;
        if (node->phase != NODE_UP && !server_left && i < cluster->options.nodes)
            after(cluster, NS_PER_S, i, HAPPEN_START);
        if (node->workers == WORKERS_RUNNING)
            after(cluster, run_ns, i, HAPPEN_FINISH);
    }
}

static void arrive(struct cluster *cluster, const struct happening *happening)
{
    struct node *node = &cluster->nodes[happening->node];
    if (happening->connection != node->connection || node->cut)
        return;
    if (happening->to_server) {
        if (cluster->nodes[0].phase != NODE_UP)
            return; /* the server left with its agent */
        server_receives(cluster, happening->node, happening->message);
    } else if (node->client && happening->life == node->life) {
        struct muster_error err;
        client_wake(node->client, cluster->now);
        if (client_receive(node->client, happening->message, cluster->now, &err))
            cluster_break(cluster, "%s: %s", node->name, err.text);
        turn(cluster, happening->node);
    }
}

/* What a frozen agent would do waits until it thaws, in the order in which it came. */
static bool postpone(struct cluster *cluster, struct happening *h)
{
    enum happening_kind kind = h->kind;
    bool at_server = (kind == HAPPEN_ARRIVE && h->to_server) || kind == HAPPEN_TICK || kind == HAPPEN_BROKEN;
    const struct node *node = &cluster->nodes[at_server ? 0 : h->node];
    bool own = at_server || kind == HAPPEN_ARRIVE || kind == HAPPEN_STARTED || kind == HAPPEN_STOPPED ||
               kind == HAPPEN_EXIT || kind == HAPPEN_UNANSWERED || kind == HAPPEN_FINISH;
    if (!own || !is_frozen(cluster, node))
        return false;
    struct happening later = *h;
    later.at = node->frozen_until;
    if (kind == HAPPEN_TICK) { /* all messages before the clock */
        later.at = instant_add(later.at, 1);
        cluster->tick_at = later.at;
    }
    cluster_schedule(cluster, later);
    h->message = NULL;
    return true;
}

static void happen(struct cluster *cluster, const struct happening *h)
{
    struct node *node = &cluster->nodes[h->node];
    bool own_life = h->life == node->life;
    bool own_batch = own_life && h->batch == node->batch;
    switch (h->kind) {
    case HAPPEN_START:
        start_agent(cluster, h->node, h->rank);
        break;
    case HAPPEN_CRASH:
        crash(cluster, h->node);
        break;
    case HAPPEN_CUT:
        cut(cluster, h->node);
        break;
    case HAPPEN_HEAL:
        heal(cluster, h->node);
        break;
    case HAPPEN_FOLLOW:
        fail_worker(cluster, h->node, true);
        break;
    case HAPPEN_BREAK:
        break_connection(cluster, h->node);
        break;
    case HAPPEN_BROKEN:
        connection_broken(cluster, h);
        break;
    case HAPPEN_FREEZE:
        freeze(cluster, h->node, h->value);
        break;
    case HAPPEN_THAW:
        if (own_life && node->client)
            turn(cluster, h->node);
        break;
    case HAPPEN_KILL:
        fail_worker(cluster, h->node, false);
        break;
    case HAPPEN_FINISH:
        finish_workers(cluster, h->node);
        break;
    case HAPPEN_TERM:
        terminate(cluster, h->node);
        break;
    case HAPPEN_UNANSWERED:
        if (own_life)
            drain_alone(cluster, h->node);
        break;
    case HAPPEN_CALM:
        begin_calm(cluster, h->value);
        break;
    case HAPPEN_ARRIVE:
        arrive(cluster, h);
        break;
    case HAPPEN_TURN:
        if (own_life && h->at.ns == node->turn_at.ns)
            turn(cluster, h->node);
        break;
    case HAPPEN_TICK:
        if (cluster_has_no_server(cluster))
            break;
        if (h->at.ns == cluster->tick_at.ns) {
            struct roster_event tick = {.kind = ROSTER_TICK};
            (void)roster_take(cluster, &tick);
        }
        break;
    case HAPPEN_STARTED:
        if (own_batch)
            workers_started(cluster, h->node);
        break;
    case HAPPEN_STOPPED:
        if (own_batch) {
            node->workers = WORKERS_NONE;
            report(cluster, h->node, MEMBERSHIP_REPORT_STOPPED, NULL);
        }
        break;
    case HAPPEN_EXIT:
        if (own_life)
            exit_agent(cluster, h->node);
        break;
    }
}

/* -- the outside
 * -------------------------------------------------------------------------------------------------- */

void cluster_run(struct cluster *cluster, int64_t until_ms)
{
    while (cluster->count && cluster->heap[0].at.ns <= until_ms * NS_PER_MS && !cluster->broken[0]) {
        struct happening happening = cluster_pop(cluster);
        if (happening.at.ns > cluster->now.ns)
            cluster->now = happening.at;
        if (!postpone(cluster, &happening))
            happen(cluster, &happening);
        mem_free(happening.message);
        schedule_turns(cluster);
        cluster_check(cluster);
    }
}
