/* moving_door.c - the port at which an agent votes, and serves when it is elected. See moving_internal.h. */
#include <sys/epoll.h>

#include "proto/base/error.h"
#include "rendezvous/moving/moving_internal.h"

static const int64_t door_again_ns = 5 * NS_PER_S;

int moving_ensure_door(struct transport *c, struct muster_error *err)
{
    if (c->door.transport)
        return 0;
    const struct membership_options *options = &c->outer->options;
    c->door = *c->outer;
    c->door.options.host = c->at_endpoint ? options->host : options->vote_host;
    c->door.options.port = c->rules.self.port;
    if (server_open_for_votes(&c->door, err) < 0) {
        c->door.transport = NULL;
        return -1;
    }
    if (epoll_ctl(c->wake, EPOLL_CTL_ADD, c->door.operations->fd(&c->door),
                  &(struct epoll_event){.events = EPOLLIN}) == 0)
        return 0;
    return error_errno(err, "cannot wait for votes: epoll_ctl");
}

/* A spare that registers with a world of two nodes makes voters of all three, as a node does that comes back.
 * The server may be lost before all of them know that: the informed voter finds the other agent here. The
 * door waits until the world has started. */
static bool may_become_voter(struct transport *c, struct instant now)
{
    static const int64_t early_ns = NS_PER_S;
    const struct world_record *known = &c->rules.known;
    if (known->nodes < 2 || known->voter_count != 1 || (known->nodes == 2 && !c->outer->options.elastic))
        return false;
    if (c->early_at.ns == INSTANT_NEVER.ns)
        c->early_at = instant_add(now, early_ns);
    return instant_reached(now, c->early_at);
}

static bool needs_door(struct transport *c, struct instant now)
{
    if (!moving_is_voted(c))
        return may_become_voter(c, now);
    return c->outer->options.signpost || record_find_voter(&c->rules.known, c->rules.self.incarnation) >= 0;
}

void moving_open_door(struct transport *c, struct instant now)
{
    struct muster_error err;
    if (c->door.transport || !c->rules.self.port || !instant_reached(now, c->door_at) || !needs_door(c, now))
        return;
    if (moving_ensure_door(c, &err) == 0)
        return;
    c->door_at = instant_add(now, door_again_ns);
    log_warning(
        c->outer->options.log,
        "this node cannot vote about the job's server, and is tried again: port %u, which was reserved for "
        "it: %s",
        (unsigned)c->rules.self.port, err.text);
}
