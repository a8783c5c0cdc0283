/* tcp_listen.c - see tcp_listen.h. */
#include "rendezvous/net/tcp_listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "rendezvous/net/port_holder.h"

static void guard_addrinfo(struct addrinfo **list)
{
    if (*list)
        freeaddrinfo(*list);
}

static uint16_t socket_port(int fd)
{
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    if (getsockname(fd, (struct sockaddr *)&name, &length))
        return 0;
    return ntohs(name.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&name)->sin6_port
                                            : ((struct sockaddr_in *)&name)->sin_port);
}

/* Returns a bound socket, listening or not, or -1 with errno. */
static int bind_at(const struct sockaddr *address, socklen_t length, bool listens)
{
    scope_close int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int yes = 1, no = 0;
    if (fd < 0)
        return -1;
    /* A port in TIME_WAIT may be taken at once; one with a listener may not. */
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes))
        return -1;
    if (address->sa_family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no))
        return -1;
    if (bind(fd, address, length) || (listens && listen(fd, SOMAXCONN)))
        return -1;
    return take_fd(&fd);
}

static int listen_failed(const char *where, uint16_t port, struct muster_error *err)
{
    char holder[128];
    if (errno == EADDRINUSE)
        return error_set(err, MUSTER_E_IO,
                         "cannot listen on %s: port %u is in use by %s; stop it or choose another port",
                         where, port, port_holder_describe(port, holder, sizeof holder));
    return error_errno(err, "cannot listen on %s port %u", where, port);
}

static int listen_numeric(const char *address, uint16_t port, struct muster_error *err)
{
    char service[8];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE};
    GUARD(guard_addrinfo) struct addrinfo *found = NULL;
    (void)snprintf(service, sizeof service, "%u", port);
    int failed = getaddrinfo(address, service, &hints, &found);
    if (failed)
        return error_set(err, MUSTER_E_INVALID, "cannot listen on \"%s\": not a numeric address (%s)",
                         address, gai_strerror(failed));
    int fd = bind_at(found->ai_addr, found->ai_addrlen, true);
    return fd >= 0 ? fd : listen_failed(address, port, err);
}

static int bind_everywhere(uint16_t port, bool listens, struct muster_error *err)
{
    struct sockaddr_in6 any6 = {.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = in6addr_any};
    struct sockaddr_in any4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = bind_at((struct sockaddr *)&any6, sizeof any6, listens);
    if (fd >= 0)
        return fd;
    /* An occupied port must not become "only IPv4 is ours": clients would reach both servers by turns. */
    if (errno == EADDRINUSE || errno == EACCES)
        return listen_failed("[::]", port, err);
    fd = bind_at((struct sockaddr *)&any4, sizeof any4, listens);
    return fd >= 0 ? fd : listen_failed("0.0.0.0", port, err);
}

/* Whether fd is valid, and its port. */
static int report_port(int fd, uint16_t *bound, struct muster_error *err)
{
    if (fd < 0)
        return -1;
    *bound = socket_port(fd);
    return *bound ? 0 : error_errno(err, "cannot read the port of a socket");
}

int tcp_listen(const char *address, uint16_t wanted, uint16_t *bound, struct muster_error *err)
{
    scope_close int fd = address ? listen_numeric(address, wanted, err) : bind_everywhere(wanted, true, err);
    return report_port(fd, bound, err) ? -1 : take_fd(&fd);
}

int tcp_hold_port(uint16_t wanted, uint16_t *bound, struct muster_error *err)
{
    scope_close int fd = bind_everywhere(wanted, false, err);
    return report_port(fd, bound, err) ? -1 : take_fd(&fd);
}
