/* tcpstore_client.c - see tcpstore_client.h: the operations. tcpstore_call.c has the steps of one call,
 * tcpstore_client_connect.c connects.
 *
 * A GET is sent together with its WAIT only to muster's server: torch's replies out of order to requests
 * after a parked wait. */
#include "rendezvous/tcpstore/tcpstore_client.h"

#include <inttypes.h>
#include <poll.h>
#include <sys/socket.h>

#include "proto/base/address.h"
#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "rendezvous/tcpstore/tcpstore_call.h"

/* Most bytes sent after a wait: the server must still read the CANCEL_WAIT that follows them. */
enum { PIPELINE_LIMIT = TCPSTORE_INPUT_HIGH / 2 };

int tcpstore_client_set(struct tcpstore_client *c, const char *key, const void *data, size_t length,
                        struct muster_error *err)
{
    struct tcpstore_call call = tcpstore_call_begin(c, TCPSTORE_SET, "set", key, c->timeout_ns, err);
    if (tcpstore_call_check_sizes(&call, key, length))
        return -1;
    tcpstore_call_put_key(c, key);
    tcpstore_call_put_bytes(c, (struct store_bytes){data, length});
    return tcpstore_call_send(&call);
}

int tcpstore_client_append(struct tcpstore_client *c, const char *key, const void *data, size_t length,
                           struct muster_error *err)
{
    struct tcpstore_call call = tcpstore_call_begin(c, TCPSTORE_APPEND, "append", key, c->timeout_ns, err);
    if (tcpstore_call_check_sizes(&call, key, length))
        return -1;
    tcpstore_call_put_key(c, key);
    tcpstore_call_put_bytes(c, (struct store_bytes){data, length});
    return tcpstore_call_send(&call);
}

int tcpstore_client_wait(struct tcpstore_client *c, const char *const *keys, size_t count, int64_t timeout_ns,
                         struct muster_error *err)
{
    struct tcpstore_call call = tcpstore_call_begin(c, TCPSTORE_WAIT, "wait for", NULL, timeout_ns, err);
    return tcpstore_call_put_keys(&call, keys, count) || tcpstore_call_wait(&call) ? -1 : 0;
}

static void put_values_query(struct tcpstore_call *call, const char *const *keys, bool list)
{
    struct tcpstore_client *c = call->client;
    tcpstore_call_put_query(c, list ? TCPSTORE_MULTI_GET : TCPSTORE_GET);
    if (list)
        tcpstore_call_put_u64(c, call->keys);
    for (size_t i = 0; i < call->keys; i++)
        tcpstore_call_put_key(c, keys[i]);
}

/* Waits for the keys of the WAIT that is in the request buffer, and gets their values. */
static int get_values(struct tcpstore_call *call, const char *const *keys, bool list, struct buffer *values)
{
    struct tcpstore_client *c = call->client;
    uint8_t cancelled = TCPSTORE_WAIT_CANCELED;
    call->pipelined = c->muster_server && c->request.length <= PIPELINE_LIMIT;
    if (call->pipelined)
        put_values_query(call, keys, list);
    if (tcpstore_call_wait(call))
        return -1;
    /* The keys exist: from here only a failed server can delay the values. */
    call->deadline = instant_add(clock_now(NULL), c->timeout_ns);
    if (!call->pipelined) {
        buffer_clear(&c->request);
        put_values_query(call, keys, list);
        if (tcpstore_call_send(call))
            return -1;
    }
    for (size_t i = 0; i < call->keys; i++) {
        if (tcpstore_call_receive_vector(call, &values[i]))
            return -1;
    }
    if (call->late && tcpstore_call_receive(c, &cancelled, sizeof cancelled, call->deadline, call->err))
        return tcpstore_call_fail(call);
    return cancelled == TCPSTORE_WAIT_CANCELED ? 0
                                               : tcpstore_call_protocol(call, "CANCEL_WAIT with", cancelled);
}

