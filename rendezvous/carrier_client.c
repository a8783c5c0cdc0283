/* carrier_client.c - the seat of an agent whose world is served by another host: a DEALER in the agent's own
 * loop.
 *
 * The agent's loop polls libzmq's descriptor, which is edge-triggered: client_next drains the socket before
 * it says 0, and after every send (which may eat an edge) the deadline is "now" until client_next was called.
 *
 *   JOINING  JOIN goes out when there is a connection, and again every half second until ACCEPT or a refusal
 *   SEATED   beats both ways; AGAIN (the server does not know this connection) leads back to JOINING
 *
 * What was reported is kept until the server has said that it arrived, so a connection that breaks loses
 * nothing. */
#include <errno.h>
#include <string.h>
#include <zmq.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "proto/exit_code.h"
#include "rendezvous/membership_carrier.h"
#include "rendezvous/wire.h"
#include "rendezvous/zmq_socket.h"

static const int64_t beat_every_ns = 500 * NS_PER_MS;
static const int64_t lost_after_ns = 2500 * NS_PER_MS;

struct pending_report {
    struct pending_report *next;
    uint64_t sequence;
    struct buffer frame;
};

struct carrier {
    struct zmq_socket socket;
    struct event_queue queue;
    struct buffer frame;
    struct wire_message message; /* scratch */
    bool seated, ever_seated;
    bool join_sent;         /* while not seated: on this connection, as far as is known */
    bool drain;             /* something was sent: the descriptor may be silent although there is something */
    struct instant send_at; /* the next beat or JOIN */
    struct instant heard;   /* the server */
    struct instant called;  /* client_next */
    struct instant join_limit;
    struct world_id held;     /* of the last WORLD, until STOPPED is reported */
    struct world_id newest;   /* of the last WORLD */
    struct world_id stopping; /* of the last STOP */
    struct pending_report *first, **last;
    int verdict_code;
    bool over; /* a VERDICT or REFUSE has come */
};

static int send_frame(struct carrier *c, const struct buffer *frame)
{
    c->drain = true;
    return zmq_socket_send(&c->socket, NULL, 0, frame->data, frame->length);
}

/* 0: sent; 1: there is no connection now; -1: it cannot be packed. */
static int send_message(struct carrier *c, struct muster_error *err)
{
    buffer_clear(&c->frame);
    if (wire_encode(&c->message, &c->frame, err))
        return -1;
    return send_frame(c, &c->frame) ? 1 : 0;
}

static int send_join(struct membership *m, struct muster_error *err)
{
    struct carrier *c = m->carrier;
    c->message.kind = WIRE_JOIN;
    c->message.join = membership_join(m, false);
    c->message.join.held = c->held;
    int result = send_message(c, err);
    c->join_sent = result == 0;
    return result < 0 ? -1 : 0;
}

/* -- what the server says
 * ----------------------------------------------------------------------------------------- */

static void forget_reports(struct carrier *c, uint64_t arrived)
{
    while (c->first && c->first->sequence <= arrived) {
        struct pending_report *report = c->first;
        c->first = report->next;
        if (!c->first)
            c->last = &c->first;
        buffer_free(&report->frame);
        mem_free(report);
    }
}

static void accepted(struct carrier *c, struct instant now)
{
    c->seated = c->ever_seated = true;
    c->join_sent = false;
    c->send_at = instant_add(now, beat_every_ns);
    forget_reports(c, c->message.sequence);
    /* One that does not get out stays, and goes out after the next ACCEPT. */
    for (const struct pending_report *report = c->first; report; report = report->next)
        if (send_frame(c, &report->frame))
            break;
}

static int queue_event(struct carrier *c, struct muster_error *err)
{
    struct membership_event *place = event_queue_push(&c->queue);
    if (!place)
        return error_set(err, MUSTER_E_LIMIT, "more than %d events wait: membership_next is not called",
                         EVENT_QUEUE_LIMIT);
    *place = c->message.event;
    return 0;
}

static int add_report(struct membership *m, struct world_id id, enum membership_report_kind kind,
                      const struct worker_failure *failure, struct muster_error *err);

