/* tcpstore_call.c - see tcpstore_call.h. */
#include "rendezvous/tcpstore/tcpstore_call.h"

#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "rendezvous/tcpstore/tcpstore_stream.h"

#define CANCEL_NS (5 * NS_PER_S) /* the server replies to CANCEL_WAIT at once */

/* A request buffer larger than this is freed after the call. */
enum { REQUEST_KEPT = 64 << 10 };

void tcpstore_call_put_query(struct tcpstore_client *c, enum tcpstore_query query)
{
    uint8_t byte = (uint8_t)(query - c->old_server);
    (void)buffer_append(&c->request, &byte, sizeof byte); /* tcpstore_call_send checks the buffer */
}

struct tcpstore_call tcpstore_call_begin(struct tcpstore_client *c, enum tcpstore_query query,
                                         const char *what, const char *key, int64_t timeout_ns,
                                         struct muster_error *err)
{
    struct tcpstore_call call = {.client = c, .what = what, .key = key, .keys = key != NULL, .err = err};
    call.start = clock_now(NULL);
    call.deadline = instant_add(call.start, timeout_ns > 0 ? timeout_ns : 0);
    buffer_clear(&c->request);
    tcpstore_call_put_query(c, query);
    return call;
}

/* Completes call->err with the call, the server and the time it took. Returns -1. */
static int tcpstore_call_explain(const struct tcpstore_call *call)
{
    double seconds = (double)instant_diff_ns(clock_now(NULL), call->start) / (double)NS_PER_S;
    char key[160] = "", more[40] = "";
    if (call->keys)
        (void)snprintf(key, sizeof key, " \"%.120s\"", call->key);
    if (call->keys > 1)
        (void)snprintf(more, sizeof more, " and %zu more", call->keys - 1);
    return error_wrap(call->err, "TCPStore at %s:%u: %s%s%s, after %.3f s", call->client->host,
                      call->client->port, call->what, key, more, seconds);
}

int tcpstore_call_fail(const struct tcpstore_call *call)
{
    close(call->client->fd);
    call->client->fd = -1;
    return tcpstore_call_explain(call);
}

int tcpstore_call_protocol(const struct tcpstore_call *call, const char *reply, int64_t value)
{
    error_set(call->err, MUSTER_E_PROTOCOL, "the server replied to %s %" PRId64, reply, value);
    return tcpstore_call_fail(call);
}

/* --- building requests --- */

void tcpstore_call_put_u64(struct tcpstore_client *c, uint64_t value)
{
    value = htole64(value);
    (void)buffer_append(&c->request, &value, sizeof value); /* tcpstore_call_send checks the buffer */
}

void tcpstore_call_put_u32(struct tcpstore_client *c, uint32_t value)
{
    value = htole32(value);
    (void)buffer_append(&c->request, &value, sizeof value); /* as above */
}

void tcpstore_call_put_bytes(struct tcpstore_client *c, struct store_bytes bytes)
{
    tcpstore_call_put_u64(c, bytes.length);
    (void)buffer_append(&c->request, bytes.data, bytes.length); /* as above */
}

void tcpstore_call_put_key(struct tcpstore_client *c, const char *key)
{
    tcpstore_call_put_u64(c, strlen(c->prefix) + strlen(key));
    (void)buffer_text(&c->request, c->prefix); /* as above */
    (void)buffer_text(&c->request, key);
}

int tcpstore_call_check_sizes(const struct tcpstore_call *call, const char *key, size_t value)
{
    struct store_limits limits = store_limits_default();
    size_t length = strlen(call->client->prefix) + strlen(key);
    if (length <= limits.key_bytes && value <= limits.value_bytes)
        return 0;
    if (length > limits.key_bytes)
        error_set(call->err, MUSTER_E_LIMIT, "a key of %zu bytes: at most %zu are allowed", length,
                  limits.key_bytes);
    else
        error_set(call->err, MUSTER_E_LIMIT, "a value of %zu bytes: at most %zu are allowed", value,
                  limits.value_bytes);
    return tcpstore_call_explain(call);
}

int tcpstore_call_put_keys(struct tcpstore_call *call, const char *const *keys, size_t count)
{
    size_t limit = store_limits_default().wait_keys;
    call->key = count ? keys[0] : NULL;
    call->keys = count;
    if (count > limit) {
        error_set(call->err, MUSTER_E_LIMIT, "%zu keys: at most %zu are allowed", count, limit);
        return tcpstore_call_explain(call);
    }
    tcpstore_call_put_u64(call->client, count);
    for (size_t i = 0; i < count; i++) {
        if (tcpstore_call_check_sizes(call, keys[i], 0))
            return -1;
        tcpstore_call_put_key(call->client, keys[i]);
    }
    return 0;
}

/* --- sending and receiving --- */

