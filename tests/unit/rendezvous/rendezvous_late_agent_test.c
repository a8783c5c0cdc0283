/* rendezvous_late_agent_test.c - an agent that is led to the elected server of a job that ends in that moment
 * gets the job's outcome. Three nodes of one static job over loopback, in one process. */
#include <poll.h>
#include <pthread.h>

#include "rendezvous/membership.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/free_port.h"

enum { NODES = 3, SERVER = 0, ELECTED = 1, MEMBER = 2, PATIENCE_S = 30 };

struct fixture {
    uint16_t port, vote_ports[NODES];
    struct membership *nodes[NODES];
    struct membership *elected;            /* while a thread ends it */
    struct membership_event events[NODES]; /* the last one of each node */
    bool told[NODES];                      /* it has one */
    struct muster_error err;
};

static void open_at(struct fixture *f, int rank, bool serves, const char *host, uint16_t port)
{
    static const char *const names[NODES] = {"a", "b", "c"};
    const struct membership_options options = {.mode = serves ? MEMBERSHIP_SERVER : MEMBERSHIP_CLIENT,
                                               .job_id = "job",
                                               .agent_name = names[rank],
                                               .node_rank = rank,
                                               .min_nodes = NODES,
                                               .max_nodes = NODES,
                                               .local_world_size = 1,
                                               .role = "trainer",
                                               .host = host,
                                               .port = port,
                                               .store_addr = names[rank],
                                               .store_port = 29500,
                                               .join_timeout_ns = PATIENCE_S * NS_PER_S,
                                               .vote_port = f->vote_ports[rank],
                                               .vote_addr = "127.0.0.1",
                                               .vote_host = "127.0.0.1"};
    f->told[rank] = false;
    f->nodes[rank] = membership_open(&options, &f->err);
    if (!f->nodes[rank])
        fail_msg("%s", f->err.text);
}

static void open_node(struct fixture *f, int rank, bool serves, uint16_t port)
{
    open_at(f, rank, serves, "127.0.0.1", port);
}

static void turn(struct fixture *f)
{
    struct pollfd fds[NODES];
    struct membership_event event;
    for (int i = 0; i < NODES; i++) {
        fds[i] = (struct pollfd){.fd = f->nodes[i] ? membership_fd(f->nodes[i]) : -1, .events = POLLIN};
        for (int got; f->nodes[i] && (got = membership_next(f->nodes[i], &event, &f->err)) != 0;) {
            if (got < 0)
                fail_msg("node %d: %s", i, f->err.text);
            f->events[i] = event;
            f->told[i] = true;
        }
    }
    (void)poll(fds, NODES, 5);
}

static void run_for(struct fixture *f, int64_t ns)
{
    for (const struct instant limit = instant_add(clock_now(NULL), ns);
         !instant_reached(clock_now(NULL), limit);)
        turn(f);
}

static void expect(struct fixture *f, int i, enum membership_event_kind kind)
{
    const struct instant limit = instant_add(clock_now(NULL), PATIENCE_S * NS_PER_S);
    while (!f->told[i] || f->events[i].kind != kind) {
        if (instant_reached(clock_now(NULL), limit))
            fail_msg("node %d: no event %d", i, (int)kind);
        turn(f);
    }
}

static void report(struct fixture *f, int i, enum membership_report_kind kind)
{
    assert_int_equal(membership_report(f->nodes[i], f->events[i].world.id, kind, NULL, &f->err), 0);
}

static void close_node(struct fixture *f, int i)
{
    membership_destroy(f->nodes[i], i == MEMBER ? NS_PER_S : 0);
    f->nodes[i] = NULL;
}

/* A job whose server was lost when it had nothing left to do: node ELECTED serves at the end, and is alone.
 */
static void end_a_job(struct fixture *f)
{
    *f = (struct fixture){.port = test_free_port()};
    for (int i = 0; i < NODES; i++) {
        f->vote_ports[i] = test_free_port();
        open_node(f, i, i == SERVER, f->port);
    }
    for (int i = 0; i < NODES; i++)
        expect(f, i, MEMBERSHIP_EVENT_WORLD);
    for (int i = 0; i < NODES; i++)
        report(f, i, MEMBERSHIP_REPORT_RUNNING);
    report(f, SERVER, MEMBERSHIP_REPORT_DONE);
    report(f, ELECTED, MEMBERSHIP_REPORT_DONE);
    run_for(f, 2 * NS_PER_S); /* the others learn with a beat's answer that the server is done */
    close_node(f, SERVER);
    report(f, MEMBER, MEMBERSHIP_REPORT_DONE);
    expect(f, MEMBER, MEMBERSHIP_EVENT_VERDICT);
    assert_int_equal(f->events[MEMBER].exit_code, 0);
    close_node(f, MEMBER);
    expect(f, ELECTED, MEMBERSHIP_EVENT_VERDICT);
}

static void an_agent_that_comes_as_the_job_ends_gets_its_outcome(void **state)
{
    struct fixture f;
    (void)state;
    end_a_job(&f);
    membership_part(f.nodes[ELECTED], 2 * NS_PER_S, 0);
    run_for(&f, 100 * NS_PER_MS);
    open_node(&f, SERVER, false, f.vote_ports[ELECTED]); /* started again, and led here */
    expect(&f, SERVER, MEMBERSHIP_EVENT_VERDICT);
    assert_int_equal(f.events[SERVER].exit_code, 0);
    close_node(&f, SERVER);
    close_node(&f, ELECTED);
}

static void *close_elected(void *context)
{
    struct fixture *f = context;
    membership_destroy(f->elected, 2 * NS_PER_S);
    return NULL;
}

static void an_agent_that_starts_at_the_endpoint_then_is_told(void **state)
{
    struct fixture f;
    pthread_t thread;
    (void)state;
    end_a_job(&f);
    f.elected = f.nodes[ELECTED];
    f.nodes[ELECTED] = NULL;
    assert_int_equal(pthread_create(&thread, NULL, close_elected, &f), 0);
    open_node(&f, SERVER, true, f.port); /* it would begin the job anew */
    expect(&f, SERVER, MEMBERSHIP_EVENT_VERDICT);
    assert_int_equal(f.events[SERVER].exit_code, 0);
    close_node(&f, SERVER);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* Its name may have another address for the others; it listens at every one. */
static void the_agent_at_the_endpoint_does_not_move(void **state)
{
    struct fixture f = {.port = test_free_port()};
    (void)state;
    for (int i = 0; i < NODES; i++)
        f.vote_ports[i] = test_free_port();
    open_at(&f, SERVER, true, NULL, f.port);
    open_node(&f, MEMBER, false, f.port);
    run_for(&f, 100 * NS_PER_MS);
    assert_int_equal(membership_move(f.nodes[SERVER], "127.0.0.2", &f.err), 0);
    assert_int_equal(membership_silence_ns(f.nodes[SERVER]), 0);
    run_for(&f, 100 * NS_PER_MS);
    close_node(&f, MEMBER);
    close_node(&f, SERVER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_agent_that_comes_as_the_job_ends_gets_its_outcome),
        cmocka_unit_test(an_agent_that_starts_at_the_endpoint_then_is_told),
        cmocka_unit_test(the_agent_at_the_endpoint_does_not_move),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
