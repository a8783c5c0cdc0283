/* zmq_calls.h - libzmq's functions, found when the first socket is opened.
 *
 * Most jobs have one node and no socket, and loading the library with all that it needs costs more than the
 * rest of the program's start. So nothing is linked with it, and every call goes through this table. */
#ifndef MUSTER_RENDEZVOUS_ZMQ_ZMQ_CALLS_H
#define MUSTER_RENDEZVOUS_ZMQ_ZMQ_CALLS_H

#include <zmq.h>

#include "proto/include/muster_error.h"

#define ZMQ_CALLS(X)                                                                                         \
    X(ctx_new)                                                                                               \
    X(ctx_term)                                                                                              \
    X(socket)                                                                                                \
    X(close)                                                                                                 \
    X(setsockopt)                                                                                            \
    X(getsockopt)                                                                                            \
    X(bind)                                                                                                  \
    X(disconnect)                                                                                            \
    X(connect)                                                                                               \
    X(send)                                                                                                  \
    X(msg_init)                                                                                              \
    X(msg_recv)                                                                                              \
    X(msg_more)                                                                                              \
    X(msg_data)                                                                                              \
    X(msg_size)                                                                                              \
    X(msg_get)                                                                                               \
    X(msg_close)                                                                                             \
    X(socket_monitor)                                                                                        \
    X(has)                                                                                                   \
    X(strerror)

/* zmq_calls.send is zmq_send, with the type that zmq.h gives it. */
struct zmq_calls {
#define ZMQ_CALL_MEMBER(name) __typeof__(zmq_##name) *name;
    ZMQ_CALLS(ZMQ_CALL_MEMBER)
#undef ZMQ_CALL_MEMBER
};

/* Filled by zmq_calls_load, and constant from then on. */
extern struct zmq_calls zmq_calls;

/* Loads the library unless it is there already; it stays until the process ends. From one thread, before any
 * socket. -1 (MUSTER_E_NOT_FOUND) names the package that has it. */
int zmq_calls_load(struct muster_error *err);

#endif
