/* transport_client.c - the membership of an agent whose world is served by another host: a DEALER in the
 * agent's own loop, and the state machine of client.c.
 *
 * libzmq's descriptor is edge-triggered, and every call on the socket may consume the edge: the socket is
 * drained before client_next returns 0, and after anything was sent the deadline is "now" until
 * client_next was called.
 *
 * The events of its connection wake the agent too: a peer that accepts connections and ends them is noticed
 * at once, and not at the next message that is due. */
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "rendezvous/client/client.h"
#include "rendezvous/client/connection.h"
#include "rendezvous/client/transport_client.h"
#include "rendezvous/client/whole_greeting.h"
#include "rendezvous/roster/pace.h"
#include "rendezvous/zmq/handshake.h"
#include "rendezvous/zmq/zmq_calls.h"
#include "rendezvous/zmq/zmq_socket.h"

static const int64_t longest_patience_ns = 60 * NS_PER_S;

struct transport {
    struct zmq_socket socket;
    int wake; /* an epoll of the socket's descriptor and its events'; -1: none */
    struct client *client;
    const struct transport_hooks *hooks;
    struct buffer frame;         /* scratch for sending */
    struct wire_message message; /* scratch for receiving */
    struct connection connection;
    struct whole_greeting greeting;
    struct zmq_socket_options where;
    struct instant first_at; /* the first attempt to connect; never: it was made */
    bool drain;              /* the descriptor may be silent although there is something */
    bool lost;               /* there was a connection, and is none yet again */
    bool missed;             /* the server is lost, and that was logged */
    bool probing;            /* a new connection was started because nothing arrived on the last one */
    int64_t patience_ns, first_patience_ns; /* with a connection on which nothing arrives */
    const struct log_sink *log;
    char server[2 * MEMBERSHIP_NAME_LIMIT];
};

static void name_server(struct transport *c, const struct membership *m, const char *host)
{
    bool named = m->options.host_name && strcmp(m->options.host_name, host) != 0;
    (void)snprintf(c->server, sizeof c->server, "%s%s%s:%u%s", named ? m->options.host_name : "",
                   named ? " (" : "", host, m->options.port, named ? ")" : "");
}

static bool socket_send(void *context, const struct wire_message *message)
{
    struct transport *c = context;
    struct muster_error err;
    buffer_clear(&c->frame);
    if (wire_encode(message, &c->frame, &err)) {
        log_warning(c->log, "rendezvous: %s", err.text);
        return false;
    }
    c->drain = true;
    return zmq_socket_send(&c->socket, NULL, 0, c->frame.data, c->frame.length) == 0;
}

/* CONNECTION_EVENT_COUNT if the event has no meaning. */
static enum connection_event meaning(int event, int value, bool keys)
{
    static const struct {
        int number;
        enum connection_event event;
    } table[] = {
        {ZMQ_EVENT_CONNECT_DELAYED, CONNECTION_BEGINS}, {ZMQ_EVENT_CONNECT_RETRIED, CONNECTION_FAILS},
        {ZMQ_EVENT_CONNECTED, CONNECTION_OPENS},        {ZMQ_EVENT_HANDSHAKE_SUCCEEDED, CONNECTION_GREETS},
        {ZMQ_EVENT_DISCONNECTED, CONNECTION_CLOSES},
    };
    switch (handshake_fault(event, value)) {
    case HANDSHAKE_MISMATCH:
        return keys ? CONNECTION_WANTS_NO_SECRET : CONNECTION_WANTS_SECRET;
    case HANDSHAKE_DENIED:
        return CONNECTION_DENIES;
    case HANDSHAKE_CRYPTO:
        return keys ? CONNECTION_BREAKS_OFF : CONNECTION_CONFUSES;
    case HANDSHAKE_BROKEN:
        return keys ? CONNECTION_ENDS_SECRET : CONNECTION_ENDS;
    case HANDSHAKE_STRANGE:
    case HANDSHAKE_LATER:
        return CONNECTION_CONFUSES;
    default:
        break;
    }
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].number == event)
            return table[i].event;
    return CONNECTION_EVENT_COUNT;
}

static void lose_connection(struct transport *c, struct instant now)
{
    c->lost = true;
    client_broken(c->client, now);
    c->hooks->broken(c->hooks->context);
}

