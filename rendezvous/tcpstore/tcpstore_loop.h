/* tcpstore_loop.h - the epoll loop of the TCPStore server: sockets in and out of the engine. Internal to the
 * server; what runs on the server's thread, once there is one, is everything but create,
 * destroy and listener. */
#ifndef MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_LOOP_H
#define MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/include/muster_error.h"
#include "rendezvous/tcpstore/tcpstore_server.h"

struct tcpstore_loop;

/* Takes over *listener (sets it to -1) on success. bell is borrowed; on_bell is called when it is readable
 * and says whether the loop goes on. */
struct tcpstore_loop *tcpstore_loop_create(const struct tcpstore_server_options *options, uint16_t port,
                                           int *listener, int bell, bool (*on_bell)(void *context),
                                           void *context, struct muster_error *err);
/* Accepts NULL. */
void tcpstore_loop_destroy(struct tcpstore_loop *loop);

int tcpstore_loop_listener(const struct tcpstore_loop *loop);

/* Serves until on_bell says stop (0) or the kernel refuses to wait (-1). */
int tcpstore_loop_run(struct tcpstore_loop *loop, struct muster_error *err);
/* These two are for on_bell. */
void tcpstore_loop_new_round(struct tcpstore_loop *loop);
void tcpstore_loop_stats(const struct tcpstore_loop *loop, struct tcpstore_server_stats *stats);

#endif
