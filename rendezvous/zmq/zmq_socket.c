/* zmq_socket.c - see zmq_socket.h. */
#include "rendezvous/zmq/zmq_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/base/address.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "rendezvous/net/tcp_listen.h"
#include "rendezvous/security/zap.h"
#include "rendezvous/wire/wire.h"
#include "rendezvous/zmq/zmq_calls.h"

enum {
    HANDSHAKE_LIMIT_MS = 2000,
    HANDSHAKE_MS_A_NODE = 5,
    RECEIVE_BUFFER = 32 << 10, /* the kernel takes twice as much */
    DESCRIPTORS = 32,          /* enough for a socket with its threads, and a few connections */
    DEFAULT_LIMIT = 1000,      /* libzmq's own */
    WAITING_LIMIT = 100,       /* messages of one peer that are unread; it is not read from until they are */
    /* Connections of peers that died silently: the protocol's own heartbeats detect them sooner. */
    KEEPALIVE_S = 60,
    KEEPALIVE_AGAIN_S = 10,
    KEEPALIVE_TRIES = 3,
    UNANSWERED_MS = 90000,
    ZAP_ENFORCE_DOMAIN = 93, /* in libzmq since 4.3.0; zmq.h names it only with ZMQ_BUILD_DRAFT_API */
    ENDPOINT_LIMIT = 32 + ADDRESS_TEXT,
};

/* The events for admission.c and connection.h: each is a message of three frames. */
enum {
    GREETING_FAILED = ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                      ZMQ_EVENT_HANDSHAKE_FAILED_AUTH,
    SERVER_EVENTS =
        ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED | GREETING_FAILED,
    CLIENT_EVENTS = ZMQ_EVENT_CONNECT_DELAYED | ZMQ_EVENT_CONNECT_RETRIED | ZMQ_EVENT_CONNECTED |
                    ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED | GREETING_FAILED,
};

struct setting {
    int option, value;
};

int zmq_socket_greeting_limit_ms(int nodes)
{
    return HANDSHAKE_LIMIT_MS + HANDSHAKE_MS_A_NODE * nodes;
}

static int socket_fail(struct muster_error *err, const char *what)
{
    return error_set(err, MUSTER_E_IO, "%s: %s", what, zmq_calls.strerror(errno));
}

static int apply(void *socket, const struct setting *settings, size_t count, struct muster_error *err)
{
    for (size_t i = 0; i < count; i++)
        if (zmq_calls.setsockopt(socket, settings[i].option, &settings[i].value, sizeof settings[i].value))
            return socket_fail(err, "cannot set an option of a ZeroMQ socket");
    int64_t frame_limit = WIRE_FRAME_LIMIT;
    if (zmq_calls.setsockopt(socket, ZMQ_MAXMSGSIZE, &frame_limit, sizeof frame_limit))
        return socket_fail(err, "cannot limit the size of ZeroMQ messages");
    return 0;
}

static int endpoint(char *out, size_t size, const char *host, uint16_t port, bool *six,
                    struct muster_error *err)
{
    struct address address;
    char text[ADDRESS_TEXT];
    if (!address_parse(host, port, &address))
        return error_set(err, MUSTER_E_INVALID, "\"%s\" is not a numeric address", host);
    *six = address.of.any.sa_family == AF_INET6;
    (void)snprintf(out, size, *six ? "tcp://[%s]:%u" : "tcp://%s:%u", address_text(&address.of.any, text),
                   port);
    return 0;
}

/* libzmq ends the process if a call fails that almost never does: at the last descriptor, or in a sandbox. So
 * the calls that it needs are tried before. */
