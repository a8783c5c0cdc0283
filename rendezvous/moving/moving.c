/* moving.c - the membership's calls, for an agent whose job may move to another server. See
 * moving_internal.h. */
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "rendezvous/client/transport_client.h"
#include "rendezvous/moving/moving_internal.h"

/* The transport in use; NULL: there is none. */
static struct membership *inner(const struct membership *m)
{
    struct transport *c = m->transport;
    struct membership *in = c->serves ? &c->door : c->member.transport ? &c->member : NULL;
    if (!in)
        return NULL;
    in->current = m->current;
    in->left = m->left;
    in->over = m->over;
    return in;
}

static int moving_fd(const struct membership *m)
{
    return m->transport->wake;
}

static bool is_active(const struct membership *m)
{
    return !m->over && !m->left;
}

static struct instant moving_deadline(const struct membership *m)
{
    struct transport *c = m->transport;
    if (c->exit == MOVING_VOTES)
        return moving_leave_deadline(c);
    const struct membership *in = inner(m);
    struct instant due = in ? in->operations->deadline(in) : INSTANT_NEVER;
    if (c->queue.count || (is_active(m) && (c->changed || c->drain)))
        return (struct instant){0};
    if (!is_active(m))
        return due;
    if (c->lost_since.ns != INSTANT_NEVER.ns)
        due = instant_min(due, instant_add(c->lost_since, m->options.join_timeout_ns));
    return instant_min(due, instant_min(moving_rules_deadline(c), c->warn_at));
}

/* A new server stops the workers of the world before, which know that already. */
static bool is_repeated(const struct membership *m, const struct membership_event *event)
{
    return m->transport->serves && event->kind == MEMBERSHIP_EVENT_STOP &&
           (m->transport->stops || !world_id_equal(event->stopped, m->current));
}

static int lose(struct membership *m, struct instant now, struct muster_error *err)
{
    struct transport *c = m->transport;
    char text[MUSTER_ERROR_TEXT - 150];
    takeover_describe(&c->rules, now, text, sizeof text);
    return error_set(err, MUSTER_E_PEER, "no other agent could be elected within %.4g s (--join-timeout): %s",
                     (double)m->options.join_timeout_ns / NS_PER_S, text);
}

static void note_event(struct transport *c, const struct membership_event *event)
{
    client_note_event(event, &c->past, &c->stops);
    if (event->kind == MEMBERSHIP_EVENT_STOP || event->kind == MEMBERSHIP_EVENT_WORLD)
        c->ends = event->kind == MEMBERSHIP_EVENT_STOP && event->planned && !event->next_nodes;
}

static int moving_next(struct membership *m, struct membership_event *event, struct muster_error *err)
{
    struct transport *c = m->transport;
    const struct instant now = clock_now(m->options.clock);
    for (;;) {
        if (is_active(m)) {
            moving_receive(c, now);
            moving_turn(c, now);
            if (moving_change(c, now, err) < 0)
                return -1;
        }
        if (event_queue_pop(&c->queue, event)) {
            note_event(c, event);
            return 1;
        }
        struct membership *in = inner(m);
        const int got = in ? in->operations->next(in, event, err) : 0;
        if (got < 0)
            return -1;
        if (is_active(m) && c->changed)
            continue; /* an event of a server that is left is not given out */
        if (got && is_repeated(m, event))
            continue;
        if (got) {
            note_event(c, event);
            return 1;
        }
        if (c->drain && is_active(m))
            continue;
        return is_active(m) && c->lost_since.ns != INSTANT_NEVER.ns &&
                       instant_reached(now, instant_add(c->lost_since, m->options.join_timeout_ns))
                   ? lose(m, now, err)
                   : 0;
    }
}

static int moving_report(struct membership *m, struct world_id id, enum membership_report_kind kind,
                         const struct worker_failure *failure, struct muster_error *err)
{
    struct transport *c = m->transport;
    struct membership *in = inner(m);
    if (kind == MEMBERSHIP_REPORT_DONE)
        c->past.held_done = true;
    /* A new server is told by JOIN, the server before by the report: it may be found again. */
    if (!in)
        return report_queue_push(&c->reports, id, kind, failure, ++c->sequence, clock_now(m->options.clock))
                   ? 0
                   : error_set(err, MUSTER_E_NOMEM, "no memory for a report");
    if (c->serves)
        in->sequence = ++c->sequence;
    return in->operations->report(in, id, kind, failure, err);
}

