/* zmq_socket.c - see zmq_socket.h. */
#include "rendezvous/zmq_socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "rendezvous/wire.h"
#include "rendezvous/zmq_calls.h"

enum {
    HANDSHAKE_LIMIT_MS = 2000, /* a peer that connects and says nothing holds a descriptor no longer */
    RECONNECT_MS = 100,
    RECONNECT_MAX_MS = 5000, /* thousands of agents do not hammer a server that is gone */
    CONNECT_LIMIT_MS = 3000,
    BACKLOG = 4096, /* all agents of a large job start in one second */
    ENDPOINT_LIMIT = 64 + INET6_ADDRSTRLEN,
};

struct setting {
    int option, value;
};

static int fail(struct muster_error *err, const char *what)
{
    return error_set(err, MUSTER_E_IO, "%s: %s", what, zmq_calls.strerror(errno));
}

static int apply(void *socket, const struct setting *settings, size_t count, struct muster_error *err)
{
    for (size_t i = 0; i < count; i++)
        if (zmq_calls.setsockopt(socket, settings[i].option, &settings[i].value, sizeof settings[i].value))
            return fail(err, "cannot set an option of a ZeroMQ socket");
    int64_t frame_limit = WIRE_FRAME_LIMIT;
    if (zmq_calls.setsockopt(socket, ZMQ_MAXMSGSIZE, &frame_limit, sizeof frame_limit))
        return fail(err, "cannot limit the size of ZeroMQ messages");
    return 0;
}

static int endpoint(char *out, size_t size, const char *host, uint16_t port, bool *six,
                    struct muster_error *err)
{
    unsigned char scratch[sizeof(struct in6_addr)];
    *six = inet_pton(AF_INET6, host, scratch) == 1;
    if (!*six && inet_pton(AF_INET, host, scratch) != 1)
        return error_set(err, MUSTER_E_INVALID, "\"%s\" is not a numeric address", host);
    (void)snprintf(out, size, *six ? "tcp://[%s]:%u" : "tcp://%s:%u", host, port);
    return 0;
}

/* libzmq starts its threads with the first socket; they inherit the mask of the thread that makes it. */
static int open_socket(struct zmq_socket *s, int type, struct muster_error *err)
{
    sigset_t all, before;
    if (zmq_calls_load(err))
        return -1;
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before))
        return error_set(err, MUSTER_E_IO, "cannot block signals");
    s->context = zmq_calls.ctx_new();
    s->socket = s->context ? zmq_calls.socket(s->context, type) : NULL;
    int failed = s->socket ? 0 : fail(err, "cannot make a ZeroMQ socket");
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL); /* it has just worked with the same arguments */
    if (failed)
        zmq_socket_close(s, 0);
    return failed;
}

static int bind_error(const char *where, uint16_t port, struct muster_error *err)
{
    if (errno != EADDRINUSE)
        return fail(err, where);
    return error_set(err, MUSTER_E_BUSY, "port %u is in use, and this node must serve the job's world on it",
                     port);
}

static int bind_router(struct zmq_socket *s, const char *host, uint16_t port, const struct log_sink *log,
                       struct muster_error *err)
{
    char where[ENDPOINT_LIMIT];
    bool six;
    if (endpoint(where, sizeof where, host, port, &six, err))
        return -1;
    const struct setting settings[] = {
        {ZMQ_ROUTER_MANDATORY, 1}, {ZMQ_HANDSHAKE_IVL, HANDSHAKE_LIMIT_MS},
        {ZMQ_BACKLOG, BACKLOG},    {ZMQ_IPV6, six},
        {ZMQ_LINGER, 0},
    };
    if (apply(s->socket, settings, sizeof settings / sizeof settings[0], err) || zmq_socket_watch(s, err))
        return -1;
    if (zmq_calls.bind(s->socket, where) == 0)
        return 0;
    if (errno != EADDRNOTAVAIL && errno != ENODEV)
        return bind_error(where, port, err);
    log_warning(log,
                "%s is not an address of this machine: serving the job's world on all addresses, port %u",
                host, port);
    (void)snprintf(where, sizeof where, six ? "tcp://[::]:%u" : "tcp://0.0.0.0:%u", port);
    return zmq_calls.bind(s->socket, where) ? bind_error(where, port, err) : 0;
}

int zmq_socket_bind_router(struct zmq_socket *s, const char *host, uint16_t port, const struct log_sink *log,
                           struct muster_error *err)
{
    if (open_socket(s, ZMQ_ROUTER, err))
        return -1;
    int failed = bind_router(s, host, port, log, err);
    if (failed)
        zmq_socket_close(s, 0);
    return failed;
}

