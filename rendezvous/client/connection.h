/* connection.h - pure: the state of the attempts to reach the server, with a text for each, from ZeroMQ's
 * events about one connection. */
#ifndef MUSTER_RENDEZVOUS_CLIENT_CONNECTION_H
#define MUSTER_RENDEZVOUS_CLIENT_CONNECTION_H

#include <stdbool.h>

#include "proto/base/clock.h"

#ifdef __cplusplus
extern "C" {
#endif

/* symbol, text; "" if there is no fault */
#define CONNECTION_STATES(X)                                                                                 \
    X(CONNECTION_NEW, "")                                                                                    \
    X(CONNECTION_TRYING, "")                                                                                 \
    X(CONNECTION_REFUSED, "nothing listens there")                                                           \
    X(CONNECTION_SILENT,                                                                                     \
      "no response from that address: it is wrong, blocked by a firewall, or its host is down")              \
    X(CONNECTION_OPEN, "")                                                                                   \
    X(CONNECTION_CUT, "the peer ended the connection during the handshake: a server that is ending, or not " \
                      "a muster server (torchrun, another program)")                                         \
    X(CONNECTION_STRANGE,                                                                                    \
      "the peer does not speak muster's protocol: torchrun, or another program on this port; run "           \
      "the same muster on all nodes, with the same --secret-file if there is one")                           \
    X(CONNECTION_MUTE, "the peer accepts connections but does not complete the handshake: a hung process, "  \
                       "or not a muster server "                                                             \
                       "(torchrun, another program)")                                                        \
    X(CONNECTION_LACKS_SECRET,                                                                               \
      "the server has a job secret and this node was started without one: give every node the same "         \
      "--secret-file")                                                                                       \
    X(CONNECTION_HAS_SECRET,                                                                                 \
      "this node was started with --secret-file and the server without: give it to all nodes or to none")    \
    X(CONNECTION_OTHER_JOB,                                                                                  \
      "the server has this job secret and another job id: --rdzv-id must be equal on all nodes")             \
    X(CONNECTION_BROKEN_OFF,                                                                                 \
      "the peer closes the connection during the handshake: its job secret is not the one in this node's "   \
      "--secret-file, it has none, or it is not a muster server (torchrun, another program)")                \
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
    CONNECTION_FAILS,  /* the attempt in progress; another one follows */
    CONNECTION_OPENS,
    CONNECTION_GREETS, /* both sides speak one protocol */
    /* the attempt or the connection ends */
    CONNECTION_CONFUSES, /* the peer does not speak it, or sends nothing */
    /* the same where there is a secret, here, there or on both sides */
    CONNECTION_WANTS_SECRET,
    CONNECTION_WANTS_NO_SECRET,
    CONNECTION_DENIES,     /* another job's server */
    CONNECTION_BREAKS_OFF, /* at a greeting with a secret */
    CONNECTION_CLOSES,
    /* before the peer has greeted, and without a wrong byte: a server that is killed ends connections so,
     * too. Several times in a row it is a peer that confuses, or breaks off. */
    CONNECTION_ENDS,
    CONNECTION_ENDS_SECRET, /* the same at a greeting with a secret */
    CONNECTION_EVENT_COUNT
};

struct connection {
    enum connection_state state;
    struct instant begun;       /* the last attempt */
    struct instant opened;      /* the last connection */
    struct instant since;       /* when the state was entered */
    struct instant mismatch_at; /* time of the peer's last sign of incompatibility */
    struct instant ended;       /* the last attempt, not followed by another so far; 0: in progress */
    bool brief;                 /* the last connection that opened ended at once */
    bool met;                   /* a server has greeted here */
    int cuts;                   /* connections in a row that ended before the peer greeted */
    struct instant cut_at;      /* the first of them */
};

/* Whether the event, before its step, means that there is no server: an agreed connection has ended, or
 * cannot be established. A peer that accepts connections and sends nothing may just be suspended. */
bool connection_is_lost_by(const struct connection *connection, enum connection_event event);
/* Returns whether the state has changed. */
bool connection_step(struct connection *connection, enum connection_event event, struct instant now);
const char *connection_words(const struct connection *connection);
/* Whether the fault of the peer, or ours, is known. */
bool connection_is_judged(const struct connection *connection);
/* Whether one side has a secret and the other none. */
bool connection_is_mismatch(const struct connection *connection);
/* Whether the two sides are incompatible as started, for so long that it is not a server that is just
 * being replaced. */
bool connection_is_hopeless(const struct connection *connection);
/* When a new attempt must be started: after a protocol violation libzmq gives up for good; after other
 * errors it announces at once that it will retry. INSTANT_NEVER if it has. */
struct instant connection_retry(const struct connection *connection);
/* The attempt was started. */
void connection_retried(struct connection *connection);
/* The longest interval between two attempts, which are twice as far apart each time until then: a server that
 * was away for minutes is found soon, and all nodes of a job together make at most 250 attempts a second. */
int connection_longest_interval_ms(int nodes);
/* The first attempt waits so long, the first attempts of all nodes of a job being spread over 100 us a node;
 * not at all in a job of at most 500. random: a node's own. */
int64_t connection_first_delay_ns(int nodes, uint64_t random);
/* The time of one attempt. A slow server of a large job is not sent attempt after attempt: the kernel repeats
 * the first one after 1, 3, 7, 15 and 31 s. */
int connection_limit_ms(int nodes);
/* The first interval. It is longer if a peer accepts connections and ends them at once (a sidecar before its
 * server is there). After each connection that opens, libzmq starts with the first interval again: with a
 * short interval such a peer would get as many connections as it can end. */
int connection_first_interval_ms(const struct connection *connection);
/* Whether the attempts that libzmq makes by itself, with this first interval, should have another. */
bool connection_changes_pace(const struct connection *connection, int first_interval_ms);

#ifdef __cplusplus
}
#endif
#endif
