/* client.c - see client.h: a membership's turn, incoming and outgoing messages, creation and end. */
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "proto/exit_code.h"
#include "rendezvous/client/client_internal.h"

static const int64_t reconnect_ns = NS_PER_S; /* until the server is given up */

bool client_send_now(struct client *client)
{
    return client->options.send(client->options.context, &client->message);
}

static void number_message(struct client *client, struct instant now)
{
    client->sent_at[++client->numbers % CLIENT_NUMBERS_KEPT] = now;
    client->message.number = client->numbers;
}

static void send_join(struct client *client, struct instant now)
{
    number_message(client, now);
    client->doubted = client->numbers - 1; /* this message must not be crossed by an earlier world */
    client->message.kind = WIRE_JOIN;
    client->message.join = client->options.join;
    client_fill_known(client, &client->message.join);
    const struct world_record *known = client->options.known;
    client->message.record = known && known->epoch && known->voter_count > 1 ? known : NULL;
    client->join_sent = client_send_now(client);
}

/* Later than for the first world a heartbeat may be what detects a restarted server. */
static bool waits_for_first(const struct client *client)
{
    return client->joined && !client->last_world.epoch && !client->withheld;
}

static int64_t interval(const struct client *client)
{
    const int nodes = client->options.join.max_nodes;
    if (!client->joined)
        return pace_join_ns(nodes);
    return waits_for_first(client) ? pace_waiting_beat_ns(nodes) : pace_beat_ns(nodes);
}

int64_t client_lost_after_ns(const struct client *client)
{
    const int nodes = client->options.join.max_nodes;
    return waits_for_first(client) ? pace_waiting_lost_ns(nodes) : pace_lost_ns(nodes);
}

static void send_beat(struct client *client, int missing, struct instant now)
{
    number_message(client, now);
    client->message.kind = WIRE_BEAT;
    client->message.sequence = 0;
    client->message.missing = missing;
    client->message.ended = client->ended;
    (void)client_send_now(client); /* a lost one is followed by the next */
}

void client_miss(struct client *client, int rank, struct instant now)
{
    if (client->joined && !client->over && !client->left)
        send_beat(client, 1 + rank, now);
}

static void accepted(struct client *client, uint64_t arrived, struct instant now)
{
    client->joined = client->ever_joined = true;
    /* Not from now: ACCEPT may have taken long, or come twice. */
    client->send_at = instant_add(client->sent_at[client->numbers % CLIENT_NUMBERS_KEPT], interval(client));
    report_queue_forget(client->reports, arrived);
    client_send_reports(client, now);
}

static int handle_event(struct client *client, const struct membership_event *event, struct instant now,
                        struct muster_error *err)
{
    switch (event->kind) {
    case MEMBERSHIP_EVENT_WORLD:
        return client_on_world(client, event, now, err);
    case MEMBERSHIP_EVENT_STOP:
        return client_on_stop(client, event, now, err);
    case MEMBERSHIP_EVENT_EVICTION:
    case MEMBERSHIP_EVENT_GO:
        return client_queue_event(client, event, err);
    default:
        client->over = true;
        client->withheld = false; /* it is not to be given out by the next answer */
        client->verdict_code = event->kind == MEMBERSHIP_EVENT_VERDICT ? event->exit_code : EXIT_CODE_FAILURE;
        return client_queue_event(client, event, err);
    }
}

/* It came when all had stopped, so there is nothing left to stop here. The server waits for our LEAVE as
 * after a verdict, and we register with the next server. */
static void on_handover(struct client *client, const struct wire_message *message, struct instant now)
{
    if (message->id.epoch != client->epoch)
        return; /* a server that never had this agent has sent it: keep asking */
    client->message.kind = WIRE_LEAVE;
    client->message.exit_code = EXIT_CODE_OK;
    (void)client_send_now(client);
    client->joined = false;
    client->join_sent = true;
    client->send_at = instant_add(now, interval(client));
    client_forget_withheld(client);
    client->left_epoch = client->epoch;
    if (world_id_equal(message->id, client->last_world)) /* a count belongs to its round */
        client->restart_count = message->restart_count;
}

/* The server does not know this connection. */
static void rejoin(struct client *client, struct instant now)
{
    client->joined = client->join_sent = false;
    client->send_at = now;
    client_forget_withheld(client);
}

int client_receive(struct client *client, const struct wire_message *message, struct instant now,
                   struct muster_error *err)
{
    if (instant_diff_ns(now, client->last_received) > client_lost_after_ns(client) / 2)
        client->doubted = client->numbers; /* messages received now were on their way for as long */
    client->last_received = now;
    client->gone_at = INSTANT_NEVER;
    switch (message->kind) {
    case WIRE_ACCEPT:
        client->lease_ns = message->lease_ns;
        client->epoch = message->epoch;
        client->notes = message->notes;
        client->accepts++;
        if (message->number > client->accepted)
            client_forget_withheld(client); /* it is given again after this */
        client->accepted = message->number > client->accepted ? message->number : client->accepted;
        client_renew_lease(client, message->number);
        accepted(client, message->sequence, now);
        if (client->held.epoch && message->number <= client->held_at)
            rejoin(client, now); /* it joined without its present workers */
        return 0;
    case WIRE_AGAIN:
        client->options.join.proof = message->proof;
        rejoin(client, now);
        return 0;
    case WIRE_HANDOVER:
        on_handover(client, message, now);
        return 0;
    case WIRE_BEAT:
        memcpy(client->progress, message->progress, sizeof client->progress);
        if (message->server_done.epoch) {
            client->server_done = message->server_done;
            rank_ranges_copy(&client->done_ranks, &message->done);
        } else if (message->server_works) {
            client->server_done = (struct world_id){0}; /* that was another server */
        }
        client_renew_lease(client, message->number);
        report_queue_forget(client->reports, message->sequence);
        return client_give_withheld(client, now, err);
    case WIRE_EVENT:
        return client->over ? 0 : handle_event(client, &message->event, now, err);
    default:
        return error_set(err, MUSTER_E_PROTOCOL, "%s sent a message that only an agent sends",
                         client->options.server);
    }
}

