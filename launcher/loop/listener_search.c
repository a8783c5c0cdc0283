/* listener_search.c - see listener_search.h. */
#include "launcher/loop/listener_search.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "rendezvous/net/tcp_listen.h"

/* A lost SYN is sent again after 1 s, and again 2 s later: an address that is silent for less is none that no
 * program listens at. An address without a listener refuses at once. */
enum { CONNECT_MS = 3500, PAUSE_MS = 250, SHORT_PAUSE_MS = 10 };

/* For a search that gives way: it has to be scheduled. */
static const int64_t gives_way_ns = 2 * NS_PER_S;

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

/* The first one to answer of the addresses from first on, before end, at which a program listens; -1: none.
 */
static int look_once(const struct listener_search *s, int first, int end)
{
    struct pollfd entries[RESOLVER_ADDRESSES_KEPT];
    struct instant deadline = instant_add(clock_now(NULL), CONNECT_MS * NS_PER_MS);
    int found = -1, open = 0;
    for (int i = first; i < end; i++) {
        entries[i] = (struct pollfd){start_connecting(s->addresses[i], s->port), POLLOUT, 0};
        open += entries[i].fd >= 0;
    }
    while (open && found < 0) {
        int64_t left = instant_diff_ns(deadline, clock_now(NULL)) / NS_PER_MS;
        if (poll(entries + first, (nfds_t)(end - first), left > 0 ? (int)left : 0) <=
            0) /* a last look when we were starved */
            break;
        for (int i = first; i < end; i++) {
            if (entries[i].fd < 0 || !entries[i].revents)
                continue;
            if (found < 0 && has_connected(&entries[i]))
                found = i;
            (void)close(entries[i].fd); /* nothing was sent */
            entries[i].fd = -1;
            open--;
        }
    }
    for (int i = first; i < end; i++)
        if (entries[i].fd >= 0)
            (void)close(entries[i].fd); /* the same */
    return found;
}

/* Whether the claim holds: no node of an earlier place has claimed, and none of a later place had claimed
 * before. */
static bool prevails(struct listener_search *s)
{
    const struct instant patience = instant_add(clock_now(NULL), gives_way_ns);
    s->found = look_once(s, 0, s->before);
    if (s->found >= 0)
        return false;
    while ((s->found = look_once(s, s->before, s->count)) >= 0 && !instant_reached(clock_now(NULL), patience))
        (void)poll(NULL, 0, SHORT_PAUSE_MS);
    return s->found < 0;
}

/* Until a listener was found, or the time is over. */
static bool look_until_then(struct listener_search *s)
{
    while ((s->found = look_once(s, 0, s->count)) < 0 && !instant_reached(clock_now(NULL), s->until))
        (void)poll(NULL, 0, PAUSE_MS);
    return s->found >= 0;
}

/* The listener that was found may be the claim of a search that gives way, even to this one: where two wait
 * for each other's listener, none serves. */
static bool stays(const struct listener_search *s)
{
    (void)poll(NULL, 0, SHORT_PAUSE_MS);
    return look_once(s, s->found, s->found + 1) >= 0;
}

void listener_search_run(void *payload)
{
    struct listener_search *s = payload;
    s->claim = -1;
    do {
        if (look_until_then(s))
            continue;
        if (s->claims)
            s->claim = tcp_listen_quietly(*s->bind ? s->bind : NULL, s->port);
        if (s->claim < 0 || prevails(s))
            return;
        (void)close(take_fd(&s->claim)); /* nothing was accepted */
    } while (s->claims && !stays(s));
}

void listener_search_address(const struct listener_search *search, char out[ADDRESS_TEXT])
{
    (void)snprintf(out, ADDRESS_TEXT, "%s", search->found < 0 ? "" : search->addresses[search->found]);
}

void listener_search_destroy(void *payload)
{
    struct listener_search *s = payload;
    if (s)
        guard_close(&s->claim);
    mem_free(s);
}
