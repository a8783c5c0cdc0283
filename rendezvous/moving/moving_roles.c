/* moving_roles.c - an agent's roles: a member, the server, or neither while a server is looked for. See
 * moving_internal.h. */
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include "proto/base/error.h"
#include "rendezvous/client/transport_client.h"
#include "rendezvous/moving/moving_internal.h"

static const struct world_record no_record;

bool moving_is_voted(const struct transport *c)
{
    return c->rules.known.voter_count > 1;
}

/* --- the actions of a step --- */

static void answer_vote(struct transport *c, const struct takeover_message *message)
{
    struct muster_error err;
    c->sent.kind = WIRE_VOTE;
    c->sent.vote.message = *message;
    c->sent.vote.to = c->asker;
    c->sent.vote.job_id = c->outer->options.job_id;
    if (server_answer(&c->door, c->answering, &c->sent, &err) < 0)
        log_warning(c->outer->options.log, "rendezvous: %s", err.text);
}

static void send_endpoints(struct transport *c, const struct takeover_message *message, struct instant now)
{
    if (!c->at_endpoint)
        moving_peers_send(c, c->endpoint, c->endpoint_port, NULL, message, now);
}

static struct takeover_message question(const struct transport *c)
{
    return (struct takeover_message){.kind = TAKEOVER_WHO,
                                     .from = &c->rules.self,
                                     .known = moving_is_voted(c) ? takeover_word(&c->rules) : &no_record};
}

void moving_ask_at(struct transport *c, const char *address, uint16_t port, struct instant now)
{
    const struct takeover_message who = question(c);
    moving_peers_send(c, address, port, NULL, &who, now);
}

void moving_act(struct transport *c, const struct takeover_actions *actions)
{
    const struct instant now = clock_now(c->outer->options.clock);
    const struct takeover_message who = question(c);
    for (int i = 0; i < actions->count; i++) {
        const struct takeover_action *action = &actions->items[i];
        const struct voter *to = action->to;
        switch (action->kind) {
        case TAKEOVER_SEND:
            if (c->answering && agent_incarnation_equal(to->incarnation, c->asker))
                answer_vote(c, &action->message);
            else
                moving_peers_send(c, to->address, to->port, to, &action->message, now);
            break;
        case TAKEOVER_ASK:
            moving_peers_send(c, to->address, to->port, to, &who, now);
            break;
        case TAKEOVER_ASK_ENDPOINTS:
            send_endpoints(c, &who, now);
            break;
        case TAKEOVER_TELL_ENDPOINTS:
            send_endpoints(c, &action->message, now);
            break;
        case TAKEOVER_CHANGE:
            c->reason = c->changed ? c->reason : action->reason;
            c->changed = true;
            break;
        case TAKEOVER_CHOSEN:
            c->chosen = true;
            break;
        case TAKEOVER_ACTION_COUNT:
            break;
        }
    }
}

/* --- a member --- */

static void leave_member(struct transport *c)
{
    if (!c->member.transport)
        return;
    const struct client *client = transport_client_protocol(&c->member);
    client_fill_known(client, &c->past);
    c->sequence = client_sequence(client);
    c->numbers = client_numbers(client);
    c->member.operations->close(&c->member, 0);
    c->member.transport = NULL;
    c->met = false;
}

/* A worker has ended while others of this agent run: each server needs to know. */
static void pass_on_ended(struct transport *c, struct membership *m)
{
    if (c->ended && world_id_equal(c->ended_in, c->outer->current))
        m->operations->ended(m, c->ended - 1);
}

static int moving_join(struct transport *c, const char *address, uint16_t port, const char *name,
                       struct muster_error *err)
{
    leave_member(c);
    c->past.held = c->outer->current;
    c->word = *takeover_word(&c->rules);
    c->hooks = (struct transport_hooks){.received = moving_on_message,
                                        .broken = moving_on_broken,
                                        .context = c,
                                        .known = &c->word,
                                        .past = c->past.epoch ? &c->past : NULL,
                                        .stops = c->stops,
                                        .sequence = c->sequence,
                                        .numbers = c->numbers,
                                        .reports = &c->reports};
    c->at = !c->at;
    (void)snprintf(c->server_address[c->at], sizeof c->server_address[c->at], "%s", address);
    c->member = *c->outer;
    c->member.hooks = &c->hooks;
    c->member.options.mode = MEMBERSHIP_CLIENT;
    c->member.options.host = c->server_address[c->at];
    c->member.options.port = port;
    c->member.options.vote_port = c->rules.self.port;
    if (!c->outer->options.store_is_workers)
        c->member.options.store_port = 0; /* the serving agent's is the job's */
    if (name) {
        (void)snprintf(c->server_name, sizeof c->server_name, "%s", name);
        c->member.options.host_name = c->server_name;
        c->member.options.join_used_ns = 0;
    }
    c->notes_base += UINT64_C(1) << 32;
    if (transport_client_open(&c->member, err) < 0) {
        c->member.transport = NULL;
        return -1;
    }
    client_set_voted(transport_client_protocol(&c->member), moving_is_voted(c));
    pass_on_ended(c, &c->member);
    c->drain = true;
    if (epoll_ctl(c->wake, EPOLL_CTL_ADD, c->member.operations->fd(&c->member),
                  &(struct epoll_event){.events = EPOLLIN}) == 0)
        return 0;
    return error_errno(err, "cannot wait for the server: epoll_ctl");
}

