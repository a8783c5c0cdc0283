/* store_clients.h - the two kinds of clients that store_clients.c drives: over TCP with our client
 * (rendezvous/tcpstore/tcpstore_client.h), and over ZeroMQ with one message for a whole call. */
#ifndef MUSTER_BENCHMARKS_STORE_CLIENTS_H
#define MUSTER_BENCHMARKS_STORE_CLIENTS_H

#include <stddef.h>
#include <stdint.h>

#include "proto/base/buffer.h"

/* Failures end the program with a line that names what failed. */
struct store_calls {
    void *(*connect)(uint16_t port); /* to this host */
    void (*set)(void *client, const char *key, const char *value);
    /* Waits for key. */
    void (*get)(void *client, const char *key, struct buffer *value);
    int64_t (*add)(void *client, const char *key, int64_t delta);
    void (*wait)(void *client, const char *key);
    /* One call that has a reply: all before it has been served then. */
    void (*settle)(void *client);
    void (*barrier)(void *client, const char *key, int world_size);
    /* Sets keys[mine], waits for all count keys and gets their values. */
    void (*gather)(void *client, const char *const *keys, size_t count, size_t mine, const char *value,
                   struct buffer *values);
};
extern const struct store_calls store_calls_tcp, store_calls_zmq;

void store_clients_die(const char *what, const char *why) __attribute__((noreturn));

#endif
