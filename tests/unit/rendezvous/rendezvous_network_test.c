/* rendezvous_network_test.c - two nodes of one static world over loopback ZeroMQ, in one process: the
 * server's own agent and a client, driven as an agent's loop would (poll the descriptor, mind the deadline).
 */
#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include "proto/base/guard.h"
#include "proto/exit_code.h"
#include "rendezvous/membership.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/free_port.h"

enum { PATIENCE_S = 240, NODES = 3, INBOX_LIMIT = 4 };

struct inbox {
    struct membership_event events[INBOX_LIMIT];
    int count, result;
    struct muster_error err;
};

/* Log lines of the serving node; the server's thread writes them. */
struct heralded {
    int calls; /* atomic */
    struct world_id last;
};

struct fixture {
    uint16_t port;
    struct heralded heralded;
    struct membership *nodes[NODES];
    struct inbox inboxes[NODES];
    struct membership_event events[NODES];
    struct muster_error err;
};

/* Not at once: an agent that were told of the world before us would be seen to know it. */
static uint16_t world_forms(void *context, struct world_id id)
{
    struct heralded *heralded = context;
    (void)poll(NULL, 0, 100);
    heralded->last = id;
    (void)__atomic_add_fetch(&heralded->calls, 1, __ATOMIC_RELEASE);
    return 0;
}

static struct membership_options options_of(struct fixture *f, int rank)
{
    static const char *const names[] = {"host-a", "host-b", "host-c"};
    return (struct membership_options){
        .mode = rank == 0 ? MEMBERSHIP_SERVER : MEMBERSHIP_CLIENT,
        .job_id = "job",
        .agent_name = names[rank],
        .node_rank = rank,
        .min_nodes = 2,
        .max_nodes = 2,
        .local_world_size = rank + 1,
        .role = "trainer",
        .max_restarts = 1,
        .host = "127.0.0.1",
        .port = f->port,
        .store_addr = names[rank],
        .store_port = (uint16_t)(29500 + rank),
        .join_timeout_ns = 240 * NS_PER_S,
        .world_forms = world_forms,
        .context = &f->heralded,
    };
}

static void open_member(struct fixture *f, int i, const struct membership_options *options)
{
    f->inboxes[i].count = f->inboxes[i].result = 0;
    f->nodes[i] = membership_open(options, &f->err);
    if (!f->nodes[i])
        fail_msg("%s", f->err.text);
}

static void open_pair(struct fixture *f)
{
    for (int i = 0; i < 2; i++) {
        struct membership_options options = options_of(f, i);
        open_member(f, i, &options);
    }
}

static int poll_timeout_ms(struct instant due)
{
    int64_t left = instant_diff_ns(due, clock_now(NULL));
    if (left <= 0)
        return 0;
    return left > NS_PER_S ? 1000 : (int)(left / NS_PER_MS + 1);
}

/* One turn of every agent's loop: events of a node wait in its inbox. */
static void turn(struct fixture *f, struct instant limit)
{
    struct pollfd fds[NODES];
    struct instant due = limit;
    for (int i = 0; i < NODES; i++) {
        struct inbox *inbox = &f->inboxes[i];
        fds[i] = (struct pollfd){.fd = -1, .events = POLLIN};
        if (!f->nodes[i] || inbox->result < 0)
            continue;
        while (inbox->count < INBOX_LIMIT) {
            inbox->result = membership_next(f->nodes[i], &inbox->events[inbox->count], &inbox->err);
            if (inbox->result <= 0)
                break;
            inbox->count++;
            due = (struct instant){0};
        }
        fds[i].fd = membership_fd(f->nodes[i]);
        due = instant_min(due, inbox->result < 0 ? (struct instant){0} : membership_deadline(f->nodes[i]));
    }
    (void)poll(fds, NODES, poll_timeout_ms(due));
}

