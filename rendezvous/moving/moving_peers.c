/* moving_peers.c - connections to the doors of voters and endpoints. They are opened with the first message,
 * which waits for the connection, and closed when they have not been used for a while. See moving_internal.h.
 */
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "proto/base/error.h"
#include "rendezvous/moving/moving_internal.h"
#include "rendezvous/zmq/zmq_calls.h"

enum {
    FIRST_INTERVAL_MS = 10,
    LONGEST_INTERVAL_MS = 250,
    CONNECT_LIMIT_MS = 1000, /* an agent that is started again answers at once */
    WAITING_LIMIT = 4,       /* messages that wait for a connection: each is repeated anyway */
};

static const int64_t idle_ns = 30 * NS_PER_S;

static void close_peer(struct moving_peer *peer)
{
    zmq_socket_close(&peer->socket, 0);
    *peer = (struct moving_peer){0};
}

static int open_peer(struct transport *c, struct moving_peer *peer, const char *address, uint16_t port,
                     struct muster_error *err)
{
    (void)snprintf(peer->address, sizeof peer->address, "%s", address);
    peer->port = port;
    if (!c->peers.context && zmq_socket_make_context(&c->peers.context, err))
        return -1;
    const struct zmq_socket_options where = {.host = peer->address,
                                             .port = port,
                                             .keys = c->outer->options.keys,
                                             .nodes = RECORD_VOTERS,
                                             .log = c->outer->options.log,
                                             .first_interval_ms = FIRST_INTERVAL_MS,
                                             .longest_interval_ms = LONGEST_INTERVAL_MS,
                                             .connect_limit_ms = CONNECT_LIMIT_MS,
                                             .waiting_limit = WAITING_LIMIT,
                                             .context = c->peers.context};
    if (zmq_socket_connect_dealer(&peer->socket, &where, err))
        return -1;
    if (epoll_ctl(c->wake, EPOLL_CTL_ADD, zmq_socket_fd(&peer->socket),
                  &(struct epoll_event){.events = EPOLLIN}) == 0)
        return 0;
    return error_errno(err, "cannot wait for the answers of a voter: epoll_ctl");
}

/* The peer of that address; else a free peer, or the peer that was not used for longest. */
static struct moving_peer *find_peer(struct transport *c, const char *address, uint16_t port)
{
    struct moving_peer *oldest = &c->peers.items[0];
    struct muster_error err;
    for (int i = 0; i < MOVING_PEERS; i++) {
        struct moving_peer *peer = &c->peers.items[i];
        if (peer->socket.socket && peer->port == port && !strcmp(peer->address, address))
            return peer;
        if (peer->used.ns < oldest->used.ns)
            oldest = peer;
    }
    close_peer(oldest);
    if (open_peer(c, oldest, address, port, &err) == 0)
        return oldest;
    log_warning(c->outer->options.log, "rendezvous: no connection to %s port %u: %s", address, (unsigned)port,
                err.text);
    close_peer(oldest);
    return NULL;
}

void moving_peers_send(struct transport *c, const char *address, uint16_t port, const struct voter *to,
                       const struct takeover_message *message, struct instant now)
{
    struct muster_error err;
    if (!address[0] || !port)
        return; /* an agent that nobody has reached yet */
    struct moving_peer *peer = find_peer(c, address, port);
    if (!peer)
        return;
    peer->used = now;
    c->drain = true;
    c->sent.kind = WIRE_VOTE;
    c->sent.vote.message = *message;
    c->sent.vote.to = to ? to->incarnation : (struct agent_incarnation){0};
    c->sent.vote.job_id = c->outer->options.job_id;
    buffer_clear(&c->bytes);
    if (wire_encode(&c->sent, &c->bytes, &err))
        log_warning(c->outer->options.log, "rendezvous: %s", err.text);
    else
        (void)zmq_socket_send(&peer->socket, NULL, 0, c->bytes.data, c->bytes.length); /* it is repeated */
}

static bool receive_from(struct transport *c, struct moving_peer *peer)
{
    zmq_msg_t body;
    bool got = false;
    while (!got && zmq_socket_readable(&peer->socket)) {
        zmq_calls.msg_init(&body);
        if (zmq_calls.msg_recv(&body, peer->socket.socket, ZMQ_DONTWAIT) >= 0) {
            struct muster_error why;
            got = wire_decode(zmq_calls.msg_data(&body), zmq_calls.msg_size(&body), &c->frame, &why) == 0;
            if (!got)
                log_warning(c->outer->options.log, "rendezvous: %s port %u: %s", peer->address,
                            (unsigned)peer->port, why.text);
        }
        zmq_calls.msg_close(&body);
    }
    return got;
}

struct moving_peer *moving_peers_receive(struct transport *c)
{
    for (int i = 0; i < MOVING_PEERS; i++)
        if (c->peers.items[i].socket.socket && receive_from(c, &c->peers.items[i]))
            return &c->peers.items[i];
    return NULL;
}

void moving_peers_tend(struct transport *c, struct instant now)
{
    for (int i = 0; i < MOVING_PEERS; i++)
        if (c->peers.items[i].socket.socket && instant_diff_ns(now, c->peers.items[i].used) > idle_ns)
            close_peer(&c->peers.items[i]);
}

void moving_peers_close(struct transport *c)
{
    for (int i = 0; i < MOVING_PEERS; i++)
        close_peer(&c->peers.items[i]);
    zmq_socket_end_context(&c->peers.context);
}
