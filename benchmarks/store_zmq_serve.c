/* store_zmq_serve.c - a store over ZeroMQ, as small as it gets, to measure what ZeroMQ's hop costs: the
 * engine of rendezvous/tcpstore/tcpstore.h with a ROUTER. A message from a client is bytes of its requests,
 * a message to it bytes of its replies. Prints its port; ends with its standard input. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "proto/base/mem.h"
#include "rendezvous/tcpstore/tcpstore.h"

enum { CLIENTS = 1024, ID_BYTES = 5, TURN = 64 };

/* The id that libzmq gives a client by itself: a zero byte and a number. */
struct client {
    char id[ID_BYTES];
    struct tcpstore_connection *connection;
};

static struct client clients[CLIENTS]; /* open addressing; clients stay for the run */
static struct tcpstore *engine;
static void *router;

static void die(const char *what)
{
    (void)fprintf(stderr, "store_zmq_serve: %s: %s\n", what, zmq_strerror(zmq_errno()));
    exit(1);
}

static struct client *client_of(const char *id)
{
    uint32_t number;
    memcpy(&number, id + 1, sizeof number);
    for (uint32_t at = number * UINT32_C(0x9E3779B1);; at++) {
        struct client *client = &clients[at % CLIENTS];
        if (!client->connection) {
            memcpy(client->id, id, ID_BYTES);
            client->connection = tcpstore_open(engine, client, NULL);
            if (!client->connection)
                die("no memory");
            return client;
        }
        if (!memcmp(client->id, id, ID_BYTES))
            return client;
    }
}

/* Takes one message; false: there is none now. */
static bool receive(void)
{
    char id[ID_BYTES];
    zmq_msg_t message;
    if (zmq_recv(router, id, sizeof id, ZMQ_DONTWAIT) < 0) {
        if (zmq_errno() != EAGAIN)
            die("zmq_recv");
        return false;
    }
    zmq_msg_init(&message);
    if (zmq_msg_recv(&message, router, 0) < 0)
        die("zmq_msg_recv");
    tcpstore_feed(client_of(id)->connection, zmq_msg_data(&message), zmq_msg_size(&message));
    zmq_msg_close(&message);
    return true;
}

static void reply(void)
{
    for (struct tcpstore_connection *c; (c = tcpstore_next_touched(engine));) {
        const struct client *client = tcpstore_owner(c);
        struct store_bytes out = tcpstore_output(c);
        if (tcpstore_broken_reason(c))
            die(tcpstore_broken_reason(c)->text);
        if (!out.length)
            continue;
        if (zmq_send(router, client->id, ID_BYTES, ZMQ_SNDMORE) < 0 ||
            zmq_send(router, out.data, out.length, 0) < 0)
            die("zmq_send");
        tcpstore_sent(c, out.length);
    }
}

int main(void)
{
    void *context = zmq_ctx_new();
    char endpoint[128];
    size_t length = sizeof endpoint;
    engine = tcpstore_create(NULL, NULL);
    router = context ? zmq_socket(context, ZMQ_ROUTER) : NULL;
    if (!engine || !router || zmq_bind(router, "tcp://127.0.0.1:*") ||
        zmq_getsockopt(router, ZMQ_LAST_ENDPOINT, endpoint, &length))
        die("cannot serve");
    printf("%s\n", strrchr(endpoint, ':') + 1);
    (void)fflush(stdout);
    for (;;) {
        zmq_pollitem_t items[] = {{.socket = router, .events = ZMQ_POLLIN},
                                  {.fd = STDIN_FILENO, .events = ZMQ_POLLIN}};
        if (zmq_poll(items, 2, -1) < 0 && zmq_errno() != EINTR)
            die("zmq_poll");
        if (items[1].revents)
            return 0;
        for (int i = 0; i < TURN && receive(); i++)
            ;
        reply();
    }
}
