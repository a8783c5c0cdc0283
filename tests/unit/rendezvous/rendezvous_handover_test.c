/* rendezvous_handover_test.c - the last words of a node are heard before the end of its connection is
 * believed, in whatever order the server comes to both. The network is the test's (fake_zmq.h), and time
 * stands still: nobody is lost by silence. */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <zmq.h>

#include "proto/base/buffer.h"
#include "proto/exit_code.h"
#include "rendezvous/membership.h"
#include "rendezvous/wire/wire.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/fake_clock.h"
#include "tests/support/libraries/fake_zmq.h"

enum { PATIENCE_MS = 240000, NODES = 3 };

static const char *const names[NODES] = {"host-a", "host-b", "host-c"}; /* routing ids, too */

struct fixture {
    struct fake_clock clock;
    struct membership *node; /* node 0, which serves */
    uint64_t sequences[NODES];
};

static int fd_of(int node)
{
    return 100 + node;
}

/* It lies on the connection to the peer from now on. */
static void put(const char *peer, int fd, const struct wire_message *message)
{
    struct muster_error err;
    scope_buffer frame = {0};
    if (wire_encode(message, &frame, &err))
        fail_msg("%s", err.text);
    fake_zmq_arrives(peer, fd, frame.data, frame.length);
}

static void say(int node, const struct wire_message *message)
{
    put(names[node], fd_of(node), message);
}

static struct wire_message join_of(int node, bool elastic, struct world_id held)
{
    return (struct wire_message){
        .kind = WIRE_JOIN,
        .number = 1,
        .join = {.protocol_version = ROSTER_PROTOCOL_VERSION,
                 .job_id = "job",
                 .min_nodes = elastic ? 1 : NODES,
                 .max_nodes = NODES,
                 .elastic = elastic,
                 .agent_name = names[node],
                 .node_rank = node,
                 .incarnation = {.high = 1, .low = (uint64_t)node + 1},
                 .local_world_size = 1,
                 .role = "default",
                 .program = "",
                 .store_addr = names[node],
                 .held = held},
    };
}

static void say_report(struct fixture *f, int node, struct world_id id, enum membership_report_kind kind)
{
    struct wire_message message = {
        .kind = WIRE_REPORT, .id = id, .report = kind, .sequence = ++f->sequences[node]};
    message.failure = (struct worker_failure){.rank = node, .pid = 42, .exit_code = 7};
    (void)snprintf(message.failure.host, sizeof message.failure.host, "%s", names[node]);
    say(node, &message);
}

static void say_leave(int node)
{
    const struct wire_message message = {.kind = WIRE_LEAVE, .exit_code = EXIT_CODE_TERMINATED};
    say(node, &message);
}

static void expect(struct fixture *f, enum membership_event_kind kind, struct membership_event *event)
{
    struct muster_error err;
    int got;
    while ((got = membership_next(f->node, event, &err)) == 0) {
        struct pollfd ready = {.fd = membership_fd(f->node), .events = POLLIN};
        if (poll(&ready, 1, PATIENCE_MS) == 0)
            fail_msg("no event within %d ms", PATIENCE_MS);
    }
    if (got < 0)
        fail_msg("%s", err.text);
    if (event->kind != kind)
        fail_msg("event %d in place of %d: %s", (int)event->kind, (int)kind, event->reason);
}

static void report(struct fixture *f, struct world_id id, enum membership_report_kind kind)
{
    assert_int_equal(membership_report(f->node, id, kind, NULL, NULL), 0);
}

/* Until the server says so of its world that forms. */
static void await_progress(struct fixture *f, const char *part)
{
    struct muster_error err;
    struct membership_event event;
    char text[MUSTER_ERROR_TEXT] = "";
    for (int ms = 0; !strstr(text, part); ms++) {
        if (ms == PATIENCE_MS / 10)
            fail_msg("\"%s\" in place of \"%s\"", text, part);
        (void)poll(NULL, 0, 1);
        assert_int_equal(membership_next(f->node, &event, &err), 0);
        membership_progress(f->node, text, sizeof text);
    }
}

/* A world of all, whose workers run. */
static struct world_id start(struct fixture *f, bool elastic)
{
    struct muster_error err;
    struct membership_event event;
    const struct membership_options options = {
        .mode = MEMBERSHIP_SERVER,
        .job_id = "job",
        .agent_name = names[0],
        .node_rank = 0,
        .min_nodes = elastic ? 1 : NODES,
        .max_nodes = NODES,
        .elastic = elastic,
        .local_world_size = 1,
        .max_restarts = 3,
        .host = "127.0.0.1",
        .port = 29500,
        .store_addr = names[0],
        .join_timeout_ns = 240 * NS_PER_S,
        .clock = &f->clock.clock,
    };
    f->node = membership_open(&options, &err);
    if (!f->node)
        fail_msg("%s", err.text);
    await_progress(f, "1 of "); /* the JOINs are sent once */
    fake_zmq_hold();
    for (int node = 1; node < NODES; node++) {
        const struct wire_message join = join_of(node, elastic, (struct world_id){0});
        say(node, &join);
    }
    fake_zmq_release();
    expect(f, MEMBERSHIP_EVENT_WORLD, &event);
    assert_int_equal(event.world.group_world_size, NODES);
    report(f, event.world.id, MEMBERSHIP_REPORT_RUNNING);
    fake_zmq_hold();
    for (int node = 1; node < NODES; node++)
        say_report(f, node, event.world.id, MEMBERSHIP_REPORT_RUNNING);
    fake_zmq_release();
    return event.world.id;
}

