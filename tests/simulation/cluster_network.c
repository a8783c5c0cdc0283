/* cluster_network.c - the way between an agent and the server at the endpoint: delays, order, duplicates,
 * drops, cuts in one direction or both, connections that end. See cluster.h. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/mem.h"
#include "tests/simulation/cluster_internal.h"

/* -- letters
 * ---------------------------------------------------------------------------------------------------- */

static void *copy_of(const void *block, size_t size)
{
    void *copy = cluster_need(malloc(size));
    memcpy(copy, block, size);
    return copy;
}

static struct membership_event *copy_event(const struct membership_event *event)
{
    size_t said = event->failed ? sizeof *event : offsetof(struct membership_event, failure);
    struct membership_event *copy = cluster_need(malloc(said));
    memcpy(copy, event, said);
    return copy;
}

static struct letter *write_letter(struct cluster *cluster, const struct wire_message *message)
{
    struct letter *letter = cluster->letters;
    if (letter)
        cluster->letters = letter->next;
    else
        letter = cluster_need(mem_calloc(1, sizeof *letter));
    letter->kind = message->kind;
    letter->exit_code = message->exit_code;
    letter->member = message->member;
    letter->missing = message->missing;
    letter->grace_ns = message->grace_ns;
    letter->lease_ns = message->lease_ns;
    letter->restart_count = message->restart_count;
    letter->number = message->number;
    letter->epoch = message->epoch;
    letter->proof = message->proof;
    letter->sequence = message->sequence;
    letter->id = message->id;
    letter->server_done = message->server_done;
    letter->server_works = message->server_works;
    rank_ranges_copy(&letter->done, &message->done);
    letter->report = message->report;
    letter->failure = NULL;
    letter->event = NULL;
    if (message->kind == WIRE_JOIN)
        letter->join = message->join;
    if (message->kind == WIRE_REPORT && message->report == MEMBERSHIP_REPORT_FAILED)
        letter->failure = copy_of(&message->failure, sizeof message->failure);
    if (message->kind == WIRE_EVENT)
        letter->event = copy_event(&message->event);
    return letter;
}

static const struct wire_message *read_letter(struct cluster *cluster, const struct letter *letter)
{
    struct wire_message *message = &cluster->message;
    message->kind = letter->kind;
    message->exit_code = letter->exit_code;
    message->member = letter->member;
    message->missing = letter->missing;
    message->grace_ns = letter->grace_ns;
    message->lease_ns = letter->lease_ns;
    message->restart_count = letter->restart_count;
    message->number = letter->number;
    message->epoch = letter->epoch;
    message->proof = letter->proof;
    message->sequence = letter->sequence;
    message->id = letter->id;
    message->server_done = letter->server_done;
    message->server_works = letter->server_works;
    rank_ranges_copy(&message->done, &letter->done);
    message->report = letter->report;
    if (letter->kind == WIRE_JOIN)
        message->join = letter->join;
    if (letter->failure)
        message->failure = *letter->failure;
    if (letter->event) /* absent fields are not read */
        memcpy(&message->event, letter->event,
               letter->event->failed ? sizeof message->event : offsetof(struct membership_event, failure));
    return message;
}

void cluster_free_letter(struct cluster *cluster, struct letter *letter)
{
    if (!letter)
        return;
    free(letter->failure);
    free(letter->event);
    letter->next = cluster->letters;
    cluster->letters = letter;
}

/* -- the wire
 * ------------------------------------------------------------------------------------------------------ */

static int64_t between(uint64_t luck, int64_t least, int64_t most)
{
    return least + (most > least ? (int64_t)(luck % (uint64_t)(most - least)) : 0);
}

/* Messages that the protocol repeats may be lost on a connection that lives; no transport of ours does
 * this, and the rest is lost with its connection only. */
static bool is_repeated(enum wire_kind kind)
{
    return kind == WIRE_JOIN || kind == WIRE_BEAT || kind == WIRE_AGAIN;
}

