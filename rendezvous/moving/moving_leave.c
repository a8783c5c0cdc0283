/* moving_leave.c - an agent that has left the job, and votes until the others have the next round: another
 * loss just then would cost their majority. See takeover.h and moving_internal.h. */
#include <sys/epoll.h>

#include "rendezvous/client/transport_client.h"
#include "rendezvous/moving/moving_internal.h"

/* The others have too few nodes for another world: the next one waits for new agents, which may only be
 * started when this one has ended. In a static job they end with it. */
static bool has_a_vote(const struct membership *m)
{
    const struct transport *c = m->transport;
    return m->left && !m->over && m->options.elastic && !c->ends && c->door.transport && moving_is_voted(c) &&
           record_find_voter(&c->rules.known, c->rules.self.incarnation) >= 0;
}

/* The server is told by LEAVE: its further messages are not read. */
static void begin_to_vote(struct transport *c)
{
    const struct instant now = clock_now(c->outer->options.clock);
    const int64_t left_ns = instant_diff_ns(c->exit_until, now) - NS_PER_S;
    const int64_t least_ns = left_ns > NS_PER_S ? left_ns : NS_PER_S, most_ns = TAKEOVER_STAY_MS * NS_PER_MS;
    const int64_t limit_ns = least_ns < most_ns ? least_ns : most_ns;
    struct takeover_actions actions;
    log_info(c->outer->options.log,
             "this node has left, and votes until the others have decided the next round, for %.3g s at most",
             (double)limit_ns / NS_PER_S);
    c->exit = MOVING_VOTES;
    c->serves = c->proposed = false;
    if (c->member.transport)
        (void)epoll_ctl(c->wake, EPOLL_CTL_DEL, c->member.operations->fd(&c->member), NULL);
    takeover_leave(&c->rules, limit_ns, now, &actions);
    moving_act(c, &actions);
}

void moving_part(struct membership *m, int64_t linger_ns, int64_t grace_ns)
{
    struct transport *c = m->transport;
    const bool votes = has_a_vote(m);
    c->exit_until = instant_add(instant_min(c->drained_at, clock_now(m->options.clock)), grace_ns);
    if (c->serves && votes) {
        c->exit = MOVING_RETIRES;
        server_retire(&c->door, linger_ns);
    } else if (c->serves) {
        c->door.operations->part(&c->door, linger_ns, grace_ns);
    } else if (votes) {
        begin_to_vote(c);
    }
}

/* The membership ends: changes of role are not carried out. */
static bool vote(struct transport *c)
{
    const struct instant now = clock_now(c->outer->options.clock);
    struct takeover_actions actions;
    moving_receive(c, now);
    if (instant_reached(now, takeover_deadline(&c->rules))) {
        takeover_tick(&c->rules, now, &actions);
        moving_act(c, &actions);
    }
    c->changed = c->chosen = false;
    return takeover_stays(&c->rules, now);
}

struct instant moving_leave_deadline(const struct transport *c)
{
    /* Messages that were sent may have left the descriptors silent. */
    return c->drain ? (struct instant){0} : takeover_deadline(&c->rules);
}

int moving_parting(struct membership *m, bool *votes)
{
    struct transport *c = m->transport;
    const int others = c->serves ? c->door.operations->parting(&c->door, votes) : 0;
    if (c->exit == MOVING_RETIRES) {
        if (!server_has_retired(&c->door))
            return others > 1 ? others : 1;
        begin_to_vote(c);
    }
    if (c->exit != MOVING_VOTES)
        return others;
    *votes = vote(c);
    return *votes;
}