static void note_connection(struct transport *c, int event, int value, struct instant now)
{
    enum connection_event known = meaning(event, value, c->where.keys != NULL);
    if (known == CONNECTION_OPENS && c->probing) {
        c->probing = false;
        client_reached(c->client);
    }
    if (known == CONNECTION_GREETS && c->lost) {
        c->lost = false;
        client_connected(c->client, now);
    }
    if (connection_is_lost_by(&c->connection, known))
        lose_connection(c, now);
    if (known != CONNECTION_EVENT_COUNT && connection_step(&c->connection, known, now) &&
        connection_is_judged(&c->connection))
        log_warning(c->log, "%s: %s", c->server, connection_words(&c->connection));
}

static void watch_connection(struct transport *c, struct instant now)
{
    int event, value;
    while (zmq_socket_next_event(&c->socket, &event, &value))
        note_connection(c, event, value, now);
}

/* The error that ends the membership, with the known state of the connection. */
static int explain(const struct transport *c, struct muster_error *err)
{
    const char *words = connection_words(&c->connection);
    struct muster_error plain = *err;
    enum connection_state state = c->connection.state;
    bool nobody = state == CONNECTION_REFUSED || state == CONNECTION_SILENT;
    /* A server leaves last, with the job's end: a later node finds no server to learn the result from. */
    const char *late = nobody && plain.code == MUSTER_E_TIMEOUT && !client_has_joined(c->client)
                           ? "; if the job was over before this node joined, its server has exited"
                           : "";
    return *words ? error_set(err, (enum muster_error_code)plain.code, "%s; %s%s", plain.text, words, late)
                  : -1;
}

static int connect_again(struct transport *c, struct muster_error *err)
{
    c->where.first_interval_ms = connection_first_interval_ms(&c->connection);
    c->drain = true;
    return zmq_socket_connect_again(&c->socket, &c->where, err);
}

/* If libzmq does not retry, we do, for a while: the server may just be being replaced. After the first
 * ACCEPT its loss is detected by its silence. */
static int retry_connection(struct transport *c, struct instant now, struct muster_error *err)
{
    if (connection_is_hopeless(&c->connection) && !client_has_joined(c->client))
        return error_set(err, MUSTER_E_REFUSED,
                         "the server of the job's world at %s does not admit this node: %s", c->server,
                         connection_words(&c->connection));
    if (connection_changes_pace(&c->connection, c->where.first_interval_ms))
        return connect_again(c, err);
    if (!instant_reached(now, connection_retry(&c->connection)))
        return 0;
    connection_retried(&c->connection);
    if (connection_is_mismatch(&c->connection))
        whole_greeting_step(&c->greeting, c->where.host, c->where.port, c->where.keys != NULL);
    return connect_again(c, err);
}

/* A host that dies silently leaves a connection that never ends, and after a cut TCP takes as long again
 * to detect that it is over. A server that never sent anything on it may just be busy. */
static struct instant renewal_due(const struct transport *c)
{
    struct instant received = client_last_received(c->client), greeted = c->connection.since;
    if (c->connection.state != CONNECTION_GREETED)
        return INSTANT_NEVER;
    return received.ns > greeted.ns ? instant_add(received, client_lost_after_ns(c->client))
                                    : instant_add(greeted, c->patience_ns);
}

static int renew_connection(struct transport *c, struct instant now, struct muster_error *err)
{
    if (!instant_reached(now, renewal_due(c)))
        return 0;
    if (c->patience_ns < longest_patience_ns / 2)
        c->patience_ns *= 2;
    else if (c->patience_ns < longest_patience_ns)
        c->patience_ns = longest_patience_ns;
    c->connection = (struct connection){0};
    /* The kernel of a live host accepts the new connection at once, also for a suspended process. */
    c->probing = true;
    lose_connection(c, now);
    return connect_again(c, err);
}

/* Logs once that the server is lost or has left, and once that it is back. */
static void tell_silence(struct transport *c, const struct membership *m, struct instant now)
{
    bool left = client_server_left(c->client), missed = left || client_is_alone(c->client, now);
    if (missed == c->missed || m->left || m->over)
        return;
    c->missed = missed;
    if (left)
        log_info(c->log, "server left: %s got SIGTERM; looking for it", c->server);
    else if (missed)
        log_warning(c->log, "server lost: no message from %s for %.4g s; looking for it", c->server,
                    (double)instant_diff_ns(now, client_last_received(c->client)) / NS_PER_S);
    else
        log_info(c->log, "the server %s is back", c->server);
}

