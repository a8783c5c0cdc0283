/* server_sessions.c - the serving agent's messages: messages of the peers' sessions become events of the
 * roster, and the actions of its steps are sent to them, or to the agent itself. See server_internal.h. */
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "rendezvous/server/server_internal.h"
#include "rendezvous/zmq/zmq_calls.h"

enum {
    TURN_BASE = 1000, /* messages that are read before anything else is done, and for each slot */
    TURN_PER_SLOT = 4,
    STOOD_STILL_MS = 1250, /* half of what makes a node lost */
    COMPLAINT_LIMIT = 20,  /* log lines about broken peers; an unauthenticated peer must not fill the disk */
};

static void deliver_local(struct transport *c, const struct roster_action *action)
{
    if (action->kind == ROSTER_ACCEPT)
        c->local_member = action->member;
    if (action->kind == ROSTER_ACCEPT || action->kind == ROSTER_AGAIN)
        return;
    if (action->kind == ROSTER_PROPOSE) {
        server_keep_proposal(c, false);
        return;
    }
    pthread_mutex_lock(&c->lock);
    c->others = roster_remote_count(c->roster); /* a receiver that acts on the event at once may ask */
    struct membership_event *place = c->deaf ? NULL : event_queue_push(&c->queue);
    if (place)
        roster_fill_event(c->roster, action, place);
    else if (!c->deaf && action->kind != ROSTER_SEND_EVICTION) /* which is asked for again */
        error_set(&c->fatal, MUSTER_E_LIMIT, "more than %d events wait: membership_next is not called",
                  EVENT_QUEUE_LIMIT);
    pthread_mutex_unlock(&c->lock);
    server_signal_fd(c->ready_fd);
}

int server_send(struct transport *c, const void *id, size_t id_size)
{
    struct muster_error err;
    buffer_clear(&c->frame);
    if (wire_encode(&c->message, &c->frame, &err)) {
        log_warning(c->log, "rendezvous: %s", err.text);
        return -1;
    }
    return zmq_socket_send(&c->socket, id, id_size, c->frame.data, c->frame.length);
}

static int send_message(struct transport *c, const struct sender *to)
{
    return server_send(c, to->id, to->id_size);
}

void server_complain(struct transport *c, const char *what)
{
    if (c->complaints < COMPLAINT_LIMIT)
        log_warning(c->log, "rendezvous: %s%s", what,
                    ++c->complaints == COMPLAINT_LIMIT ? " (further ones are not logged)" : "");
}

/* The agent's connection is gone, or takes nothing. When the agent asks again it registers and gets the
 * missed messages. A LEAVE may still be queued: read everything before declaring the peer lost
 * (server_drop_broken). */
static void note_broken(struct transport *c, int slot)
{
    c->routes.slots[slot].broken = c->broken = true;
}

/* A pod that is restarted again and again is refused each time: logged once. */
static void log_rejected_agent(struct transport *c, const struct sender *peer)
{
    char who[MUSTER_ERROR_TEXT];
    roster_describe_refused(c->roster, who, sizeof who);
    if (c->rejections == COMPLAINT_LIMIT || strcmp(who, c->refused) == 0)
        return;
    memcpy(c->refused, who, sizeof c->refused);
    const char *address = admission_address(&c->admission, peer->fd);
    log_warning(c->log, "refused%s%s: %s%s", *address ? " " : "", address, who,
                ++c->rejections == COMPLAINT_LIMIT ? " (further ones are not logged)" : "");
}