static int moving_leave(struct membership *m, int exit_code, struct muster_error *err)
{
    struct membership *in = inner(m);
    return in ? in->operations->leave(in, exit_code, err) : 0;
}

static int moving_drain(struct membership *m, int exit_code, int64_t grace_ns, struct muster_error *err)
{
    struct membership *in = inner(m);
    m->transport->drained_at = instant_min(m->transport->drained_at, clock_now(m->options.clock));
    return in ? in->operations->drain(in, exit_code, grace_ns, err) : 0;
}

static int moving_evict(struct membership *m, const struct membership_evict *request,
                        struct muster_error *err)
{
    struct membership *in = inner(m);
    return in ? in->operations->evict(in, request, err) : 0;
}

static int64_t moving_silence(const struct membership *m)
{
    struct transport *c = m->transport;
    const struct membership *in = inner(m);
    if (c->at_endpoint)
        return 0; /* the server's name is this node's own */
    if (in)
        return in->operations->silence ? in->operations->silence(in) : 0;
    return c->lost_since.ns == INSTANT_NEVER.ns ? 0
                                                : instant_diff_ns(clock_now(m->options.clock), c->lost_since);
}

static bool moving_has_news(const struct membership *m)
{
    const struct membership *in = inner(m);
    return in && in->operations->has_news && in->operations->has_news(in);
}

static void moving_miss(struct membership *m, int rank)
{
    struct membership *in = inner(m);
    if (in && in->operations->miss)
        in->operations->miss(in, rank);
}

static void moving_ended(struct membership *m, int rank)
{
    struct membership *in = inner(m);
    m->transport->ended = 1 + rank;
    m->transport->ended_in = m->current;
    if (in)
        in->operations->ended(in, rank);
}

static void moving_note(struct membership *m, const char *data, size_t length)
{
    struct membership *in = inner(m);
    if (in && in->operations->note)
        in->operations->note(in, data, length);
}

static uint64_t moving_notes_wanted(const struct membership *m)
{
    const struct membership *in = inner(m);
    const uint64_t number = in && in->operations->notes_wanted ? in->operations->notes_wanted(in) : 0;
    return number ? number + m->transport->notes_base : 0;
}

static bool moving_take_note(struct membership *m, struct membership_note *out)
{
    struct membership *in = inner(m);
    return in && in->operations->take_note && in->operations->take_note(in, out);
}

static int moving_move(struct membership *m, const char *host, struct muster_error *err)
{
    struct transport *c = m->transport;
    const bool there = c->member.transport && !moving_is_voted(c) &&
                       !strcmp(c->member.options.host, c->endpoint) &&
                       c->member.options.port == c->endpoint_port;
    (void)snprintf(c->endpoint, sizeof c->endpoint, "%s", host);
    if (!there)
        return 0;
    char *address = c->server_address[!c->at];
    (void)snprintf(address, sizeof c->server_address[0], "%s", host);
    if (c->member.operations->move(&c->member, address, err))
        return -1;
    c->at = !c->at;
    c->member.options.host = address;
    return 0;
}

static void moving_progress(const struct membership *m, char *out, size_t size)
{
    struct transport *c = m->transport;
    const struct membership *in = inner(m);
    char text[MUSTER_ERROR_TEXT];
    takeover_describe(&c->rules, clock_now(m->options.clock), text, sizeof text);
    if (in)
        in->operations->progress(in, out, size);
    if (!moving_is_voted(c) || !text[0] || (in && !c->serves))
        return;
    if (out[0] || c->rules.state == TAKEOVER_SERVE)
        (void)snprintf(out, size, "no majority answers: %s", text);
    else
        (void)snprintf(out, size, "no server: %s; %s", takeover_reason_text(c->rules.reason), text);
}

static const char *moving_server(const struct membership *m)
{
    const struct transport *c = m->transport;
    const struct takeover *rules = &c->rules;
    const bool endpoint = c->member.transport && c->member.options.port == c->endpoint_port &&
                          !strcmp(c->member.options.host, c->endpoint);
    if (rules->state == TAKEOVER_FOLLOW)
        return endpoint ? "" : rules->server.address;
    return rules->state == TAKEOVER_SERVE && !m->transport->at_endpoint ? rules->self.address : "";
}

static void moving_serving(const struct membership *m, struct membership_serving *out)
{
    moving_describe(m->transport, out);
}

static bool moving_seeks(const struct membership *m)
{
    const struct transport *c = m->transport;
    const enum takeover_state state = c->rules.state;
    return is_active(m) &&
           (c->rules.known.epoch ? state == TAKEOVER_SEEK || state == TAKEOVER_STAND : !c->met);
}