static int connect_dealer(struct zmq_socket *s, const char *host, uint16_t port, struct muster_error *err)
{
    char where[ENDPOINT_LIMIT];
    bool six;
    if (endpoint(where, sizeof where, host, port, &six, err))
        return -1;
    const struct setting settings[] = {
        {ZMQ_IMMEDIATE, 1},
        {ZMQ_HANDSHAKE_IVL, HANDSHAKE_LIMIT_MS},
        {ZMQ_RECONNECT_IVL, RECONNECT_MS},
        {ZMQ_RECONNECT_IVL_MAX, RECONNECT_MAX_MS},
        {ZMQ_CONNECT_TIMEOUT, CONNECT_LIMIT_MS},
        {ZMQ_IPV6, six},
        {ZMQ_LINGER, 0},
    };
    if (apply(s->socket, settings, sizeof settings / sizeof settings[0], err) || zmq_socket_watch(s, err))
        return -1;
    return zmq_calls.connect(s->socket, where) ? fail(err, where) : 0;
}

int zmq_socket_connect_dealer(struct zmq_socket *s, const char *host, uint16_t port, struct muster_error *err)
{
    if (open_socket(s, ZMQ_DEALER, err))
        return -1;
    int failed = connect_dealer(s, host, port, err);
    if (failed)
        zmq_socket_close(s, 0);
    return failed;
}

void zmq_socket_close(struct zmq_socket *s, int linger_ms)
{
    if (s->monitor)
        (void)zmq_calls.close(s->monitor); /* a socket of ours */
    if (s->socket) {
        /* Neither can fail on a socket and context of ours, and there is nothing left to do if they did. */
        (void)zmq_calls.setsockopt(s->socket, ZMQ_LINGER, &linger_ms, sizeof linger_ms);
        (void)zmq_calls.close(s->socket);
    }
    while (s->context && zmq_calls.ctx_term(s->context) && errno == EINTR)
        ;
    *s = (struct zmq_socket){0};
}

int zmq_socket_send(const struct zmq_socket *s, const void *id, size_t id_size, const void *data, size_t size)
{
    int sent;
    if (id_size) {
        do
            sent = zmq_calls.send(s->socket, id, id_size, ZMQ_SNDMORE | ZMQ_DONTWAIT);
        while (sent < 0 && errno == EINTR);
        if (sent < 0)
            return -1;
    }
    do
        sent = zmq_calls.send(s->socket, data, size, ZMQ_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? -1 : 0;
}

int zmq_socket_watch(struct zmq_socket *s, struct muster_error *err)
{
    static const char address[] = "inproc://connections"; /* of this context, which has one socket */
    enum { WATCHED = ZMQ_EVENT_ALL & ~(ZMQ_EVENT_LISTENING | ZMQ_EVENT_MONITOR_STOPPED) };
    if (zmq_calls.socket_monitor(s->socket, address, WATCHED) < 0)
        return fail(err, "cannot watch a ZeroMQ socket");
    s->monitor = zmq_calls.socket(s->context, ZMQ_PAIR);
    if (!s->monitor || zmq_calls.connect(s->monitor, address))
        return fail(err, "cannot watch a ZeroMQ socket");
    return 0;
}

/* Two frames: 16 bits of event and 32 of value, then the endpoint. */
bool zmq_socket_next_event(const struct zmq_socket *s, int *event, int *value)
{
    zmq_msg_t message;
    uint16_t number = 0;
    int32_t detail = 0;
    bool more = true, got = false;
    while (s->monitor && more) {
        zmq_calls.msg_init(&message);
        more = zmq_calls.msg_recv(&message, s->monitor, ZMQ_DONTWAIT) >= 0;
        if (more && !got && zmq_calls.msg_size(&message) >= sizeof number + sizeof detail) {
            const char *data = zmq_calls.msg_data(&message);
            memcpy(&number, data, sizeof number);
            memcpy(&detail, data + sizeof number, sizeof detail);
            got = true;
        }
        more = more && zmq_calls.msg_more(&message);
        zmq_calls.msg_close(&message);
    }
    *event = number;
    *value = detail;
    return got;
}

bool zmq_socket_readable(const struct zmq_socket *s)
{
    int events = 0;
    size_t size = sizeof events;
    int result;
    do
        result = zmq_calls.getsockopt(s->socket, ZMQ_EVENTS, &events, &size);
    while (result && errno == EINTR);
    return result == 0 && (events & ZMQ_POLLIN);
}

int zmq_socket_fd(const struct zmq_socket *s)
{
    int fd = -1;
    size_t size = sizeof fd;
    /* Only a closed socket has none. */
    return zmq_calls.getsockopt(s->socket, ZMQ_FD, &fd, &size) ? -1 : fd;
}
