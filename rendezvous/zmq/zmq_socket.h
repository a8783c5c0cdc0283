/* zmq_socket.h - one ZeroMQ socket with the options that a control plane needs, set in one place.
 *
 * A context starts threads and must never be used on the far side of a fork: workers are started by fork and
 * exec at once, and every descriptor of libzmq is close-on-exec. All signals are blocked in libzmq's threads.
 */
#ifndef MUSTER_RENDEZVOUS_ZMQ_ZMQ_SOCKET_H
#define MUSTER_RENDEZVOUS_ZMQ_ZMQ_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/log.h"
#include "proto/include/muster_error.h"
#include "rendezvous/security/secret.h"

struct zmq_socket {
    void *context; /* NULL: another's */
    void *socket;
    void *monitor; /* NULL: not monitored */
    void *zap;     /* ROUTER: endpoint to which libzmq sends its ZAP requests (zap.h) */
};

struct zmq_socket_options {
    /* Numeric: libzmq resolves names with a call that may block for minutes. NULL, of a ROUTER: every address
     * of this machine, of both families */
    const char *host;
    uint16_t port;
    int *listener; /* of a ROUTER: a socket that listens there already, unless it is -1, is taken over; NULL:
                      none */
    const struct job_keys *keys; /* NULL: no secret, and nothing is encrypted */
    int nodes; /* how many may connect at once: the time limit of a handshake allows for it */
    const struct log_sink *log;
    /* A DEALER's, between two attempts to connect, each twice as long as the one before; above 0 */
    int first_interval_ms, longest_interval_ms;
    int connect_limit_ms; /* a DEALER's, for an attempt to connect; above 0 */
    int waiting_limit;    /* DEALER: messages that wait for a connection, instead of failing; 0: none */
    /* DEALER: a context shared by many sockets, none of them monitored, or with a limit of time but if
     * messages wait; NULL: its own */
    void *context;
    bool later; /* DEALER: it connects with zmq_socket_connect_again */
};

/* A context to be shared by DEALERs. */
int zmq_socket_make_context(void **context, struct muster_error *err);
/* After its sockets were closed. Accepts NULL in *context, and leaves it. */
void zmq_socket_end_context(void **context);

/* How long a connection may take from its acceptance to a greeting on both sides. A handshake with a secret
 * costs both sides about a quarter of a millisecond each, and if all agents of a job connect at once the last
 * one's turn comes after all others': it must not be rejected only to reconnect. A ROUTER's connections have
 * no limit by libzmq: its user ends them. */
int zmq_socket_greeting_limit_ms(int nodes);

/* A host address that is not of this machine binds the wildcard, with a warning to log. A port in use is
 * MUSTER_E_BUSY. Until a request at s->zap is answered (zap.h, admission.c), no message of its connection
 * is delivered.
 *  */
int zmq_socket_bind_router(struct zmq_socket *s, const struct zmq_socket_options *options,
                           struct muster_error *err);
int zmq_socket_connect_dealer(struct zmq_socket *s, const struct zmq_socket_options *options,
                              struct muster_error *err);
/* Closes the DEALER's connection to options and starts again: libzmq does not retry if the two sides are
 * incompatible. */
int zmq_socket_connect_again(struct zmq_socket *s, const struct zmq_socket_options *options,
                             struct muster_error *err);
/* A DEALER's other end is at another address now: to instead of from. */
int zmq_socket_move(struct zmq_socket *s, const struct zmq_socket_options *from,
                    const struct zmq_socket_options *to, struct muster_error *err);
/* Closes; pending messages have linger_ms to be sent. Accepts a zeroed struct. */
void zmq_socket_close(struct zmq_socket *s, int linger_ms);

/* One message of up to two frames (id_size 0: one frame), without blocking. -1 with errno: EAGAIN if there
 * is no room or no connection, EHOSTUNREACH if the route is gone. */
int zmq_socket_send(const struct zmq_socket *s, const void *id, size_t id_size, const void *data,
                    size_t size);

/* Events of connections. Whether there was one: event is ZMQ_EVENT_..., value its argument, mostly the
 * connection's descriptor. */
bool zmq_socket_next_event(const struct zmq_socket *s, int *event, int *value);

/* The descriptor can only be trusted after this returns 0: it is edge-triggered, and any call may consume
 * the edge. */
bool zmq_socket_readable(const struct zmq_socket *s);
int zmq_socket_fd(const struct zmq_socket *s);
/* The same for zmq_socket_next_event, which has returned false; of a monitored socket. */
int zmq_socket_event_fd(const struct zmq_socket *s);
/* ROUTER: waits until there may be a message, an event or a ZAP request, or a descriptor is readable (at most
 * ZMQ_SOCKET_WAIT_LIMIT descriptors, -1: none). -1 with errno. */
enum { ZMQ_SOCKET_WAIT_LIMIT = 4 };
int zmq_socket_wait(const struct zmq_socket *s, const int *fds, size_t count, int timeout_ms);

#endif