static int check_needs(struct muster_error *err)
{
    int spare[DESCRIPTORS], count = 0, failed;
    while (count < DESCRIPTORS && (spare[count] = eventfd(0, EFD_CLOEXEC)) >= 0)
        count++;
    failed = count < DESCRIPTORS ? errno : 0;
    if (count && fcntl(spare[0], F_GETFL) < 0)
        failed = errno;
    if (accept4(-1, NULL, NULL, SOCK_CLOEXEC) < 0 && errno != EBADF)
        failed = errno;
    while (count)
        (void)close(spare[--count]); /* an eventfd */
    errno = failed;
    if (failed == EMFILE || failed == ENFILE)
        return error_errno(err, "the connection to the job's other nodes needs %d descriptors (ulimit -n)",
                           DESCRIPTORS);
    return failed
               ? error_errno(err, "eventfd, fcntl or accept4 is refused (by a seccomp profile?), which the "
                                  "connection to the job's other nodes needs: allow them")
               : 0;
}

int zmq_socket_make_context(void **context, struct muster_error *err)
{
    if (zmq_calls_load(err) || check_needs(err))
        return -1;
    *context = zmq_calls.ctx_new();
    return *context ? 0 : socket_fail(err, "cannot make a ZeroMQ context");
}

static void end_context(void *context)
{
    while (context && zmq_calls.ctx_term(context) && errno == EINTR)
        ;
}

void zmq_socket_end_context(void **context)
{
    end_context(*context);
    *context = NULL;
}

/* libzmq starts its threads with the first socket; they inherit the mask of the creating thread. */
static int open_socket(struct zmq_socket *s, int type, void *shared, struct muster_error *err)
{
    sigset_t all, before;
    if (zmq_calls_load(err) || (!shared && check_needs(err)))
        return -1;
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before))
        return error_set(err, MUSTER_E_IO, "cannot block signals");
    s->context = shared ? NULL : zmq_calls.ctx_new();
    s->socket = shared || s->context ? zmq_calls.socket(shared ? shared : s->context, type) : NULL;
    int failed = s->socket ? 0 : socket_fail(err, "cannot make a ZeroMQ socket");
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL); /* it has just worked with the same arguments */
    if (failed)
        zmq_socket_close(s, 0);
    return failed;
}

/* libzmq copies the keys, and keeps them until the socket is closed. */
static int set_keys(void *socket, bool server, const struct job_keys *keys, struct muster_error *err)
{
    const struct {
        int option;
        const unsigned char *key;
    } of_server[] = {{ZMQ_CURVE_SECRETKEY, keys->server_secret}},
      of_client[] = {{ZMQ_CURVE_SERVERKEY, keys->server_public},
                     {ZMQ_CURVE_PUBLICKEY, keys->client_public},
                     {ZMQ_CURVE_SECRETKEY, keys->client_secret}},
      *row = server ? of_server : of_client;
    const size_t count = server ? 1 : 3;
    const int yes = 1;
    if (!zmq_calls.has("curve"))
        return error_set(err, MUSTER_E_UNSUPPORTED,
                         "this machine's libzmq was built without CURVE, which a job with a secret needs: "
                         "Debian's libzmq5 has it");
    if (server && zmq_calls.setsockopt(socket, ZMQ_CURVE_SERVER, &yes, sizeof yes))
        return socket_fail(err, "cannot use the job's secret");
    for (size_t i = 0; i < count; i++)
        if (zmq_calls.setsockopt(socket, row[i].option, row[i].key, SECRET_KEY_SIZE))
            return socket_fail(err, "cannot use the job's secret");
    return 0;
}

/* With a domain, and only then, libzmq sends a ZAP request for every connection; enforced, no peer is
 * admitted without an answer. It also rejects peers of ZeroMQ's protocols before 3.0, which an unknown
 * peer's bytes look like. */
