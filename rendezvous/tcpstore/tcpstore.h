/* tcpstore.h - PyTorch's TCPStore protocol as a pure engine over one store: takes the bytes received on many
 * connections and returns the bytes to send.
 *
 * Wire format (with the query numbers of torch 2.13's QueryType): little-endian integers, no alignment,
 * no framing; a string or vector is a u64 length and its bytes. A connection opens with VALIDATE. Clients of
 * torch 2.1 do not send it: their connections open with any request, and their query numbers are lower by
 * one. Requests may be split at any byte and pipelined; replies come in the order of the requests. While a
 * WAIT or BARRIER is parked, later requests of that connection stay queued, except a CANCEL_WAIT that follows
 * directly.
 *
 * Our own client detects this server with a CHECK of the single key TCPSTORE_MUSTER_KEY, which no client of
 * PyTorch can name (their keys begin with "/") and which exists only on this server. From then on, for that
 * connection: (1) a client may send a GET or MULTI_GET directly after its WAIT; a CANCEL_WAIT after them, as
 * the last request received, cancels both while the WAIT is parked; (2) a BARRIER opens at each multiple of
 * its world size.
 *
 * One budget bounds the memory of all clients together: incomplete requests, unread
 * replies, values, queue items and waits. A value is held once: a large one is received into the memory where
 * it stays, and replies share it. If the budget is exceeded, the connection with most memory is broken, and
 * its values are deleted; other connections continue. While unread and unfinished bytes are more than a
 * quarter of the budget, only they decide which connection has most. The bytes of a connection that has
 * proven the job's key (below) count a sixteenth. A client that left counts as if it were connected.
 *
 * In a job with a secret, keys that begin with TCPSTORE_GUARDED are for processes that have the job's key. A
 * connection gets a number by a GET of TCPSTORE_CHALLENGE_KEY and proves by a SET of TCPSTORE_PROOF_KEY to
 * tcpstore_prove of it that it has the key. A request of another connection for such a key, to read or to
 * write it, breaks that connection. PyTorch's clients cannot prove anything, and their keys are free for all.
 *
 * The shell feeds received bytes, then calls `tcpstore_next_touched` until NULL for the connections whose
 * output grew or that violated the protocol, sends their output, and reports how much was sent with
 * `tcpstore_sent`. One thread at a time. */
#ifndef MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_H
#define MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "proto/base/guard.h"
#include "proto/include/muster_error.h"
#include "rendezvous/store/store.h"
#include "rendezvous/tcpstore/mac.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TCPSTORE_MAGIC      UINT32_C(0x3C85F7CE)
#define TCPSTORE_MUSTER_KEY "muster/replies-in-order"

#define TCPSTORE_CHALLENGE_KEY "muster/challenge"
#define TCPSTORE_PROOF_KEY     "muster/proof"
#define TCPSTORE_GUARDED       "/muster/" /* as libmuster's worlds prefix their keys */
/* What proves a challenge (MAC_SIZE bytes, as the key has). */
void tcpstore_prove(const unsigned char key[MAC_KEY_SIZE], const void *challenge,
                    unsigned char out[MAC_SIZE]);

/* query, name, body: u u32, i i64, k key, v value, K count and keys, P count and (key, value) pairs. The
 * query's number on the wire is its index in this list. */
#define TCPSTORE_QUERIES(X)                                                                                  \
    X(TCPSTORE_VALIDATE, "VALIDATE", "u")                                                                    \
    X(TCPSTORE_SET, "SET", "kv")                                                                             \
    X(TCPSTORE_COMPARE_SET, "COMPARE_SET", "kvv")                                                            \
    X(TCPSTORE_GET, "GET", "k")                                                                              \
    X(TCPSTORE_ADD, "ADD", "ki")                                                                             \
    X(TCPSTORE_CHECK, "CHECK", "K")                                                                          \
    X(TCPSTORE_WAIT, "WAIT", "K")                                                                            \
    X(TCPSTORE_GETNUMKEYS, "GETNUMKEYS", "")                                                                 \
    X(TCPSTORE_DELETE_KEY, "DELETE_KEY", "k")                                                                \
    X(TCPSTORE_APPEND, "APPEND", "kv")                                                                       \
    X(TCPSTORE_MULTI_GET, "MULTI_GET", "K")                                                                  \
    X(TCPSTORE_MULTI_SET, "MULTI_SET", "P")                                                                  \
    X(TCPSTORE_CANCEL_WAIT, "CANCEL_WAIT", "")                                                               \
    X(TCPSTORE_PING, "PING", "u")                                                                            \
    X(TCPSTORE_QUEUE_PUSH, "QUEUE_PUSH", "kv")                                                               \
    X(TCPSTORE_QUEUE_POP, "QUEUE_POP", "k")                                                                  \
    X(TCPSTORE_QUEUE_LEN, "QUEUE_LEN", "k")                                                                  \
    X(TCPSTORE_LIST_KEYS, "LIST_KEYS", "")                                                                   \
    X(TCPSTORE_BARRIER, "BARRIER", "ki")

enum tcpstore_query {
#define TCPSTORE_QUERY_ENUM(symbol, name, body) symbol,
    TCPSTORE_QUERIES(TCPSTORE_QUERY_ENUM)
#undef TCPSTORE_QUERY_ENUM
        TCPSTORE_QUERY_COUNT
};

/* How a client numbers its queries. */
enum tcpstore_dialect {
    TCPSTORE_DIALECT_UNKNOWN, /* more bytes are needed */
    TCPSTORE_DIALECT_VALIDATED,
    TCPSTORE_DIALECT_2_1 /* from SET (0) to CANCEL_WAIT (11) */
};