/* The server repeats what may have been lost; each WORLD and STOP is given out once. */
static int handle_event(struct membership *m, struct muster_error *err)
{
    struct carrier *c = m->carrier;
    const struct membership_event *event = &c->message.event;
    switch (event->kind) {
    case MEMBERSHIP_EVENT_WORLD:
        if (c->newest.epoch == event->world.id.epoch && event->world.id.round <= c->newest.round)
            return 0;
        c->newest = c->held = event->world.id;
        return queue_event(c, err);
    case MEMBERSHIP_EVENT_STOP:
        if (world_id_equal(c->stopping, event->stopped))
            return 0;
        c->stopping = event->stopped;
        if (world_id_equal(c->held, event->stopped))
            return queue_event(c, err);
        /* A world that never reached this agent has no workers here. */
        m->sequence++;
        return add_report(m, event->stopped, MEMBERSHIP_REPORT_STOPPED, NULL, err);
    default:
        c->over = true;
        c->verdict_code = event->kind == MEMBERSHIP_EVENT_VERDICT ? event->exit_code : EXIT_CODE_FAILURE;
        return queue_event(c, err);
    }
}

static int handle_message(struct membership *m, struct instant now, struct muster_error *err)
{
    struct carrier *c = m->carrier;
    switch (c->message.kind) {
    case WIRE_ACCEPT:
        accepted(c, now);
        return 0;
    case WIRE_AGAIN:
        c->seated = c->join_sent = false;
        c->send_at = now;
        return 0;
    case WIRE_BEAT:
        forget_reports(c, c->message.sequence);
        return 0;
    case WIRE_EVENT:
        return c->over ? 0 : handle_event(m, err);
    default:
        return error_set(err, MUSTER_E_PROTOCOL, "the server sent a %s", wire_kind_name(c->message.kind));
    }
}

static int receive_all(struct membership *m, struct instant now, struct muster_error *err)
{
    struct carrier *c = m->carrier;
    zmq_msg_t body;
    int failed = 0;
    c->drain = false;
    while (!failed && c->queue.count < EVENT_QUEUE_LIMIT && zmq_socket_readable(&c->socket)) {
        zmq_msg_init(&body);
        if (zmq_msg_recv(&body, c->socket.socket, ZMQ_DONTWAIT) >= 0) {
            struct muster_error why;
            if (wire_decode(zmq_msg_data(&body), zmq_msg_size(&body), &c->message, &why)) {
                log_warning(m->options.log, "rendezvous: %s:%u: %s", m->options.host, m->options.port,
                            why.text);
            } else {
                c->heard = now;
                failed = handle_message(m, now, err);
            }
        }
        zmq_msg_close(&body);
    }
    return failed;
}

/* -- time
 * ---------------------------------------------------------------------------------------------------------
 */

/* When the silence of the server becomes an error, if it lasts. Before a world there is nothing to lose: the
 * server may come back until the join timeout, and one that answers keeps that time itself and says who is
 * missing. */
static struct instant silence_limit(const struct carrier *c)
{
    struct instant lost = instant_add(c->heard, lost_after_ns);
    if (c->held.epoch)
        return lost;
    return c->seated && lost.ns > c->join_limit.ns ? lost : c->join_limit;
}

static bool waits(const struct membership *m)
{
    return !m->carrier->over && !m->left;
}

static int check_silence(struct membership *m, struct instant now, struct muster_error *err)
{
    const struct carrier *c = m->carrier;
    if (!instant_reached(now, silence_limit(c)))
        return 0;
    if (c->held.epoch)
        return error_set(err, MUSTER_E_PEER,
                         "the server of the job's world at %s:%u was not heard for %.4g s", m->options.host,
                         m->options.port, (double)lost_after_ns / NS_PER_S);
    return error_set(err, MUSTER_E_TIMEOUT, "the server of the job's world at %s:%u %s within %.4g s",
                     m->options.host, m->options.port,
                     c->ever_seated ? "did not come back" : "did not answer",
                     (double)m->options.join_timeout_ns / NS_PER_S);
}

static int send_due(struct membership *m, struct instant now, struct muster_error *err)
{
    struct carrier *c = m->carrier;
    /* A JOIN that finds no connection goes out as soon as there is one: its coming wakes the descriptor. */
    bool join_waits = !c->seated && !c->join_sent;
    if (!instant_reached(now, c->send_at) && !join_waits)
        return 0;
    if (!join_waits || instant_reached(now, c->send_at))
        c->send_at = instant_add(now, beat_every_ns);
    if (!c->seated)
        return c->over ? 0 : send_join(m, err);
    c->message.kind = WIRE_BEAT;
    c->message.sequence = 0;
    return send_message(c, err) < 0 ? -1 : 0;
}

