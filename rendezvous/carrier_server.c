/* carrier_server.c - the seat of the agent that serves the job's world.
 *
 * A thread of its own owns the ROUTER socket, the roster and the routes; nothing else touches them after it
 * has started. The agent's calls become commands in a list, the roster's answers to it become events in a
 * queue; a mutex guards both, and an eventfd each way wakes the other side. The thread blocks all signals and
 * does no file I/O but for the log sink. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "proto/base/thread.h"
#include "rendezvous/gate.h"
#include "rendezvous/membership_carrier.h"
#include "rendezvous/routes.h"
#include "rendezvous/wire.h"
#include "rendezvous/zmq_calls.h"
#include "rendezvous/zmq_socket.h"

enum {
    LOCAL_SESSION = 1,
    PROGRESS_EVERY_MS = 500,
    CONFIRM_AFTER_MS = 100,
    STOOD_STILL_MS = 1250, /* half of what makes a node lost */
    TURN_BASE = 1000,      /* messages that are read before anything else is done, and for each slot */
    TURN_PER_SLOT = 4,
    COMPLAINT_LIMIT = 20, /* log lines about broken peers; a stranger must not fill the disk */
};

struct command {
    struct command *next;
    struct roster_event event; /* report.failure points at failure below */
    struct worker_failure failure;
};

struct carrier {
    /* the thread's own */
    struct zmq_socket socket;
    struct roster *roster;
    struct roster_actions actions;
    struct routes routes;
    struct buffer frame;         /* scratch for what is sent */
    struct wire_message message; /* scratch for what is packed and unpacked */
    bool broken;                 /* there are broken routes */
    uint64_t last_session;
    int local_member;
    enum roster_job_state logged_state;
    unsigned complaints, refusals;
    char refused[MUSTER_ERROR_TEXT]; /* the last agent whose refusal was logged, and why */
    bool stranger_told;
    struct world_id told;               /* the last world that was announced */
    char progress[WIRE_PROGRESS_LIMIT]; /* written under lock */
    struct gate gate;
    int suspect; /* slot whose connection has ended, but not yet its route */
    uint64_t suspect_session;
    struct instant confirm_at;
    struct instant progress_at; /* when it may be worked out again */
    const struct membership_options *options;
    const struct clock *clock;
    const struct log_sink *log;
    /* shared, under lock */
    pthread_mutex_t lock;
    struct command *first, **last;
    struct event_queue queue;
    struct muster_error fatal; /* why the thread has ended early; code 0: it has not */
    bool closing, ended;       /* ended: the thread waits for nobody any more */
    int64_t linger_ns;         /* closing */
    struct instant close_deadline;
    int others; /* closing: who are waited for */
    /* the agent's own */
    int wake_fd, ready_fd; /* to the thread, to the agent */
    pthread_t thread;
    bool thread_started;
};

static void signal_fd(int fd)
{
    /* An eventfd's write can only fail where its counter is full, and then it is readable already. */
    (void)eventfd_write(fd, 1);
}

static void drain_fd(int fd)
{
    eventfd_t value;
    (void)eventfd_read(fd, &value); /* empty is fine: it is non-blocking */
}

/* -- the thread: from the roster to the agents
 * -------------------------------------------------------------------- */

struct sender {
    uint64_t session;
    const void *id;
    size_t id_size;
    int fd;
};

static void deliver_local(struct carrier *c, const struct roster_action *action)
{
    if (action->kind == ROSTER_ACCEPT)
        c->local_member = action->member;
    if (action->kind == ROSTER_ACCEPT || action->kind == ROSTER_AGAIN)
        return;
    pthread_mutex_lock(&c->lock);
    struct membership_event *place = event_queue_push(&c->queue);
    if (place)
        roster_fill_event(c->roster, action, place);
    else
        error_set(&c->fatal, MUSTER_E_LIMIT, "more than %d events wait: membership_next is not called",
                  EVENT_QUEUE_LIMIT);
    pthread_mutex_unlock(&c->lock);
    signal_fd(c->ready_fd);
}

static int send_message(struct carrier *c, const struct sender *to)
{
    struct muster_error err;
    buffer_clear(&c->frame);
    if (wire_encode(&c->message, &c->frame, &err)) {
        log_warning(c->log, "rendezvous: %s", err.text);
        return -1;
    }
    return zmq_socket_send(&c->socket, to->id, to->id_size, c->frame.data, c->frame.length);
}