int tcpstore_client_get(struct tcpstore_client *c, const char *key, struct buffer *out, int64_t timeout_ns,
                        struct muster_error *err)
{
    struct tcpstore_call call = tcpstore_call_begin(c, TCPSTORE_WAIT, "get of", NULL, timeout_ns, err);
    return tcpstore_call_put_keys(&call, &key, 1) || get_values(&call, &key, false, out) ? -1 : 0;
}

int tcpstore_client_multi_get(struct tcpstore_client *c, const char *const *keys, size_t count,
                              struct buffer *values, int64_t timeout_ns, struct muster_error *err)
{
    struct tcpstore_call call = tcpstore_call_begin(c, TCPSTORE_WAIT, "multi_get of", NULL, timeout_ns, err);
    return tcpstore_call_put_keys(&call, keys, count) || get_values(&call, keys, true, values) ? -1 : 0;
}

int tcpstore_client_multi_set(struct tcpstore_client *c, const char *const *keys,
                              const struct store_bytes *values, size_t count, struct muster_error *err)
{
    struct tcpstore_call call = tcpstore_call_begin(c, TCPSTORE_MULTI_SET, "multi_set of",
                                                    count ? keys[0] : NULL, c->timeout_ns, err);
    call.keys = count;
    tcpstore_call_put_u64(c, count);
    for (size_t i = 0; i < count; i++) {
        if (tcpstore_call_check_sizes(&call, keys[i], values[i].length))
            return -1;
        tcpstore_call_put_key(c, keys[i]);
        tcpstore_call_put_bytes(c, values[i]);
    }
    return tcpstore_call_send(&call);
}

int tcpstore_client_add(struct tcpstore_client *c, const char *key, int64_t delta, int64_t *value,
                        struct muster_error *err)
{
    struct tcpstore_call call = tcpstore_call_begin(c, TCPSTORE_ADD, "add to", key, c->timeout_ns, err);
    int64_t sum = 0;
    if (tcpstore_call_check_sizes(&call, key, 0))
        return -1;
    tcpstore_call_put_key(c, key);
    tcpstore_call_put_u64(c, (uint64_t)delta);
    if (tcpstore_call_send(&call) || tcpstore_call_receive_i64(&call, &sum))
        return -1;
    if (value)
        *value = sum;
    return 0;
}

int tcpstore_client_check(struct tcpstore_client *c, const char *const *keys, size_t count, bool *present,
                          struct muster_error *err)
{
    struct tcpstore_call call = tcpstore_call_begin(c, TCPSTORE_CHECK, "check of", NULL, c->timeout_ns, err);
    uint8_t reply = 0;
    if (tcpstore_call_put_keys(&call, keys, count) || tcpstore_call_send(&call))
        return -1;
    if (tcpstore_call_receive(c, &reply, sizeof reply, call.deadline, err))
        return tcpstore_call_fail(&call);
    if (reply != TCPSTORE_READY && reply != TCPSTORE_NOT_READY)
        return tcpstore_call_protocol(&call, "CHECK with", reply);
    *present = reply == TCPSTORE_READY;
    return 0;
}

int tcpstore_client_compare_set(struct tcpstore_client *c, const char *key, struct store_bytes expected,
                                struct store_bytes desired, struct buffer *out, struct muster_error *err)
{
    struct tcpstore_call call =
        tcpstore_call_begin(c, TCPSTORE_COMPARE_SET, "compare_set of", key, c->timeout_ns, err);
    if (tcpstore_call_check_sizes(&call, key, expected.length) ||
        tcpstore_call_check_sizes(&call, key, desired.length))
        return -1;
    tcpstore_call_put_key(c, key);
    tcpstore_call_put_bytes(c, expected);
    tcpstore_call_put_bytes(c, desired);
    return tcpstore_call_send(&call) || tcpstore_call_receive_vector(&call, out) ? -1 : 0;
}

int tcpstore_client_delete(struct tcpstore_client *c, const char *key, bool *deleted,
                           struct muster_error *err)
{
    struct tcpstore_call call =
        tcpstore_call_begin(c, TCPSTORE_DELETE_KEY, "delete of", key, c->timeout_ns, err);
    int64_t count = 0;
    if (tcpstore_call_check_sizes(&call, key, 0))
        return -1;
    tcpstore_call_put_key(c, key);
    if (tcpstore_call_send(&call) || tcpstore_call_receive_i64(&call, &count))
        return -1;
    if (deleted)
        *deleted = count > 0;
    return 0;
}