/* -- the agent's side
 * --------------------------------------------------------------------------------------------- */

static int client_fd(const struct membership *m)
{
    return zmq_socket_fd(&m->carrier->socket);
}

static struct instant client_deadline(const struct membership *m)
{
    const struct carrier *c = m->carrier;
    if (c->queue.count || c->drain)
        return (struct instant){0}; /* long ago: now */
    if (m->left)
        return INSTANT_NEVER;
    /* After the verdict beats go on until the agent closes: the server waits for it. */
    return c->over ? c->send_at : instant_min(c->send_at, silence_limit(c));
}

static int client_next(struct membership *m, struct membership_event *event, struct muster_error *err)
{
    struct carrier *c = m->carrier;
    struct instant now = clock_now(m->options.clock);
    /* After a freeze of this process the silence is our own: the server gets its full time to answer again.
     */
    if (instant_diff_ns(now, c->called) > lost_after_ns / 2)
        c->heard = now;
    c->called = now;
    if (receive_all(m, now, err))
        return -1;
    if (event_queue_pop(&c->queue, event))
        return 1;
    if (waits(m) && check_silence(m, now, err))
        return -1;
    if (!m->left && send_due(m, now, err))
        return -1;
    if (c->drain && receive_all(m, now, err))
        return -1;
    return event_queue_pop(&c->queue, event);
}

static int add_report(struct membership *m, struct world_id id, enum membership_report_kind kind,
                      const struct worker_failure *failure, struct muster_error *err)
{
    struct carrier *c = m->carrier;
    struct pending_report *report = mem_calloc(1, sizeof *report);
    if (!report)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a report");
    c->message.kind = WIRE_REPORT;
    c->message.id = id;
    c->message.report = kind;
    c->message.sequence = m->sequence;
    if (failure)
        c->message.failure = *failure;
    if (wire_encode(&c->message, &report->frame, err)) {
        buffer_free(&report->frame);
        mem_free(report);
        return -1;
    }
    report->sequence = m->sequence;
    *c->last = report;
    c->last = &report->next;
    /* Without a connection it goes out after the next ACCEPT. */
    if (c->seated)
        (void)send_frame(c, &report->frame);
    return 0;
}

static int client_report(struct membership *m, struct world_id id, enum membership_report_kind kind,
                         const struct worker_failure *failure, struct muster_error *err)
{
    if (add_report(m, id, kind, failure, err))
        return -1;
    if (kind == MEMBERSHIP_REPORT_STOPPED) {
        struct carrier *c = m->carrier;
        c->held = (struct world_id){0};
        c->join_limit = instant_add(clock_now(m->options.clock), m->options.join_timeout_ns);
    }
    return 0;
}

static int client_leave(struct membership *m, int exit_code, struct muster_error *err)
{
    m->carrier->message.kind = WIRE_LEAVE;
    m->carrier->message.exit_code = exit_code;
    /* Without a connection there is nobody to tell. */
    return send_message(m->carrier, err) < 0 ? -1 : 0;
}

static void client_close(struct membership *m, int64_t linger_ns)
{
    struct carrier *c = m->carrier;
    int64_t linger_ms = linger_ns / NS_PER_MS;
    if (c->over && !m->left)
        (void)client_leave(m, c->verdict_code,
                           NULL); /* a server that is not told waits for the beats to end */
    zmq_socket_close(&c->socket, linger_ms < INT32_MAX ? (int)linger_ms : INT32_MAX);
    forget_reports(c, UINT64_MAX);
    buffer_free(&c->frame);
    mem_free(c);
    m->carrier = NULL;
}

int carrier_client_open(struct membership *m, struct muster_error *err)
{
    static const struct carrier_operations operations = {
        .fd = client_fd,
        .deadline = client_deadline,
        .next = client_next,
        .report = client_report,
        .leave = client_leave,
        .close = client_close,
    };
    m->operations = &operations;
    struct carrier *c = m->carrier = mem_calloc(1, sizeof *c);
    if (!c)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a rendezvous client");
    struct instant now = clock_now(m->options.clock);
    c->last = &c->first;
    c->send_at = c->heard = c->called = now;
    c->join_limit = instant_add(now, m->options.join_timeout_ns);
    if (zmq_socket_connect_dealer(&c->socket, m->options.host, m->options.port, err)) {
        client_close(m, 0);
        return -1;
    }
    return 0;
}