/* Drives all nodes until node i has an event, or is lost: 1 or -1, as membership_next says. */
static int next_of(struct fixture *f, int i)
{
    struct inbox *inbox = &f->inboxes[i];
    struct instant limit = instant_add(clock_now(NULL), PATIENCE_S * NS_PER_S);
    while (!inbox->count && inbox->result >= 0) {
        if (instant_reached(clock_now(NULL), limit))
            fail_msg("node %d got no event within %d s", i, PATIENCE_S);
        turn(f, limit);
    }
    if (!inbox->count) {
        f->err = inbox->err;
        return -1;
    }
    f->events[i] = inbox->events[0];
    memmove(inbox->events, inbox->events + 1, (size_t)--inbox->count * sizeof inbox->events[0]);
    return 1;
}

static void expect(struct fixture *f, int i, enum membership_event_kind kind)
{
    int got = next_of(f, i);
    if (got < 0)
        fail_msg("node %d: %s", i, f->err.text);
    if (f->events[i].kind != kind)
        fail_msg("node %d got event %d (%s)", i, (int)f->events[i].kind, f->events[i].reason);
}

static void report(struct fixture *f, int i, struct world_id id, enum membership_report_kind kind)
{
    assert_int_equal(membership_report(f->nodes[i], id, kind, NULL, &f->err), 0);
}

static void report_killed(struct fixture *f, int i, struct world_id id, int signal, int64_t age_ns)
{
    struct worker_failure failure = {
        .rank = 1 + i, .local_rank = i, .pid = 4242, .exit_code = -1, .signal = signal, .age_ns = age_ns};
    (void)snprintf(failure.host, sizeof failure.host, "host-%c", 'a' + i);
    (void)snprintf(failure.tail, sizeof failure.tail, "last words\nof \xff rank %d", failure.rank);
    assert_int_equal(membership_report(f->nodes[i], id, MEMBERSHIP_REPORT_FAILED, &failure, &f->err), 0);
}

static struct world_id both_start(struct fixture *f)
{
    expect(f, 1, MEMBERSHIP_EVENT_WORLD);
    struct world_id id = f->events[1].world.id;
    /* the server's host has prepared it before anybody hears of it, once */
    assert_int_equal(__atomic_load_n(&f->heralded.calls, __ATOMIC_ACQUIRE), id.round + 1);
    assert_int_equal(f->heralded.last.epoch, id.epoch);
    assert_int_equal(f->heralded.last.round, id.round);
    expect(f, 0, MEMBERSHIP_EVENT_WORLD);
    assert_int_equal(f->events[0].world.id.epoch, id.epoch);
    assert_int_equal(f->events[0].world.id.round, id.round);
    report(f, 0, id, MEMBERSHIP_REPORT_RUNNING);
    report(f, 1, id, MEMBERSHIP_REPORT_RUNNING);
    return id;
}

static void close_member(struct fixture *f, int i, int64_t linger_ns)
{
    membership_destroy(f->nodes[i], linger_ns);
    f->nodes[i] = NULL;
}

static int setup(void **state)
{
    static struct fixture fixture;
    memset(&fixture, 0, sizeof fixture);
    fixture.port = test_free_port();
    *state = &fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    for (int i = NODES - 1; i >= 0; i--)
        close_member(f, i, 0);
    return 0;
}

static void two_agents_form_and_finish(void **state)
{
    struct fixture *f = *state;
    open_pair(f);
    struct world_id id = both_start(f);
    const struct membership_world *world = &f->events[1].world;
    char waits[MUSTER_ERROR_TEXT];
    membership_progress(f->nodes[1], waits, sizeof waits);
    assert_null(strstr(waits, "no answer yet"));
    assert_int_equal(world->group_rank, 1);
    assert_int_equal(world->group_world_size, 2);
    assert_int_equal(world->rank_base, 1);
    assert_int_equal(world->world_size, 3);
    assert_int_equal(world->role_rank_base, 1);
    assert_string_equal(world->master_addr, "host-a");
    assert_int_equal(world->master_port, 29500);
    report(f, 0, id, MEMBERSHIP_REPORT_DONE);
    report(f, 1, id, MEMBERSHIP_REPORT_DONE);
    expect(f, 1, MEMBERSHIP_EVENT_VERDICT);
    assert_int_equal(f->events[1].exit_code, 0);
    /* The serving agent is let go when the other has left. */
    turn(f, instant_add(clock_now(NULL), 100 * NS_PER_MS));
    assert_int_equal(f->inboxes[0].count, 0);
    close_member(f, 1, NS_PER_S);
    expect(f, 0, MEMBERSHIP_EVENT_VERDICT);
    assert_int_equal(f->events[0].exit_code, 0);
}

