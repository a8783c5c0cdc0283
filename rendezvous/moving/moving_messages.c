/* moving_messages.c - messages of other agents: votes and JOINs at the door, answers of peers, and the
 * server's. See moving_internal.h. */
#include <stdio.h>
#include <string.h>

#include "proto/base/mem.h"
#include "rendezvous/client/transport_client.h"
#include "rendezvous/moving/moving_internal.h"

static const struct world_record no_record;

/* An agent that listens at every address does not know its own: it is where its messages come from. */
static void fill_address(struct voter *voter, struct agent_incarnation agent, const char *address)
{
    if (!voter->address[0] && agent_incarnation_equal(voter->incarnation, agent))
        (void)snprintf(voter->address, sizeof voter->address, "%s", address);
}

static void fill_addresses(struct world_record *record, struct agent_incarnation agent, const char *address)
{
    for (int i = 0; i < record->voter_count; i++)
        fill_address(&record->voters[i], agent, address);
}

/* The addresses of the others, as the server sees them. */
static void note_own_address(struct transport *c)
{
    const struct world_record *known = &c->rules.known;
    const int own = record_find_voter(known, c->rules.self.incarnation);
    if (own >= 0 && !c->rules.self.address[0])
        memcpy(c->rules.self.address, known->voters[own].address, sizeof c->rules.self.address);
}

static bool is_self(const struct transport *c, struct agent_incarnation agent)
{
    return agent_incarnation_equal(agent, c->rules.self.incarnation);
}

void moving_take_vote(struct transport *c, struct wire_vote *vote, const char *address, struct instant now)
{
    struct takeover_actions actions;
    const bool addressed = vote->to.high || vote->to.low;
    if (strcmp(vote->job_id, c->outer->options.job_id) != 0 || (addressed && !is_self(c, vote->to))) {
        c->refused++;
        return;
    }
    const struct agent_incarnation sender = vote->from.incarnation;
    fill_address(&vote->from, sender, address);
    fill_addresses(&vote->known, sender, vote->from.address);
    if (vote->message.value)
        fill_addresses(&vote->value, sender, vote->from.address);
    if (vote->message.server)
        fill_address(&vote->server, sender, vote->from.address);
    c->asker = sender;
    takeover_receive(&c->rules, &vote->message, now, &actions);
    note_own_address(c);
    moving_act(c, &actions);
}

static void take_join(struct transport *c, const struct server_frame *frame, struct instant now)
{
    const struct roster_join *join = &c->frame.join;
    struct takeover_actions actions;
    struct voter from = {.incarnation = join->incarnation, .port = join->vote_port};
    (void)snprintf(from.name, sizeof from.name, "%s", join->agent_name);
    (void)snprintf(from.address, sizeof from.address, "%s",
                   join->vote_addr[0] ? join->vote_addr : frame->address);
    if (voter_check(&from, NULL) < 0) {
        c->refused++;
        return;
    }
    c->asker = from.incarnation;
    takeover_asked(&c->rules, &from, c->frame.record ? c->frame.record : &no_record, now, &actions);
    moving_act(c, &actions);
}

static void take_frame(struct transport *c, const struct server_frame *frame, struct instant now)
{
    if (wire_decode(frame->data, frame->size, &c->frame, NULL))
        return; /* the thread has decoded it before */
    c->answering = frame;
    if (c->frame.kind == WIRE_VOTE)
        moving_take_vote(c, &c->frame.vote, frame->address, now);
    else if (c->frame.kind == WIRE_JOIN)
        take_join(c, frame, now);
    c->answering = NULL;
}

void moving_receive(struct transport *c, struct instant now)
{
    struct server_frame *frame;
    struct moving_peer *peer;
    struct agent_incarnation voter;
    c->drain = false;
    while (c->door.transport && (frame = server_take_frame(&c->door))) {
        take_frame(c, frame, now);
        mem_free(frame);
    }
    while ((peer = moving_peers_receive(c)))
        if (c->frame.kind == WIRE_VOTE)
            moving_take_vote(c, &c->frame.vote, peer->address, now);
    while (c->serves && server_take_heard(&c->door, &voter))
        takeover_heard(&c->rules, voter, now);
}

/* --- the server's messages --- */

static bool moving_follows(const struct transport *c, struct agent_incarnation agent)
{
    return c->rules.state == TAKEOVER_FOLLOW && agent_incarnation_equal(c->rules.server.incarnation, agent);
}