int moving_join_endpoint(struct transport *c, struct muster_error *err)
{
    return moving_join(c, c->endpoint, c->endpoint_port, NULL, err);
}

static uint16_t server_port(const struct voter *server)
{
    return server->server_port ? server->server_port : server->port;
}

/* FOLLOW: whether this agent is a member there already. */
static bool is_at_server(const struct transport *c)
{
    const struct voter *server = &c->rules.server;
    return c->member.transport && c->member.options.port == server_port(server) &&
           !strcmp(c->member.options.host, server->address);
}

static int follow(struct transport *c, struct muster_error *err)
{
    const struct voter *server = &c->rules.server;
    return moving_join(c, server->address, server_port(server), server->name, err);
}

/* --- the server --- */

static int leave_office(struct transport *c, struct muster_error *err)
{
    if (!c->serves)
        return 0;
    c->serves = c->proposed = false;
    if (c->outer->options.serves &&
        c->outer->options.serves(c->outer->options.context, false, &(uint16_t){0}, err) < 0)
        return -1;
    return server_cease(&c->door, err);
}

/* JOIN says that the workers of this node run, or have ended. Of a failure that the server before did not
 * acknowledge it says nothing: a world that goes on would wait for them for ever. */
static int report_again(struct transport *c, struct muster_error *err)
{
    struct worker_failure failure;
    const struct instant now = clock_now(c->outer->options.clock);
    for (const struct pending_report *report = c->reports.first; report; report = report->next) {
        if (!report_queue_failure(report, now, &failure))
            continue;
        c->door.sequence = report->sequence;
        if (c->door.operations->report(&c->door, report->id, report->kind, &failure, err))
            return -1;
    }
    report_queue_forget(&c->reports, UINT64_MAX); /* no earlier server returns */
    return 0;
}

static int take_office(struct transport *c, struct muster_error *err)
{
    const struct membership_options *options = &c->outer->options;
    struct server_office office = {.self = c->rules.self, .ballot = c->rules.ballot, .known = c->rules.known};
    uint16_t store_port = options->store_port;
    if (moving_ensure_door(c, err) < 0 ||
        (options->serves && options->serves(options->context, true, &store_port, err) < 0))
        return -1;
    const struct voter *lost = c->rules.lost_voter.name[0] ? &c->rules.lost_voter : NULL;
    struct roster *roster = membership_make_roster(&c->door, &c->rules.known, lost, err);
    if (!roster)
        return -1;
    struct roster_join own = membership_join(c->outer, true);
    own.held = c->outer->current;
    own.held_done = c->past.held_done && own.held.epoch;
    own.last = c->past.last;
    own.last_nodes = c->past.last_nodes;
    own.last_rank = c->past.last_rank;
    own.restart_count = c->past.restart_count;
    own.server_left = c->past.server_left;
    own.lapsed = c->past.lapsed;
    own.server_done = c->past.server_done;
    rank_ranges_copy(&own.done, &c->past.done);
    own.epoch = c->past.epoch;
    own.vote_addr = c->rules.self.address;
    own.vote_port = c->rules.self.port;
    own.store_port = store_port;
    if (c->rules.known.epoch && c->rules.self.address[0])
        own.store_addr = c->rules.self.address; /* as the others reach it */
    c->past.epoch = roster_epoch(roster);
    if (server_serve(&c->door, roster, &own, &office, err) < 0)
        return -1;
    c->serves = true;
    pass_on_ended(c, &c->door);
    return report_again(c, err);
}

/* --- changes --- */

static void describe_change(const struct transport *c, const char *why, char *out, size_t size)
{
    if (c->rules.state == TAKEOVER_FOLLOW)
        (void)snprintf(out, size, "%s serves the job now", c->rules.server.name);
    else if (c->rules.state == TAKEOVER_SERVE)
        (void)snprintf(out, size, "this node serves the job now: %s", why);
    else
        (void)snprintf(out, size, "%s: looking for the agent that serves next", why);
}

