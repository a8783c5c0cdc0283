/* listener_search.c - see listener_search.h. */
#include "launcher/loop/listener_search.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/base/guard.h"

enum { CONNECT_MS = 1000, PAUSE_MS = 250 };

static int start_connecting(const char *host, uint16_t port)
{
    struct address to;
    if (!address_parse(host, port, &to))
        return -1;
    scope_close int fd = socket(to.of.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || (connect(fd, &to.of.any, to.length) && errno != EINPROGRESS))
        return -1;
    return take_fd(&fd);
}

static bool has_connected(const struct pollfd *entry)
{
    int failure = 0;
    socklen_t size = sizeof failure;
    return entry->revents && !getsockopt(entry->fd, SOL_SOCKET, SO_ERROR, &failure, &size) && !failure &&
           !(entry->revents & (POLLERR | POLLHUP));
}

/* The first of them at which a program listens; -1: none. */
static int look_once(const struct listener_search *s)
{
    struct pollfd entries[RESOLVER_ADDRESSES_KEPT];
    struct instant deadline = instant_add(clock_now(NULL), CONNECT_MS * NS_PER_MS);
    int found = -1, open = 0;
    for (int i = 0; i < s->count; i++) {
        entries[i] = (struct pollfd){start_connecting(s->addresses[i], s->port), POLLOUT, 0};
        open += entries[i].fd >= 0;
    }
    while (open && found < 0) {
        int64_t left = instant_diff_ns(deadline, clock_now(NULL)) / NS_PER_MS;
        if (left <= 0 || poll(entries, (nfds_t)s->count, (int)left) <= 0)
            break;
        for (int i = 0; i < s->count; i++) {
            if (entries[i].fd < 0 || !entries[i].revents)
                continue;
            if (found < 0 && has_connected(&entries[i]))
                found = i;
            (void)close(entries[i].fd); /* nothing was sent */
            entries[i].fd = -1;
            open--;
        }
    }
    for (int i = 0; i < s->count; i++)
        if (entries[i].fd >= 0)
            (void)close(entries[i].fd); /* the same */
    return found;
}

void listener_search_run(void *payload)
{
    struct listener_search *s = payload;
    while ((s->found = look_once(s)) < 0 && !instant_reached(clock_now(NULL), s->until))
        (void)poll(NULL, 0, PAUSE_MS);
}