/* A packet that is lost is sent again after a while, and after twice that if it is lost again. */
static int64_t sent_again_ns(struct cluster *cluster, uint64_t luck)
{
    int64_t late_ns = 0, timeout_ns = 200 * NS_PER_MS;
    for (int tries = 0; tries < 3 && (int)(luck % 100) < cluster->options.loss_percent; tries++) {
        late_ns += timeout_ns;
        timeout_ns *= 2;
        luck /= 100;
    }
    if (late_ns > 200 * NS_PER_MS) { /* a node may look lost */
        cluster->faults++;
        cluster->losses++;
    }
    return late_ns;
}

/* The kernel goes on sending what a connection that was closed, or is cut, has left. */
static void send_later(struct cluster *cluster, const struct happening *happening,
                       const struct wire_message *message)
{
    const uint64_t luck = cluster_luck(cluster, (uint64_t)happening->session, message->number, message->kind);
    struct happening late = *happening;
    if ((int)(luck % 100) >= cluster->options.stale_percent)
        return;
    late.connection = 0;
    late.stale = true;
    late.at = instant_add(cluster->now, (int64_t)((luck >> 8) % 6000) * NS_PER_MS);
    late.letter = write_letter(cluster, message);
    cluster_schedule(cluster, &late);
}

static void put_on_wire(struct cluster *cluster, int i, enum direction direction,
                        const struct wire_message *message)
{
    const struct cluster_options *options = &cluster->options;
    struct node *node = &cluster->nodes[i];
    uint64_t luck = cluster_luck(cluster, (uint64_t)i, direction, ++node->sent[direction]);
    struct happening arrival = {.at = cluster->now,
                                .kind = HAPPEN_ARRIVE,
                                .node = i,
                                .life = node->life,
                                .connection = node->connection,
                                .server_life = cluster->server_lives,
                                .session = node->session,
                                .sent = cluster->now,
                                .direction = direction};
    const bool former = direction == TO_SERVER && node->server_life && /* the server does not serve */
                        node->server_life <= cluster->server_lives_lost &&
                        cluster->server_lives > cluster->server_lives_lost;
    const bool cut = node->cut[direction] || cluster->nodes[cluster->endpoint].parted || former;
    if (cut && direction == TO_SERVER)
        send_later(cluster, &arrival, message);
    if (cut)
        return;                                /* it believes that it was sent */
    bool harmed = !is_at_endpoint(cluster, i); /* inside a machine nothing is lost */
    if (harmed && options->drop_percent && is_repeated(message->kind) &&
        (int)((luck >> 32) % 100) < options->drop_percent) {
        cluster->faults++; /* a few in a row make a node look lost */
        cluster->losses++;
        return;
    }
    struct instant at =
        instant_add(cluster->now, between(luck, options->delay_min_ns, options->delay_max_ns));
    if (harmed && options->loss_percent)
        at = instant_add(at, sent_again_ns(cluster, luck >> 8));
    if (at.ns < node->not_before[direction].ns)
        at = node->not_before[direction];
    if (at.ns < node->last_arrival[direction].ns)
        at = node->last_arrival[direction];
    node->last_arrival[direction] = at;
    arrival.at = at;
    arrival.letter = write_letter(cluster, message);
    cluster_schedule(cluster, &arrival);
    /* A JOIN is left out: a JOIN after its agent's LEAVE is a new agent to the roster, and on a
     * connection nothing can come after a LEAVE. A WORLD comes again only where its agent has
     * not registered anew: else it is like a repeated one. */
    if (message->kind != WIRE_JOIN && (int)((luck >> 16) % 100) < options->duplicate_percent) {
        arrival.at = instant_add(at, (int64_t)((luck >> 24) % 2000) * NS_PER_MS);
        if (message->kind == WIRE_EVENT && message->event.kind == MEMBERSHIP_EVENT_WORLD)
            arrival.registration = node->registration;
        arrival.letter = write_letter(cluster, message);
        cluster_schedule(cluster, &arrival);
    }
}

bool cluster_client_sends(void *context, const struct wire_message *message)
{
    const struct sim_link *link = context;
    put_on_wire(link->cluster, link->node, TO_SERVER, message);
    return true;
}

