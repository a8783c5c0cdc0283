/* rendezvous_silence_test.c - a client whose server falls silent on a connection that does not end: power
 * that goes leaves one, and so does a process that stands still. Network and time are the test's
 * (fake_zmq.h). */
#include <string.h>
#include <zmq.h>

#include "proto/base/buffer.h"
#include "rendezvous/membership.h"
#include "rendezvous/wire/wire.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/fake_clock.h"
#include "tests/support/libraries/fake_zmq.h"

enum { CONNECTION = 100, STEP_MS = 100 };

static const struct world_id world_id = {7, 0};

struct fixture {
    struct fake_clock clock;
    struct membership *node;
    struct membership_event event; /* the last */
};

static void hears(const struct wire_message *message)
{
    struct muster_error err;
    scope_buffer frame = {0};
    if (wire_encode(message, &frame, &err))
        fail_msg("%s", err.text);
    fake_zmq_hold();
    fake_zmq_arrives(NULL, CONNECTION, frame.data, frame.length);
    fake_zmq_release();
}

static void is_told(int event)
{
    fake_zmq_hold();
    fake_zmq_tells(event, CONNECTION);
    fake_zmq_release();
}

/* Whether there was an event. */
static bool next(struct fixture *f)
{
    struct muster_error err;
    int got = membership_next(f->node, &f->event, &err);
    if (got < 0)
        fail_msg("%s", err.text);
    return got > 0;
}

/* In steps, as an agent's loop turns, until there is an event; in ms how long that took, or all. */
static int pass_ms(struct fixture *f, int ms)
{
    int passed = 0;
    while (passed < ms && !next(f)) {
        fake_clock_advance(&f->clock, STEP_MS * NS_PER_MS);
        passed += STEP_MS;
    }
    return passed;
}

static int works_in_a_world(void **state)
{
    static struct fixture fixture;
    struct fixture *f = *state = &fixture;
    struct muster_error err;
    fixture = (struct fixture){0};
    fake_clock_init(&f->clock, NS_PER_S);
    fake_zmq_install();
    const struct membership_options options = {
        .mode = MEMBERSHIP_CLIENT,
        .job_id = "job",
        .agent_name = "host-b",
        .node_rank = 1,
        .min_nodes = 2,
        .max_nodes = 2,
        .local_world_size = 1,
        .max_restarts = 1,
        .host = "127.0.0.1",
        .port = 29500,
        .join_timeout_ns = 60 * NS_PER_S,
        .clock = &f->clock.clock,
    };
    f->node = membership_open(&options, &err);
    if (!f->node)
        fail_msg("%s", err.text);
    is_told(ZMQ_EVENT_CONNECTED);
    is_told(ZMQ_EVENT_HANDSHAKE_SUCCEEDED);
    assert_false(next(f));
    fake_clock_advance(&f->clock, STEP_MS * NS_PER_MS);
    hears(&(struct wire_message){.kind = WIRE_ACCEPT, .member = 1, .number = 1, .epoch = 7});
    struct wire_message world = {.kind = WIRE_EVENT};
    world.event.kind = MEMBERSHIP_EVENT_WORLD;
    world.event.world = (struct membership_world){.id = world_id,
                                                  .group_rank = 1,
                                                  .group_world_size = 2,
                                                  .rank_base = 1,
                                                  .world_size = 2,
                                                  .role_rank_base = 1,
                                                  .role_world_size = 2,
                                                  .master_addr = "host-a",
                                                  .master_port = 29501};
    hears(&world);
    assert_true(next(f));
    assert_int_equal(f->event.kind, MEMBERSHIP_EVENT_WORLD);
    assert_int_equal(membership_report(f->node, world_id, MEMBERSHIP_REPORT_RUNNING, NULL, &err), 0);
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    membership_destroy(f->node, 0);
    return 0;
}

/* Lost after 2.5 s; another second for a connection to say otherwise. */
static void the_workers_of_a_host_that_is_gone_are_not_waited_for(void **state)
{
    struct fixture *f = *state;
    int passed = pass_ms(f, 10000);
    assert_int_equal(f->event.kind, MEMBERSHIP_EVENT_STOP);
    assert_non_null(strstr(f->event.reason, "it was lost together with its workers"));
    assert_in_range(passed, 2500, 3500 + 2 * STEP_MS);
}

static void a_host_that_takes_connections_lives(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(pass_ms(f, 3000), 3000);
    is_told(ZMQ_EVENT_CONNECTED);
    assert_int_equal(pass_ms(f, 10000), 10000);
    assert_true(membership_silence_ns(f->node) > 10 * NS_PER_S);
}

/* Who answers in time is not left for another connection. */
static void a_short_silence_is_nothing(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < 10; i++) {
        assert_int_equal(pass_ms(f, 2000), 2000);
        hears(&(struct wire_message){.kind = WIRE_BEAT, .number = 1});
    }
    assert_int_equal(membership_silence_ns(f->node), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_workers_of_a_host_that_is_gone_are_not_waited_for,
                                        works_in_a_world, tear_down),
        cmocka_unit_test_setup_teardown(a_host_that_takes_connections_lives, works_in_a_world, tear_down),
        cmocka_unit_test_setup_teardown(a_short_silence_is_nothing, works_in_a_world, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
