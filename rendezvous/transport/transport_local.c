/* transport_local.c - a world of one node: the roster runs inside the membership. No thread, no socket, no
 * ZeroMQ. */
#include <stddef.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "rendezvous/transport/transport.h"

enum { ONLY_SESSION = 1, ONLY_MEMBER = 0 };

struct transport {
    struct roster *roster;
    struct roster_actions actions;
    struct world_id announced; /* the last world that was announced */
    struct event_queue queue;
};

/* Slots of the queue are cleared when they are taken: 28 pages that one world never touches. */
static struct transport *make_transport(void)
{
    struct transport *transport = mem_realloc(NULL, 1, sizeof *transport);
    if (transport)
        memset(transport, 0, offsetof(struct transport, queue.events));
    return transport;
}

static int step(struct membership *m, struct roster_event *event, struct muster_error *err)
{
    struct transport *transport = m->transport;
    event->session = ONLY_SESSION;
    event->member = ONLY_MEMBER;
    if (roster_step(transport->roster, event, clock_now(m->options.clock), &transport->actions, err))
        return -1;
    membership_announce(&m->options, transport->roster, &transport->announced);
    for (size_t i = 0; i < transport->actions.count; i++) {
        const struct roster_action *action = &transport->actions.items[i];
        if (action->kind == ROSTER_ACCEPT || action->kind == ROSTER_AGAIN)
            continue;
        struct membership_event *place = event_queue_push(&transport->queue);
        if (!place)
            return error_set(err, MUSTER_E_LIMIT, "more than %d events wait: membership_next is not called",
                             EVENT_QUEUE_LIMIT);
        roster_fill_event(transport->roster, action, place);
    }
    return 0;
}

static int process_fd(const struct membership *m)
{
    (void)m;
    return -1;
}

static struct instant process_deadline(const struct membership *m)
{
    if (m->transport->queue.count)
        return (struct instant){0}; /* long ago: now */
    return roster_deadline(m->transport->roster);
}

static int process_next(struct membership *m, struct membership_event *event, struct muster_error *err)
{
    struct transport *transport = m->transport;
    if (!transport->queue.count &&
        instant_reached(clock_now(m->options.clock), roster_deadline(transport->roster))) {
        struct roster_event tick = {.kind = ROSTER_TICK};
        if (step(m, &tick, err))
            return -1;
    }
    return event_queue_pop(&transport->queue, event);
}

static int process_report(struct membership *m, struct world_id id, enum membership_report_kind kind,
                          const struct worker_failure *failure, struct muster_error *err)
{
    struct roster_event event = {
        .kind = ROSTER_REPORT,
        .report = {.id = id, .kind = kind, .sequence = m->sequence, .failure = failure},
    };
    return step(m, &event, err);
}

static int process_leave(struct membership *m, int exit_code, struct muster_error *err)
{
    struct roster_event event = {.kind = ROSTER_LEAVE, .exit_code = exit_code};
    return step(m, &event, err);
}

static void process_close(struct membership *m, int64_t linger_ns)
{
    (void)linger_ns; /* nothing is in flight */
    roster_actions_free(&m->transport->actions);
    roster_destroy(m->transport->roster);
    mem_free(m->transport);
}

int transport_local_open(struct membership *m, struct muster_error *err)
{
    static const struct transport_operations operations = {
        .fd = process_fd,
        .deadline = process_deadline,
        .next = process_next,
        .report = process_report,
        .leave = process_leave,
        .close = process_close,
    };
    m->operations = &operations;
    m->transport = make_transport();
    if (!m->transport)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a world in process");
    struct roster_join join = membership_join(m, true);
    struct roster_event event = {.kind = ROSTER_JOIN, .join = &join};
    m->transport->roster = membership_make_roster(m, NULL, NULL, err);
    if (!m->transport->roster || roster_actions_init(&m->transport->actions, 1, err) ||
        step(m, &event, err)) {
        process_close(m, 0);
        m->transport = NULL;
        return -1;
    }
    return 0;
}
