/* tcpstore_call.h - one call of a TCPStore client: its request, its reply, its deadline and the words of its
 * failure. For tcpstore_client.c and tcpstore_client_connect.c alone.
 *
 * A call builds its request in the client's buffer, sends it and reads the reply. What leaves the stream out
 * of step closes it, and every later call fails. */
#ifndef MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_CALL_H
#define MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_CALL_H

#include "proto/base/buffer.h"
#include "proto/base/clock.h"
#include "rendezvous/tcpstore/tcpstore.h"
#include "rendezvous/tcpstore/tcpstore_client.h"

enum { TCPSTORE_CLIENT_INPUT = 4 << 10 };

struct tcpstore_client {
    int fd;    /* -1 once it is out of step */
    bool ours; /* the server is ours, see TCPSTORE_OURS */
    bool old;  /* it is taken for one of torch 2.1, see tcpstore_dialect */
    uint16_t port;
    char *host;
    char *prefix; /* what every user key gets: "/" or "/<prefix>/" */
    int64_t timeout_ns;
    struct buffer request;
    size_t input_start, input_end; /* what was received and not yet read */
    char input[TCPSTORE_CLIENT_INPUT];
};

/* One call: for its deadline and its error text. */
struct tcpstore_call {
    struct tcpstore_client *client;
    const char *what, *key;
    size_t keys; /* 0: none */
    bool behind; /* the request for the values was sent with the wait for them */
    bool late;   /* a CANCEL_WAIT came too late: its answer is behind the values */
    struct instant start, deadline;
    struct muster_error *err;
};

/* A call with an empty request of the query; key may be NULL. what and key are borrowed while it lasts. */
struct tcpstore_call tcpstore_call_begin(struct tcpstore_client *c, enum tcpstore_query query,
                                         const char *what, const char *key, int64_t timeout_ns,
                                         struct muster_error *err);

/* Parts of a request. The buffer remembers a failure, and tcpstore_call_send looks at it. */
void tcpstore_call_put_query(struct tcpstore_client *c, enum tcpstore_query query);
void tcpstore_call_put_u32(struct tcpstore_client *c, uint32_t value);
void tcpstore_call_put_u64(struct tcpstore_client *c, uint64_t value);
void tcpstore_call_put_bytes(struct tcpstore_client *c, struct store_bytes bytes);
/* With the client's prefix. */
void tcpstore_call_put_key(struct tcpstore_client *c, const char *key);
/* A list of keys, which the call is about from now on. */
int tcpstore_call_put_keys(struct tcpstore_call *call, const char *const *keys, size_t count);
/* What no server takes is refused here: it would only close the connection without a word. */
int tcpstore_call_check_sizes(const struct tcpstore_call *call, const char *key, size_t value);

int tcpstore_call_send(const struct tcpstore_call *call);
/* Sends the WAIT or BARRIER that is in the request and waits for its end; when the deadline passes it is
 * taken back. */
int tcpstore_call_wait(struct tcpstore_call *call);
/* Exactly length bytes. A failure is in plain words and leaves the stream open: see tcpstore_call_fail. */
int tcpstore_call_receive(struct tcpstore_client *c, void *to, size_t length, struct instant deadline,
                          struct muster_error *err);
int tcpstore_call_receive_i64(const struct tcpstore_call *call, int64_t *value);
/* Replaces the content of out by the vector that comes. */
int tcpstore_call_receive_vector(const struct tcpstore_call *call, struct buffer *out);

/* Says what failed, where, and after how long, and closes the stream, which is out of step. Returns -1. */
int tcpstore_call_fail(const struct tcpstore_call *call);
/* The same for a reply that the protocol does not know. */
int tcpstore_call_protocol(const struct tcpstore_call *call, const char *reply, int64_t value);

#endif