/* The agent's own STOP: no server tells it any more. */
static int stop_workers(struct transport *c, const char *why, struct muster_error *err)
{
    const bool needs_no_server = c->past.server_done && world_id_equal(c->past.last, c->outer->current);
    if (!c->outer->current.epoch || c->stops || needs_no_server)
        return 0;
    struct membership_event *stop = event_queue_push(&c->queue);
    if (!stop)
        return error_set(err, MUSTER_E_LIMIT, "more than %d events wait: membership_next is not called",
                         EVENT_QUEUE_LIMIT);
    membership_event_clear(stop);
    c->stops = true;
    stop->kind = MEMBERSHIP_EVENT_STOP;
    stop->stopped = c->outer->current;
    describe_change(c, why, stop->reason, sizeof stop->reason);
    return 0;
}

void moving_describe(const struct transport *c, struct membership_serving *out)
{
    const struct takeover *rules = &c->rules;
    const struct voter *server = rules->state == TAKEOVER_FOLLOW  ? &rules->server
                                 : rules->state == TAKEOVER_SERVE ? &rules->self
                                                                  : NULL;
    *out = (struct membership_serving){.voter_count = rules->known.voter_count};
    if (server) {
        (void)snprintf(out->server, sizeof out->server, "%s", server->name);
        (void)snprintf(out->address, sizeof out->address, "%s", server->address);
        out->port = server_port(server);
    }
    (void)snprintf(out->reason, sizeof out->reason, "%s", c->why);
    for (int i = 0; i < rules->known.voter_count; i++)
        (void)snprintf(out->voters[i], sizeof out->voters[i], "%s", rules->known.voters[i].name);
}

static void tell(struct transport *c, const char *reason)
{
    const struct membership_options *options = &c->outer->options;
    const struct takeover *rules = &c->rules;
    struct membership_serving serving;
    (void)snprintf(c->why, sizeof c->why, "%s", reason);
    const bool again = rules->reason == TAKEOVER_AGAIN && rules->state == TAKEOVER_SERVE;
    if (again || (rules->state == TAKEOVER_SERVE && rules->known.epoch))
        log_info(options->log, "this node serves the job now: %s", reason);
    else if (rules->state == TAKEOVER_FOLLOW)
        log_info(options->log, "%s serves the job now", rules->server.name);
    else if (rules->state != TAKEOVER_SERVE && c->lost_since.ns == INSTANT_NEVER.ns)
        log_warning(options->log, "no server: %s; looking for the agent that serves next", reason);
    moving_describe(c, &serving);
    if (options->moved && rules->known.epoch)
        options->moved(options->context, &serving);
}

/* No agent can be elected: as at the beginning, but for this agent's past. */
static int begin_again(struct transport *c, struct instant now, struct muster_error *err)
{
    takeover_forget(&c->rules, now);
    c->lost_since = c->at_endpoint ? now : INSTANT_NEVER; /* a member keeps the time by itself */
    return c->at_endpoint ? 0 : moving_join_endpoint(c, err);
}

static int change_role(struct transport *c, struct instant now, struct muster_error *err)
{
    const enum takeover_state state = c->rules.state;
    const bool leads = state == TAKEOVER_SERVE || state == TAKEOVER_FOLLOW;
    const char *reason = takeover_reason_text(leads ? c->rules.reason : c->reason);
    if (leave_office(c, err) < 0)
        return -1;
    tell(c, reason);
    if (state != TAKEOVER_FOLLOW || !is_at_server(c)) {
        leave_member(c);
        if (stop_workers(c, reason, err) < 0)
            return -1;
    }
    if (state == TAKEOVER_SERVE) {
        if (!c->rules.known.epoch)
            c->lost_since = INSTANT_NEVER; /* the roster keeps the time of a job that begins */
        return take_office(c, err);
    }
    if (state == TAKEOVER_FOLLOW) {
        c->lost_since = INSTANT_NEVER;
        return is_at_server(c) ? 0 : follow(c, err);
    }
    if (!takeover_elects(&c->rules))
        return begin_again(c, now, err);
    c->lost_since = instant_min(c->lost_since, now);
    return 0;
}

int moving_change(struct transport *c, struct instant now, struct muster_error *err)
{
    if (c->chosen) {
        c->chosen = false;
        c->lost_since = INSTANT_NEVER;
        if (c->serves && server_chosen(&c->door, &c->rules.known, err) < 0)
            return -1;
    }
    while (c->changed) {
        c->changed = false;
        if (change_role(c, now, err) < 0)
            return -1;
    }
    moving_open_door(c, now);
    return 0;
}
