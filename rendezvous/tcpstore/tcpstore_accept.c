/* tcpstore_accept.c - the loop's new peers: accepting, their number, and peers that send nothing. See
 * tcpstore_loop_internal.h. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "rendezvous/tcpstore/tcpstore_loop_internal.h"

enum {
    ACCEPTS = 64, /* accepts in an iteration, so that many connects do not starve the open connections */
    CONNECTIONS = 65536, /* see tcpstore_server_options.connections */
    SILENT_LIMIT = 1024, /* see tcpstore_server_options.silent */
    SILENT_LEAST = 16,
    BACKLOG_LIMIT = 65536, /* more than any backlog holds: bounds the loop that empties it */
    PASSED_OVER = 32, /* silent peers with unread input that are skipped before one is closed in any case */
};
#define ACCEPT_RETRY_NS (100 * NS_PER_MS) /* out of descriptors: some may be closed by then */

/* A client's host may disappear without closing its connections: TCP keep-alive. */
enum { KEEPALIVE_IDLE_S = 30, KEEPALIVE_INTERVAL_S = 10, KEEPALIVE_PROBES = 3 };

void tcpstore_loop_leave_greeting(struct tcpstore_loop *loop, struct peer *p)
{
    if (!p->greeting)
        return;
    *(p->previous ? &p->previous->next : &loop->greeting_first) = p->next;
    *(p->next ? &p->next->previous : &loop->greeting_last) = p->previous;
    p->next = p->previous = NULL;
    p->greeting = false;
    loop->silent--;
}

int tcpstore_loop_set_accepting(struct tcpstore_loop *loop, bool on)
{
    struct epoll_event event = {.events = on ? EPOLLIN : 0, .data.ptr = &loop->listener};
    if (loop->accepting == on)
        return 0;
    if (epoll_ctl(loop->epoll, EPOLL_CTL_MOD, loop->listener, &event))
        return -1;
    loop->accepting = on;
    loop->accept_again = INSTANT_NEVER;
    return 0;
}

static void tune_socket(int fd)
{
    int yes = 1, idle = KEEPALIVE_IDLE_S, interval = KEEPALIVE_INTERVAL_S, probes = KEEPALIVE_PROBES;
    /* Improvements only: the connection works without them. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

static int add_peer(struct tcpstore_loop *loop, int *fd, struct muster_error *err)
{
    scope_free struct peer *p = mem_calloc(1, sizeof *p);
    if (!p)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a connection");
    struct tcpstore_connection *connection = tcpstore_open(loop->engine, p, err);
    if (!connection)
        return -1;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = p};
    if (epoll_ctl(loop->epoll, EPOLL_CTL_ADD, *fd, &event)) {
        tcpstore_close(connection);
        return error_errno(err, "epoll_ctl of a new connection");
    }
    *p = (struct peer){.fd = take_fd(fd), .events = EPOLLIN, .connection = connection, .greeting = true};
    p->greeted_by = instant_add(clock_now(NULL), loop->greeting_ns);
    p->previous = loop->greeting_last;
    *(loop->greeting_last ? &loop->greeting_last->next : &loop->greeting_first) = p;
    loop->greeting_last = p;
    loop->silent++;
    (void)take_pointer(&p); /* owned by the loop now: found through its connection */
    loop->connections++;
    return 0;
}

static void pause_accepting(struct tcpstore_loop *loop, const char *why)
{
    if (tcpstore_loop_may_log(loop))
        log_warning(loop->log, "TCPStore on port %u: paused accepting at %zu connections: %s", loop->port,
                    loop->connections, why);
    (void)tcpstore_loop_set_accepting(loop, false); /* after a failure this function is called again */
}

/* Errors of accept that concern one peer only (see accept(2), "Error handling"). */
static bool is_error_of_peer(int error)
{
    return error == EINTR || error == ECONNABORTED || error == EPROTO || error == ENETDOWN ||
           error == ENETUNREACH || error == EHOSTDOWN || error == EHOSTUNREACH || error == ENONET ||
           error == ENOPROTOOPT || error == EOPNOTSUPP || error == EPERM || error == ETIMEDOUT;
}

static bool has_unread_input(const struct peer *p)
{
    char byte;
    return recv(p->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

/* Connections that never send VALIDATE must not take the descriptors that workers, logs and other nodes need.
 */
static void limit_silent_peers(struct tcpstore_loop *loop)
{
    if (loop->silent <= loop->silent_limit)
        return;
    struct peer *oldest = loop->greeting_first;
    for (int i = 0; i < PASSED_OVER && oldest->next && has_unread_input(oldest); i++)
        oldest = oldest->next;
    tcpstore_loop_drop(loop, oldest, "it had sent no request, and too many such connections are open");
}

void tcpstore_loop_accept(struct tcpstore_loop *loop)
{
    for (int i = 0; i < ACCEPTS; i++) {
        if (loop->connections >= loop->connections_limit) {
            pause_accepting(loop, "the limit is reached (three quarters of ulimit -n, at most 65,536)");
            return;
        }
        scope_close int fd = accept4(loop->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && is_error_of_peer(errno))
            continue;
        if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (fd <
            0) { /* no descriptor or memory: retried after ACCEPT_RETRY_NS, or when a connection is closed */
            char reason[100];
            pause_accepting(loop, strerror_r(errno, reason, sizeof reason));
            loop->accept_again = instant_add(clock_now(NULL), ACCEPT_RETRY_NS);
            return;
        }
        struct muster_error err = {0};
        loop->accepted++;
        tune_socket(fd);
        if (add_peer(loop, &fd, &err)) {
            loop->dropped++;
            if (tcpstore_loop_may_log(loop))
                log_warning(loop->log, "TCPStore on port %u: closed a new connection: %s", loop->port,
                            err.text);
        }
        limit_silent_peers(loop);
    }
}

void tcpstore_loop_empty_backlog(struct tcpstore_loop *loop)
{
    for (int i = 0; i < BACKLOG_LIMIT; i++) {
        int fd = accept4(loop->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0)
            (void)close(fd);
        else if (!is_error_of_peer(errno))
            return;
    }
}

void tcpstore_loop_drop_silent(struct tcpstore_loop *loop, struct instant now)
{
    while (loop->greeting_first && instant_reached(now, loop->greeting_first->greeted_by))
        tcpstore_loop_drop(loop, loop->greeting_first, "it did not send VALIDATE in time");
}

/* Leaves descriptors for the pipes of workers, for logs and for other nodes. */
void tcpstore_loop_set_limits(struct tcpstore_loop *loop, const struct tcpstore_server_options *options)
{
    struct rlimit descriptors;
    rlim_t most = getrlimit(RLIMIT_NOFILE, &descriptors) ? CONNECTIONS : descriptors.rlim_cur;
    rlim_t share = most / 4 * 3, silent = most / 8;
    if (silent < SILENT_LEAST)
        silent = SILENT_LEAST;
    loop->connections_limit = options->connections  ? options->connections
                              : share < CONNECTIONS ? (size_t)share
                                                    : CONNECTIONS;
    loop->silent_limit = options->silent         ? options->silent
                         : silent < SILENT_LIMIT ? (size_t)silent
                                                 : SILENT_LIMIT;
}
