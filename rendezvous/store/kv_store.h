/* kv_store.h - the few operations on a shared key-value store that the runtime needs, as a table of
 * functions.
 *
 * Two implementations: over the TCPStore client (tcpstore_client_kv in tcpstore_client.h) and in memory for
 * ranks that are threads of one process (kv_memory.h). Keys are NUL-terminated text without a
 * prefix of their own; values are opaque bytes.
 *
 * Threading: the in-memory one may be shared by threads; the one over a client belongs to one thread at a
 * time. All return 0, or -1 with err filled. */
#ifndef MUSTER_RENDEZVOUS_STORE_KV_STORE_H
#define MUSTER_RENDEZVOUS_STORE_KV_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kv_store {
    /* Creates or replaces the value of key. */
    int (*set)(void *ctx, const char *key, const void *data, size_t n, struct muster_error *err);
    /* Waits until key exists, then replaces the content of out by its value. MUSTER_E_TIMEOUT after
     * timeout_ns. */
    int (*get)(void *ctx, const char *key, struct buffer *out, int64_t timeout_ns, struct muster_error *err);
    /* Adds delta to the decimal number that key holds (a missing key counts as 0); value (may be NULL) gets
     * the sum. */
    int (*add)(void *ctx, const char *key, int64_t delta, int64_t *value, struct muster_error *err);
    /* Whether the store is gone for ever, without a request: for waits that are not its own. NULL: never. */
    bool (*is_gone)(void *ctx);
    void *ctx;
};

#ifdef __cplusplus
}
#endif
#endif