static int receive_all(struct transport *c, struct instant now, struct muster_error *err)
{
    zmq_msg_t body;
    int failed = 0;
    c->drain = false;
    while (!failed && client_has_room(c->client) && zmq_socket_readable(&c->socket)) {
        zmq_calls.msg_init(&body);
        if (zmq_calls.msg_recv(&body, c->socket.socket, ZMQ_DONTWAIT) >= 0) {
            struct muster_error why;
            if (wire_decode(zmq_calls.msg_data(&body), zmq_calls.msg_size(&body), &c->message, &why))
                log_warning(c->log, "rendezvous: %s: %s", c->server, why.text);
            else if (c->hooks->received(c->hooks->context, &c->message))
                failed = client_receive(c->client, &c->message, now, err);
            c->patience_ns = c->first_patience_ns;
        }
        zmq_calls.msg_close(&body);
    }
    return failed;
}

static int client_fd(const struct membership *m)
{
    return m->transport->wake;
}

static struct instant client_due(const struct membership *m)
{
    struct transport *c = m->transport;
    return c->drain ? (struct instant){0}
                    : instant_min(instant_min(client_deadline(c->client), c->first_at),
                                  instant_min(renewal_due(c), connection_retry(&c->connection)));
}

static int client_next(struct membership *m, struct membership_event *event, struct muster_error *err)
{
    struct transport *c = m->transport;
    struct instant now = clock_now(m->options.clock);
    watch_connection(c, now);
    client_wake(c->client, now);
    if (instant_reached(now, c->first_at)) {
        c->first_at = INSTANT_NEVER;
        if (connect_again(c, err))
            return -1;
    }
    if (retry_connection(c, now, err) || receive_all(c, now, err) || renew_connection(c, now, err))
        return -1;
    tell_silence(c, m, now);
    if (client_take_event(c->client, event))
        return 1;
    if (client_turn(c->client, now, err))
        return err ? explain(c, err) : -1;
    if (c->drain && receive_all(c, now, err))
        return -1;
    return client_take_event(c->client, event);
}

static int client_transport_report(struct membership *m, struct world_id id, enum membership_report_kind kind,
                                   const struct worker_failure *failure, struct muster_error *err)
{
    return client_report(m->transport->client, id, kind, failure, clock_now(m->options.clock), err);
}

static int client_transport_leave(struct membership *m, int exit_code, struct muster_error *err)
{
    (void)err;
    client_leave(m->transport->client, exit_code);
    return 0;
}

static int client_transport_drain(struct membership *m, int exit_code, int64_t grace_ns,
                                  struct muster_error *err)
{
    (void)err;
    client_drain(m->transport->client, exit_code, grace_ns);
    return 0;
}

static int client_transport_evict(struct membership *m, const struct membership_evict *request,
                                  struct muster_error *err)
{
    (void)err;
    client_evict(m->transport->client, request);
    return 0;
}

static void client_transport_miss(struct membership *m, int rank)
{
    client_miss(m->transport->client, rank, clock_now(m->options.clock));
}

static void client_transport_ended(struct membership *m, int rank)
{
    client_ended(m->transport->client, rank);
}

static void client_transport_progress(const struct membership *m, char *out, size_t size)
{
    const char *known = client_progress(m->transport->client);
    const char *words = connection_words(&m->transport->connection);
    struct instant now = clock_now(m->options.clock);
    if (client_server_left(m->transport->client))
        (void)snprintf(out, size, "server left; looking for it: no message from %s for %.0f s%s%s",
                       m->transport->server,
                       (double)instant_diff_ns(now, client_last_received(m->transport->client)) / NS_PER_S,
                       *words ? ": " : "", words);
    else if (client_is_alone(m->transport->client, now))
        (void)snprintf(out, size, "the server %s is lost, no message for %.0f s%s%s", m->transport->server,
                       (double)instant_diff_ns(now, client_last_received(m->transport->client)) / NS_PER_S,
                       *words ? ": " : "", words);
    else if (known[0])
        (void)snprintf(out, size, "%s; server %s", known, m->transport->server);
    else if (client_has_joined(m->transport->client))
        (void)snprintf(out, size, "the server %s forms the next world", m->transport->server);
    else
        (void)snprintf(out, size, "no answer yet from the server %s%s%s", m->transport->server,
                       *words ? ": " : "", words);
}

static void client_transport_note(struct membership *m, const char *data, size_t length)
{
    client_note(m->transport->client, data, length);
}

static uint64_t client_transport_notes_wanted(const struct membership *m)
{
    return client_notes_wanted(m->transport->client);
}

static int64_t client_transport_silence(const struct membership *m)
{
    return client_silence_ns(m->transport->client, clock_now(m->options.clock));
}

static bool client_transport_has_news(const struct membership *m)
{
    return client_has_news(m->transport->client);
}

