/* tcpstore_greeting.h - identifies a new connection's client by its first bytes. Pure; internal to the
 * engine in tcpstore.c. */
#ifndef MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_GREETING_H
#define MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_GREETING_H

#include <stddef.h>

#include "proto/include/muster_error.h"
#include "rendezvous/store/store.h"
#include "rendezvous/tcpstore/tcpstore.h"

/* data and length: the bytes received so far, at least one. *dialect stays UNKNOWN while more bytes are
 * needed. -1 with MUSTER_E_PROTOCOL if no client of PyTorch begins with these bytes. */
int tcpstore_greeting(const char *data, size_t length, const struct store_limits *limits,
                      enum tcpstore_dialect *dialect, struct muster_error *err);
/* Whether PyTorch's client would write this key first on a connection without VALIDATE. If
 * not, the peer is another program whose bytes happen to parse as a request. */
bool tcpstore_greeting_key(struct store_bytes key);

#endif