int tcpstore_call_send(const struct tcpstore_call *call)
{
    struct tcpstore_client *c = call->client;
    if (c->fd < 0) {
        error_set(call->err, MUSTER_E_STATE, "an earlier failure has closed this connection");
        return tcpstore_call_explain(call);
    }
    if (c->request.failed) {
        error_set(call->err, MUSTER_E_NOMEM, "no memory for the request");
        return tcpstore_call_explain(call);
    }
    int result = tcpstore_stream_send(c->fd, c->request.data, c->request.length, call->deadline, call->err);
    if (c->request.capacity > REQUEST_KEPT)
        buffer_free(&c->request);
    return result ? tcpstore_call_fail(call) : 0;
}

/* Replies are small, so one read of the socket mostly gets a whole one. */
int tcpstore_call_receive(struct tcpstore_client *c, void *to, size_t length, struct instant deadline,
                          struct muster_error *err)
{
    size_t available = c->input_end - c->input_start, got = 0;
    size_t used = available < length ? available : length, left = length - used;
    if (used)
        memcpy(to, c->input + c->input_start, used);
    c->input_start += used;
    if (!left)
        return 0;
    if (left >= sizeof c->input)
        return tcpstore_stream_receive(c->fd, (char *)to + used, left, left, &got, deadline, err);
    if (tcpstore_stream_receive(c->fd, c->input, left, sizeof c->input, &got, deadline, err))
        return -1;
    memcpy((char *)to + used, c->input, left);
    c->input_start = left;
    c->input_end = got;
    return 0;
}

int tcpstore_call_receive_i64(const struct tcpstore_call *call, int64_t *value)
{
    uint64_t wire;
    if (tcpstore_call_receive(call->client, &wire, sizeof wire, call->deadline, call->err))
        return tcpstore_call_fail(call);
    *value = (int64_t)le64toh(wire);
    return 0;
}

int tcpstore_call_receive_vector(const struct tcpstore_call *call, struct buffer *out)
{
    int64_t length = 0;
    if (tcpstore_call_receive_i64(call, &length))
        return -1;
    if (length < 0 || (uint64_t)length > TCPSTORE_MESSAGE_LIMIT)
        return tcpstore_call_protocol(call, "with a value of invalid length", length);
    buffer_clear(out);
    char *to = buffer_reserve(out, (size_t)length);
    if (!to) {
        error_set(call->err, MUSTER_E_LIMIT, "no room for a value of %" PRId64 " bytes", length);
        return tcpstore_call_fail(call);
    }
    if (tcpstore_call_receive(call->client, to, (size_t)length, call->deadline, call->err))
        return tcpstore_call_fail(call);
    to[length] = '\0';
    out->length += (size_t)length;
    return 0;
}

/* Cancels the wait after its deadline. 0 if the keys appeared before the CANCEL_WAIT arrived. */
static int cancel_wait(struct tcpstore_call *call)
{
    struct tcpstore_client *c = call->client;
    struct instant until = instant_add(clock_now(NULL), CANCEL_NS);
    struct muster_error failed = {0};
    uint8_t cancel = (uint8_t)(TCPSTORE_CANCEL_WAIT - c->old_server), reply = 0,
            second = TCPSTORE_WAIT_CANCELED;
    if (tcpstore_stream_send(c->fd, &cancel, sizeof cancel, until, &failed) ||
        tcpstore_call_receive(c, &reply, sizeof reply, until, &failed) ||
        (reply == TCPSTORE_STOP_WAITING && !call->pipelined &&
         tcpstore_call_receive(c, &second, sizeof second, until, &failed))) {
        error_set(call->err, failed.code, "timed out, and the wait could not be cancelled: %s", failed.text);
        return tcpstore_call_fail(call);
    }
    if (second != TCPSTORE_WAIT_CANCELED || reply > TCPSTORE_WAIT_CANCELED)
        return tcpstore_call_protocol(call, "CANCEL_WAIT with", reply);
    call->late = reply == TCPSTORE_STOP_WAITING && call->pipelined;
    if (reply == TCPSTORE_STOP_WAITING)
        return 0;
    error_set(call->err, MUSTER_E_TIMEOUT, "timed out: the key does not exist yet");
    return tcpstore_call_explain(call);
}

int tcpstore_call_wait(struct tcpstore_call *call)
{
    uint8_t reply = TCPSTORE_STOP_WAITING;
    struct muster_error failed = {0};
    if (tcpstore_call_send(call))
        return -1;
    if (tcpstore_call_receive(call->client, &reply, sizeof reply, call->deadline, &failed)) {
        if (failed.code == MUSTER_E_TIMEOUT)
            return cancel_wait(call);
        error_set(call->err, failed.code, "%s", failed.text);
        return tcpstore_call_fail(call);
    }
    return reply == TCPSTORE_STOP_WAITING ? 0 : tcpstore_call_protocol(call, "WAIT with", reply);
}
