/* tcpstore_client.c - see tcpstore_client.h.
 *
 * A call builds its request in c->request, sends it, reads the reply. Behind a WAIT a request is sent at once
 * only to a server of ours: torch's own answers what comes behind a parked wait out of order. */
#include "rendezvous/tcpstore_client.h"

#include <endian.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "rendezvous/tcpstore.h"
#include "rendezvous/tcpstore_stream.h"

#define TIMEOUT_NS      (300 * NS_PER_S) /* torch's default for a store */
#define GREETING_NS     (30 * NS_PER_S) /* a busy server of thousands of clients may take a while to accept */
#define OLD_GREETING_NS (2 * NS_PER_S)  /* a server that is not old after all says nothing */
#define BACKOFF_MIN_NS  (10 * NS_PER_MS)
#define BACKOFF_MAX_NS  (1 * NS_PER_S)
#define CANCEL_NS       (5 * NS_PER_S) /* the answer to CANCEL_WAIT waits for nobody */

enum { REQUEST_KEPT = 64 << 10, INPUT = 4 << 10 };
/* What may lie behind a parked wait, so that the server still reads the CANCEL_WAIT behind it. */
enum { BEHIND_WAIT = TCPSTORE_INPUT_HIGH / 2 };

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
    char input[INPUT];
};

/* One call: for its deadline and its error text. */
struct call {
    struct tcpstore_client *client;
    const char *what, *key;
    size_t keys; /* 0: none */
    bool behind; /* the request for the values was sent with the wait for them */
    bool late;   /* a CANCEL_WAIT came too late: its answer is behind the values */
    struct instant start, deadline;
    struct muster_error *err;
};

static void put_query(struct tcpstore_client *c, enum tcpstore_query query)
{
    uint8_t byte = (uint8_t)(query - c->old);
    (void)buffer_append(&c->request, &byte, sizeof byte); /* call_send looks at the buffer */
}

static struct call call_begin(struct tcpstore_client *c, enum tcpstore_query query, const char *what,
                              const char *key, int64_t timeout_ns, struct muster_error *err)
{
    struct call call = {.client = c, .what = what, .key = key, .keys = key != NULL, .err = err};
    call.start = clock_now(NULL);
    call.deadline = instant_add(call.start, timeout_ns > 0 ? timeout_ns : 0);
    buffer_clear(&c->request);
    put_query(c, query);
    return call;
}

/* Says what failed, where, and after how long. Returns -1. */
static int call_explain(const struct call *call)
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

/* As call_explain, for failures that leave the stream out of step. */
static int call_fail(const struct call *call)
{
    close(call->client->fd);
    call->client->fd = -1;
    return call_explain(call);
}

static int call_protocol(const struct call *call, const char *reply, int64_t value)
{
    error_set(call->err, MUSTER_E_PROTOCOL, "the server answers %s %" PRId64, reply, value);
    return call_fail(call);
}

/* --- building requests --- */

static void put_u64(struct tcpstore_client *c, uint64_t value)
{
    value = htole64(value);
    (void)buffer_append(&c->request, &value, sizeof value); /* call_send looks at the buffer */
}

static void put_u32(struct tcpstore_client *c, uint32_t value)
{
    value = htole32(value);
    (void)buffer_append(&c->request, &value, sizeof value); /* as above */
}

static void put_bytes(struct tcpstore_client *c, struct store_bytes bytes)
{
    put_u64(c, bytes.length);
    (void)buffer_append(&c->request, bytes.data, bytes.length); /* as above */
}

static void put_key(struct tcpstore_client *c, const char *key)
{
    put_u64(c, strlen(c->prefix) + strlen(key));
    (void)buffer_text(&c->request, c->prefix); /* as above */
    (void)buffer_text(&c->request, key);
}

/* What no server takes is refused here: it would only close the connection without a word. */
static int check_sizes(const struct call *call, const char *key, size_t value)
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
    return call_explain(call);
}

static int put_keys(struct call *call, const char *const *keys, size_t count)
{
    size_t limit = store_limits_default().wait_keys;
    call->key = count ? keys[0] : NULL;
    call->keys = count;
    if (count > limit) {
        error_set(call->err, MUSTER_E_LIMIT, "%zu keys: at most %zu are allowed", count, limit);
        return call_explain(call);
    }
    put_u64(call->client, count);
    for (size_t i = 0; i < count; i++) {
        if (check_sizes(call, keys[i], 0))
            return -1;
        put_key(call->client, keys[i]);
    }
    return 0;
}

/* --- sending and receiving --- */

