/* tcpstore_internal.h - an engine and its connections, shared by tcpstore.c (who is there, whose turn it is)
 * and tcpstore_requests.c (what one request does). Nobody else includes it. */
#ifndef MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_INTERNAL_H
#define MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_INTERNAL_H

#include "proto/base/buffer.h"
#include "rendezvous/tcpstore/tcpstore.h"
#include "rendezvous/tcpstore/tcpstore_parser.h"

struct tcpstore_line { /* a singly linked queue of connections */
    struct tcpstore_connection *first, *last;
};

struct tcpstore_connection {
    struct tcpstore *engine;
    void *owner;
    enum tcpstore_state state;
    bool ours;              /* it has asked for TCPSTORE_OURS */
    bool touched, runnable; /* is in that line */
    struct tcpstore_connection *next_touched, *next_runnable, *next, *previous;
    struct tcpstore_parser parser;
    struct buffer input, output;
    size_t output_sent;          /* bytes at the front that are done */
    struct muster_error *reason; /* why it is broken */
};

struct tcpstore {
    struct store *store;
    struct store_limits limits;
    struct tcpstore_connection *connections;
    struct tcpstore_line touched, runnable;
    struct store_bytes *strings; /* scratch: a request's strings */
    size_t strings_capacity;
    uint64_t served;
};

/* The number under which the store knows it. */
static inline uint64_t tcpstore_connection_client(const struct tcpstore_connection *c)
{
    return (uint64_t)(uintptr_t)c;
}

/* tcpstore.c: the connection has something for its shell. */
void tcpstore_connection_touch(struct tcpstore_connection *c);
/* Its queued requests may be served now; they are, before the call into the engine ends. */
void tcpstore_connection_make_runnable(struct tcpstore_connection *c);

/* tcpstore_requests.c: serves the whole request that c->parser has found at data; its reply is in c->output.
 * A failure breaks the connection. */
int tcpstore_request_serve(struct tcpstore_connection *c, const char *data, struct muster_error *err);
/* Answers the clients that the last change of the store let go and makes them runnable. */
void tcpstore_request_wakes(struct tcpstore *t);

#endif
