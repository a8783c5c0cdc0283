/* tcpstore_internal.h - an engine and its connections, shared by tcpstore.c (connections and the order of
 * service) and tcpstore_requests.c (one request). Included by these two only. */
#ifndef MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_INTERNAL_H
#define MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_INTERNAL_H

#include "proto/base/buffer.h"
#include "rendezvous/tcpstore/tcpstore.h"
#include "rendezvous/tcpstore/tcpstore_output.h"
#include "rendezvous/tcpstore/tcpstore_parser.h"

struct tcpstore_queue { /* a singly linked queue of connections */
    struct tcpstore_connection *first, *last;
};

struct tcpstore_connection {
    struct tcpstore *engine;
    void *owner;
    enum tcpstore_state state;
    bool proven;            /* it has the job's key */
    bool muster_client;     /* it has sent a CHECK of TCPSTORE_MUSTER_KEY */
    bool touched, runnable; /* is in the engine's queue of this name */
    struct tcpstore_connection *next_touched, *next_runnable, *next, *previous;
    struct tcpstore_parser parser;
    struct buffer input;
    struct tcpstore_output output;
    bool handing_over;           /* the request's blocks are about to be the store's, or free */
    size_t counted;              /* bytes of its buffers in tcpstore.buffered */
    uint64_t number;             /* ordinal of the connection in the engine, from 1 */
    struct store_owner *account; /* account of its values in the store */
    bool forfeits;               /* broken because it has most memory: its values are deleted */
    struct muster_error *reason; /* why it is broken */
};

struct tcpstore {
    struct store *store;
    struct store_limits limits;
    struct tcpstore_connection *connections;
    struct tcpstore_queue touched, runnable;
    struct store_bytes *strings; /* scratch: a request's strings, and the block of each */
    struct store_block **blocks;
    size_t strings_capacity;
    bool guarded; /* key and random are set */
    unsigned char key[MAC_KEY_SIZE], random[MAC_KEY_SIZE];
    size_t budget, buffered; /* buffered: bytes in all connections' buffers */
    uint64_t served, crowded_out, opened;
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

/* tcpstore_proof.c: a request of the challenge or with the proof; 1: answered, 0: it is another request. The
 * answer's bytes are in room. */
int tcpstore_proof_serve(struct tcpstore_connection *c, struct store_answer *answer,
                         unsigned char room[MAC_SIZE], struct muster_error *err);
/* Whether the connection may name the request's keys. */
int tcpstore_proof_check(const struct tcpstore_connection *c, struct muster_error *err);

/* tcpstore_budget.c */
/* The connection's buffers may have another size. */
void tcpstore_connection_count(struct tcpstore_connection *c);
/* Breaks the connections with most memory until there is room for `more` bytes of c; fails if c has most. */
int tcpstore_make_room(struct tcpstore_connection *c, size_t more, struct muster_error *err);
/* Frees all memory of a broken connection, in the store as well. Not while its request is served. */
void tcpstore_connection_empty(struct tcpstore_connection *c);

/* tcpstore.c: ends the connection with this reason; effective once. */
void tcpstore_connection_break(struct tcpstore_connection *c, const struct muster_error *reason);

/* tcpstore_requests.c: serves the complete request that c->parser found at data; appends the reply to
 * c->output. After a failure the caller breaks the connection. */
int tcpstore_request_serve(struct tcpstore_connection *c, const char *data, struct muster_error *err);
/* Sends the reply to the clients whose waits the last change of the store released, and makes them runnable.
 */
void tcpstore_request_wakes(struct tcpstore *t);

#endif
