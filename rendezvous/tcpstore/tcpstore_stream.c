/* tcpstore_stream.c - see tcpstore_stream.h. */
#include "rendezvous/tcpstore/tcpstore_stream.h"

#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"

/* Time limit for one address before the next one is tried: a firewall that drops packets must not use up the
 * caller's whole time. */
#define ADDRESS_NS (5 * NS_PER_S)

static void guard_addrinfo(struct addrinfo **list)
{
    if (*list)
        freeaddrinfo(*list);
}

/* Waits until the descriptor is ready or the deadline has passed. Looks at least once: a process that was
 * stopped or starved past its deadline has its answer in the socket. */
static int tcpstore_stream_wait(int fd, short events, struct instant deadline, struct muster_error *err)
{
    for (;;) {
        int64_t left = instant_diff_ns(deadline, clock_now(NULL));
        int64_t ms = left > 0 ? (left + NS_PER_MS - 1) / NS_PER_MS : 0;
        struct pollfd poller = {.fd = fd, .events = events};
        int ready = poll(&poller, 1, ms > INT_MAX ? INT_MAX : (int)ms);
        if (ready > 0)
            return 0;
        if (ready < 0 && errno != EINTR)
            return error_errno(err, "poll");
        if (left <= 0)
            return error_set(err, MUSTER_E_TIMEOUT, "timed out");
    }
}

/* If no process listens yet at a local port of the ephemeral range, the kernel may choose that same port as
 * the source port: the socket is then connected to itself and would receive its own bytes (TCP self-connect).
 */
static bool is_self_connected(int fd)
{
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t size = sizeof here, other = sizeof there;
    return !getsockname(fd, (struct sockaddr *)&here, &size) &&
           !getpeername(fd, (struct sockaddr *)&there, &other) && size == other &&
           !memcmp(&here, &there, size);
}

static int reject_self_connection(int fd, struct muster_error *err)
{
    const struct linger none = {.l_onoff = 1}; /* else TIME_WAIT holds the port for a minute */
    if (!is_self_connected(fd))
        return 0;
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none); /* cannot fail on a TCP socket */
    errno = ECONNREFUSED;
    return error_errno(err, "connect");
}

/* A sandbox that refuses the call does so at the next attempt too. */
static int no_socket(struct muster_error *err)
{
    const bool refused = errno == EPERM || errno == EACCES || errno == ENOSYS;
    (void)error_errno(err, "socket");
    if (refused && err)
        err->code = MUSTER_E_UNSUPPORTED;
    return -1;
}

static int connect_address(const struct addrinfo *address, struct instant deadline, struct muster_error *err)
{
    scope_close int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int yes = 1, failure = 0;
    socklen_t length = sizeof failure;
    if (fd < 0)
        return no_socket(err);
    /* A source port must not prevent a local server from listening at that port. Where that is refused the
     * connection is as good. */
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (connect(fd, address->ai_addr, address->ai_addrlen)) {
        if (errno != EINPROGRESS && errno != EINTR)
            return error_errno(err, "connect");
        if (tcpstore_stream_wait(fd, POLLOUT, deadline, err))
            return -1;
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &length))
            return error_errno(err, "getsockopt");
        errno = failure;
        if (failure)
            return error_errno(err, "connect");
    }
    if (reject_self_connection(fd, err))
        return -1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes); /* slower without it */
    return take_fd(&fd);
}

int tcpstore_stream_connect(const char *host, uint16_t port, struct instant deadline,
                            struct muster_error *err)
{
    char service[8];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    GUARD(guard_addrinfo) struct addrinfo *found = NULL;
    (void)snprintf(service, sizeof service, "%u", port);
    int failed = getaddrinfo(host, service, &hints, &found);
    if (failed)
        return error_set(err, MUSTER_E_NOT_FOUND, "cannot resolve the name: %s",
                         failed == EAI_SYSTEM ? "system error" : gai_strerror(failed));
    for (const struct addrinfo *address = found; address; address = address->ai_next) {
        struct instant until = instant_min(deadline, instant_add(clock_now(NULL), ADDRESS_NS));
        int fd = connect_address(address, until, err);
        if (fd >= 0)
            return fd;
    }
    return -1;
}

int tcpstore_stream_send(int fd, const void *data, size_t length, struct instant deadline,
                         struct muster_error *err)
{
    const char *at = data;
    while (length > 0) {
        ssize_t sent = send(fd, at, length, MSG_NOSIGNAL);
        if (sent >= 0) {
            at += sent;
            length -= (size_t)sent;
        } else if (errno == EPIPE || errno == ECONNRESET) {
            return error_set(err, MUSTER_E_PEER, "the server closed the connection");
        } else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
            return error_errno(err, "send");
        } else if (errno != EINTR && tcpstore_stream_wait(fd, POLLOUT, deadline, err)) {
            return -1;
        }
    }
    return 0;
}

int tcpstore_stream_receive(int fd, void *data, size_t length, size_t size, size_t *got,
                            struct instant deadline, struct muster_error *err)
{
    *got = 0;
    while (*got < length) {
        ssize_t received = recv(fd, (char *)data + *got, size - *got, 0);
        if (received > 0)
            *got += (size_t)received;
        else if (received == 0 || errno == ECONNRESET)
            return error_set(err, MUSTER_E_PEER, "the server closed the connection");
        else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
            return error_errno(err, "recv");
        else if (errno != EINTR && tcpstore_stream_wait(fd, POLLIN, deadline, err))
            return -1;
    }
    return 0;
}