void cluster_server_sends(struct cluster *cluster, int node, const struct wire_message *message)
{
    put_on_wire(cluster, node, TO_AGENT, message);
}

/* AGAIN asks, and after ACCEPT come the states that it holds no more; both are from a server that may have
 * lost it. */
static bool tells_how_things_are(const struct node *node, const struct happening *happening)
{
    enum wire_kind kind = happening->letter->kind;
    return kind != WIRE_AGAIN && kind != WIRE_ACCEPT && instant_reached(happening->sent, node->stood_until);
}

void cluster_arrive(struct cluster *cluster, const struct happening *happening)
{
    struct node *node = &cluster->nodes[happening->node];
    bool in_flight = happening->connection != 0;
    if (in_flight && happening->connection != node->connection && happening->direction == TO_SERVER)
        send_later(cluster, happening, read_letter(cluster, happening->letter));
    const bool cut = (in_flight || happening->stale) &&
                     (node->cut[happening->direction] || cluster->nodes[cluster->endpoint].parted);
    if (cut || (in_flight && happening->connection != node->connection))
        return;
    if (happening->direction == TO_SERVER) {
        if (cluster_server(cluster) && happening->server_life == cluster->server_lives)
            cluster_server_receives(cluster, happening->session, read_letter(cluster, happening->letter));
    } else if (node->client && happening->life == node->life &&
               (!happening->registration || happening->registration == node->registration)) {
        node->registration += happening->letter->kind == WIRE_ACCEPT || happening->letter->kind == WIRE_AGAIN;
        struct muster_error err;
        struct instant now = node_time(cluster, node);
        node->slept &= !tells_how_things_are(node, happening);
        client_wake(node->client, now);
        if (happening->letter->kind == WIRE_ACCEPT)
            node->server_life = happening->server_life;
        if (happening->letter->kind == WIRE_ACCEPT || happening->letter->kind == WIRE_EVENT)
            client_set_voted(node->client, cluster_has_successor(cluster)); /* both carry the record */
        if (client_receive(node->client, read_letter(cluster, happening->letter), now, &err))
            cluster_break(cluster, INVARIANT_PROTOCOL, "%s: %s", node->name, err.text);
        cluster_turn(cluster, happening->node);
        if (happening->letter->kind == WIRE_HANDOVER)
            cluster_hand_over(cluster, happening->node);
    }
}

/* -- connections
 * -------------------------------------------------------------------------------------------------- */

void cluster_new_connection(struct cluster *cluster, struct node *node)
{
    node->connection++;
    node->session = ++cluster->last_session;
    node->last_arrival[TO_SERVER] = node->last_arrival[TO_AGENT] = cluster->now;
    /* A connection without a way back cannot even begin. */
    node->cut[TO_SERVER] = node->cut[TO_AGENT] = node->cut[TO_SERVER] || node->cut[TO_AGENT];
    if (node->session >= cluster->session_room) {
        cluster->session_room = 2 * (cluster->session_room + CLUSTER_NODE_LIMIT);
        cluster->sessions =
            cluster_need(mem_realloc(cluster->sessions, cluster->session_room, sizeof *cluster->sessions));
    }
    cluster->sessions[node->session] = (struct session){.node = (int)(node - cluster->nodes), .slot = -1};
}

void cluster_break_seen(struct cluster *cluster, int i)
{
    const struct node *node = &cluster->nodes[i];
    if (!node->cut[TO_AGENT] && node->client)
        cluster_after(cluster, 0, i, HAPPEN_CUT_SEEN);
    cluster_break_connection(cluster, i);
}

void cluster_break_connection(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    if (i == cluster->endpoint || !node->session)
        return;
    if (!node->cut[TO_SERVER] && cluster_server(cluster))
        cluster_schedule(cluster,
                         &(struct happening){.at = instant_add(cluster->now, cluster->options.delay_max_ns),
                                             .kind = HAPPEN_BROKEN,
                                             .node = i,
                                             .session = node->session});
    cluster_new_connection(cluster, node);
}
