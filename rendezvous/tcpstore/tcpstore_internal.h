/* tcpstore_internal.h - an engine and its connections, shared by tcpstore.c (connections and the order of
 * service) and tcpstore_requests.c (one request). Included by these two only. */
#ifndef MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_INTERNAL_H
#define MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_INTERNAL_H

#include "proto/base/buffer.h"
#include "rendezvous/tcpstore/tcpstore.h"
#include "rendezvous/tcpstore/tcpstore_parser.h"

struct tcpstore_queue { /* a singly linked queue of connections */
    struct tcpstore_connection *first, *last;
};

struct tcpstore_connection {
    struct tcpstore *engine;
    void *owner;
    enum tcpstore_state state;
    bool muster_client;     /* it has sent a CHECK of TCPSTORE_MUSTER_KEY */
    bool touched, runnable; /* is in that queue */
    struct tcpstore_connection *next_touched, *next_runnable, *next, *previous;
    struct tcpstore_parser parser;
    struct buffer input, output;
    size_t output_sent;          /* bytes at the front that were sent */
    struct muster_error *reason; /* why it is broken */
};

struct tcpstore {
    struct store *store;
    struct store_limits limits;
    struct tcpstore_connection *connections;
    struct tcpstore_queue touched, runnable;
    struct store_bytes *strings; /* scratch: a request's strings */
    size_t strings_capacity;
    uint64_t served;
};

/* The connection's client number in the store. */
static inline uint64_t tcpstore_connection_client(const struct tcpstore_connection *c)
{
    return (uint64_t)(uintptr_t)c;
}

/* tcpstore.c: the connection has output to send or is broken; see tcpstore_next_touched. */
void tcpstore_connection_touch(struct tcpstore_connection *c);
/* Queued requests of the connection may be served now; they are, before the call into the engine returns. */
void tcpstore_connection_make_runnable(struct tcpstore_connection *c);

/* tcpstore_requests.c: serves the complete request that c->parser found at data; appends the reply to
 * c->output. After a failure the caller breaks the connection. */
int tcpstore_request_serve(struct tcpstore_connection *c, const char *data, struct muster_error *err);
/* Sends the reply to the clients whose waits the last change of the store released, and makes them runnable.
 */
void tcpstore_request_wakes(struct tcpstore *t);

#endif