static int ask_about_peers(struct zmq_socket *s, struct muster_error *err)
{
    const int yes = 1, none = 0;
    s->zap = zmq_calls.socket(s->context, ZMQ_REP);
    if (!s->zap || zmq_calls.setsockopt(s->zap, ZMQ_LINGER, &none, sizeof none) ||
        zmq_calls.bind(s->zap, "inproc://zeromq.zap.01") ||
        zmq_calls.setsockopt(s->socket, ZMQ_ZAP_DOMAIN, ZAP_DOMAIN, strlen(ZAP_DOMAIN)) ||
        zmq_calls.setsockopt(s->socket, ZAP_ENFORCE_DOMAIN, &yes, sizeof yes))
        return socket_fail(err, "cannot monitor connections");
    return 0;
}

/* From now on zmq_socket_next_event has these events; before bind or connect. */
static int watch(struct zmq_socket *s, int events, struct muster_error *err)
{
    static const char address[] = "inproc://connections"; /* unique: this context has one socket */
    const int unlimited = 0; /* libzmq's thread must never wait for us: we may be waiting for it */
    if (zmq_calls.socket_monitor(s->socket, address, events) < 0)
        return socket_fail(err, "cannot watch a ZeroMQ socket");
    s->monitor = zmq_calls.socket(s->context, ZMQ_PAIR);
    if (!s->monitor || zmq_calls.setsockopt(s->monitor, ZMQ_RCVHWM, &unlimited, sizeof unlimited) ||
        zmq_calls.connect(s->monitor, address))
        return socket_fail(err, "cannot watch a ZeroMQ socket");
    return 0;
}

/* Listens at o->host, or everywhere if that is no address of this machine. libzmq's own bind cannot make a
 * socket for both families if the kernel refuses either. */
static int listen_for(const struct zmq_socket_options *o, struct muster_error *err)
{
    const char *where = o->host ? o->host : "every address";
    if (o->host && !address_is_numeric(o->host))
        return error_set(err, MUSTER_E_INVALID, "\"%s\" is not a numeric address", o->host);
    if (o->listener && *o->listener >= 0)
        return take_fd(o->listener);
    int fd = tcp_listen_quietly(o->host, o->port);
    if (fd < 0 && o->host && (errno == EADDRNOTAVAIL || errno == ENODEV)) {
        log_warning(o->log,
                    "%s is not an address of this machine: serving the job's world on all addresses, port %u",
                    o->host, o->port);
        where = "every address";
        fd = tcp_listen_quietly(NULL, o->port);
    }
    if (fd >= 0)
        return fd;
    return errno == EADDRINUSE
               ? error_set(err, MUSTER_E_BUSY,
                           "port %u is in use, and this node must serve the job's world on it", o->port)
               : error_errno(err, "cannot serve the job's world on %s, port %u", where, o->port);
}

/* Hands the listening socket over; the address is libzmq's only for its events. */
static int bind_to(struct zmq_socket *s, int fd, struct muster_error *err)
{
    if (zmq_calls.setsockopt(s->socket, ZMQ_USE_FD, &fd, sizeof fd) ||
        zmq_calls.bind(s->socket, "tcp://127.0.0.1:*"))
        return socket_fail(err, "cannot hand a listening socket to ZeroMQ");
    return 0;
}