static void a_failure_restarts_everybody_then_ends_the_job(void **state)
{
    struct fixture *f = *state;
    open_pair(f);
    struct world_id id = both_start(f);
    report_killed(f, 1, id, SIGKILL, 0);
    for (int i = 0; i < 2; i++) {
        expect(f, i, MEMBERSHIP_EVENT_STOP);
        assert_non_null(strstr(f->events[i].reason, "rank 2 (pid 4242 on host-b) was killed by signal 9"));
        report(f, i, id, MEMBERSHIP_REPORT_STOPPED);
    }
    id = both_start(f);
    assert_int_equal(id.round, 1);
    assert_int_equal(f->events[1].world.restart_count, 1);
    report_killed(f, 0, id, SIGABRT, 0);
    report_killed(f, 1, id, SIGSEGV, 5 * NS_PER_S); /* arrives later, happened earlier */
    for (int i = 0; i < 2; i++) {
        expect(f, i, MEMBERSHIP_EVENT_STOP);
        report(f, i, id, MEMBERSHIP_REPORT_STOPPED);
    }
    expect(f, 1, MEMBERSHIP_EVENT_VERDICT);
    assert_int_equal(f->events[1].exit_code, 128 + SIGSEGV);
    assert_true(f->events[1].failed);
    assert_string_equal(f->events[1].failure.tail, "last words\nof \xff rank 2");
    close_member(f, 1, NS_PER_S);
    expect(f, 0, MEMBERSHIP_EVENT_VERDICT);
    assert_int_equal(f->events[0].exit_code, 128 + SIGSEGV);
}

static void leaving_ends_the_job_with_its_code(void **state)
{
    struct fixture *f = *state;
    open_pair(f);
    (void)both_start(f);
    assert_int_equal(membership_leave(f->nodes[0], EXIT_CODE_TERMINATED, &f->err), 0);
    expect(f, 1, MEMBERSHIP_EVENT_VERDICT);
    assert_int_equal(f->events[1].exit_code, EXIT_CODE_TERMINATED);
}

static void a_second_claim_of_a_rank_is_rejected(void **state)
{
    struct fixture *f = *state;
    open_pair(f);
    (void)both_start(f);
    struct membership_options options = options_of(f, 1);
    options.agent_name = "host-c";
    open_member(f, 2, &options);
    expect(f, 2, MEMBERSHIP_EVENT_REFUSED);
    assert_non_null(strstr(f->events[2].reason, "\"host-b\""));
    assert_non_null(strstr(f->events[2].reason, "\"host-c\""));
}

static void a_new_start_supersedes_the_old(void **state)
{
    struct fixture *f = *state;
    open_pair(f);
    struct world_id id = both_start(f);
    struct membership_options options = options_of(f, 1);
    open_member(f, 2, &options);
    expect(f, 1, MEMBERSHIP_EVENT_REFUSED);
    assert_non_null(strstr(f->events[1].reason, "superseded"));
    expect(f, 0, MEMBERSHIP_EVENT_STOP);
    report(f, 0, id, MEMBERSHIP_REPORT_STOPPED);
    expect(f, 0, MEMBERSHIP_EVENT_WORLD);
    expect(f, 2, MEMBERSHIP_EVENT_WORLD);
    assert_int_equal(f->events[2].world.id.round, 1);
    assert_int_equal(f->events[2].world.restart_count, 1);
}