static int set_up(void **state)
{
    static struct fixture fixture;
    fixture = (struct fixture){0};
    fake_clock_init(&fixture.clock, NS_PER_S);
    fake_zmq_install();
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    membership_destroy(f->node, 0);
    return 0;
}

/* Node 1's failure is read first, and the STOP that follows finds node 2's connection closed, on which its
 * handover still lies. */
static void a_send_that_fails_does_not_overtake_a_handover(void **state)
{
    struct fixture *f = *state;
    struct membership_event event;
    struct world_id id = start(f, false);
    fake_zmq_hold();
    say_report(f, 1, id, MEMBERSHIP_REPORT_FAILED);
    say_leave(2);
    fake_zmq_cuts(names[2]);
    fake_zmq_release();
    expect(f, MEMBERSHIP_EVENT_STOP, &event);
    report(f, id, MEMBERSHIP_REPORT_STOPPED);
    fake_zmq_hold();
    say_report(f, 1, id, MEMBERSHIP_REPORT_STOPPED);
    say_leave(1);
    fake_zmq_release();
    expect(f, MEMBERSHIP_EVENT_VERDICT, &event);
    assert_int_equal(event.exit_code, EXIT_CODE_TERMINATED);
    assert_non_null(strstr(event.reason, "left with exit code 143"));
    membership_part(f->node, NS_PER_S, 0);
    assert_int_equal(membership_parting(f->node, &(bool){false}), 0); /* it came when the last had left */
}

/* The same where the others of the world go on. The server renews its text after 500 ms; so soon after the
 * end of its connection node 2 would not be lost. */
static void an_elastic_world_goes_on_without_who_said_goodbye(void **state)
{
    static const struct wire_message beat = {.kind = WIRE_BEAT};
    struct fixture *f = *state;
    struct membership_event event;
    struct world_id id = start(f, true);
    fake_clock_advance(&f->clock, 400 * NS_PER_MS);
    fake_zmq_hold();
    say_report(f, 1, id, MEMBERSHIP_REPORT_FAILED);
    say_leave(2);
    fake_zmq_cuts(names[2]);
    fake_zmq_release();
    expect(f, MEMBERSHIP_EVENT_STOP, &event);
    report(f, id, MEMBERSHIP_REPORT_STOPPED);
    const int sent = fake_zmq_sent();
    fake_zmq_hold();
    say_report(f, 1, id, MEMBERSHIP_REPORT_STOPPED);
    say(1, &beat);
    fake_zmq_release();
    while (fake_zmq_sent() == sent)
        (void)poll(NULL, 0, 1);
    fake_clock_advance(&f->clock, 100 * NS_PER_MS);
    fake_zmq_hold();
    say(1, &beat);
    fake_zmq_release();
    expect(f, MEMBERSHIP_EVENT_WORLD, &event); /* it has one voter: the others have no ports for votes */
    assert_int_equal(event.world.group_world_size, 2);
}

/* The monitor tells of the end before the handover is read. */
static void the_end_of_a_connection_does_not_overtake_a_handover(void **state)
{
    struct fixture *f = *state;
    struct membership_event event;
    (void)start(f, false);
    fake_zmq_hold();
    fake_zmq_tells(ZMQ_EVENT_DISCONNECTED, fd_of(2));
    say_leave(2);
    fake_zmq_cuts(names[2]);
    fake_zmq_release();
    expect(f, MEMBERSHIP_EVENT_STOP, &event);
    fake_zmq_hold();
    say_leave(1);
    fake_zmq_release();
    expect(f, MEMBERSHIP_EVENT_VERDICT, &event);
    assert_int_equal(event.exit_code, EXIT_CODE_TERMINATED);
}

/* Without a message it is away, and its messages on another connection count. */
static void who_comes_back_has_its_place(void **state)
{
    static const char another[] = "host-c again";
    struct fixture *f = *state;
    struct membership_event event;
    struct world_id id = start(f, false);
    const struct wire_message join = join_of(2, false, id),
                              leave = {.kind = WIRE_LEAVE, .exit_code = EXIT_CODE_TERMINATED};
    fake_zmq_hold();
    say_report(f, 1, id, MEMBERSHIP_REPORT_FAILED);
    fake_zmq_cuts(names[2]);
    put(another, fd_of(NODES), &join);
    fake_zmq_release();
    expect(f, MEMBERSHIP_EVENT_STOP, &event);
    report(f, id, MEMBERSHIP_REPORT_STOPPED);
    fake_zmq_hold();
    put(another, fd_of(NODES), &leave);
    say_report(f, 1, id, MEMBERSHIP_REPORT_STOPPED);
    say_leave(1);
    fake_zmq_release();
    expect(f, MEMBERSHIP_EVENT_VERDICT, &event);
    assert_int_equal(event.exit_code, EXIT_CODE_TERMINATED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_send_that_fails_does_not_overtake_a_handover, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_elastic_world_goes_on_without_who_said_goodbye, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_end_of_a_connection_does_not_overtake_a_handover, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(who_comes_back_has_its_place, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
