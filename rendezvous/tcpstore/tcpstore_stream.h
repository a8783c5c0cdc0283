/* tcpstore_stream.h - the client's socket: connecting, sending and receiving with a deadline. Internal to the
 * client.
 *
 * Descriptors are non-blocking and close-on-exec; the calls poll. Each tries the socket before it looks at
 * the clock, so a deadline in the past still gets what is there. Error texts name neither peer nor key: the
 * caller wraps. */
#ifndef MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_STREAM_H
#define MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_STREAM_H

#include <stddef.h>
#include <stdint.h>

#include "proto/base/clock.h"
#include "proto/include/muster_error.h"

/* One attempt: resolves the name and tries its addresses in turn. Returns the descriptor or -1. */
int tcpstore_stream_connect(const char *host, uint16_t port, struct instant deadline,
                            struct muster_error *err);
int tcpstore_stream_send(int fd, const void *data, size_t length, struct instant deadline,
                         struct muster_error *err);
/* At least length bytes, and what else is there up to size; MUSTER_E_PEER where the peer closes before. *got
 * counts what came, also on failure. */
int tcpstore_stream_receive(int fd, void *data, size_t length, size_t size, size_t *got,
                            struct instant deadline, struct muster_error *err);

#endif
