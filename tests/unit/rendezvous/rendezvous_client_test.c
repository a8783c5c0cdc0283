/* rendezvous_client_test.c - when the member's protocol sends, and when it gives a world out. Tests of the
 * two sides do together is the simulator's. */
#include "rendezvous/client/client.h"
#include "rendezvous/client/report_queue.h"

#include <string.h>

#include "tests/support/cmocka_all.h"

#define LEASE_NS (4 * NS_PER_S)

struct member {
    struct client *client;
    struct instant now;
    int sent[8]; /* by enum wire_kind up to WIRE_BEAT, which is the largest that a client sends here */
    uint64_t number;
};

static bool count_sent(void *context, const struct wire_message *message)
{
    struct member *member = context;
    assert_true((size_t)message->kind < sizeof member->sent / sizeof *member->sent);
    member->sent[message->kind]++;
    if (message->kind == WIRE_JOIN || message->kind == WIRE_BEAT)
        member->number = message->number;
    return true;
}

static struct client_options options_of(struct member *member, int nodes, bool elastic)
{
    return (struct client_options){
        .join = {.job_id = "job",
                 .agent_name = "a",
                 .role = "default",
                 .elastic = elastic,
                 .node_rank = -1,
                 .max_nodes = nodes},
        .join_timeout_ns = 600 * NS_PER_S,
        .server = "10.0.0.1:29500",
        .send = count_sent,
        .context = member,
    };
}

static void open_member_of(struct member *member, int nodes, bool elastic)
{
    *member = (struct member){.now = {100 * NS_PER_S}};
    const struct client_options options = options_of(member, nodes, elastic);
    struct muster_error err;
    member->client = client_create(&options, member->now, &err);
    assert_non_null(member->client);
}

static void open_member(struct member *member, bool elastic)
{
    open_member_of(member, 4, elastic);
}

/* Lets the time pass in steps of 10 ms. */
static void pass(struct member *member, int64_t ns)
{
    struct muster_error err;
    for (int64_t i = 0; i < ns; i += 10 * NS_PER_MS) {
        client_wake(member->client, member->now);
        assert_int_equal(client_turn(member->client, member->now, &err), 0);
        member->now = instant_add(member->now, 10 * NS_PER_MS);
    }
}

static void receive(struct member *member, const struct wire_message *message)
{
    struct muster_error err;
    client_wake(member->client, member->now);
    assert_int_equal(client_receive(member->client, message, member->now, &err), 0);
}

static void answer(struct member *member, enum wire_kind kind, int64_t lease_ns)
{
    static struct wire_message message;
    message = (struct wire_message){.kind = kind, .number = member->number, .lease_ns = lease_ns, .epoch = 7};
    receive(member, &message);
}

/* A member that the server has accepted. */
static void open_accepted(struct member *member, bool elastic)
{
    open_member(member, elastic);
    pass(member, 10 * NS_PER_MS);
    answer(member, WIRE_ACCEPT, elastic ? LEASE_NS : 0);
}

static void hear_world(struct member *member, uint32_t round)
{
    static struct wire_message message;
    message = (struct wire_message){
        .kind = WIRE_EVENT,
        .event = {.kind = MEMBERSHIP_EVENT_WORLD, .world = {.id = {7, round}, .group_world_size = 2}}};
    receive(member, &message);
}

static bool has_world(struct member *member)
{
    static struct membership_event event;
    return client_take_event(member->client, &event) && event.kind == MEMBERSHIP_EVENT_WORLD;
}

static int beats_within(struct member *member, int64_t ns)
{
    int before = member->sent[WIRE_BEAT];
    for (int64_t left = ns; left > 0; left -= 50 * NS_PER_MS) {
        int sent = member->sent[WIRE_BEAT];
        pass(member, 50 * NS_PER_MS);
        if (member->sent[WIRE_BEAT] != sent)
            answer(member, WIRE_BEAT, 0);
    }
    return member->sent[WIRE_BEAT] - before;
}

static void a_join_is_repeated_until_it_is_answered(void **state)
{
    (void)state;
    struct member member;
    open_member(&member, false);
    pass(&member, 2 * NS_PER_S);
    assert_int_equal(member.sent[WIRE_JOIN], 4);
    answer(&member, WIRE_ACCEPT, 0);
    pass(&member, 2 * NS_PER_S);
    assert_int_equal(member.sent[WIRE_JOIN], 4);
    client_destroy(member.client);
}