/* The one-byte replies. */
enum { TCPSTORE_READY = 0, TCPSTORE_NOT_READY = 1, TCPSTORE_STOP_WAITING = 0, TCPSTORE_WAIT_CANCELED = 1 };

/* The budget where none is given, and for a job of so many workers: each of them may publish hundreds of
 * small values. It is memory of the agent, whose pod has the workers. */
#define TCPSTORE_BUDGET       ((size_t)40 << 20)
#define TCPSTORE_BUDGET_EACH  ((size_t)64 << 10)
#define TCPSTORE_BUDGET_LIMIT ((size_t)296 << 20)
size_t tcpstore_budget(size_t workers);

/* Limit for the bytes of one request, and for the unsent replies of one connection: 64 MiB is eight values of
 * the largest size and more than any client of PyTorch sends at once. Above it the connection is broken. */
#define TCPSTORE_MESSAGE_LIMIT ((size_t)64 << 20)
/* While a connection has more unsent bytes of replies than this, its requests are not served: 1 MiB keeps a
 * socket busy. */
#define TCPSTORE_OUTPUT_HIGH ((size_t)1 << 20)
/* While a connection's requests cannot be served, at most so many bytes of them are read. */
#define TCPSTORE_INPUT_HIGH ((size_t)64 << 10)

/* state, printable name */
#define TCPSTORE_STATES(X)                                                                                   \
    X(TCPSTORE_STATE_GREETING, "greeting") /* neither VALIDATE nor a request has arrived */                  \
    X(TCPSTORE_STATE_OPEN, "open")         /* requests are served */                                         \
    X(TCPSTORE_STATE_PARKED, "parked")     /* a WAIT or BARRIER waits for its keys */                        \
    X(TCPSTORE_STATE_BROKEN, "broken")     /* no request is served any more; close it */

enum tcpstore_state {
#define TCPSTORE_STATE_ENUM(symbol, name) symbol,
    TCPSTORE_STATES(TCPSTORE_STATE_ENUM)
#undef TCPSTORE_STATE_ENUM
};
const char *tcpstore_state_name(int state);
const char *tcpstore_query_name(int query);

struct tcpstore;
struct tcpstore_connection;

/* Owned by the caller. limits NULL: the defaults. total_bytes is the budget of all; 0: TCPSTORE_BUDGET. */
struct tcpstore *tcpstore_create(const struct store_limits *limits, struct muster_error *err);
/* Closes open connections. Accepts NULL. */
void tcpstore_destroy(struct tcpstore *t);
GUARD_DEFINE(tcpstore, struct tcpstore *, tcpstore_destroy);

/* From now on, and for all connections: see above. random: of this engine alone. */
void tcpstore_guard(struct tcpstore *t, const unsigned char key[MAC_KEY_SIZE],
                    const unsigned char random[MAC_KEY_SIZE]);

/* A new connection; owner is the caller's own pointer, see tcpstore_owner. Valid until tcpstore_close. */
struct tcpstore_connection *tcpstore_open(struct tcpstore *t, void *owner, struct muster_error *err);
/* Drops its waits; its keys stay. Accepts NULL. */
void tcpstore_close(struct tcpstore_connection *c);
void *tcpstore_owner(const struct tcpstore_connection *c);

/* Takes received bytes and serves all requests that can be served. A failure makes the connection broken; the
 * call itself has none. */
void tcpstore_feed(struct tcpstore_connection *c, const void *data, size_t length);
/* The next connection that has output to send or that is broken. Each is returned once until it is touched
 * again. */
struct tcpstore_connection *tcpstore_next_touched(struct tcpstore *t);
/* Replies not yet sent: the first bytes of them; empty if there are none. Borrowed until the next call with
 * the engine. */
struct store_bytes tcpstore_output(const struct tcpstore_connection *c);
/* The output as several runs of bytes, `most` at most. Returns their number; the runs need not be all of the
 * output. */
size_t tcpstore_output_runs(const struct tcpstore_connection *c, struct iovec *runs, size_t most);
/* Reports that the first length bytes of the output were sent. May serve requests that waited for room in the
 * output. */
void tcpstore_sent(struct tcpstore_connection *c, size_t length);
/* Whether to read from the peer now (false: requests that were read already wait for a key or for output). */
bool tcpstore_wants_input(const struct tcpstore_connection *c);
/* Whether the next bytes belong to a large value: reading on is cheap then. */
bool tcpstore_fills_value(const struct tcpstore_connection *c);
enum tcpstore_state tcpstore_state(const struct tcpstore_connection *c);
/* Why a connection is broken: one line with the value and the limit. NULL unless broken. */
const struct muster_error *tcpstore_broken_reason(const struct tcpstore_connection *c);

/* A new, empty key space; every connection of the old one becomes broken ("the round is over"). */
void tcpstore_wipe(struct tcpstore *t);
struct store_stats tcpstore_stats(const struct tcpstore *t);
/* Bytes that count in the budget, now. */
size_t tcpstore_held(const struct tcpstore *t);
/* The budget: the most that tcpstore_held may be. */
size_t tcpstore_bound(const struct tcpstore *t);
/* Connections, and clients that had left, that lost their memory because the budget was exceeded. */
uint64_t tcpstore_crowded_out(const struct tcpstore *t);
/* Requests served since create. */
uint64_t tcpstore_served(const struct tcpstore *t);

#ifdef __cplusplus
}
#endif
#endif