/* Connections inherit all of it, for no call each; each is an improvement only. */
static void prepare_connections(int fd)
{
    static const struct {
        int level, option, value;
    } rows[] = {
        /* Bytes of a connection that is shut down are still read from the kernel, and each byte of empty
         * frames takes 32 bytes of ours. */
        {SOL_SOCKET, SO_RCVBUF, RECEIVE_BUFFER},     {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_S},    {IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_AGAIN_S},
        {IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_TRIES}, {IPPROTO_TCP, TCP_USER_TIMEOUT, UNANSWERED_MS},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        (void)setsockopt(fd, rows[i].level, rows[i].option, &rows[i].value, sizeof rows[i].value);
}

/* libzmq ends a timer by a walk from the earliest on. With thousands of peers each end of a handshake, and
 * each answer to a ping, would pass all others': half of the server's processor time at 16,384. So the server
 * has no timer a peer: admission.c ends connections that do not register, and the kernel those of dead
 * hosts. */
static int bind_router(struct zmq_socket *s, const struct zmq_socket_options *o, struct muster_error *err)
{
    const struct setting settings[] = {
        {ZMQ_ROUTER_MANDATORY, 1},
        {ZMQ_HANDSHAKE_IVL, 0},
        {ZMQ_RCVHWM, WAITING_LIMIT},
        {ZMQ_SNDHWM, WAITING_LIMIT}, /* a peer that reads nothing */
        {ZMQ_LINGER, 0},
    };
    if (apply(s->socket, settings, sizeof settings / sizeof settings[0], err) ||
        watch(s, SERVER_EVENTS, err) || ask_about_peers(s, err) ||
        (o->keys && set_keys(s->socket, true, o->keys, err)))
        return -1;
    scope_close int fd = listen_for(o, err);
    if (fd >= 0)
        prepare_connections(fd);
    if (fd < 0 || bind_to(s, fd, err))
        return -1;
    (void)take_fd(&fd); /* libzmq closes it */
    return 0;
}

int zmq_socket_bind_router(struct zmq_socket *s, const struct zmq_socket_options *options,
                           struct muster_error *err)
{
    if (open_socket(s, ZMQ_ROUTER, NULL, err))
        return -1;
    int failed = bind_router(s, options, err);
    if (failed)
        zmq_socket_close(s, 0);
    return failed;
}

/* The first interval is short because most agents connect before the serving one listens: with 100 ms in
 * place of 10 a world of 32 agents took 220 ms rather than 110. A server that ends connections at once needs
 * the long one (zmq_socket_connect_again): each opened connection begins with the first interval anew. */
static int connect_dealer(struct zmq_socket *s, const struct zmq_socket_options *o, struct muster_error *err)
{
    char where[ENDPOINT_LIMIT];
    bool six;
    if (endpoint(where, sizeof where, o->host, o->port, &six, err))
        return -1;
    const bool unlimited = o->context && !o->waiting_limit;
    const struct setting settings[] = {
        {ZMQ_IMMEDIATE, o->waiting_limit == 0},
        {ZMQ_SNDHWM, o->waiting_limit ? o->waiting_limit : DEFAULT_LIMIT},
        {ZMQ_HANDSHAKE_IVL, unlimited ? 0 : zmq_socket_greeting_limit_ms(o->nodes)},
        {ZMQ_RECONNECT_IVL, o->first_interval_ms},
        {ZMQ_RECONNECT_IVL_MAX, o->longest_interval_ms},
        {ZMQ_CONNECT_TIMEOUT, unlimited ? 0 : o->connect_limit_ms},
        {ZMQ_IPV6, six},
        {ZMQ_LINGER, 0},
    };
    if (apply(s->socket, settings, sizeof settings / sizeof settings[0], err) ||
        (s->context && watch(s, CLIENT_EVENTS, err)) || (o->keys && set_keys(s->socket, false, o->keys, err)))
        return -1;
    return !o->later && zmq_calls.connect(s->socket, where) ? socket_fail(err, where) : 0;
}

int zmq_socket_connect_dealer(struct zmq_socket *s, const struct zmq_socket_options *options,
                              struct muster_error *err)
{
    if (open_socket(s, ZMQ_DEALER, options->context, err))
        return -1;
    int failed = connect_dealer(s, options, err);
    if (failed)
        zmq_socket_close(s, 0);
    return failed;
}

/* libzmq copies a socket's options when it connects. */
static int start_again(struct zmq_socket *s, const char *where, int six, int interval_ms,
                       struct muster_error *err)
{
    if (zmq_calls.setsockopt(s->socket, ZMQ_IPV6, &six, sizeof six) ||
        zmq_calls.setsockopt(s->socket, ZMQ_RECONNECT_IVL, &interval_ms, sizeof interval_ms) ||
        zmq_calls.connect(s->socket, where))
        return socket_fail(err, where);
    return 0;
}

int zmq_socket_connect_again(struct zmq_socket *s, const struct zmq_socket_options *options,
                             struct muster_error *err)
{
    char where[ENDPOINT_LIMIT];
    bool six;
    if (endpoint(where, sizeof where, options->host, options->port, &six, err))
        return -1;
    (void)zmq_calls.disconnect(s->socket,
                               where); /* a connection that has ended by itself may be forgotten already */
    return start_again(s, where, six, options->first_interval_ms, err);
}

int zmq_socket_move(struct zmq_socket *s, const struct zmq_socket_options *from,
                    const struct zmq_socket_options *to, struct muster_error *err)
{
    char before[ENDPOINT_LIMIT], after[ENDPOINT_LIMIT];
    bool six;
    if (endpoint(before, sizeof before, from->host, from->port, &six, err) ||
        endpoint(after, sizeof after, to->host, to->port, &six, err))
        return -1;
    (void)zmq_calls.disconnect(s->socket,
                               before); /* a connection that has ended by itself may be forgotten already */
    return start_again(s, after, six, to->first_interval_ms, err);
}

void zmq_socket_close(struct zmq_socket *s, int linger_ms)
{
    /* The events end before their reader: libzmq's thread would wait for it with the socket's lock. */
    if (s->monitor) {
        (void)zmq_calls.socket_monitor(s->socket, NULL, 0);
        (void)zmq_calls.close(s->monitor);
    }
    if (s->socket) {
        /* None of these can fail on sockets and a context of ours; there would be nothing left to do if
         * they did. */
        (void)zmq_calls.setsockopt(s->socket, ZMQ_LINGER, &linger_ms, sizeof linger_ms);
        (void)zmq_calls.close(s->socket);
    }
    if (s->zap)
        (void)zmq_calls.close(s->zap);
    end_context(s->context);
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

static bool readable(void *socket)
{
    int events = 0;
    size_t size = sizeof events;
    int result;
    do
        result = zmq_calls.getsockopt(socket, ZMQ_EVENTS, &events, &size);
    while (result && errno == EINTR);
    return result == 0 && (events & ZMQ_POLLIN);
}

static int fd_of(void *socket)
{
    int fd = -1;
    size_t size = sizeof fd;
    /* Only a closed socket has none. */
    return zmq_calls.getsockopt(socket, ZMQ_FD, &fd, &size) ? -1 : fd;
}

bool zmq_socket_readable(const struct zmq_socket *s)
{
    return readable(s->socket);
}

int zmq_socket_fd(const struct zmq_socket *s)
{
    return fd_of(s->socket);
}

int zmq_socket_event_fd(const struct zmq_socket *s)
{
    return fd_of(s->monitor);
}

/* zmq_poll checks every socket before it sleeps and after, each time with a system call; a crowd of agents
 * wakes its server thousands of times. */
int zmq_socket_wait(const struct zmq_socket *s, const int *fds, size_t count, int timeout_ms)
{
    void *const sockets[] = {s->socket, s->monitor, s->zap};
    enum { SOCKETS = sizeof sockets / sizeof *sockets };
    struct pollfd watched[SOCKETS + ZMQ_SOCKET_WAIT_LIMIT];
    if (count > ZMQ_SOCKET_WAIT_LIMIT)
        count = ZMQ_SOCKET_WAIT_LIMIT;
    for (size_t i = 0; i < SOCKETS; i++) {
        if (readable(sockets[i]))
            timeout_ms = 0;
        watched[i] = (struct pollfd){fd_of(sockets[i]), POLLIN, 0};
    }
    for (size_t i = 0; i < count; i++)
        watched[SOCKETS + i] = (struct pollfd){fds[i], POLLIN, 0};
    return poll(watched, SOCKETS + count, timeout_ms) < 0 ? -1 : 0;
}
