/* tcpstore_client.h - a blocking client of PyTorch's TCPStore protocol, for libmuster's bootstrap. It works
 * with an agent's store and with torch's own server.
 *
 * Every call has a deadline. A wait that times out is cancelled on the server and the client stays usable; a
 * call that fails in any other way in the middle of a request closes the connection, and later calls fail
 * with MUSTER_E_STATE. Errors name host, port, key and time.
 *
 * User keys get the prefix "/" as torch's client gives them ("/" and then "<prefix>/" if a prefix is set, as
 * PrefixStore does), so that both see the same keys. A client belongs to one thread at a time. */
#ifndef MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_CLIENT_H
#define MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/base/guard.h"
#include "proto/include/muster_error.h"
#include "rendezvous/store/kv_store.h"
#include "rendezvous/store/store.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tcpstore_client_options {
    const char *host; /* name or numeric address */
    uint16_t port;
    const char *prefix; /* NULL: none */
    const unsigned char
        *key; /* the job's key, MAC_KEY_SIZE bytes; an agent's store must ask for its proof. NULL: none */
    int64_t timeout_ns; /* limit of connecting, and of each call without a timeout parameter; 0: 300 s,
                           torch's default */
    bool (*is_over)(
        void *context); /* asked between attempts: true ends connecting, MUSTER_E_CANCELLED; NULL */
    void *context;
};

struct tcpstore_client;

/* Resolves, connects and sends the greeting; retries with jittered back-off until the deadline. The name
 * look-up is the system's getaddrinfo and has its own time limits. Owned by the caller. */
struct tcpstore_client *tcpstore_client_connect(const struct tcpstore_client_options *options,
                                                struct muster_error *err);
/* Accepts NULL. */
void tcpstore_client_destroy(struct tcpstore_client *c);
GUARD_DEFINE(tcpstore_client, struct tcpstore_client *, tcpstore_client_destroy);

/* Another descriptor of its connection, the caller's: shutdown of it ends the client's calls from any thread.
 */
int tcpstore_client_duplicate(const struct tcpstore_client *c, struct muster_error *err);

int tcpstore_client_set(struct tcpstore_client *c, const char *key, const void *data, size_t length,
                        struct muster_error *err);
/* Waits for key, then replaces the content of out. One round trip with muster's server, two with torch's
 * (which replies out of order to a request that is sent after a parked wait). */
int tcpstore_client_get(struct tcpstore_client *c, const char *key, struct buffer *out, int64_t timeout_ns,
                        struct muster_error *err);
/* value may be NULL. */
int tcpstore_client_add(struct tcpstore_client *c, const char *key, int64_t delta, int64_t *value,
                        struct muster_error *err);
/* *present: all count keys exist. */
int tcpstore_client_check(struct tcpstore_client *c, const char *const *keys, size_t count, bool *present,
                          struct muster_error *err);
/* Waits until all count keys exist. */
int tcpstore_client_wait(struct tcpstore_client *c, const char *const *keys, size_t count, int64_t timeout_ns,
                         struct muster_error *err);
/* Replaces the value of key by desired if it equals expected (a missing key: if expected is empty). out gets
 * the server's reply: desired if it was stored, else the present value (a missing key: expected). */
int tcpstore_client_compare_set(struct tcpstore_client *c, const char *key, struct store_bytes expected,
                                struct store_bytes desired, struct buffer *out, struct muster_error *err);
int tcpstore_client_append(struct tcpstore_client *c, const char *key, const void *data, size_t length,
                           struct muster_error *err);
/* deleted (may be NULL): whether the key existed. */
int tcpstore_client_delete(struct tcpstore_client *c, const char *key, bool *deleted,
                           struct muster_error *err);
/* Waits for all count keys; values has count buffers, whose content is replaced. Round trips as in get. */
int tcpstore_client_multi_get(struct tcpstore_client *c, const char *const *keys, size_t count,
                              struct buffer *values, int64_t timeout_ns, struct muster_error *err);
int tcpstore_client_multi_set(struct tcpstore_client *c, const char *const *keys,
                              const struct store_bytes *values, size_t count, struct muster_error *err);
/* Number of keys in the whole store, with other prefixes and torch's own keys. */
int tcpstore_client_num_keys(struct tcpstore_client *c, int64_t *count, struct muster_error *err);
/* Returns when world_size clients have called it with this key. Reusable with the same key and world size.
 * One round trip with muster's server; with torch's it uses ADD and WAIT, which every version has. */
int tcpstore_client_barrier(struct tcpstore_client *c, const char *key, int world_size, int64_t timeout_ns,
                            struct muster_error *err);
/* Numeric text of this side's address on the connection; size is at least 64. */
int tcpstore_client_address(const struct tcpstore_client *c, char *out, size_t size,
                            struct muster_error *err);
/* The client as the interface that the runtime uses; borrows the client. */
struct kv_store tcpstore_client_kv(struct tcpstore_client *c);

#ifdef __cplusplus
}
#endif
#endif
