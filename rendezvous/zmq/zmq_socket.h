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
    void *monitor; /* NULL: not watched */
    void *zap;     /* of a ROUTER: where libzmq asks about every connection (zap.h) */
};

struct zmq_socket_options {
    const char *host; /* numeric: libzmq resolves names with a call that may block for minutes */
    uint16_t port;
    const struct job_keys *keys; /* NULL: no secret, and nothing is encrypted */
    int nodes;                   /* how many may greet at once: the time for a greeting allows for it */
    const struct log_sink *log;
    void *context; /* a DEALER's: one that many share, in which none is watched; NULL: one of its own */
};

/* A host address that is not of this machine binds the wildcard, with a warning to log. A port that is taken
 * is MUSTER_E_BUSY. Until a request at s->zap is answered (zap.h, admission.h), its connection is not heard.
 */
int zmq_socket_bind_router(struct zmq_socket *s, const struct zmq_socket_options *options,
                           struct muster_error *err);
int zmq_socket_connect_dealer(struct zmq_socket *s, const struct zmq_socket_options *options,
                              struct muster_error *err);
/* Gives up the DEALER's connection to options and begins anew: libzmq does not try again where the two sides
 * do not go together. */
int zmq_socket_connect_again(struct zmq_socket *s, const struct zmq_socket_options *options,
                             struct muster_error *err);
/* A DEALER's other end is at another address now: to instead of from. */
int zmq_socket_move(struct zmq_socket *s, const struct zmq_socket_options *from,
                    const struct zmq_socket_options *to, struct muster_error *err);
/* Closes; what was sent has linger_ms to get out. Accepts a zeroed struct. */
void zmq_socket_close(struct zmq_socket *s, int linger_ms);

/* One message of up to two frames (id_size 0: one frame), without blocking. -1 with errno: EAGAIN where there
 * is no room or no connection, EHOSTUNREACH where the route is gone. */
int zmq_socket_send(const struct zmq_socket *s, const void *id, size_t id_size, const void *data,
                    size_t size);

/* What happens to connections. Whether there was anything: event is ZMQ_EVENT_..., value what it tells,
 * mostly the connection's descriptor. */
bool zmq_socket_next_event(const struct zmq_socket *s, int *event, int *value);

/* What the descriptor shows can only be trusted after this says 0: it is edge-triggered, and any call may eat
 * the edge. */
bool zmq_socket_readable(const struct zmq_socket *s);
int zmq_socket_fd(const struct zmq_socket *s);
/* Of a ROUTER: waits until there may be a message, an event or a question, or fd is readable; -1 with errno.
 */
int zmq_socket_wait(const struct zmq_socket *s, int fd, int timeout_ms);

#endif