static void send_action(struct transport *c, const struct roster_action *action, const struct sender *from)
{
    struct sender to = *from;
    char difference[MUSTER_ERROR_TEXT];
    if (action->kind == ROSTER_REFUSE && action->member < 0)
        log_rejected_agent(c, from);
    if (action->session != from->session) {
        const struct route *route = action->member >= 0 ? &c->routes.slots[action->member] : NULL;
        if (!route || route->session != action->session)
            return; /* it has another connection by now */
        to = (struct sender){action->session, route->id, route->id_size, route->fd};
    }
    if (action->kind == ROSTER_ACCEPT)
        routes_set(&c->routes, action->member, to.session, to.id, to.id_size, to.fd);
    if (action->kind == ROSTER_ACCEPT) {
        if (!c->other_program_reported &&
            roster_describe_other_program(c->roster, action->member, difference, sizeof difference)) {
            c->other_program_reported = true; /* nodes may differ on purpose: one line is enough */
            log_warning(c->log, "%s", difference);
        }
        if (!c->other_size_reported &&
            roster_describe_other_size(c->roster, action->member, difference, sizeof difference)) {
            c->other_size_reported = true;
            log_warning(c->log, "%s", difference);
        }
        if (!c->other_endpoints_reported &&
            roster_describe_other_endpoints(c->roster, action->member, difference, sizeof difference)) {
            c->other_endpoints_reported = true;
            log_warning(c->log, "%s", difference);
        }
        c->message.kind = WIRE_ACCEPT;
        c->message.member = action->member;
        c->message.sequence = roster_report_sequence(c->roster, action->member);
        c->message.lease_ns = roster_lease_ns(c->roster);
        c->message.epoch = roster_epoch(c->roster);
        c->message.notes = c->options->notes;
        c->message.record = c->office.known.epoch ? &c->office.known : NULL;
        c->message.server = &c->office.self;
        c->message.office = c->office.ballot;
    } else if (action->kind == ROSTER_AGAIN) {
        c->message.kind = WIRE_AGAIN;
        c->message.proof = action->proof;
    } else if (action->kind == ROSTER_HANDOVER) {
        c->message.kind = WIRE_HANDOVER;
        c->message.id = roster_world_id(c->roster);
        c->message.restart_count = roster_restart_count(c->roster);
    } else {
        c->message.kind = WIRE_EVENT;
        c->message.record =
            action->kind == ROSTER_SEND_WORLD && c->office.known.epoch ? &c->office.known : NULL;
        roster_fill_event(c->roster, action, &c->message.event);
    }
    bool failed = send_message(c, &to) != 0;
    if (action->kind == ROSTER_REFUSE && action->member >= 0)
        routes_remove(&c->routes, action->member, action->session);
    else if (failed && action->member >= 0)
        note_broken(c, action->member);
}

static void log_progress(struct transport *c)
{
    enum roster_job_state state = roster_state(c->roster);
    if (state == c->logged_state)
        return;
    c->logged_state = state;
    scope_buffer line = {0};
    if (c->log && c->log->threshold <= LOG_LEVEL_DEBUG && roster_format(c->roster, &line) == 0)
        log_debug(c->log, "rendezvous: %s", line.data);
}

struct instant server_now(struct transport *c)
{
    const struct instant now = clock_now(c->clock);
    const int64_t gap = c->turned_at.ns == INSTANT_NEVER.ns ? 0 : instant_diff_ns(now, c->turned_at);
    c->turned_at = now;
    if (!c->roster || gap < STOOD_STILL_MS * NS_PER_MS)
        return now;
    log_warning(c->log, "event loop stalled for about %.4g s; extending the deadlines of the other nodes",
                (double)gap / NS_PER_S);
    roster_wake(c->roster, now);
    return now;
}

size_t server_step(struct transport *c, const struct roster_event *event, const struct sender *from)
{
    struct muster_error err;
    if (roster_step(c->roster, event, server_now(c), &c->actions, &err)) {
        server_complain(c, err.text);
        return c->actions.count;
    }
    membership_announce(c->options, c->roster, &c->announced);
    size_t count = c->actions.count;
    for (size_t i = 0; i < count; i++) {
        if (c->actions.items[i].session == SERVER_LOCAL_SESSION)
            deliver_local(c, &c->actions.items[i]);
        else
            send_action(c, &c->actions.items[i], from);
    }
    log_progress(c);
    server_tend_voters(c);
    return count;
}

static bool to_event(struct transport *c, struct roster_event *event)
{
    const struct wire_message *message = &c->message;
    switch (message->kind) {
    case WIRE_JOIN:
        event->kind = ROSTER_JOIN;
        event->join = &message->join;
        event->number = message->number;
        return true;
    case WIRE_LEAVE:
        event->kind = ROSTER_LEAVE;
        event->exit_code = message->exit_code;
        return true;
    case WIRE_DRAIN:
        event->kind = ROSTER_DRAIN;
        event->exit_code = message->exit_code;
        event->grace_ns = message->grace_ns;
        return true;
    case WIRE_EVICT:
        event->kind = ROSTER_EVICT;
        event->evict = &message->evict;
        return true;
    case WIRE_BEAT:
        event->kind = ROSTER_BEAT;
        event->missing = message->missing;
        event->ended = message->ended;
        return true;
    case WIRE_REPORT:
        event->kind = ROSTER_REPORT;
        event->report.id = message->id;
        event->report.kind = message->report;
        event->report.sequence = message->sequence;
        event->report.failure = &message->failure;
        return true;
    default:
        return false;
    }
}

/* A note of a member for the agent; dropped where too many wait. */
static void keep_note(struct transport *c, int member, const char *data, size_t length)
{
    struct kept_note *note = mem_calloc(1, sizeof *note + length + 1);
    if (!note)
        return; /* the next one has the same and more */
    note->member = member;
    note->length = length;
    memcpy(note->data, data, length);
    pthread_mutex_lock(&c->lock);
    const bool room = c->notes_bytes + length <= SERVER_NOTES_LIMIT;
    if (room) {
        *c->last_note = note;
        c->last_note = &note->next;
        c->notes_bytes += length;
    }
    pthread_mutex_unlock(&c->lock);
    if (room)
        server_signal_fd(c->ready_fd);
    else
        mem_free(note);
}