bool client_has_room(const struct client *client)
{
    return client->queue.count < EVENT_QUEUE_LIMIT;
}

bool client_take_event(struct client *client, struct membership_event *event)
{
    return event_queue_pop(&client->queue, event);
}

int client_turn(struct client *client, struct instant now, struct muster_error *err)
{
    if (client->left)
        return 0;
    if (client_check_lease(client, now, err))
        return -1;
    if (client_check_silence(client, now, err))
        return -1;
    bool due = instant_reached(now, client->send_at);
    if (due)
        client->send_at = instant_add(now, interval(client));
    if (client->joined && due)
        send_beat(client, 0, now);
    /* A JOIN that found no connection is sent as soon as there is one. After the end there is nothing to
     * join for. */
    if (!client->joined && !client->over && (due || !client->join_sent))
        send_join(client, now);
    return 0;
}

void client_broken(struct client *client, struct instant now)
{
    client->join_sent = false; /* not on the next connection */
    client->gone_at = instant_min(client->gone_at, instant_add(now, reconnect_ns));
    /* The server gives the member up half a second after it detected that (a second in a static world),
     * unless it receives something on a new connection. */
    client->send_at = instant_min(client->send_at, instant_add(now, reconnect_ns / 8));
}

void client_connected(struct client *client, struct instant now)
{
    if (client->joined)
        client->send_at = instant_min(client->send_at, now);
}

void client_reached(struct client *client)
{
    client->gone_at = INSTANT_NEVER;
}

void client_wake(struct client *client, struct instant now)
{
    if (!client->left && client_has_room(client))
        (void)client_check_lease(client, now, NULL); /* there is room for its event */
    if (instant_diff_ns(now, client->woken) > client_lost_after_ns(client) / 2) {
        client->last_received = now;
        client->doubted = client->numbers;
    }
    client->woken = now;
}

struct instant client_deadline(const struct client *client)
{
    if (client->queue.count)
        return (struct instant){0};
    if (client->left)
        return INSTANT_NEVER;
    /* After the verdict heartbeats continue until the agent closes: the server waits for it. */
    if (client->over)
        return client->send_at;
    return instant_min(client->send_at, instant_min(client_lease_end(client), client_silence_limit(client)));
}

void client_drain(struct client *client, int exit_code, int64_t grace_ns)
{
    client->message.kind = WIRE_DRAIN;
    client->message.exit_code = exit_code;
    client->message.grace_ns = grace_ns;
    if (client->joined)
        (void)client_send_now(client);
}

void client_evict(struct client *client, const struct membership_evict *request)
{
    client->message.kind = WIRE_EVICT;
    client->message.evict = *request;
    if (client->joined)
        (void)client_send_now(client);
}

void client_note(struct client *client, const char *data, size_t length)
{
    if (!client_notes_wanted(client))
        return;
    client->message.kind = WIRE_NOTE;
    client->message.note = data;
    client->message.note_length = length;
    (void)client_send_now(client);
}

uint64_t client_notes_wanted(const struct client *client)
{
    return client->joined && client->notes && !client->left ? client->accepts : 0;
}

bool client_server_left(const struct client *client)
{
    return client->accepts && client->left_epoch && client->left_epoch == client->epoch;
}

const char *client_progress(const struct client *client)
{
    return client->joined ? client->progress : "";
}

bool client_has_joined(const struct client *client)
{
    return client->ever_joined;
}

void client_leave(struct client *client, int exit_code)
{
    if (client->left)
        return;
    client->left = true;
    client->message.kind = WIRE_LEAVE;
    client->message.exit_code = exit_code;
    (void)client_send_now(client);
}

void client_finish(struct client *client)
{
    if (client->over)
        client_leave(client, client->verdict_code);
}

struct client *client_create(const struct client_options *options, struct instant now,
                             struct muster_error *err)
{
    struct client *client = mem_calloc(1, sizeof *client);
    if (!client) {
        error_set(err, MUSTER_E_NOMEM, "no memory for a rendezvous client");
        return NULL;
    }
    client->options = *options;
    client->reports = options->reports ? options->reports : &client->own_reports;
    client->gone_at = INSTANT_NEVER;
    client->send_at = client->last_received = client->woken = now;
    client->join_limit = instant_add(now, options->join_timeout_ns - options->join_used_ns);
    client->sequence = options->sequence;
    client->numbers = options->numbers;
    if (options->past)
        client_take_past(client, options->past);
    return client;
}

bool client_had_world(const struct client *client)
{
    return client->last_world.epoch != 0;
}

uint64_t client_sequence(const struct client *client)
{
    return client->sequence;
}

uint64_t client_numbers(const struct client *client)
{
    return client->numbers;
}

void client_set_voted(struct client *client, bool voted)
{
    client->voted = voted;
}

void client_destroy(struct client *client)
{
    if (!client)
        return;
    report_queue_forget(&client->own_reports, UINT64_MAX);
    mem_free(client);
}