int tcpstore_client_num_keys(struct tcpstore_client *c, int64_t *count, struct muster_error *err)
{
    struct tcpstore_call call =
        tcpstore_call_begin(c, TCPSTORE_GETNUMKEYS, "num_keys", NULL, c->timeout_ns, err);
    return tcpstore_call_send(&call) || tcpstore_call_receive_i64(&call, count) ? -1 : 0;
}

/* Muster's server counts the arrivals. On torch's, a counter key determines the last client of each
 * generation. That client sets the mark of its generation and deletes the previous mark, which every client
 * has seen before it calls again. */
int tcpstore_client_barrier(struct tcpstore_client *c, const char *key, int world_size, int64_t timeout_ns,
                            struct muster_error *err)
{
    int64_t arrived = 0;
    if (world_size < 1)
        return error_set(err, MUSTER_E_INVALID, "barrier \"%s\": a world of %d is below 1", key, world_size);
    scope_free char *counter = mem_printf("%s/count", key);
    if (!counter)
        return error_set(err, MUSTER_E_NOMEM, "no memory for barrier \"%s\"", key);
    if (c->muster_server) {
        struct tcpstore_call call = tcpstore_call_begin(c, TCPSTORE_BARRIER, "barrier", key, timeout_ns, err);
        if (tcpstore_call_check_sizes(&call, counter, 0))
            return -1;
        tcpstore_call_put_key(c, counter);
        tcpstore_call_put_u64(c, (uint64_t)world_size);
        return tcpstore_call_wait(&call);
    }
    if (tcpstore_client_add(c, counter, 1, &arrived, err))
        return -1;
    int64_t generation = (arrived - 1) / world_size;
    scope_free char *mark = mem_printf("%s/done/%" PRId64, key, generation);
    scope_free char *previous = mem_printf("%s/done/%" PRId64, key, generation - 1);
    if (!mark || !previous)
        return error_set(err, MUSTER_E_NOMEM, "no memory for barrier \"%s\"", key);
    if (arrived % world_size != 0)
        return tcpstore_client_wait(c, (const char *const[]){mark}, 1, timeout_ns, err);
    if (tcpstore_client_set(c, mark, "1", 1, err))
        return -1;
    return generation > 0 ? tcpstore_client_delete(c, previous, NULL, err) : 0;
}

/* --- struct kv_store --- */

static int kv_set(void *ctx, const char *key, const void *data, size_t n, struct muster_error *err)
{
    return tcpstore_client_set(ctx, key, data, n, err);
}

static int kv_get(void *ctx, const char *key, struct buffer *out, int64_t timeout_ns,
                  struct muster_error *err)
{
    return tcpstore_client_get(ctx, key, out, timeout_ns, err);
}

static int kv_add(void *ctx, const char *key, int64_t delta, int64_t *value, struct muster_error *err)
{
    return tcpstore_client_add(ctx, key, delta, value, err);
}

static bool kv_is_gone(void *ctx)
{
    const struct tcpstore_client *c = ctx;
    struct pollfd entry = {.fd = c->fd, .events = POLLRDHUP};
    return c->fd < 0 || (poll(&entry, 1, 0) > 0 && entry.revents);
}

struct kv_store tcpstore_client_kv(struct tcpstore_client *c)
{
    return (struct kv_store){.set = kv_set, .get = kv_get, .add = kv_add, .is_gone = kv_is_gone, .ctx = c};
}

int tcpstore_client_address(const struct tcpstore_client *c, char *out, size_t size, struct muster_error *err)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    char text[ADDRESS_TEXT];
    if (c->fd < 0)
        return error_set(err, MUSTER_E_STATE, "an earlier failure has closed this connection");
    if (getsockname(c->fd, (struct sockaddr *)&address, &length))
        return error_errno(err, "cannot read the local address of the connection to the store");
    (void)snprintf(out, size, "%s", address_text((struct sockaddr *)&address, text));
    return 0;
}