static void moving_ask(struct membership *m, const char *address, uint16_t port)
{
    if (is_active(m))
        moving_ask_at(m->transport, address, port, clock_now(m->options.clock));
}

/* The job is over, and its elected server stays for a moment (server_has_ended): an agent that looks for it
 * just now is told, and so is a new agent at the endpoint, which would begin the job anew. */
static void tell_of_the_end(struct membership *m, int64_t linger_ns)
{
    static const int64_t step_ns = 20 * NS_PER_MS;
    struct transport *c = m->transport;
    struct takeover_actions actions;
    if (!m->over || !c->serves || (c->rules.reason == TAKEOVER_BEGUN && !server_misses_a_node(&c->door)))
        return; /* no agent looks for the first server */
    c->door.operations->part(&c->door, linger_ns, 0);
    while (!server_has_ended(&c->door)) {
        const struct instant now = clock_now(m->options.clock);
        moving_receive(c, now);
        if (c->rules.state == TAKEOVER_SERVE && instant_reached(now, takeover_deadline(&c->rules))) {
            takeover_tick(&c->rules, now, &actions);
            moving_act(c, &actions);
        }
        clock_sleep_until(instant_add(clock_now(NULL), step_ns));
    }
}

static void moving_close(struct membership *m, int64_t linger_ns)
{
    struct transport *c = m->transport;
    tell_of_the_end(m, linger_ns);
    if (c->member.transport)
        c->member.operations->close(&c->member, linger_ns);
    moving_peers_close(c);
    if (c->door.transport)
        c->door.operations->close(&c->door, c->serves ? linger_ns : 0);
    if (c->wake >= 0)
        (void)close(c->wake); /* it holds nothing that could be lost */
    report_queue_forget(&c->reports, UINT64_MAX);
    buffer_free(&c->bytes);
    mem_free(c);
    m->transport = NULL;
}

static int moving_begin(struct membership *m, struct muster_error *err)
{
    struct transport *c = m->transport;
    const struct instant now = clock_now(m->options.clock);
    const bool server = m->options.mode == MEMBERSHIP_SERVER;
    struct voter self = {.incarnation = m->incarnation};
    struct takeover_actions actions;
    uint64_t random;
    self.port = self.server_port = server ? m->options.port : m->options.vote_port;
    (void)snprintf(self.name, sizeof self.name, "%s", m->options.agent_name);
    (void)snprintf(self.address, sizeof self.address, "%s", m->options.vote_addr ? m->options.vote_addr : "");
    if (transport_random_bytes(&random, sizeof random, err) < 0)
        return -1;
    takeover_init(&c->rules, &self, random, now);
    c->at_endpoint = server;
    if (!m->options.elastic)
        takeover_all_ranks(&c->rules);
    if (server)
        takeover_at_endpoint(&c->rules);
    c->endpoint_port = m->options.port;
    if (!server) {
        (void)snprintf(c->endpoint, sizeof c->endpoint, "%s", m->options.host);
        return moving_join_endpoint(c, err);
    }
    takeover_begin(&c->rules, now, &actions);
    moving_act(c, &actions);
    return moving_change(c, now, err);
}

int transport_moving_open(struct membership *m, struct muster_error *err)
{
    static const struct transport_operations operations = {
        .fd = moving_fd,
        .deadline = moving_deadline,
        .next = moving_next,
        .report = moving_report,
        .leave = moving_leave,
        .drain = moving_drain,
        .evict = moving_evict,
        .silence = moving_silence,
        .has_news = moving_has_news,
        .miss = moving_miss,
        .ended = moving_ended,
        .note = moving_note,
        .notes_wanted = moving_notes_wanted,
        .move = moving_move,
        .server = moving_server,
        .serving = moving_serving,
        .seeks = moving_seeks,
        .ask = moving_ask,
        .progress = moving_progress,
        .part = moving_part,
        .parting = moving_parting,
        .take_note = moving_take_note,
        .close = moving_close,
    };
    m->operations = &operations;
    struct transport *c = m->transport = mem_calloc(1, sizeof *c);
    if (!c)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a membership");
    c->outer = m;
    c->lost_since = c->warn_at = c->early_at = c->drained_at = INSTANT_NEVER;
    c->wake = epoll_create1(EPOLL_CLOEXEC);
    const int failed = c->wake < 0 ? error_errno(err, "epoll_create1") : moving_begin(m, err);
    if (failed)
        moving_close(m, 0);
    return failed;
}
