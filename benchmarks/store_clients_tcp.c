/* store_clients_tcp.c - see store_clients.h: our blocking client of the TCPStore protocol. */
#include <string.h>

#include "benchmarks/store_clients.h"
#include "proto/base/clock.h"
#include "rendezvous/tcpstore/tcpstore_client.h"

#define TIMEOUT_NS (60 * NS_PER_S)

static void must(int result, const struct muster_error *err)
{
    if (result)
        store_clients_die("a call failed", err->text);
}

static void *tcp_connect(uint16_t port)
{
    struct muster_error err = {0};
    struct tcpstore_client_options options = {.host = "127.0.0.1", .port = port, .timeout_ns = TIMEOUT_NS};
    struct tcpstore_client *client = tcpstore_client_connect(&options, &err);
    must(client ? 0 : -1, &err);
    return client;
}

static void tcp_set(void *client, const char *key, const char *value)
{
    struct muster_error err = {0};
    must(tcpstore_client_set(client, key, value, strlen(value), &err), &err);
}

static void tcp_get(void *client, const char *key, struct buffer *value)
{
    struct muster_error err = {0};
    must(tcpstore_client_get(client, key, value, TIMEOUT_NS, &err), &err);
}

static int64_t tcp_add(void *client, const char *key, int64_t delta)
{
    struct muster_error err = {0};
    int64_t sum = 0;
    must(tcpstore_client_add(client, key, delta, &sum, &err), &err);
    return sum;
}

static void tcp_wait(void *client, const char *key)
{
    struct muster_error err = {0};
    must(tcpstore_client_wait(client, &key, 1, TIMEOUT_NS, &err), &err);
}

static void tcp_settle(void *client)
{
    struct muster_error err = {0};
    int64_t count;
    must(tcpstore_client_num_keys(client, &count, &err), &err);
}

static void tcp_barrier(void *client, const char *key, int world_size)
{
    struct muster_error err = {0};
    must(tcpstore_client_barrier(client, key, world_size, TIMEOUT_NS, &err), &err);
}

static void tcp_gather(void *client, const char *const *keys, size_t count, size_t mine, const char *value,
                       struct buffer *values)
{
    struct muster_error err = {0};
    tcp_set(client, keys[mine], value);
    must(tcpstore_client_multi_get(client, keys, count, values, TIMEOUT_NS, &err), &err);
}

const struct store_calls store_calls_tcp = {tcp_connect, tcp_set,    tcp_get,     tcp_add,
                                            tcp_wait,    tcp_settle, tcp_barrier, tcp_gather};
