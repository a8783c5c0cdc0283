/* transport_server.c - the membership of the agent that serves the job's world: its calls, and creation
 * and end of the serving thread (server_internal.h). */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "proto/base/thread.h"
#include "rendezvous/server/server_internal.h"

static int server_fd(const struct membership *m)
{
    return m->transport->ready_fd;
}

static struct instant server_deadline(const struct membership *m)
{
    (void)m;
    return INSTANT_NEVER; /* the eventfd is level-triggered, and the thread keeps the time */
}

void server_settle_ready(struct transport *c)
{
    if (!c->queue.count && !c->frames && !c->proposed)
        server_drain_fd(c->ready_fd);
}

static int server_next(struct membership *m, struct membership_event *event, struct muster_error *err)
{
    struct transport *c = m->transport;
    pthread_mutex_lock(&c->lock);
    int got = event_queue_pop(&c->queue, event);
    if (!got && c->fatal.code)
        got = error_set(err, (enum muster_error_code)c->fatal.code, "%s", c->fatal.text);
    else
        server_settle_ready(c);
    pthread_mutex_unlock(&c->lock);
    return got;
}

struct command *server_new_command(enum command_kind kind, struct muster_error *err)
{
    struct command *command = mem_calloc(1, sizeof *command);
    if (command)
        command->kind = kind;
    else
        error_set(err, MUSTER_E_NOMEM, "no memory for a message to the rendezvous server");
    return command;
}

static struct command *new_command(enum roster_event_kind kind, struct muster_error *err)
{
    struct command *command = server_new_command(COMMAND_EVENT, err);
    if (command)
        command->event.kind = kind;
    return command;
}

void server_post(struct transport *c, struct command *command)
{
    pthread_mutex_lock(&c->lock);
    *c->last = command;
    c->last = &command->next;
    pthread_mutex_unlock(&c->lock);
    server_signal_fd(c->wake_fd);
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
    server_post(m->transport, command);
    return 0;
}

static int server_leave(struct membership *m, int exit_code, struct muster_error *err)
{
    struct command *command = new_command(ROSTER_LEAVE, err);
    if (!command)
        return -1;
    command->event.exit_code = exit_code;
    server_post(m->transport, command);
    return 0;
}

static int server_drain(struct membership *m, int exit_code, int64_t grace_ns, struct muster_error *err)
{
    struct command *command = new_command(ROSTER_DRAIN, err);
    if (!command)
        return -1;
    command->event.exit_code = exit_code;
    command->event.grace_ns = grace_ns;
    server_post(m->transport, command);
    return 0;
}

static int server_evict(struct membership *m, const struct membership_evict *request,
                        struct muster_error *err)
{
    struct command *command = new_command(ROSTER_EVICT, err);
    if (!command)
        return -1;
    command->evict = *request;
    (void)snprintf(command->node, sizeof command->node, "%s", request->node);
    command->evict.node = command->node;
    command->event.evict = &command->evict;
    server_post(m->transport, command);
    return 0;
}

static void post_beat(struct membership *m, int missing, int ended)
{
    struct command *command = new_command(ROSTER_BEAT, NULL);
    if (!command)
        return; /* it helps the other nodes only */
    command->event.missing = missing;
    command->event.ended = ended;
    server_post(m->transport, command);
}

static void server_miss(struct membership *m, int rank)
{
    post_beat(m, 1 + rank, 0);
}

static void server_ended(struct membership *m, int rank)
{
    post_beat(m, 0, 1 + rank);
}

static void server_progress(const struct membership *m, char *out, size_t size)
{
    struct transport *c = m->transport;
    pthread_mutex_lock(&c->lock);
    if (c->progress[0])
        (void)snprintf(out, size, "%s; server %s (this node, port %u)", c->progress,
                       m->options.host_name ? m->options.host_name
                       : m->options.host    ? m->options.host
                                            : "every address",
                       m->options.port);
    else
        out[0] = '\0';
    pthread_mutex_unlock(&c->lock);
}

static bool server_take_note(struct membership *m, struct membership_note *out)
{
    struct transport *c = m->transport;
    pthread_mutex_lock(&c->lock);
    struct kept_note *note = c->notes;
    if (note) {
        c->notes = note->next;
        c->notes_bytes -= note->length;
        if (!c->notes)
            c->last_note = &c->notes;
    }
    pthread_mutex_unlock(&c->lock);
    if (!note)
        return false;
    *out = (struct membership_note){note->member, mem_calloc(1, note->length + 1), note->length};
    if (out->data)
        memcpy(out->data, note->data, note->length);
    mem_free(note);
    return out->data != NULL;
}

static void begin_to_close(struct membership *m, int64_t linger_ns)
{
    struct transport *c = m->transport;
    pthread_mutex_lock(&c->lock);
    if (!c->closing) {
        c->closing = true;
        c->linger_ns = linger_ns;
        c->close_deadline = instant_add(clock_now(m->options.clock), linger_ns);
        c->closing_at = clock_now(m->options.clock);
    }
    pthread_mutex_unlock(&c->lock);
    server_signal_fd(c->wake_fd);
}

static void server_part(struct membership *m, int64_t linger_ns, int64_t grace_ns)
{
    (void)grace_ns;
    begin_to_close(m, linger_ns);
}

