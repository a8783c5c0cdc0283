/* tcpstore_greeting.h - what a new connection of a TCPStore is, by its first bytes. Pure; internal to the
 * engine in tcpstore.c. */
#ifndef MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_GREETING_H
#define MUSTER_RENDEZVOUS_TCPSTORE_TCPSTORE_GREETING_H

#include <stddef.h>

#include "proto/include/muster_error.h"
#include "rendezvous/store/store.h"
#include "rendezvous/tcpstore/tcpstore.h"

/* data and length: what has arrived, at least one byte. *dialect stays UNKNOWN while more bytes are needed.
 * -1 with MUSTER_E_PROTOCOL where no client of PyTorch begins so. */
int tcpstore_greeting(const char *data, size_t length, const struct store_limits *limits,
                      enum tcpstore_dialect *dialect, struct muster_error *err);
/* Whether the first key of a connection that opened without VALIDATE is one that PyTorch's client writes:
 * what else gets so far is a stranger whose bytes look like a request. */
bool tcpstore_greeting_key(struct store_bytes key);

#endif
