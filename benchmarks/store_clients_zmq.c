/* store_clients_zmq.c - see store_clients.h: a DEALER to store_zmq_serve. A message is one or more requests
 * in the encoding of TCPStore; the server's engine keeps requests that come after a wait until the wait is
 * over, so that every call here is one message each way. */
#include <endian.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "benchmarks/store_clients.h"
#include "proto/base/mem.h"
#include "rendezvous/tcpstore/tcpstore.h"

enum { TIMEOUT_MS = 60000 };

struct zmq_client {
    void *socket;
    struct buffer request, reply;
    size_t taken; /* bytes of the reply */
};

static pthread_once_t context_once = PTHREAD_ONCE_INIT;
static void *context;

static void context_make(void)
{
    context = zmq_ctx_new();
}

static void must(int result, const char *what)
{
    if (result < 0)
        store_clients_die(what, zmq_strerror(zmq_errno()));
}

/* --- requests --- */

static void put(struct zmq_client *c, const void *data, size_t length)
{
    must(buffer_append(&c->request, data, length), "no memory");
}

static void put_query(struct zmq_client *c, enum tcpstore_query query)
{
    uint8_t byte = (uint8_t)query;
    put(c, &byte, sizeof byte);
}

static void put_u64(struct zmq_client *c, uint64_t number)
{
    number = htole64(number);
    put(c, &number, sizeof number);
}

static void put_text(struct zmq_client *c, const char *text)
{
    put_u64(c, strlen(text));
    put(c, text, strlen(text));
}

static void put_keys(struct zmq_client *c, enum tcpstore_query query, const char *const *keys, size_t count)
{
    put_query(c, query);
    put_u64(c, count);
    for (size_t i = 0; i < count; i++)
        put_text(c, keys[i]);
}

static void send_request(struct zmq_client *c)
{
    must(zmq_send(c->socket, c->request.data, c->request.length, 0), "zmq_send");
    buffer_clear(&c->request);
    buffer_clear(&c->reply);
    c->taken = 0;
}

/* --- replies --- */

/* The next length bytes of the reply. */
static const char *take(struct zmq_client *c, size_t length)
{
    while (c->reply.length - c->taken < length) {
        zmq_msg_t message;
        zmq_msg_init(&message);
        must(zmq_msg_recv(&message, c->socket, 0), "zmq_msg_recv");
        must(buffer_append(&c->reply, zmq_msg_data(&message), zmq_msg_size(&message)), "no memory");
        zmq_msg_close(&message);
    }
    c->taken += length;
    return c->reply.data + c->taken - length;
}

static int64_t take_number(struct zmq_client *c)
{
    uint64_t number;
    memcpy(&number, take(c, sizeof number), sizeof number);
    return (int64_t)le64toh(number);
}

static void take_value(struct zmq_client *c, struct buffer *value)
{
    size_t length = (size_t)take_number(c);
    buffer_clear(value);
    must(buffer_append(value, take(c, length), length), "no memory");
}

/* --- calls --- */

static void *zmq_client_connect(uint16_t port)
{
    char endpoint[64];
    uint32_t magic = htole32(TCPSTORE_MAGIC);
    int timeout = TIMEOUT_MS, linger = 0;
    struct zmq_client *c = mem_calloc(1, sizeof *c);
    must(c ? 0 : -1, "no memory");
    (void)pthread_once(&context_once, context_make);
    c->socket = zmq_socket(context, ZMQ_DEALER);
    must(c->socket ? 0 : -1, "zmq_socket");
    must(zmq_setsockopt(c->socket, ZMQ_RCVTIMEO, &timeout, sizeof timeout), "ZMQ_RCVTIMEO");
    must(zmq_setsockopt(c->socket, ZMQ_LINGER, &linger, sizeof linger), "ZMQ_LINGER");
    (void)snprintf(endpoint, sizeof endpoint, "tcp://127.0.0.1:%u", port);
    must(zmq_connect(c->socket, endpoint), "zmq_connect");
    put_query(c, TCPSTORE_VALIDATE);
    put(c, &magic, sizeof magic);
    put_query(c, TCPSTORE_PING);
    put(c, &magic, sizeof magic);
    send_request(c);
    (void)take(c, sizeof magic);
    return c;
}

static void zmq_client_set(void *client, const char *key, const char *value)
{
    put_query(client, TCPSTORE_SET);
    put_text(client, key);
    put_text(client, value);
    send_request(client);
}

static void zmq_client_get(void *client, const char *key, struct buffer *value)
{
    put_keys(client, TCPSTORE_WAIT, &key, 1);
    put_query(client, TCPSTORE_GET);
    put_text(client, key);
    send_request(client);
    (void)take(client, 1);
    take_value(client, value);
}

static int64_t zmq_client_add(void *client, const char *key, int64_t delta)
{
    put_query(client, TCPSTORE_ADD);
    put_text(client, key);
    put_u64(client, (uint64_t)delta);
    send_request(client);
    return take_number(client);
}

static void zmq_client_wait(void *client, const char *key)
{
    put_keys(client, TCPSTORE_WAIT, &key, 1);
    send_request(client);
    (void)take(client, 1);
}

static void zmq_client_settle(void *client)
{
    put_query(client, TCPSTORE_GETNUMKEYS);
    send_request(client);
    (void)take_number(client);
}

static void zmq_client_barrier(void *client, const char *key, int world_size)
{
    put_query(client, TCPSTORE_BARRIER);
    put_text(client, key);
    put_u64(client, (uint64_t)world_size);
    send_request(client);
    (void)take(client, 1);
}

static void zmq_client_gather(void *client, const char *const *keys, size_t count, size_t mine,
                              const char *value, struct buffer *values)
{
    put_query(client, TCPSTORE_SET);
    put_text(client, keys[mine]);
    put_text(client, value);
    put_keys(client, TCPSTORE_WAIT, keys, count);
    put_keys(client, TCPSTORE_MULTI_GET, keys, count);
    send_request(client);
    (void)take(client, 1);
    for (size_t i = 0; i < count; i++)
        take_value(client, &values[i]);
}

const struct store_calls store_calls_zmq = {zmq_client_connect, zmq_client_set,   zmq_client_get,
                                            zmq_client_add,     zmq_client_wait,  zmq_client_settle,
                                            zmq_client_barrier, zmq_client_gather};
