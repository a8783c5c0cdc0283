/* tcpstore_stream.h - the client's socket: connecting, sending and receiving with a deadline. Internal to the
 * client.
 *
 * Descriptors are non-blocking and close-on-exec; the calls poll. Each tries the socket before it reads
 * the clock, so a call with a deadline in the past still gets bytes that have arrived. Error texts name
 * neither peer nor key: the caller adds them. */
#ifndef MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_STREAM_H
#define MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_STREAM_H

#include <stddef.h>
#include <stdint.h>

#include "proto/base/clock.h"
#include "proto/include/muster_error.h"

/* One attempt: resolves the name and tries its addresses in turn. Returns the descriptor or -1.
 * MUSTER_E_UNSUPPORTED: this process may not open a socket. */
int tcpstore_stream_connect(const char *host, uint16_t port, struct instant deadline,
                            struct muster_error *err);
int tcpstore_stream_send(int fd, const void *data, size_t length, struct instant deadline,
                         struct muster_error *err);
/* Receives at least length bytes, and up to size if more have arrived; MUSTER_E_PEER if the peer closes
 * before. *got counts the bytes received, also on failure. */
int tcpstore_stream_receive(int fd, void *data, size_t length, size_t size, size_t *got,
                            struct instant deadline, struct muster_error *err);

#endif
