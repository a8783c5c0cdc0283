/* tcpstore_call.h - one call of a TCPStore client: its request, its reply, its deadline and the text of its
 * failure. For tcpstore_client.c and tcpstore_client_connect.c alone.
 *
 * A call builds its request in the client's buffer, sends it and reads the reply. A failure in the middle of
 * a request or reply closes the connection, and every later call fails. */
#ifndef MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_CALL_H
#define MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_CALL_H

#include "proto/base/buffer.h"
#include "proto/base/clock.h"
#include "rendezvous/tcpstore/tcpstore.h"
#include "rendezvous/tcpstore/tcpstore_client.h"

enum { TCPSTORE_CLIENT_INPUT = 4 << 10 };

struct tcpstore_client {
    int fd;             /* -1 once a failure has closed it */
    bool muster_server; /* see TCPSTORE_MUSTER_KEY */
    bool old_server;    /* the server is assumed to be torch 2.1's, see tcpstore_dialect */
    uint16_t port;
    const unsigned char *key; /* the caller's, while it connects; NULL: none */
    char *host;
    char *prefix; /* begins every user key: "/" or "/<prefix>/" */
    int64_t timeout_ns;
    struct buffer request;
    size_t input_start, input_end; /* received bytes that were not consumed yet */
    char input[TCPSTORE_CLIENT_INPUT];
};

/* One call: its deadline, and the names for its error text. */
struct tcpstore_call {
    struct tcpstore_client *client;
    const char *what, *key;
    size_t keys;    /* 0: none */
    bool pipelined; /* the GET was sent together with the WAIT */
    bool late;      /* a CANCEL_WAIT arrived too late: its reply follows the values */
    struct instant start, deadline;
    struct muster_error *err;
};

/* A call with an empty request of the query; key may be NULL. what and key are borrowed while it lasts. */
struct tcpstore_call tcpstore_call_begin(struct tcpstore_client *c, enum tcpstore_query query,
                                         const char *what, const char *key, int64_t timeout_ns,
                                         struct muster_error *err);

/* Append a part of the request. The buffer remembers a failure, and tcpstore_call_send checks it. */
void tcpstore_call_put_query(struct tcpstore_client *c, enum tcpstore_query query);
void tcpstore_call_put_u32(struct tcpstore_client *c, uint32_t value);
void tcpstore_call_put_u64(struct tcpstore_client *c, uint64_t value);
void tcpstore_call_put_bytes(struct tcpstore_client *c, struct store_bytes bytes);
/* With the client's prefix. */
void tcpstore_call_put_key(struct tcpstore_client *c, const char *key);
/* A list of keys; error texts of the call name the first of them from now on. */
int tcpstore_call_put_keys(struct tcpstore_call *call, const char *const *keys, size_t count);
/* Rejects a key or value above the server's limits, which would only close the connection. */
int tcpstore_call_check_sizes(const struct tcpstore_call *call, const char *key, size_t value);

int tcpstore_call_send(const struct tcpstore_call *call);
/* Sends the WAIT or BARRIER that is in the request and waits for its reply; cancels it when the deadline
 * passes. */
int tcpstore_call_wait(struct tcpstore_call *call);
/* Receives exactly length bytes. On failure err has the bare cause and the connection stays open: the caller
 * passes it on with tcpstore_call_fail. */
int tcpstore_call_receive(struct tcpstore_client *c, void *to, size_t length, struct instant deadline,
                          struct muster_error *err);
int tcpstore_call_receive_i64(const struct tcpstore_call *call, int64_t *value);
/* Replaces the content of out by a received vector. */
int tcpstore_call_receive_vector(const struct tcpstore_call *call, struct buffer *out);

/* Completes call->err with the call, the server and the time it took, and closes the connection. Returns -1.
 */
int tcpstore_call_fail(const struct tcpstore_call *call);
/* The same for a reply that the protocol does not define. */
int tcpstore_call_protocol(const struct tcpstore_call *call, const char *reply, int64_t value);

#endif