static int call_send(const struct call *call)
{
    struct tcpstore_client *c = call->client;
    if (c->fd < 0) {
        error_set(call->err, MUSTER_E_STATE, "an earlier failure has closed this connection");
        return call_explain(call);
    }
    if (c->request.failed) {
        error_set(call->err, MUSTER_E_NOMEM, "no memory for the request");
        return call_explain(call);
    }
    int result = tcpstore_stream_send(c->fd, c->request.data, c->request.length, call->deadline, call->err);
    if (c->request.capacity > REQUEST_KEPT)
        buffer_free(&c->request);
    return result ? call_fail(call) : 0;
}

/* Exactly length bytes. Replies are small, so one look at the socket mostly gets all of one. */
static int receive(struct tcpstore_client *c, void *to, size_t length, struct instant deadline,
                   struct muster_error *err)
{
    size_t there = c->input_end - c->input_start, got = 0;
    size_t used = there < length ? there : length, left = length - used;
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

static int receive_i64(const struct call *call, int64_t *value)
{
    uint64_t wire;
    if (receive(call->client, &wire, sizeof wire, call->deadline, call->err))
        return call_fail(call);
    *value = (int64_t)le64toh(wire);
    return 0;
}

/* Replaces the content of out by the vector that comes. */
static int receive_vector(const struct call *call, struct buffer *out)
{
    int64_t length = 0;
    if (receive_i64(call, &length))
        return -1;
    if (length < 0 || (uint64_t)length > TCPSTORE_MESSAGE_LIMIT)
        return call_protocol(call, "with a value of impossible length", length);
    buffer_clear(out);
    char *to = buffer_reserve(out, (size_t)length);
    if (!to) {
        error_set(call->err, MUSTER_E_LIMIT, "no room for a value of %" PRId64 " bytes", length);
        return call_fail(call);
    }
    if (receive(call->client, to, (size_t)length, call->deadline, call->err))
        return call_fail(call);
    to[length] = '\0';
    out->length += (size_t)length;
    return 0;
}

/* The deadline of a wait has passed: takes it back. 0 where the keys came at the last moment after all. */
static int cancel_wait(struct call *call)
{
    struct tcpstore_client *c = call->client;
    struct instant until = instant_add(clock_now(NULL), CANCEL_NS);
    struct muster_error failed = {0};
    uint8_t cancel = (uint8_t)(TCPSTORE_CANCEL_WAIT - c->old), reply = 0, second = TCPSTORE_WAIT_CANCELED;
    if (tcpstore_stream_send(c->fd, &cancel, sizeof cancel, until, &failed) ||
        receive(c, &reply, sizeof reply, until, &failed) ||
        (reply == TCPSTORE_STOP_WAITING && !call->behind &&
         receive(c, &second, sizeof second, until, &failed))) {
        error_set(call->err, failed.code, "timed out, and the wait could not be cancelled: %s", failed.text);
        return call_fail(call);
    }
    if (second != TCPSTORE_WAIT_CANCELED || reply > TCPSTORE_WAIT_CANCELED)
        return call_protocol(call, "CANCEL_WAIT with", reply);
    call->late = reply == TCPSTORE_STOP_WAITING && call->behind;
    if (reply == TCPSTORE_STOP_WAITING)
        return 0;
    error_set(call->err, MUSTER_E_TIMEOUT, "timed out: not there yet");
    return call_explain(call);
}

/* Sends the WAIT that is in the request buffer and waits for its end. */
static int call_wait(struct call *call)
{
    uint8_t reply = TCPSTORE_STOP_WAITING;
    struct muster_error failed = {0};
    if (call_send(call))
        return -1;
    if (receive(call->client, &reply, sizeof reply, call->deadline, &failed)) {
        if (failed.code == MUSTER_E_TIMEOUT)
            return cancel_wait(call);
        error_set(call->err, failed.code, "%s", failed.text);
        return call_fail(call);
    }
    return reply == TCPSTORE_STOP_WAITING ? 0 : call_protocol(call, "WAIT with", reply);
}

/* --- connecting --- */

/* VALIDATE has no answer of its own, so a CHECK shows that somebody understood it, and whose server it is:
 * any but ours says that it has no such key. Not a PING, at which servers of torch 2.2 to 2.4 close the
 * connection. */
static int greet(struct tcpstore_client *c, struct instant deadline, struct muster_error *err)
{
    uint8_t whose = TCPSTORE_NOT_READY;
    deadline = instant_min(deadline, instant_add(clock_now(NULL), c->old ? OLD_GREETING_NS : GREETING_NS));
    buffer_clear(&c->request);
    if (!c->old) {
        put_query(c, TCPSTORE_VALIDATE);
        put_u32(c, TCPSTORE_MAGIC);
    }
    put_query(c, TCPSTORE_CHECK);
    put_u64(c, 1);
    put_bytes(c, (struct store_bytes){TCPSTORE_OURS, sizeof TCPSTORE_OURS - 1});
    if (c->request.failed)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the greeting");
    if (tcpstore_stream_send(c->fd, c->request.data, c->request.length, deadline, err) ||
        receive(c, &whose, sizeof whose, deadline, err))
        return error_wrap(err, "greeting");
    if (whose != TCPSTORE_READY && whose != TCPSTORE_NOT_READY)
        return error_set(err, MUSTER_E_PROTOCOL, "it answers CHECK with 0x%02X: not a TCPStore", whose);
    c->ours = whose == TCPSTORE_READY;
    return 0;
}

/* Half of the delay to all of it, by the clock's low bits: clients that failed together come back apart. */
static int64_t jittered(int64_t delay_ns)
{
    uint64_t bits = (uint64_t)clock_now(NULL).ns * UINT64_C(0x9E3779B97F4A7C15) ^ (uint64_t)getpid() << 32;
    return delay_ns / 2 + (int64_t)((bits >> 33) % (uint64_t)(delay_ns / 2));
}

static int connect_until(struct tcpstore_client *c, struct muster_error *err)
{
    struct instant start = clock_now(NULL), deadline = instant_add(start, c->timeout_ns);
    int64_t delay = BACKOFF_MIN_NS;
    struct muster_error cause = {0};
    for (unsigned attempts = 1;; attempts++) {
        struct muster_error failed = {0};
        c->fd = tcpstore_stream_connect(c->host, c->port, deadline, &failed);
        if (c->fd >= 0) {
            if (!greet(c, deadline, &failed))
                return 0;
            /* A server of torch 2.1 takes VALIDATE for a key of a terabyte and closes the connection. */
            c->old = !c->old && failed.code == MUSTER_E_PEER;
            close(c->fd);
            c->fd = -1;
            c->input_start = c->input_end = 0;
        } else {
            c->old = false;
        }
        /* an attempt that our own limit cut short says less than the one before it */
        if (failed.code != MUSTER_E_TIMEOUT || !cause.code)
            cause = failed;
        struct instant next = instant_add(clock_now(NULL), jittered(delay));
        bool final = failed.code == MUSTER_E_PROTOCOL || failed.code == MUSTER_E_NOMEM;
        if (final || instant_reached(next, deadline))
            return error_set(err, final ? failed.code : MUSTER_E_TIMEOUT,
                             "cannot connect to the TCPStore at %s:%u: %u attempts in %.1f s, the last: %s",
                             c->host, c->port, attempts,
                             (double)instant_diff_ns(clock_now(NULL), start) / (double)NS_PER_S, cause.text);
        clock_sleep_until(next);
        delay = 2 * delay < BACKOFF_MAX_NS ? 2 * delay : BACKOFF_MAX_NS;
    }
}

struct tcpstore_client *tcpstore_client_connect(const struct tcpstore_client_options *options,
                                                struct muster_error *err)
{
    if (!options->host || !*options->host || !options->port) {
        error_set(err, MUSTER_E_INVALID, "a TCPStore client needs a host and a port, not \"%s\" and %u",
                  options->host ? options->host : "", options->port);
        return NULL;
    }
    struct tcpstore_client *c = mem_calloc(1, sizeof *c);
    if (c) {
        c->fd = -1;
        c->port = options->port;
        c->timeout_ns = options->timeout_ns > 0 ? options->timeout_ns : TIMEOUT_NS;
        c->host = mem_strdup(options->host);
        c->prefix = options->prefix ? mem_printf("/%s/", options->prefix) : mem_strdup("/");
    }
    if (!c || !c->host || !c->prefix)
        error_set(err, MUSTER_E_NOMEM, "no memory for a TCPStore client");
    else if (!connect_until(c, err))
        return c;
    tcpstore_client_destroy(c);
    return NULL;
}

void tcpstore_client_destroy(struct tcpstore_client *c)
{
    if (!c)
        return;
    if (c->fd >= 0)
        close(c->fd);
    buffer_free(&c->request);
    mem_free(c->host);
    mem_free(c->prefix);
    mem_free(c);
}

/* --- calls --- */

int tcpstore_client_set(struct tcpstore_client *c, const char *key, const void *data, size_t length,
                        struct muster_error *err)
{
    struct call call = call_begin(c, TCPSTORE_SET, "set", key, c->timeout_ns, err);
    if (check_sizes(&call, key, length))
        return -1;
    put_key(c, key);
    put_bytes(c, (struct store_bytes){data, length});
    return call_send(&call);
}

int tcpstore_client_append(struct tcpstore_client *c, const char *key, const void *data, size_t length,
                           struct muster_error *err)
{
    struct call call = call_begin(c, TCPSTORE_APPEND, "append", key, c->timeout_ns, err);
    if (check_sizes(&call, key, length))
        return -1;
    put_key(c, key);
    put_bytes(c, (struct store_bytes){data, length});
    return call_send(&call);
}

int tcpstore_client_wait(struct tcpstore_client *c, const char *const *keys, size_t count, int64_t timeout_ns,
                         struct muster_error *err)
{
    struct call call = call_begin(c, TCPSTORE_WAIT, "wait for", NULL, timeout_ns, err);
    return put_keys(&call, keys, count) || call_wait(&call) ? -1 : 0;
}

static void put_values_query(struct call *call, const char *const *keys, bool list)
{
    struct tcpstore_client *c = call->client;
    put_query(c, list ? TCPSTORE_MULTI_GET : TCPSTORE_GET);
    if (list)
        put_u64(c, call->keys);
    for (size_t i = 0; i < call->keys; i++)
        put_key(c, keys[i]);
}

/* Waits for the keys of the WAIT that is in the request buffer, and gets their values. */
static int get_values(struct call *call, const char *const *keys, bool list, struct buffer *values)
{
    struct tcpstore_client *c = call->client;
    uint8_t cancelled = TCPSTORE_WAIT_CANCELED;
    call->behind = c->ours && c->request.length <= BEHIND_WAIT;
    if (call->behind)
        put_values_query(call, keys, list);
    if (call_wait(call))
        return -1;
    /* The keys are there: their values need only a server that answers. */
    call->deadline = instant_add(clock_now(NULL), c->timeout_ns);
    if (!call->behind) {
        buffer_clear(&c->request);
        put_values_query(call, keys, list);
        if (call_send(call))
            return -1;
    }
    for (size_t i = 0; i < call->keys; i++) {
        if (receive_vector(call, &values[i]))
            return -1;
    }
    if (call->late && receive(c, &cancelled, sizeof cancelled, call->deadline, call->err))
        return call_fail(call);
    return cancelled == TCPSTORE_WAIT_CANCELED ? 0 : call_protocol(call, "CANCEL_WAIT with", cancelled);
}

int tcpstore_client_get(struct tcpstore_client *c, const char *key, struct buffer *out, int64_t timeout_ns,
                        struct muster_error *err)
{
    struct call call = call_begin(c, TCPSTORE_WAIT, "get of", NULL, timeout_ns, err);
    return put_keys(&call, &key, 1) || get_values(&call, &key, false, out) ? -1 : 0;
}

int tcpstore_client_multi_get(struct tcpstore_client *c, const char *const *keys, size_t count,
                              struct buffer *values, int64_t timeout_ns, struct muster_error *err)
{
    struct call call = call_begin(c, TCPSTORE_WAIT, "multi_get of", NULL, timeout_ns, err);
    return put_keys(&call, keys, count) || get_values(&call, keys, true, values) ? -1 : 0;
}

int tcpstore_client_multi_set(struct tcpstore_client *c, const char *const *keys,
                              const struct store_bytes *values, size_t count, struct muster_error *err)
{
    struct call call =
        call_begin(c, TCPSTORE_MULTI_SET, "multi_set of", count ? keys[0] : NULL, c->timeout_ns, err);
    call.keys = count;
    put_u64(c, count);
    for (size_t i = 0; i < count; i++) {
        if (check_sizes(&call, keys[i], values[i].length))
            return -1;
        put_key(c, keys[i]);
        put_bytes(c, values[i]);
    }
    return call_send(&call);
}

int tcpstore_client_add(struct tcpstore_client *c, const char *key, int64_t delta, int64_t *value,
                        struct muster_error *err)
{
    struct call call = call_begin(c, TCPSTORE_ADD, "add to", key, c->timeout_ns, err);
    int64_t sum = 0;
    if (check_sizes(&call, key, 0))
        return -1;
    put_key(c, key);
    put_u64(c, (uint64_t)delta);
    if (call_send(&call) || receive_i64(&call, &sum))
        return -1;
    if (value)
        *value = sum;
    return 0;
}

int tcpstore_client_check(struct tcpstore_client *c, const char *const *keys, size_t count, bool *present,
                          struct muster_error *err)
{
    struct call call = call_begin(c, TCPSTORE_CHECK, "check of", NULL, c->timeout_ns, err);
    uint8_t reply = 0;
    if (put_keys(&call, keys, count) || call_send(&call))
        return -1;
    if (receive(c, &reply, sizeof reply, call.deadline, err))
        return call_fail(&call);
    if (reply != TCPSTORE_READY && reply != TCPSTORE_NOT_READY)
        return call_protocol(&call, "CHECK with", reply);
    *present = reply == TCPSTORE_READY;
    return 0;
}

int tcpstore_client_compare_set(struct tcpstore_client *c, const char *key, struct store_bytes expected,
                                struct store_bytes desired, struct buffer *out, struct muster_error *err)
{
    struct call call = call_begin(c, TCPSTORE_COMPARE_SET, "compare_set of", key, c->timeout_ns, err);
    if (check_sizes(&call, key, expected.length) || check_sizes(&call, key, desired.length))
        return -1;
    put_key(c, key);
    put_bytes(c, expected);
    put_bytes(c, desired);
    return call_send(&call) || receive_vector(&call, out) ? -1 : 0;
}

int tcpstore_client_delete(struct tcpstore_client *c, const char *key, bool *deleted,
                           struct muster_error *err)
{
    struct call call = call_begin(c, TCPSTORE_DELETE_KEY, "delete of", key, c->timeout_ns, err);
    int64_t count = 0;
    if (check_sizes(&call, key, 0))
        return -1;
    put_key(c, key);
    if (call_send(&call) || receive_i64(&call, &count))
        return -1;
    if (deleted)
        *deleted = count > 0;
    return 0;
}

int tcpstore_client_num_keys(struct tcpstore_client *c, int64_t *count, struct muster_error *err)
{
    struct call call = call_begin(c, TCPSTORE_GETNUMKEYS, "num_keys", NULL, c->timeout_ns, err);
    return call_send(&call) || receive_i64(&call, count) ? -1 : 0;
}

/* A server of ours counts for us. On another one a counter says who is the last of each generation; he sets
 * its mark and takes the mark before away, which everybody has seen who came here again. */
int tcpstore_client_barrier(struct tcpstore_client *c, const char *key, int world_size, int64_t timeout_ns,
                            struct muster_error *err)
{
    int64_t arrived = 0;
    if (world_size < 1)
        return error_set(err, MUSTER_E_INVALID, "barrier \"%s\": a world of %d is below 1", key, world_size);
    scope_free char *counter = mem_printf("%s/count", key);
    if (!counter)
        return error_set(err, MUSTER_E_NOMEM, "no memory for barrier \"%s\"", key);
    if (c->ours) {
        struct call call = call_begin(c, TCPSTORE_BARRIER, "barrier", key, timeout_ns, err);
        if (check_sizes(&call, counter, 0))
            return -1;
        put_key(c, counter);
        put_u64(c, (uint64_t)world_size);
        return call_wait(&call);
    }
    if (tcpstore_client_add(c, counter, 1, &arrived, err))
        return -1;
    int64_t generation = (arrived - 1) / world_size;
    scope_free char *mark = mem_printf("%s/done/%" PRId64, key, generation);
    scope_free char *before = mem_printf("%s/done/%" PRId64, key, generation - 1);
    if (!mark || !before)
        return error_set(err, MUSTER_E_NOMEM, "no memory for barrier \"%s\"", key);
    if (arrived % world_size != 0)
        return tcpstore_client_wait(c, (const char *const[]){mark}, 1, timeout_ns, err);
    if (tcpstore_client_set(c, mark, "1", 1, err))
        return -1;
    return generation > 0 ? tcpstore_client_delete(c, before, NULL, err) : 0;
}

/* --- the runtime's face --- */

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

struct kv_store tcpstore_client_kv(struct tcpstore_client *c)
{
    return (struct kv_store){.set = kv_set, .get = kv_get, .add = kv_add, .ctx = c};
}

int tcpstore_client_address(const struct tcpstore_client *c, char *out, size_t size, struct muster_error *err)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    if (c->fd < 0)
        return error_set(err, MUSTER_E_STATE, "an earlier failure has closed this connection");
    if (getsockname(c->fd, (struct sockaddr *)&address, &length))
        return error_errno(err, "our address on the connection to the store");
    int failed =
        getnameinfo((struct sockaddr *)&address, length, out, (socklen_t)size, NULL, 0, NI_NUMERICHOST);
    return failed ? error_set(err, MUSTER_E_IO, "our address on the connection to the store: %s",
                              gai_strerror(failed))
                  : 0;
}
