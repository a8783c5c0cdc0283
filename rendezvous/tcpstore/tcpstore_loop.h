/* tcpstore_loop.h - the epoll loop of the TCPStore server: moves bytes between the sockets and the engine.
 * Internal to the server. Once the server has a thread, all functions but create, destroy and listener run on
 * it. */
#ifndef MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_LOOP_H
#define MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_LOOP_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/include/muster_error.h"
#include "rendezvous/tcpstore/tcpstore_server.h"

struct tcpstore_loop;

/* Takes over *listener (sets it to -1) on success. wakeup is a borrowed eventfd; on_wakeup is called when it
 * is readable and returns whether to continue. */
struct tcpstore_loop *tcpstore_loop_create(const struct tcpstore_server_options *options, uint16_t port,
                                           int *listener, int wakeup, bool (*on_wakeup)(void *context),
                                           void *context, struct muster_error *err);
/* Accepts NULL. */
void tcpstore_loop_destroy(struct tcpstore_loop *loop);

int tcpstore_loop_listener(const struct tcpstore_loop *loop);

/* Serves until on_wakeup returns false (0) or epoll_wait fails (-1). */
int tcpstore_loop_run(struct tcpstore_loop *loop, struct muster_error *err);
/* These two are for on_wakeup. */
void tcpstore_loop_new_round(struct tcpstore_loop *loop);
void tcpstore_loop_stats(const struct tcpstore_loop *loop, struct tcpstore_server_stats *stats);

#endif
