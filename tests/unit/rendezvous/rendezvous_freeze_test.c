/* rendezvous_freeze_test.c - a serving node that stands still at any point of its loop: its clock leaps at
 * each of the loop's reads in turn, and the other node, which it could not hear, is not lost. */
#include <poll.h>
#include <stdatomic.h>

#include "rendezvous/membership.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/free_port.h"

enum { NODES = 2, READS = 12, LEAP_S = 7, PATIENCE_S = 240, AFTER_MS = 400 };

struct leaping_clock {
    struct clock clock;
    _Atomic(int64_t) ahead_ns;
    atomic_int reads; /* until it leaps; 0: it does not */
};

struct fixture {
    struct leaping_clock clock;
    struct membership *nodes[NODES];
    struct membership_event event;
    struct muster_error err;
};

static struct instant now(void *context)
{
    struct leaping_clock *clock = context;
    if (atomic_load(&clock->reads) > 0 && atomic_fetch_sub(&clock->reads, 1) == 1)
        atomic_fetch_add(&clock->ahead_ns, LEAP_S * NS_PER_S);
    return instant_add(clock_now(NULL), atomic_load(&clock->ahead_ns));
}

/* leaper: the node that stands still; 0 serves. */
static void open_nodes(struct fixture *f, int leaper)
{
    struct membership_options options = {
        .job_id = "job",
        .min_nodes = NODES,
        .max_nodes = NODES,
        .local_world_size = 1,
        .max_restarts = 1,
        .host = "127.0.0.1",
        .port = test_free_port(),
        .store_addr = "127.0.0.1",
        .store_port = 29500,
        .join_timeout_ns = PATIENCE_S * NS_PER_S,
    };
    f->clock.clock = (struct clock){now, &f->clock};
    for (int i = 0; i < NODES; i++) {
        options.mode = i ? MEMBERSHIP_CLIENT : MEMBERSHIP_SERVER;
        options.agent_name = i ? "host-b" : "host-a";
        options.node_rank = i;
        options.clock = i == leaper ? &f->clock.clock : NULL;
        f->nodes[i] = membership_open(&options, &f->err);
        if (!f->nodes[i])
            fail_msg("%s", f->err.text);
    }
}

/* One turn of both agents' loops. The node that has an event, or -1. */
static int turn(struct fixture *f)
{
    struct pollfd fds[NODES];
    for (int i = 0; i < NODES; i++) {
        const int got = membership_next(f->nodes[i], &f->event, &f->err);
        if (got < 0)
            fail_msg("%s", f->err.text);
        if (got > 0)
            return i;
        fds[i] = (struct pollfd){.fd = membership_fd(f->nodes[i]), .events = POLLIN};
    }
    (void)poll(fds, NODES, 20);
    return -1;
}

static void stand_still_anywhere(void **state, int leaper)
{
    static struct fixture fixture;
    struct fixture *f = *state = &fixture;
    fixture = (struct fixture){0};
    open_nodes(f, leaper);
    const struct instant limit = instant_add(clock_now(NULL), PATIENCE_S * NS_PER_S);
    for (int worlds = 0; worlds < NODES;) {
        assert_false(instant_reached(clock_now(NULL), limit));
        const int node = turn(f);
        if (node < 0)
            continue;
        assert_int_equal(f->event.kind, MEMBERSHIP_EVENT_WORLD);
        assert_int_equal(
            membership_report(f->nodes[node], f->event.world.id, MEMBERSHIP_REPORT_RUNNING, NULL, &f->err),
            0);
        worlds++;
    }
    for (int read = 1; read <= READS; read++) {
        struct instant until = INSTANT_NEVER;
        atomic_store(&f->clock.reads, read);
        while (!instant_reached(clock_now(NULL), until)) {
            if (turn(f) >= 0)
                fail_msg("read %d: an event of kind %d: %s", read, (int)f->event.kind, f->event.reason);
            if (!atomic_load(&f->clock.reads) && until.ns == INSTANT_NEVER.ns)
                until = instant_add(clock_now(NULL), AFTER_MS * NS_PER_MS);
        }
    }
    assert_int_equal(atomic_load(&f->clock.ahead_ns), READS * LEAP_S * NS_PER_S);
}

static void the_serving_node(void **state)
{
    stand_still_anywhere(state, 0);
}

static void the_other_node(void **state)
{
    stand_still_anywhere(state, 1);
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    for (int i = NODES - 1; i >= 0; i--)
        membership_destroy(f->nodes[i], 0);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(the_serving_node, tear_down),
                                       cmocka_unit_test_teardown(the_other_node, tear_down)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
