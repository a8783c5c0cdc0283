/* tcp_listen.c - see tcp_listen.h. */
#include "rendezvous/net/tcp_listen.h"

#include <errno.h>
#include <poll.h>

#include "proto/base/address.h"
#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "rendezvous/net/port_holder.h"

static uint16_t socket_port(int fd)
{
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    return getsockname(fd, (struct sockaddr *)&name, &length) ? 0 : address_port((struct sockaddr *)&name);
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

/* On [::] for both families; where the kernel has no IPv6 or refuses it, on 0.0.0.0. An occupied port must
 * not become "only IPv4 is ours": clients would reach both servers by turns. */
static int bind_everywhere(uint16_t port, bool listens)
{
    struct sockaddr_in6 any6 = {.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = in6addr_any};
    struct sockaddr_in any4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    int fd = bind_at((struct sockaddr *)&any6, sizeof any6, listens);
    return fd >= 0 || errno == EADDRINUSE ? fd : bind_at((struct sockaddr *)&any4, sizeof any4, listens);
}

int tcp_listen_quietly(const char *address, uint16_t wanted)
{
    struct address parsed;
    if (!address)
        return bind_everywhere(wanted, true);
    if (address_parse(address, wanted, &parsed))
        return bind_at(&parsed.of.any, parsed.length, true);
    errno = EINVAL;
    return -1;
}

static int report_port(int fd, uint16_t *bound, struct muster_error *err)
{
    *bound = socket_port(fd);
    return *bound ? 0 : error_errno(err, "cannot read the port of a socket");
}

int tcp_listen(const char *address, uint16_t wanted, uint16_t *bound, struct muster_error *err)
{
    if (address && !address_is_numeric(address))
        return error_set(err, MUSTER_E_INVALID, "cannot listen on \"%s\": not a numeric address", address);
    scope_close int fd = tcp_listen_quietly(address, wanted);
    if (fd < 0)
        return listen_failed(address ? address : "every address", wanted, err);
    return report_port(fd, bound, err) ? -1 : take_fd(&fd);
}

int tcp_hold_port(const char *address, uint16_t wanted, uint16_t *bound, struct muster_error *err)
{
    struct address parsed;
    const bool one = address && address_parse(address, wanted, &parsed);
    scope_close int fd = one ? bind_at(&parsed.of.any, parsed.length, false) : bind_everywhere(wanted, false);
    if (fd < 0)
        return listen_failed(one ? address : "every address", wanted, err);
    return report_port(fd, bound, err) ? -1 : take_fd(&fd);
}

bool tcp_is_in_use(const char *address, uint16_t wanted)
{
    struct address parsed;
    scope_close int fd = -1;
    errno = EINVAL;
    if (address && address_parse(address, wanted, &parsed))
        fd = bind_at(&parsed.of.any, parsed.length, false);
    if (fd < 0 && (!address || errno == EADDRNOTAVAIL || errno == ENODEV))
        fd = bind_everywhere(wanted, false);
    return fd < 0 && errno == EADDRINUSE;
}

bool tcp_await_port(const char *address, uint16_t wanted)
{
    enum { PAUSE_MS = 20 };
    const struct instant patience = instant_add(clock_now(NULL), NS_PER_S);
    while (tcp_is_in_use(address, wanted)) {
        if (instant_reached(clock_now(NULL), patience))
            return false;
        (void)poll(NULL, 0, PAUSE_MS);
    }
    return true;
}