/* A server of another beginning of the job, which no vote could have prevented, or whose former voters have
 * ended. */
static void forget_other_job(struct transport *c, const struct voter *server,
                             const struct world_record *record, struct instant now)
{
    const struct world_record *known = &c->rules.known;
    const bool same = record ? record->epoch == known->epoch : moving_follows(c, server->incarnation);
    if (!known->epoch || (moving_is_voted(c) && !takeover_may_be_over(&c->rules, now)) || same)
        return;
    takeover_forget(&c->rules, now);
}

static bool on_accept(struct transport *c, const struct wire_message *message, struct instant now)
{
    struct takeover_actions actions;
    const char *address = c->server_address[c->at];
    if (!message->server)
        return true; /* its job does not vote */
    struct voter server = *message->server;
    c->record = message->record ? *message->record : no_record;
    fill_address(&server, server.incarnation, address);
    fill_addresses(&c->record, server.incarnation, address);
    forget_other_job(c, &server, message->record, now);
    const struct takeover_message moved = {.kind = TAKEOVER_MOVED,
                                           .from = &server,
                                           .known = &c->record,
                                           .ballot = message->office,
                                           .server = &server};
    takeover_receive(&c->rules, &moved, now, &actions);
    note_own_address(c);
    moving_act(c, &actions);
    if (!moving_follows(c, server.incarnation))
        return false;
    c->changed = false; /* it is a member of that server already */
    c->met = true;
    client_set_voted(transport_client_protocol(&c->member), moving_is_voted(c));
    return true;
}

static bool on_world(struct transport *c, const struct wire_message *message, struct instant now)
{
    struct takeover_actions actions;
    struct muster_error err;
    if (!message->record)
        return true;
    c->record = *message->record;
    fill_addresses(&c->record, c->rules.server.incarnation, c->server_address[c->at]);
    if (takeover_learn(&c->rules, &c->record, now, &actions, &err) < 0) {
        log_warning(c->outer->options.log, "rendezvous: %s", err.text);
        return false;
    }
    note_own_address(c);
    moving_act(c, &actions);
    client_set_voted(transport_client_protocol(&c->member), moving_is_voted(c));
    return !c->changed;
}

/* The server's process is gone if another agent answers at its address. */
static void on_server_vote(struct transport *c, struct wire_message *message, struct instant now)
{
    struct takeover_actions actions;
    if (moving_is_voted(c) && c->rules.state == TAKEOVER_FOLLOW &&
        !moving_follows(c, message->vote.from.incarnation)) {
        takeover_gone(&c->rules, TAKEOVER_REPLACED, now, &actions);
        moving_act(c, &actions);
    }
    moving_take_vote(c, &message->vote, c->server_address[c->at], now);
}

/* At once: a message of the next server may be waiting. */
static void on_handover(struct transport *c, struct instant now)
{
    struct takeover_actions actions;
    if (!moving_is_voted(c) || !c->met)
        return;
    takeover_gone(&c->rules, TAKEOVER_LEFT, now, &actions);
    moving_act(c, &actions);
}

bool moving_on_message(void *context, struct wire_message *message)
{
    struct transport *c = context;
    const struct instant now = clock_now(c->outer->options.clock);
    if (c->changed)
        return false; /* the server is not this agent's any more */
    const bool serves =
        message->kind != WIRE_AGAIN && message->kind != WIRE_VOTE; /* votes have their rules */
    if (serves && c->met && c->rules.state == TAKEOVER_FOLLOW)
        takeover_heard(&c->rules, c->rules.server.incarnation, now);
    switch (message->kind) {
    case WIRE_ACCEPT:
        return on_accept(c, message, now);
    case WIRE_VOTE:
        on_server_vote(c, message, now);
        return false;
    case WIRE_HANDOVER:
        on_handover(c, now);
        return true; /* the client notes it, too */
    case WIRE_EVENT:
        if (message->event.kind == MEMBERSHIP_EVENT_WORLD)
            return on_world(c, message, now);
        return true;
    default:
        return true;
    }
}

void moving_on_broken(void *context)
{
    struct transport *c = context;
    c->met = false;
    if (moving_is_voted(c) && c->rules.state == TAKEOVER_FOLLOW)
        takeover_connection(&c->rules, false, clock_now(c->outer->options.clock));
}