static void complain(struct carrier *c, const char *what)
{
    if (c->complaints < COMPLAINT_LIMIT)
        log_warning(c->log, "rendezvous: %s%s", what,
                    ++c->complaints == COMPLAINT_LIMIT ? " (further ones are not logged)" : "");
}

/* Its connection is gone, or takes nothing: when it asks again it registers and is sent what it missed. But
 * its last words may lie there unread, and who said goodbye is not lost: see drop_broken. */
static void note_broken(struct carrier *c, int slot)
{
    c->routes.slots[slot].broken = c->broken = true;
}

/* A pod that is started again and again is refused each time: said once. */
static void log_refused_agent(struct carrier *c, const struct sender *peer)
{
    char who[MUSTER_ERROR_TEXT];
    roster_describe_refused(c->roster, who, sizeof who);
    if (c->refusals == COMPLAINT_LIMIT || strcmp(who, c->refused) == 0)
        return;
    memcpy(c->refused, who, sizeof c->refused);
    const char *address = gate_address(&c->gate, peer->fd);
    log_warning(c->log, "refused%s%s: %s%s", *address ? " " : "", address, who,
                ++c->refusals == COMPLAINT_LIMIT ? " (further ones are not logged)" : "");
}

static void send_action(struct carrier *c, const struct roster_action *action, const struct sender *from)
{
    struct sender to = *from;
    char stranger[MUSTER_ERROR_TEXT];
    if (action->kind == ROSTER_REFUSE && action->member < 0)
        log_refused_agent(c, from);
    if (action->session != from->session) {
        const struct route *route = action->member >= 0 ? &c->routes.slots[action->member] : NULL;
        if (!route || route->session != action->session)
            return; /* it has another connection by now */
        to = (struct sender){action->session, route->id, route->id_size, route->fd};
    }
    if (action->kind == ROSTER_ACCEPT)
        routes_set(&c->routes, action->member, to.session, to.id, to.id_size, to.fd);
    if (action->kind == ROSTER_ACCEPT) {
        if (!c->stranger_told &&
            roster_describe_stranger(c->roster, action->member, stranger, sizeof stranger)) {
            c->stranger_told = true; /* nodes may differ on purpose: one line says it */
            log_warning(c->log, "%s", stranger);
        }
        c->message.kind = WIRE_ACCEPT;
        c->message.member = action->member;
        c->message.sequence = roster_report_sequence(c->roster, action->member);
        c->message.lease_ns = roster_lease_ns(c->roster);
        c->message.epoch = roster_epoch(c->roster);
    } else if (action->kind == ROSTER_AGAIN) {
        c->message.kind = WIRE_AGAIN;
    } else if (action->kind == ROSTER_FAREWELL) {
        c->message.kind = WIRE_FAREWELL;
        c->message.id = roster_world_id(c->roster);
        c->message.restart_count = roster_restart_count(c->roster);
    } else {
        c->message.kind = WIRE_EVENT;
        roster_fill_event(c->roster, action, &c->message.event);
    }
    bool failed = send_message(c, &to) != 0;
    if (action->kind == ROSTER_REFUSE && action->member >= 0)
        routes_remove(&c->routes, action->member, action->session);
    else if (failed && action->member >= 0)
        note_broken(c, action->member);
}

static void log_progress(struct carrier *c)
{
    enum roster_job_state state = roster_state(c->roster);
    if (state == c->logged_state)
        return;
    c->logged_state = state;
    scope_buffer line = {0};
    if (c->log && c->log->threshold <= LOG_LEVEL_DEBUG && roster_format(c->roster, &line) == 0)
        log_debug(c->log, "rendezvous: %s", line.data);
}

/* Returns how many actions the event had. */
static size_t step(struct carrier *c, const struct roster_event *event, const struct sender *from)
{
    struct muster_error err;
    if (roster_step(c->roster, event, clock_now(c->clock), &c->actions, &err)) {
        complain(c, err.text);
        return c->actions.count;
    }
    membership_announce(c->options, c->roster, &c->told);
    size_t count = c->actions.count;
    for (size_t i = 0; i < count; i++) {
        if (c->actions.items[i].session == LOCAL_SESSION)
            deliver_local(c, &c->actions.items[i]);
        else
            send_action(c, &c->actions.items[i], from);
    }
    log_progress(c);
    return count;
}