static void a_node_that_vanishes_costs_a_restart(void **state)
{
    struct fixture *f = *state;
    open_pair(f);
    struct world_id id = both_start(f);
    close_member(f, 1, 0); /* without a word: as killed */
    expect(f, 0, MEMBERSHIP_EVENT_STOP);
    assert_non_null(strstr(f->events[0].reason, "node rank 1 (host-b) is lost"));
    report(f, 0, id, MEMBERSHIP_REPORT_STOPPED);
    struct membership_options options = options_of(f, 1);
    open_member(f, 1, &options);
    id = both_start(f);
    assert_int_equal(id.round, 1);
}

static void a_server_that_vanishes_is_noticed(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < 2; i++) {
        struct membership_options options = options_of(f, i);
        options.max_restarts = 0;
        open_member(f, i, &options);
    }
    (void)both_start(f);
    close_member(f, 0, 0);
    assert_int_equal(next_of(f, 1), -1);
    assert_int_equal(f->err.code, MUSTER_E_PEER);
    assert_non_null(strstr(f->err.text, "no message from 127.0.0.1"));
}

static void a_server_that_comes_back_goes_on(void **state)
{
    struct fixture *f = *state;
    open_pair(f);
    struct world_id first = both_start(f);
    close_member(f, 0, 0);
    expect(f, 1, MEMBERSHIP_EVENT_STOP);
    report(f, 1, first, MEMBERSHIP_REPORT_STOPPED);
    struct membership_options options = options_of(f, 0);
    open_member(f, 0, &options);
    struct world_id id = both_start(f);
    assert_int_equal(id.round, 1);
    assert_int_not_equal(id.epoch, first.epoch);
    assert_int_equal(f->events[1].world.restart_count, 1);
}

/* It died when its own part was done: the other's work is not lost with it. */
static void a_server_that_was_done_takes_over(void **state)
{
    struct fixture *f = *state;
    open_pair(f);
    struct world_id id = both_start(f);
    report(f, 0, id, MEMBERSHIP_REPORT_DONE);
    /* It learns of that with the next beat's answer, and shows it nowhere; without one for 2.5 s the server
     * is lost. */
    struct instant limit = instant_add(clock_now(NULL), 4 * NS_PER_S);
    while (!instant_reached(clock_now(NULL), limit))
        turn(f, limit);
    close_member(f, 0, 0);
    struct membership_options options = options_of(f, 0);
    open_member(f, 0, &options);
    report(f, 1, id, MEMBERSHIP_REPORT_DONE);
    expect(f, 1, MEMBERSHIP_EVENT_VERDICT);
    assert_int_equal(f->events[1].exit_code, 0);
    close_member(f, 1, NS_PER_S);
    expect(f, 0, MEMBERSHIP_EVENT_VERDICT);
    assert_int_equal(f->events[0].exit_code, 0);
}

static void a_mismatch_is_named(void **state)
{
    struct fixture *f = *state;
    struct membership_options options = options_of(f, 0);
    open_member(f, 0, &options);
    options = options_of(f, 1);
    options.job_id = "other";
    open_member(f, 1, &options);
    expect(f, 1, MEMBERSHIP_EVENT_REFUSED);
    assert_string_equal(f->events[1].reason,
                        "job id: this agent has \"other\", the server \"job\": one job has one --rdzv-id, "
                        "two jobs need two ports");
}

static void nobody_comes(void **state)
{
    struct fixture *f = *state;
    struct membership_options options = options_of(f, 0);
    options.join_timeout_ns = 300 * NS_PER_MS;
    open_member(f, 0, &options);
    expect(f, 0, MEMBERSHIP_EVENT_VERDICT);
    assert_int_equal(f->events[0].exit_code, EXIT_CODE_NODE);
    assert_string_equal(f->events[0].reason,
                        "1 of 2 nodes joined within 0.3 s (--join-timeout); missing rank 1");
    options = options_of(f, 1);
    options.port = test_free_port();
    options.join_timeout_ns = 300 * NS_PER_MS;
    open_member(f, 1, &options);
    assert_int_equal(next_of(f, 1), -1);
    assert_int_equal(f->err.code, MUSTER_E_TIMEOUT);
}

