/* moving_time.c - a moving membership's turn: proposals of the roster, the rules' time, and the warning about
 * voters that do not answer. See moving_internal.h. */
#include "rendezvous/client/transport_client.h"
#include "rendezvous/moving/moving_internal.h"
#include "rendezvous/roster/pace.h"

static const int64_t warn_after_ns = 3 * NS_PER_S;

static void propose(struct transport *c, struct instant now)
{
    struct takeover_actions actions;
    bool done = false;
    if (c->serves && server_take_proposal(&c->door, &c->proposal, &c->revises))
        c->proposed = true;
    if (!c->proposed)
        return;
    c->proposal.voters[0] = c->rules.self;
    if (c->revises && takeover_may_revise(&c->rules, now))
        done = takeover_revise(&c->rules, c->proposal.voters, c->proposal.voter_count, now, &actions);
    else if (!c->revises && takeover_may_propose(&c->rules))
        done = takeover_propose(&c->rules, &c->proposal, now, &actions);
    if (!done)
        return; /* its turn comes */
    c->proposed = false;
    moving_act(c, &actions);
}

/* Once each time that it lasts. */
static void warn(struct transport *c, struct instant now)
{
    char text[MUSTER_ERROR_TEXT] = "";
    if (moving_is_voted(c))
        takeover_describe(&c->rules, now, text, sizeof text);
    if (!text[0]) {
        c->warn_at = INSTANT_NEVER;
        c->warned = false;
    } else if (c->warn_at.ns == INSTANT_NEVER.ns && !c->warned) {
        c->warn_at = instant_add(now, warn_after_ns);
    } else if (instant_reached(now, c->warn_at)) {
        c->warn_at = INSTANT_NEVER;
        c->warned = true;
        log_warning(c->outer->options.log, "no majority of the voters of the last round: %s", text);
    }
}

/* The heartbeats of large jobs are slower, most of all those of agents without a world. */
static void set_pace(struct transport *c)
{
    const int nodes = c->outer->options.max_nodes;
    const bool waits = c->member.transport && !client_had_world(transport_client_protocol(&c->member));
    c->rules.lost_ns = waits ? pace_waiting_lost_ns(nodes) : pace_lost_ns(nodes);
    c->rules.doubt_ns = 3 * (waits ? pace_waiting_beat_ns(nodes) : pace_beat_ns(nodes));
}

/* An agent that hears of a record before it has met a server looks for that round's server from then on. */
static void note_lost(struct transport *c, struct instant now)
{
    const enum takeover_state state = c->rules.state;
    if (moving_is_voted(c) && !c->changed && (state == TAKEOVER_SEEK || state == TAKEOVER_STAND))
        c->lost_since = instant_min(c->lost_since, now);
}

void moving_turn(struct transport *c, struct instant now)
{
    struct takeover_actions actions;
    note_lost(c, now);
    takeover_workers(&c->rules, c->outer->current.epoch != 0);
    set_pace(c);
    c->word = *takeover_word(&c->rules);
    if (c->member.transport)
        client_set_voted(transport_client_protocol(&c->member), moving_is_voted(c));
    propose(c, now);
    if (instant_reached(now, moving_rules_deadline(c))) {
        takeover_tick(&c->rules, now, &actions);
        moving_act(c, &actions);
    }
    moving_peers_tend(c, now);
    warn(c, now);
}

struct instant moving_rules_deadline(const struct transport *c)
{
    const bool elsewhere = c->rules.state == TAKEOVER_SERVE && !c->at_endpoint;
    const bool elects_itself = c->rules.state == TAKEOVER_SEEK && takeover_elects(&c->rules);
    return moving_is_voted(c) || elsewhere || elects_itself ? takeover_deadline(&c->rules) : INSTANT_NEVER;
}