static void handle_frame(struct transport *c, const struct sender *peer, const void *data, size_t size)
{
    struct muster_error err;
    if (peer->id_size > ROUTE_ID_LIMIT)
        return server_complain(c, "a peer set a routing id of its own");
    if (wire_decode(data, size, &c->message, &err))
        return server_complain(c, err.text);
    if (server_takes_for_agent(c, peer, data, size))
        return;
    int slot = routes_find(&c->routes, peer->id, peer->id_size);
    if (slot >= 0 && c->office.known.voter_count > 1)
        server_note_voter(c, slot);
    if (c->message.kind == WIRE_NOTE && c->options->notes) {
        if (slot >= 0)
            keep_note(c, slot, c->message.note, c->message.note_length);
        return;
    }
    struct sender from = *peer;
    struct roster_event event = {.member = slot};
    if (!to_event(c, &event))
        return server_complain(c, "a peer sent a message that only a server sends");
    if (slot >= 0)
        from.session = c->routes.slots[slot].session;
    else
        from.session = ++c->last_session;
    event.session = from.session;
    size_t actions = server_step(c, &event, &from);
    if (event.kind == ROSTER_BEAT && actions == 0) {
        c->message.kind = WIRE_BEAT;
        c->message.missing = c->message.ended = 0;
        c->message.sequence = roster_report_sequence(c->roster, slot);
        c->message.server_done = roster_server_done(c->roster);
        c->message.server_works = roster_server_works(c->roster);
        rank_ranges_copy(&c->message.done, roster_done_ranks(c->roster));
        memcpy(c->message.progress, c->progress, sizeof c->progress);
        /* A heartbeat that cannot be sent is followed by the next one. */
        (void)send_message(c, &from);
    }
}

static bool receive_one(struct transport *c)
{
    zmq_msg_t id, body;
    zmq_calls.msg_init(&id);
    if (zmq_calls.msg_recv(&id, c->socket.socket, ZMQ_DONTWAIT) < 0) {
        zmq_calls.msg_close(&id);
        return false;
    }
    c->handled++;
    zmq_calls.msg_init(&body);
    bool whole = false, more = zmq_calls.msg_more(&id);
    int frames = 0;
    /* The frames of one message arrive together. */
    while (more && zmq_calls.msg_recv(&body, c->socket.socket, ZMQ_DONTWAIT) >= 0) {
        more = zmq_calls.msg_more(&body);
        whole = !more && ++frames == 1;
        frames += more;
    }
    if (whole) {
        struct sender peer = {0, zmq_calls.msg_data(&id), zmq_calls.msg_size(&id),
                              zmq_calls.msg_get(&body, ZMQ_SRCFD)};
        admission_note_active(&c->admission, peer.fd);
        inflow_delivered(&c->inflow, peer.fd);
        handle_frame(c, &peer, zmq_calls.msg_data(&body), zmq_calls.msg_size(&body));
    } else
        server_complain(c, "a peer sent a message of more than one frame");
    zmq_calls.msg_close(&body);
    zmq_calls.msg_close(&id);
    return true;
}

bool server_receive_many(struct transport *c)
{
    int left = TURN_BASE + TURN_PER_SLOT * c->routes.slot_count;
    bool got = true;
    while (left-- > 0 && got)
        got = receive_one(c);
    return !got;
}

void server_drop_broken(struct transport *c)
{
    if (!c->broken || !server_receive_many(c))
        return;
    c->broken = false;
    struct sender nobody = {0};
    for (int slot = 0; slot < c->routes.slot_count; slot++) {
        struct roster_event gone = {
            .kind = ROSTER_DISCONNECT, .session = c->routes.slots[slot].session, .member = slot};
        if (!gone.session || !c->routes.slots[slot].broken)
            continue;
        routes_remove(&c->routes, slot, gone.session);
        (void)server_step(c, &gone, &nobody);
    }
}

/* A connection's end is known before its route is gone: a send that fails is the proof. */
bool server_is_cut_off(struct transport *c, int slot)
{
    const struct route *route = &c->routes.slots[slot];
    struct sender to = {route->session, route->id, route->id_size, route->fd};
    c->message.kind = WIRE_BEAT;
    c->message.sequence = roster_report_sequence(c->roster, slot);
    c->message.number = 0; /* answers nothing */
    c->message.missing = c->message.ended = 0;
    c->message.progress[0] = '\0';
    c->message.server_done = (struct world_id){0};
    c->message.server_works = false;
    if (send_message(c, &to) == 0)
        return false;
    note_broken(c, slot);
    return true;
}