static void an_occupied_port_is_named(void **state)
{
    struct fixture *f = *state;
    struct membership_options options = options_of(f, 0);
    open_member(f, 0, &options);
    assert_null(membership_open(&options, &f->err));
    char port[32];
    (void)snprintf(port, sizeof port, "port %u is in use", f->port);
    assert_non_null(strstr(f->err.text, port));
    options.host = "localhost";
    assert_null(membership_open(&options, &f->err));
    assert_int_equal(f->err.code, MUSTER_E_INVALID);
}

/* A foreign peer of libzmq that sends out of turn. */
static void other_programs_do_no_harm(void **state)
{
    struct fixture *f = *state;
    open_pair(f);
    struct world_id id = both_start(f);
    char where[64];
    static char junk[100000];
    memset(junk, 0xee, sizeof junk);
    (void)snprintf(where, sizeof where, "tcp://127.0.0.1:%u", f->port);
    void *context = zmq_ctx_new();
    void *dealer = zmq_socket(context, ZMQ_DEALER);
    int linger = 1000;
    assert_int_equal(zmq_setsockopt(dealer, ZMQ_LINGER, &linger, sizeof linger), 0);
    assert_int_equal(zmq_connect(dealer, where), 0);
    assert_int_equal(zmq_send(dealer, "", 0, 0), 0);
    assert_int_equal(zmq_send(dealer, "hello", 5, 0), 5);
    assert_int_equal(zmq_send(dealer, "two", 3, ZMQ_SNDMORE), 3);
    assert_int_equal(zmq_send(dealer, "frames", 6, 0), 6);
    assert_int_equal(zmq_send(dealer, junk, 60000, 0), 60000);
    assert_int_equal(zmq_send(dealer, junk, sizeof junk, 0),
                     sizeof junk); /* the server hangs up on this one */
    zmq_close(dealer);
    zmq_ctx_term(context);
    report(f, 0, id, MEMBERSHIP_REPORT_DONE);
    report(f, 1, id, MEMBERSHIP_REPORT_DONE);
    expect(f, 1, MEMBERSHIP_EVENT_VERDICT);
    assert_int_equal(f->events[1].exit_code, 0);
}

/* The name of the server's host stands for another address than before. */
static void a_client_follows_its_server(void **state)
{
    struct fixture *f = *state;
    struct membership_options server = options_of(f, 0), client = options_of(f, 1);
    client.host = "127.0.0.3"; /* where nobody is */
    client.host_name = "web-0";
    open_member(f, 0, &server);
    open_member(f, 1, &client);
    struct instant limit = instant_add(clock_now(NULL), PATIENCE_S * NS_PER_S);
    while (!membership_silence_ns(f->nodes[1]) && !instant_reached(clock_now(NULL), limit))
        turn(f, limit);
    assert_true(membership_silence_ns(f->nodes[1]) > 0);
    char text[MUSTER_ERROR_TEXT];
    membership_progress(f->nodes[1], text, sizeof text);
    char expected[128];
    (void)snprintf(expected, sizeof expected, "no answer yet from the server web-0 (127.0.0.3:%u)", f->port);
    assert_non_null(strstr(text, expected));
    assert_int_equal(membership_move(f->nodes[1], "127.0.0.1", &f->err), 0);
    (void)both_start(f);
    assert_int_equal(membership_silence_ns(f->nodes[1]), 0);
    assert_int_equal(membership_silence_ns(f->nodes[0]), 0);
    close_member(f, 1, 0);
    close_member(f, 0, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(two_agents_form_and_finish),
        TEST(a_failure_restarts_everybody_then_ends_the_job),
        TEST(leaving_ends_the_job_with_its_code),
        TEST(a_second_claim_of_a_rank_is_rejected),
        TEST(a_new_start_supersedes_the_old),
        TEST(a_node_that_vanishes_costs_a_restart),
        TEST(a_server_that_vanishes_is_noticed),
        TEST(a_server_that_comes_back_goes_on),
        TEST(a_server_that_was_done_takes_over),
        TEST(a_client_follows_its_server),
        TEST(a_mismatch_is_named),
        TEST(nobody_comes),
        TEST(an_occupied_port_is_named),
        TEST(other_programs_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