static void a_large_job_does_not_repeat_its_joins_into_a_slow_server(void **state)
{
    (void)state;
    struct member member;
    open_member_of(&member, 16384, false);
    pass(&member, 32 * NS_PER_S);
    assert_int_equal(member.sent[WIRE_JOIN], 1);
    pass(&member, NS_PER_S);
    assert_int_equal(member.sent[WIRE_JOIN], 2);
    client_broken(member.client, member.now);
    client_connected(member.client, member.now); /* nothing was sent on this connection */
    pass(&member, 10 * NS_PER_MS);
    assert_int_equal(member.sent[WIRE_JOIN], 3);
    answer(&member, WIRE_ACCEPT, 0);
    pass(&member, 16 * NS_PER_S);
    assert_int_equal(member.sent[WIRE_BEAT], 0);
    pass(&member, NS_PER_S);
    assert_int_equal(member.sent[WIRE_BEAT], 1);
    assert_int_equal(client_silence_ns(member.client, member.now),
                     0); /* the server's, which owes an answer */
    client_destroy(member.client);
}

static void beats_are_slower_before_the_first_world(void **state)
{
    (void)state;
    struct member member;
    open_accepted(&member, false);
    assert_int_equal(beats_within(&member, 10 * NS_PER_S), 10);
    hear_world(&member, 1);
    assert_true(has_world(&member));
    assert_int_equal(beats_within(&member, 10 * NS_PER_S), 19); /* the 20th is due now */
    client_destroy(member.client);
}

/* The server would take the node for lost. */
static void a_late_second_accept_does_not_put_the_beat_off(void **state)
{
    (void)state;
    struct member member;
    open_accepted(&member, false);
    pass(&member, 900 * NS_PER_MS);
    answer(&member, WIRE_ACCEPT, 0);
    pass(&member, 200 * NS_PER_MS);
    assert_int_equal(member.sent[WIRE_BEAT], 1);
    client_destroy(member.client);
}

/* The server gives a member up a second after its connection broke. */
static void a_beat_follows_a_broken_connection(void **state)
{
    (void)state;
    struct member member;
    open_accepted(&member, false);
    pass(&member, 100 * NS_PER_MS);
    client_broken(member.client, member.now);
    pass(&member, 300 * NS_PER_MS);
    assert_int_equal(member.sent[WIRE_BEAT], 1);
    client_destroy(member.client);
}

/* A server that was restarted answers it with AGAIN, and the job goes on. */
static void a_beat_is_sent_where_there_is_a_connection_again(void **state)
{
    (void)state;
    struct member member;
    open_member(&member, false);
    pass(&member, 10 * NS_PER_MS);
    client_connected(member.client, member.now);
    pass(&member, 10 * NS_PER_MS);
    assert_int_equal(member.sent[WIRE_BEAT], 0);
    assert_int_equal(member.sent[WIRE_JOIN], 1); /* not twice */
    answer(&member, WIRE_ACCEPT, 0);
    pass(&member, 100 * NS_PER_MS);
    client_broken(member.client, member.now);
    pass(&member, 50 * NS_PER_MS);
    assert_int_equal(member.sent[WIRE_BEAT], 0);
    client_connected(member.client, member.now);
    pass(&member, 10 * NS_PER_MS);
    assert_int_equal(member.sent[WIRE_BEAT], 1);
    answer(&member, WIRE_AGAIN, 0);
    pass(&member, 10 * NS_PER_MS);
    assert_int_equal(member.sent[WIRE_JOIN], 2);
    client_destroy(member.client);
}

static void a_world_is_given_out_at_once(void **state)
{
    (void)state;
    for (int elastic = 0; elastic < 2; elastic++) {
        struct member member;
        open_accepted(&member, elastic);
        pass(&member, 900 * NS_PER_MS);
        hear_world(&member, 1);
        assert_true(has_world(&member));
        assert_int_equal(member.sent[WIRE_BEAT], 0); /* none was due */
        client_destroy(member.client);
    }
}

