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
    struct world_id told; /* the last world that was announced */
    struct event_queue queue;
};

/* Slots of the queue are cleared when they are taken: 28 pages that one world never touches. */
static struct transport *make_carrier(void)
{
    struct transport *carrier = mem_realloc(NULL, 1, sizeof *carrier);
    if (carrier)
        memset(carrier, 0, offsetof(struct transport, queue.events));
    return carrier;
}

static int step(struct membership *m, struct roster_event *event, struct muster_error *err)
{
    struct transport *carrier = m->carrier;
    event->session = ONLY_SESSION;
    event->member = ONLY_MEMBER;
    if (roster_step(carrier->roster, event, clock_now(m->options.clock), &carrier->actions, err))
        return -1;
    membership_announce(&m->options, carrier->roster, &carrier->told);
    for (size_t i = 0; i < carrier->actions.count; i++) {
        const struct roster_action *action = &carrier->actions.items[i];
        if (action->kind == ROSTER_ACCEPT || action->kind == ROSTER_AGAIN)
            continue;
        struct membership_event *place = event_queue_push(&carrier->queue);
        if (!place)
            return error_set(err, MUSTER_E_LIMIT, "more than %d events wait: membership_next is not called",
                             EVENT_QUEUE_LIMIT);
        roster_fill_event(carrier->roster, action, place);
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
    if (m->carrier->queue.count)
        return (struct instant){0}; /* long ago: now */
    return roster_deadline(m->carrier->roster);
}

static int process_next(struct membership *m, struct membership_event *event, struct muster_error *err)
{
    struct transport *carrier = m->carrier;
    if (!carrier->queue.count &&
        instant_reached(clock_now(m->options.clock), roster_deadline(carrier->roster))) {
        struct roster_event tick = {.kind = ROSTER_TICK};
        if (step(m, &tick, err))
            return -1;
    }
    return event_queue_pop(&carrier->queue, event);
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
    roster_actions_free(&m->carrier->actions);
    roster_destroy(m->carrier->roster);
    mem_free(m->carrier);
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
    m->carrier = make_carrier();
    if (!m->carrier)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a world in process");
    struct roster_join join = membership_join(m, true);
    struct roster_event event = {.kind = ROSTER_JOIN, .join = &join};
    m->carrier->roster = membership_make_roster(m, err);
    if (!m->carrier->roster || roster_actions_init(&m->carrier->actions, 1, err) || step(m, &event, err)) {
        process_close(m, 0);
        m->carrier = NULL;
        return -1;
    }
    return 0;
}