/* host lives as long as the membership: it becomes options.host. */
static int client_transport_move(struct membership *m, const char *host, struct muster_error *err)
{
    struct transport *c = m->transport;
    struct zmq_socket_options there = c->where;
    there.host = host;
    there.first_interval_ms = connection_first_interval_ms(&(struct connection){0});
    if (zmq_socket_move(&c->socket, &c->where, &there, err))
        return -1;
    c->where = there;
    c->first_at = INSTANT_NEVER;
    c->drain = true;
    whole_greeting_close(&c->greeting);
    c->connection = (struct connection){0};
    name_server(c, m, host);
    return 0;
}

static void client_close(struct membership *m, int64_t linger_ns)
{
    struct transport *c = m->transport;
    int64_t linger_ms = linger_ns / NS_PER_MS;
    if (c->client)
        client_finish(c->client);
    whole_greeting_close(&c->greeting);
    if (c->wake >= 0)
        (void)close(c->wake); /* it holds nothing that could be lost */
    zmq_socket_close(&c->socket, linger_ms < INT32_MAX ? (int)linger_ms : INT32_MAX);
    client_destroy(c->client);
    buffer_free(&c->frame);
    mem_free(c);
    m->transport = NULL;
}

static int open_wake(struct transport *c, struct muster_error *err)
{
    const int fds[] = {zmq_socket_fd(&c->socket), zmq_socket_event_fd(&c->socket)};
    c->wake = epoll_create1(EPOLL_CLOEXEC);
    if (c->wake < 0)
        return error_errno(err, "epoll_create1");
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (epoll_ctl(c->wake, EPOLL_CTL_ADD, fds[i], &(struct epoll_event){.events = EPOLLIN}))
            return error_errno(err, "cannot wait for the rendezvous's connection: epoll_ctl");
    return 0;
}

static int open_parts(struct membership *m, struct muster_error *err)
{
    struct transport *c = m->transport;
    struct client_options options = {
        .join = membership_join(m, false),
        .join_timeout_ns = m->options.join_timeout_ns,
        .join_used_ns = m->options.join_used_ns,
        .max_restarts = m->options.max_restarts,
        .server = c->server,
        .send = socket_send,
        .context = c,
        .known = m->hooks->known,
        .past = m->hooks->past,
        .stops = m->hooks->stops,
        .sequence = m->hooks->sequence,
        .reports = m->hooks->reports,
        .numbers = m->hooks->numbers,
    };
    c->hooks = m->hooks;
    int64_t delay = connection_first_delay_ns(m->options.max_nodes, options.join.incarnation.low);
    c->log = m->options.log;
    c->first_at = delay ? instant_add(clock_now(m->options.clock), delay) : INSTANT_NEVER;
    c->patience_ns = c->first_patience_ns = pace_of(5 * NS_PER_S, m->options.max_nodes, PACE_WAIT_NODES);
    name_server(c, m, m->options.host);
    c->where = (struct zmq_socket_options){.host = m->options.host,
                                           .port = m->options.port,
                                           .keys = m->options.keys,
                                           .nodes = m->options.max_nodes,
                                           .first_interval_ms = connection_first_interval_ms(&c->connection),
                                           .longest_interval_ms =
                                               connection_longest_interval_ms(m->options.max_nodes),
                                           .connect_limit_ms = connection_limit_ms(m->options.max_nodes),
                                           .log = c->log,
                                           .later = delay > 0};
    if (zmq_socket_connect_dealer(&c->socket, &c->where, err) || open_wake(c, err))
        return -1;
    c->client = client_create(&options, clock_now(m->options.clock), err);
    return c->client ? 0 : -1;
}

struct client *transport_client_protocol(const struct membership *m)
{
    return m->transport->client;
}

int transport_client_open(struct membership *m, struct muster_error *err)
{
    static const struct transport_operations operations = {
        .fd = client_fd,
        .deadline = client_due,
        .next = client_next,
        .report = client_transport_report,
        .leave = client_transport_leave,
        .drain = client_transport_drain,
        .evict = client_transport_evict,
        .miss = client_transport_miss,
        .ended = client_transport_ended,
        .progress = client_transport_progress,
        .silence = client_transport_silence,
        .has_news = client_transport_has_news,
        .note = client_transport_note,
        .notes_wanted = client_transport_notes_wanted,
        .move = client_transport_move,
        .close = client_close,
    };
    m->operations = &operations;
    m->transport = mem_calloc(1, sizeof *m->transport);
    if (!m->transport)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a rendezvous client");
    m->transport->wake = -1;
    if (open_parts(m, err)) {
        client_close(m, 0);
        return -1;
    }
    return 0;
}
