/* connection.h - pure: what became of the attempts to reach the server, in words, from ZeroMQ's events about
 * one connection. */
#ifndef MUSTER_RENDEZVOUS_CONNECTION_H
#define MUSTER_RENDEZVOUS_CONNECTION_H

#include <stdbool.h>

#include "proto/base/clock.h"

#ifdef __cplusplus
extern "C" {
#endif

/* symbol, words; "" where there is nothing to complain of */
#define CONNECTION_STATES(X)                                                                                 \
    X(CONNECTION_NEW, "")                                                                                    \
    X(CONNECTION_TRYING, "")                                                                                 \
    X(CONNECTION_REFUSED, "nothing listens there")                                                           \
    X(CONNECTION_SILENT,                                                                                     \
      "there is no answer from that address: a wrong one, a firewall, or a host that is down")               \
    X(CONNECTION_OPEN, "")                                                                                   \
    X(CONNECTION_STRANGE,                                                                                    \
      "what listens there does not speak muster's protocol: torchrun, or another program on this port; run " \
      "the same muster on all nodes")                                                                        \
    X(CONNECTION_GREETED, "")                                                                                \
    X(CONNECTION_BROKEN, "the connection broke")

enum connection_state {
#define CONNECTION_ENUM(symbol, words) symbol,
    CONNECTION_STATES(CONNECTION_ENUM)
#undef CONNECTION_ENUM
        CONNECTION_STATE_COUNT
};

enum connection_event {
    CONNECTION_BEGINS, /* an attempt */
    CONNECTION_FAILS,  /* the attempt; another one follows */
    CONNECTION_OPENS,
    CONNECTION_GREETS,   /* both sides speak one protocol */
    CONNECTION_CONFUSES, /* the other side does not, or says nothing */
    CONNECTION_CLOSES,
};

struct connection {
    enum connection_state state;
    struct instant begun; /* the last attempt */
};

/* Returns whether the state is another one now. */
bool connection_step(struct connection *connection, enum connection_event event, struct instant now);
const char *connection_words(const struct connection *connection);

#ifdef __cplusplus
}
#endif
#endif