/* -- the thread: from the agents to the roster
 * -------------------------------------------------------------------- */

static bool to_event(struct carrier *c, struct roster_event *event)
{
    const struct wire_message *message = &c->message;
    switch (message->kind) {
    case WIRE_JOIN:
        event->kind = ROSTER_JOIN;
        event->join = &message->join;
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
    case WIRE_BEAT:
        event->kind = ROSTER_BEAT;
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

static void handle_frame(struct carrier *c, const struct sender *peer, const void *data, size_t size)
{
    struct muster_error err;
    if (peer->id_size > ROUTE_ID_LIMIT)
        return complain(c, "a peer set a routing id of its own");
    if (wire_decode(data, size, &c->message, &err))
        return complain(c, err.text);
    int slot = routes_find(&c->routes, peer->id, peer->id_size);
    struct sender from = *peer;
    struct roster_event event = {.member = slot};
    if (!to_event(c, &event))
        return complain(c, "a peer sent what only a server sends");
    if (slot >= 0)
        from.session = c->routes.slots[slot].session;
    else
        from.session = ++c->last_session;
    event.session = from.session;
    size_t actions = step(c, &event, &from);
    if (event.kind == ROSTER_BEAT && actions == 0) {
        c->message.kind = WIRE_BEAT;
        c->message.sequence = roster_report_sequence(c->roster, slot);
        c->message.server_done = roster_server_done(c->roster);
        memcpy(c->message.progress, c->progress, sizeof c->progress);
        /* A beat that does not get out is followed by the next one. */
        (void)send_message(c, &from);
    }
}

static bool receive_one(struct carrier *c)
{
    zmq_msg_t id, body;
    zmq_calls.msg_init(&id);
    if (zmq_calls.msg_recv(&id, c->socket.socket, ZMQ_DONTWAIT) < 0) {
        zmq_calls.msg_close(&id);
        return false;
    }
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
        gate_heard(&c->gate, peer.fd);
        handle_frame(c, &peer, zmq_calls.msg_data(&body), zmq_calls.msg_size(&body));
    } else
        complain(c, "a peer sent a message of more than one frame");
    zmq_calls.msg_close(&body);
    zmq_calls.msg_close(&id);
    return true;
}

/* Bounded, so that a peer that never stops cannot keep the clock from being looked at. Peers are read in
 * turn: each that lives has been heard by then. Whether nothing is left. */
static bool receive_many(struct carrier *c)
{
    int left = TURN_BASE + TURN_PER_SLOT * roster_slot_count(c->roster);
    bool got = true;
    while (left-- > 0 && got)
        got = receive_one(c);
    return !got;
}

/* The roster hears of the end of connections when all that came on them was read. */
static void drop_broken(struct carrier *c)
{
    if (!c->broken || !receive_many(c))
        return;
    c->broken = false;
    struct sender nobody = {0};
    for (int slot = 0; slot < c->routes.slot_count; slot++) {
        struct roster_event gone = {
            .kind = ROSTER_DISCONNECT, .session = c->routes.slots[slot].session, .member = slot};
        if (!gone.session || !c->routes.slots[slot].broken)
            continue;
        routes_remove(&c->routes, slot, gone.session);
        (void)step(c, &gone, &nobody);
    }
}

/* A connection's end is known before its route is gone: a send that fails is the proof. Whether it fails. */
static bool confirm_gone(struct carrier *c, int slot)
{
    const struct route *route = &c->routes.slots[slot];
    struct sender to = {route->session, route->id, route->id_size, route->fd};
    c->message.kind = WIRE_BEAT;
    c->message.sequence = roster_report_sequence(c->roster, slot);
    c->message.number = 0; /* answers nothing */
    c->message.progress[0] = '\0';
    c->message.server_done = (struct world_id){0};
    if (send_message(c, &to) == 0)
        return false;
    note_broken(c, slot);
    return true;
}

static void handle_connection(struct carrier *c, int event, int value, struct instant now)
{
    gate_watch(&c->gate, event, value, now);
    int slot = event == ZMQ_EVENT_DISCONNECTED ? routes_find_fd(&c->routes, value) : -1;
    if (slot < 0 || confirm_gone(c, slot))
        return;
    c->suspect = slot;
    c->suspect_session = c->routes.slots[slot].session;
    c->confirm_at = instant_add(now, CONFIRM_AFTER_MS * NS_PER_MS);
}

static void watch_connections(struct carrier *c, struct instant now)
{
    int event, value;
    while (zmq_socket_next_event(&c->socket, &event, &value))
        handle_connection(c, event, value, now);
    gate_answer(&c->gate, &c->socket, now);
    gate_tick(&c->gate, now);
    if (!instant_reached(now, c->confirm_at))
        return;
    c->confirm_at = INSTANT_NEVER;
    if (c->routes.slots[c->suspect].session == c->suspect_session && c->suspect_session)
        (void)confirm_gone(c, c->suspect); /* if not, its silence will tell */
}

static void run_commands(struct carrier *c)
{
    pthread_mutex_lock(&c->lock);
    struct command *command = c->first;
    c->first = NULL;
    c->last = &c->first;
    pthread_mutex_unlock(&c->lock);
    struct sender local = {.session = LOCAL_SESSION};
    while (command) {
        struct command *next = command->next;
        command->event.session = LOCAL_SESSION;
        command->event.member = c->local_member;
        (void)step(c, &command->event, &local);
        mem_free(command);
        command = next;
    }
}

/* The server leaves last: after a verdict or a farewell it stays until the others have gone, within the
 * linger, which begins when those who are still being stopped for its end have stopped. */
static bool may_end(struct carrier *c, struct instant now)
{
    pthread_mutex_lock(&c->lock);
    c->others = roster_remote_count(c->roster);
    if (c->closing && roster_holds_server(c->roster))
        c->close_deadline = instant_add(now, c->linger_ns);
    bool closing = c->closing && !c->first, broken = c->fatal.code != 0;
    struct instant deadline = c->close_deadline;
    pthread_mutex_unlock(&c->lock);
    if (broken)
        return true;
    if (roster_holds_server(c->roster))
        return false;
    return closing && (roster_state(c->roster) < JOB_DEPARTED || !roster_remote_count(c->roster) ||
                       instant_reached(now, deadline));
}

/* After a freeze of this process the others' silence was ours: some have given their connections up for new
 * ones meanwhile, and need a moment to register. */
static void note_freeze(struct carrier *c, struct instant due)
{
    struct instant now = clock_now(c->clock);
    int64_t late = instant_diff_ns(now, due);
    if (due.ns == INT64_MAX || late < STOOD_STILL_MS * NS_PER_MS)
        return;
    log_warning(c->log, "this process stood still for about %.4g s: the other nodes get time to come back",
                (double)late / NS_PER_S);
    roster_wake(c->roster, now);
}

static int wait_for_work(struct carrier *c)
{
    pthread_mutex_lock(&c->lock);
    struct instant due = c->closing ? c->close_deadline : INSTANT_NEVER;
    pthread_mutex_unlock(&c->lock);
    due = instant_min(due, instant_min(c->confirm_at, roster_deadline(c->roster)));
    due = instant_min(due, gate_deadline(&c->gate));
    int64_t left = instant_diff_ns(due, clock_now(c->clock));
    int64_t timeout = -1;
    if (c->broken)
        timeout = 0; /* there was more to read than one turn reads */
    else if (due.ns != INT64_MAX)
        timeout = left <= 0 ? 0 : (left + NS_PER_MS - 1) / NS_PER_MS;
    if (zmq_socket_wait(&c->socket, c->wake_fd, timeout < INT_MAX ? (int)timeout : INT_MAX) && errno != EINTR)
        return -1;
    note_freeze(c, due);
    return 0;
}

/* It costs a look at every slot, so not with every message. */
static void refresh_progress(struct carrier *c, struct instant now)
{
    if (!instant_reached(now, c->progress_at))
        return;
    c->progress_at = instant_add(now, PROGRESS_EVERY_MS * NS_PER_MS);
    pthread_mutex_lock(&c->lock);
    roster_describe_progress(c->roster, c->progress, sizeof c->progress);
    size_t length = strlen(c->progress);
    if (length)
        gate_describe(&c->gate, c->progress + length, sizeof c->progress - length);
    pthread_mutex_unlock(&c->lock);
}

static void *serve(void *context)
{
    struct carrier *c = context;
    struct sender nobody = {0};
    while (!may_end(c, clock_now(c->clock))) {
        refresh_progress(c, clock_now(c->clock));
        if (wait_for_work(c)) {
            pthread_mutex_lock(&c->lock);
            error_set(&c->fatal, MUSTER_E_IO, "the rendezvous server cannot wait for messages: %s",
                      strerror(errno));
            pthread_mutex_unlock(&c->lock);
            signal_fd(c->ready_fd);
            break;
        }
        /* All messages before the clock: after a freeze everybody would look lost. */
        drain_fd(c->wake_fd);
        watch_connections(c, clock_now(c->clock));
        receive_many(c);
        run_commands(c);
        if (instant_reached(clock_now(c->clock), roster_deadline(c->roster))) {
            struct roster_event tick = {.kind = ROSTER_TICK};
            (void)step(c, &tick, &nobody);
        }
        drop_broken(c);
    }
    pthread_mutex_lock(&c->lock);
    c->ended = true;
    pthread_mutex_unlock(&c->lock);
    signal_fd(c->ready_fd);
    return NULL;
}

/* -- the agent's side
 * --------------------------------------------------------------------------------------------- */

static int server_fd(const struct membership *m)
{
    return m->carrier->ready_fd;
}

static struct instant server_deadline(const struct membership *m)
{
    (void)m;
    return INSTANT_NEVER; /* the eventfd is level-triggered, and the thread keeps the time */
}

static int server_next(struct membership *m, struct membership_event *event, struct muster_error *err)
{
    struct carrier *c = m->carrier;
    pthread_mutex_lock(&c->lock);
    int got = event_queue_pop(&c->queue, event);
    if (!got && c->fatal.code)
        got = error_set(err, (enum muster_error_code)c->fatal.code, "%s", c->fatal.text);
    else if (!c->queue.count && !c->fatal.code)
        drain_fd(c->ready_fd);
    pthread_mutex_unlock(&c->lock);
    return got;
}

static struct command *new_command(enum roster_event_kind kind, struct muster_error *err)
{
    struct command *command = mem_calloc(1, sizeof *command);
    if (command)
        command->event.kind = kind;
    else
        error_set(err, MUSTER_E_NOMEM, "no memory for a message to the rendezvous server");
    return command;
}

static void post(struct carrier *c, struct command *command)
{
    pthread_mutex_lock(&c->lock);
    *c->last = command;
    c->last = &command->next;
    pthread_mutex_unlock(&c->lock);
    signal_fd(c->wake_fd);
}

static int server_report(struct membership *m, struct world_id id, enum membership_report_kind kind,
                         const struct worker_failure *failure, struct muster_error *err)
{
    struct command *command = new_command(ROSTER_REPORT, err);
    if (!command)
        return -1;
    command->event.report.id = id;
    command->event.report.kind = kind;
    command->event.report.sequence = m->sequence;
    if (failure)
        command->failure = *failure;
    command->event.report.failure = &command->failure;
    post(m->carrier, command);
    return 0;
}

static int server_leave(struct membership *m, int exit_code, struct muster_error *err)
{
    struct command *command = new_command(ROSTER_LEAVE, err);
    if (!command)
        return -1;
    command->event.exit_code = exit_code;
    post(m->carrier, command);
    return 0;
}

static int server_drain(struct membership *m, int exit_code, int64_t grace_ns, struct muster_error *err)
{
    struct command *command = new_command(ROSTER_DRAIN, err);
    if (!command)
        return -1;
    command->event.exit_code = exit_code;
    command->event.grace_ns = grace_ns;
    post(m->carrier, command);
    return 0;
}

static void server_progress(const struct membership *m, char *out, size_t size)
{
    struct carrier *c = m->carrier;
    pthread_mutex_lock(&c->lock);
    if (c->progress[0])
        (void)snprintf(out, size, "%s; server %s (this node, port %u)", c->progress,
                       m->options.host_name ? m->options.host_name : m->options.host, m->options.port);
    else
        out[0] = '\0';
    pthread_mutex_unlock(&c->lock);
}

static void server_part(struct membership *m, int64_t linger_ns)
{
    struct carrier *c = m->carrier;
    pthread_mutex_lock(&c->lock);
    if (!c->closing) {
        c->closing = true;
        c->linger_ns = linger_ns;
        c->close_deadline = instant_add(clock_now(m->options.clock), linger_ns);
    }
    pthread_mutex_unlock(&c->lock);
    signal_fd(c->wake_fd);
}

static int server_parting(const struct membership *m)
{
    struct carrier *c = m->carrier;
    drain_fd(c->ready_fd);
    pthread_mutex_lock(&c->lock);
    int others = c->closing && !c->ended ? c->others : 0;
    pthread_mutex_unlock(&c->lock);
    return others;
}

static void server_close(struct membership *m, int64_t linger_ns)
{
    struct carrier *c = m->carrier;
    server_part(m, linger_ns);
    if (c->thread_started)
        pthread_join(c->thread, NULL);
    /* Nobody else looks at it any more. */
    int64_t left = instant_diff_ns(c->close_deadline, clock_now(m->options.clock)) / NS_PER_MS;
    zmq_socket_close(&c->socket, left > 0 ? (int)(left < INT32_MAX ? left : INT32_MAX) : 0);
    while (c->first) {
        struct command *next = c->first->next;
        mem_free(c->first);
        c->first = next;
    }
    pthread_mutex_destroy(&c->lock);
    if (c->wake_fd >= 0)
        close(c->wake_fd);
    if (c->ready_fd >= 0)
        close(c->ready_fd);
    buffer_free(&c->frame);
    gate_close(&c->gate);
    routes_free(&c->routes);
    roster_actions_free(&c->actions);
    roster_destroy(c->roster);
    mem_free(c);
    m->carrier = NULL;
}

static int start_thread(struct carrier *c, struct muster_error *err)
{
    int failed = thread_start(&c->thread, 0, serve, c);
    if (failed)
        return error_set(err, MUSTER_E_IO, "cannot start the rendezvous server's thread: %s",
                         strerror(failed));
    c->thread_started = true;
    return 0;
}

static int open_parts(struct membership *m, struct muster_error *err)
{
    struct carrier *c = m->carrier;
    c->roster = membership_make_roster(m, err);
    if (!c->roster)
        return -1;
    int slots = roster_slot_count(c->roster);
    if (roster_actions_init(&c->actions, slots, err) || routes_init(&c->routes, slots, err))
        return -1;
    c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    c->ready_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->wake_fd < 0 || c->ready_fd < 0)
        return error_errno(err, "cannot make an eventfd");
    const struct zmq_socket_options where = {.host = m->options.host,
                                             .port = m->options.port,
                                             .keys = m->options.keys,
                                             .nodes = m->options.max_nodes,
                                             .log = m->options.log};
    struct rlimit descriptors;
    if (getrlimit(RLIMIT_NOFILE, &descriptors) < 0)
        return error_errno(err, "getrlimit");
    gate_init(&c->gate, where.keys ? where.keys->client_public : NULL, slots, descriptors.rlim_cur, c->log);
    if (zmq_socket_bind_router(&c->socket, &where, err))
        return -1;
    struct roster_join join = membership_join(m, true);
    struct roster_event event = {.kind = ROSTER_JOIN, .session = LOCAL_SESSION, .join = &join};
    struct sender local = {.session = LOCAL_SESSION};
    (void)step(c, &event, &local);
    return start_thread(c, err);
}

int carrier_server_open(struct membership *m, struct muster_error *err)
{
    static const struct carrier_operations operations = {
        .fd = server_fd,
        .deadline = server_deadline,
        .next = server_next,
        .report = server_report,
        .leave = server_leave,
        .drain = server_drain,
        .progress = server_progress,
        .part = server_part,
        .parting = server_parting,
        .close = server_close,
    };
    m->operations = &operations;
    struct carrier *c = m->carrier = mem_calloc(1, sizeof *c);
    if (!c)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a rendezvous server");
    c->wake_fd = c->ready_fd = -1;
    c->last = &c->first;
    c->last_session = LOCAL_SESSION;
    c->local_member = -1;
    c->confirm_at = INSTANT_NEVER;
    c->options = &m->options;
    c->clock = m->options.clock;
    c->log = m->options.log;
    if (pthread_mutex_init(&c->lock, NULL)) {
        mem_free(c);
        m->carrier = NULL;
        return error_set(err, MUSTER_E_NOMEM, "cannot make a mutex");
    }
    if (open_parts(m, err)) {
        server_close(m, 0);
        return -1;
    }
    return 0;
}
