/* connection.h - pure: what became of the attempts to reach the server, in words, from ZeroMQ's events about
 * one connection. */
#ifndef MUSTER_RENDEZVOUS_CLIENT_CONNECTION_H
#define MUSTER_RENDEZVOUS_CLIENT_CONNECTION_H

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
      "the same muster on all nodes, with the same --secret-file where there is one")                        \
    X(CONNECTION_MUTE,                                                                                       \
      "what listens there takes connections and says nothing: its process stands still, or it is no server " \
      "of muster (torchrun, another program)")                                                               \
    X(CONNECTION_LACKS_SECRET,                                                                               \
      "the server has a job secret and this node was started without one: give every node the same "         \
      "--secret-file")                                                                                       \
    X(CONNECTION_HAS_SECRET,                                                                                 \
      "this node was started with --secret-file and the server without: give it to all nodes or to none")    \
    X(CONNECTION_OTHER_JOB,                                                                                  \
      "the server has this job secret and another job id: --rdzv-id must be equal on all nodes")             \
    X(CONNECTION_BROKEN_OFF,                                                                                 \
      "what listens there breaks off at our greeting: its job secret is not the one in this node's "         \
      "--secret-file, it has none, or it is no server of muster (torchrun, another program)")                \
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
    CONNECTION_FAILS,  /* the attempt, if one goes on; another one follows */
    CONNECTION_OPENS,
    CONNECTION_GREETS, /* both sides speak one protocol */
    /* the attempt or the connection ends */
    CONNECTION_CONFUSES, /* the other side does not speak it, or says nothing */
    /* the same where there is a secret, here, there or on both sides */
    CONNECTION_WANTS_SECRET,
    CONNECTION_WANTS_NO_SECRET,
    CONNECTION_DENIES,     /* another job's server */
    CONNECTION_BREAKS_OFF, /* at a greeting with a secret */
    CONNECTION_CLOSES,
    CONNECTION_EVENT_COUNT
};

struct connection {
    enum connection_state state;
    struct instant begun;  /* the last attempt */
    struct instant opened; /* the last connection */
    struct instant since;  /* when the state became what it is */
    struct instant told;   /* the other side last said that the two do not go together */
    struct instant ended;  /* the last attempt, which no other one follows so far; 0: it goes on */
};

/* Whether the event, before its step, says that nobody serves there: an agreed connection has ended, or none
 * is to be had. Who takes connections and says nothing may only stand still. */
bool connection_is_lost_by(const struct connection *connection, enum connection_event event);
/* Returns whether the state is another one now. */
bool connection_step(struct connection *connection, enum connection_event event, struct instant now);
const char *connection_words(const struct connection *connection);
/* Whether it is known what is wrong with the other side, or with us. */
bool connection_is_judged(const struct connection *connection);
/* Whether one side has a secret and the other none. */
bool connection_is_mismatch(const struct connection *connection);
/* Whether the two sides do not go together as they were started, for so long that it is no server that is
 * just being replaced. */
bool connection_is_hopeless(const struct connection *connection);
/* When it must be begun again: after what is against its protocol libzmq gives up for good, after everything
 * else it says at once that it will try again. INSTANT_NEVER where it has. */
struct instant connection_retry(const struct connection *connection);
/* It was begun again. */
void connection_retried(struct connection *connection);

#ifdef __cplusplus
}
#endif
#endif
