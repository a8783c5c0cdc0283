/* comm_nccl_ras.c - see comm_nccl_internal.h. Its protocol is lines of text: commands, then the answers until
 * the connection closes. */
#include "runtime/cuda/comm_nccl_internal.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "runtime/comm/comm_meet.h"

/* A process that does not answer costs the service 5 s, and its answer would come after we have gone: one. */
static const char commands[] = "timeout 1\nverbose status\n", granted[] = "OK\n";

/* Host and port of "host:port" or "[v6]:port". */
static int split_address(char text[128], const char **host, const char **port, struct muster_error *err)
{
    const char *given = getenv("NCCL_RAS_ADDR");
    (void)snprintf(text, 128, "%s", given && *given ? given : "localhost:28028");
    char *colon = strrchr(text, ':');
    if (!colon)
        return error_set(err, MUSTER_E_INVALID, "NCCL_RAS_ADDR=%s has no port", text);
    *colon = '\0';
    *port = colon + 1;
    *host = text;
    if (*text == '[' && colon[-1] == ']') {
        colon[-1] = '\0';
        *host = text + 1;
    }
    return 0;
}

static int dial(struct instant deadline, int *out, struct muster_error *err)
{
    char text[128];
    const char *host = NULL, *port = NULL;
    struct addrinfo *found = NULL;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    if (split_address(text, &host, &port, err))
        return -1;
    if (getaddrinfo(host, port, &hints, &found))
        return error_set(err, MUSTER_E_INVALID, "NCCL_RAS_ADDR: %s:%s is no address", host, port);
    for (const struct addrinfo *at = found; at && *out < 0; at = at->ai_next) {
        scope_close int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        struct pollfd entry = {.fd = fd, .events = POLLOUT};
        int failure = fd < 0 || (connect(fd, at->ai_addr, at->ai_addrlen) && errno != EINPROGRESS);
        socklen_t size = sizeof failure;
        if (!failure && !comm_await(&entry, 1, deadline, "asking NCCL's RAS", err) &&
            !getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &size) && !failure)
            *out = take_fd(&fd);
    }
    freeaddrinfo(found);
    return *out >= 0 ? 0
                     : error_set(err, MUSTER_E_NOT_FOUND, "no answer from NCCL's RAS at %s:%s", host, port);
}

/* Until the other side closes, the deadline passes or out is full. */
static int read_answers(int fd, struct instant deadline, struct buffer *out, struct muster_error *err)
{
    for (;;) {
        struct pollfd entry = {.fd = fd, .events = POLLIN};
        char piece[1024];
        if (comm_await(&entry, 1, deadline, "the answer of NCCL's RAS", err))
            return out->length ? 0 : -1;
        ssize_t got = recv(fd, piece, sizeof piece, MSG_DONTWAIT);
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        size_t room = out->limit ? out->limit - out->length : sizeof piece;
        size_t take = got > 0 && (size_t)got < room ? (size_t)got : room;
        if (got <= 0 || !take || buffer_append(out, piece, take))
            return 0; /* all, or what fits */
    }
}

int nccl_ras_ask(struct buffer *out, struct muster_error *err)
{
    const struct instant deadline = instant_add(clock_now(NULL), 3 * NS_PER_S);
    const size_t skipped = sizeof granted - 1;
    scope_buffer text = {.limit = out->limit ? out->limit - out->length + skipped : 0};
    scope_close int fd = -1;
    if (dial(deadline, &fd, err))
        return -1;
    if (send(fd, commands, sizeof commands - 1, MSG_NOSIGNAL) != (ssize_t)sizeof commands - 1)
        return error_errno(err, "asking NCCL's RAS");
    if (read_answers(fd, deadline, &text, err))
        return -1;
    if (text.length >= skipped && !memcmp(text.data, granted, skipped))
        buffer_consume(&text, skipped);
    return text.length ? buffer_append(out, text.data, text.length)
                       : error_set(err, MUSTER_E_NOT_FOUND, "NCCL's RAS gave no answer");
}