static void a_world_after_a_silence_waits_for_an_answer(void **state)
{
    (void)state;
    struct member member;
    open_accepted(&member, false);
    pass(&member, 1300 * NS_PER_MS);
    hear_world(&member, 1);
    assert_false(has_world(&member));
    int sent = member.sent[WIRE_BEAT];
    pass(&member, 10 * NS_PER_MS);
    assert_int_equal(member.sent[WIRE_BEAT], sent + 1); /* at once */
    answer(&member, WIRE_BEAT, 0);
    assert_true(has_world(&member));
    client_destroy(member.client);
}

/* Its end could come before the answer to the next beat. */
static void a_world_under_a_lease_half_over_waits_for_an_answer(void **state)
{
    (void)state;
    struct member member;
    open_member(&member, true);
    pass(&member, 10 * NS_PER_MS);
    uint64_t join = member.number;
    answer(&member, WIRE_ACCEPT, LEASE_NS);
    for (int i = 0; i < 20; i++) { /* the server speaks, but answers no beat */
        pass(&member, 100 * NS_PER_MS);
        member.number = join;
        answer(&member, WIRE_BEAT, 0);
    }
    hear_world(&member, 1);
    assert_false(has_world(&member));
    pass(&member, 10 * NS_PER_MS);
    assert_true(member.number > join);
    answer(&member, WIRE_BEAT, 0);
    assert_true(has_world(&member));
    client_destroy(member.client);
}

/* An agent leaves a server that it takes for lost, and finds it again: the server knows its workers by their
 * reports alone. */
static void reports_wait_for_a_server_from_client_to_client(void **state)
{
    (void)state;
    const struct world_id world = {7, 1};
    struct report_queue reports = {0};
    struct muster_error err;
    struct member member;
    open_accepted(&member, true);
    client_destroy(member.client);
    struct client_options options = options_of(&member, 4, true);
    options.reports = &reports;
    member.client = client_create(&options, member.now, &err);
    pass(&member, 10 * NS_PER_MS);
    answer(&member, WIRE_ACCEPT, LEASE_NS);
    hear_world(&member, 1);
    assert_true(has_world(&member));
    assert_int_equal(client_report(member.client, world, MEMBERSHIP_REPORT_RUNNING, NULL, member.now, &err),
                     0);
    assert_int_equal(client_report(member.client, world, MEMBERSHIP_REPORT_DONE, NULL, member.now, &err), 0);
    assert_int_equal(member.sent[WIRE_REPORT], 2);
    options.sequence = client_sequence(member.client);
    client_destroy(member.client);
    assert_non_null(
        report_queue_push(&reports, world, MEMBERSHIP_REPORT_STOPPED, NULL, ++options.sequence, member.now));
    member.client = client_create(&options, member.now, &err);
    assert_true(client_has_news(member.client));
    pass(&member, 10 * NS_PER_MS);
    static struct wire_message accept;
    accept = (struct wire_message){
        .kind = WIRE_ACCEPT, .number = member.number, .lease_ns = LEASE_NS, .epoch = 7, .sequence = 1};
    receive(&member, &accept); /* the server has the first */
    assert_int_equal(member.sent[WIRE_REPORT], 4);
    static struct wire_message beat;
    beat = (struct wire_message){.kind = WIRE_BEAT, .number = member.number, .sequence = 3};
    receive(&member, &beat);
    assert_false(client_has_news(member.client));
    client_destroy(member.client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_join_is_repeated_until_it_is_answered),
        cmocka_unit_test(a_large_job_does_not_repeat_its_joins_into_a_slow_server),
        cmocka_unit_test(beats_are_slower_before_the_first_world),
        cmocka_unit_test(a_late_second_accept_does_not_put_the_beat_off),
        cmocka_unit_test(a_beat_follows_a_broken_connection),
        cmocka_unit_test(a_beat_is_sent_where_there_is_a_connection_again),
        cmocka_unit_test(a_world_is_given_out_at_once),
        cmocka_unit_test(a_world_after_a_silence_waits_for_an_answer),
        cmocka_unit_test(a_world_under_a_lease_half_over_waits_for_an_answer),
        cmocka_unit_test(reports_wait_for_a_server_from_client_to_client),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