static int server_parting(struct membership *m, bool *votes)
{
    (void)votes;
    struct transport *c = m->transport;
    server_drain_fd(c->ready_fd);
    pthread_mutex_lock(&c->lock);
    int others = c->closing && !c->ended ? c->others : 0;
    pthread_mutex_unlock(&c->lock);
    return others;
}

void server_retire(struct membership *m, int64_t linger_ns)
{
    struct transport *c = m->transport;
    pthread_mutex_lock(&c->lock);
    c->retires = true;
    pthread_mutex_unlock(&c->lock);
    begin_to_close(m, linger_ns);
}

bool server_has_retired(const struct membership *m)
{
    struct transport *c = m->transport;
    pthread_mutex_lock(&c->lock);
    const bool over = c->retired || c->ended;
    pthread_mutex_unlock(&c->lock);
    return over;
}

bool server_misses_a_node(const struct membership *m)
{
    struct transport *c = m->transport;
    pthread_mutex_lock(&c->lock);
    const bool misses = c->missed_at.ns != INSTANT_NEVER.ns;
    pthread_mutex_unlock(&c->lock);
    return misses;
}

bool server_has_ended(const struct membership *m)
{
    struct transport *c = m->transport;
    pthread_mutex_lock(&c->lock);
    const bool ended = c->ended;
    pthread_mutex_unlock(&c->lock);
    return ended;
}

static void server_close(struct membership *m, int64_t linger_ns)
{
    struct transport *c = m->transport;
    begin_to_close(m, linger_ns);
    if (c->thread_started)
        pthread_join(c->thread, NULL);
    /* No other thread uses it any more. */
    int64_t left = instant_diff_ns(c->close_deadline, clock_now(m->options.clock)) / NS_PER_MS;
    zmq_socket_close(&c->socket, left > 0 ? (int)(left < INT32_MAX ? left : INT32_MAX) : 0);
    while (c->first) {
        struct command *next = c->first->next;
        server_free_command(c->first);
        c->first = next;
    }
    while (c->frames) {
        struct server_frame *next = c->frames->next;
        mem_free(c->frames);
        c->frames = next;
    }
    while (c->notes) {
        struct kept_note *next = c->notes->next;
        mem_free(c->notes);
        c->notes = next;
    }
    pthread_mutex_destroy(&c->lock);
    if (c->wake_fd >= 0)
        close(c->wake_fd);
    if (c->ready_fd >= 0)
        close(c->ready_fd);
    buffer_free(&c->frame);
    admission_close(&c->admission);
    inflow_close(&c->inflow);
    routes_free(&c->routes);
    roster_actions_free(&c->actions);
    roster_destroy(c->roster);
    mem_free(c);
    m->transport = NULL;
}

static int start_thread(struct transport *c, struct muster_error *err)
{
    int failed = thread_start(&c->thread, 0, server_run, c);
    if (failed)
        return thread_error(err, failed, "the rendezvous server's thread");
    c->thread_started = true;
    return 0;
}

static int open_parts(struct membership *m, struct muster_error *err)
{
    struct transport *c = m->transport;
    int slots = roster_slots(m->options.elastic, m->options.max_nodes);
    if (roster_actions_init(&c->actions, slots, err) || routes_init(&c->routes, slots, err))
        return -1;
    c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    c->ready_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->wake_fd < 0 || c->ready_fd < 0)
        return error_errno(err, "cannot make an eventfd");
    const struct zmq_socket_options where = {.host = m->options.host,
                                             .port = m->options.port,
                                             .listener = m->options.listener,
                                             .keys = m->options.keys,
                                             .nodes = m->options.max_nodes,
                                             .log = m->options.log};
    struct rlimit descriptors;
    if (getrlimit(RLIMIT_NOFILE, &descriptors) < 0)
        return error_errno(err, "getrlimit");
    if (inflow_init(&c->inflow, slots, err) < 0)
        return -1;
    admission_init(&c->admission, where.keys ? where.keys->client_public : NULL, where.nodes, slots,
                   descriptors.rlim_cur, c->log);
    if (zmq_socket_bind_router(&c->socket, &where, err))
        return -1;
    return start_thread(c, err);
}

int server_open_for_votes(struct membership *m, struct muster_error *err)
{
    static const struct transport_operations operations = {
        .fd = server_fd,
        .deadline = server_deadline,
        .next = server_next,
        .report = server_report,
        .leave = server_leave,
        .drain = server_drain,
        .evict = server_evict,
        .miss = server_miss,
        .ended = server_ended,
        .progress = server_progress,
        .part = server_part,
        .parting = server_parting,
        .take_note = server_take_note,
        .close = server_close,
    };
    m->operations = &operations;
    struct transport *c = m->transport = mem_calloc(1, sizeof *c);
    if (!c)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a rendezvous server");
    c->wake_fd = c->ready_fd = -1;
    c->last = &c->first;
    c->last_note = &c->notes;
    c->last_frame = &c->frames;
    c->last_session = SERVER_LOCAL_SESSION;
    c->local_member = -1;
    c->confirm_at = c->trim_at = c->turned_at = INSTANT_NEVER;
    c->options = &m->options;
    c->clock = m->options.clock;
    c->log = m->options.log;
    if (pthread_mutex_init(&c->lock, NULL)) {
        mem_free(c);
        m->transport = NULL;
        return error_set(err, MUSTER_E_NOMEM, "cannot make a mutex");
    }
    if (open_parts(m, err)) {
        server_close(m, 0);
        return -1;
    }
    return 0;
}
