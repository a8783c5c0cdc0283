/* rendezvous_process_test.c - a node whose world is in process: the life that the agent's loop drives, on a
 * fake clock. */
#include "proto/exit_code.h"
#include "rendezvous/membership.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/fake_clock.h"
#include "tests/support/faults.h"

#include <signal.h>

struct fixture {
    struct fake_clock clock;
    struct membership_options options;
    struct membership *node;
    struct membership_event event;
    struct muster_error err;
    int heralded; /* worlds that were told to form */
    struct world_id last;
    uint16_t moves_to; /* the store, with the next world */
};

static uint16_t world_forms(void *context, struct world_id id)
{
    struct fixture *f = context;
    f->heralded++;
    f->last = id;
    return f->moves_to;
}

static void init_options(struct fixture *f)
{
    fake_clock_init(&f->clock, NS_PER_S);
    f->options = (struct membership_options){
        .mode = MEMBERSHIP_IN_PROCESS,
        .job_id = "job",
        .agent_name = "box",
        .node_rank = 0,
        .min_nodes = 1,
        .max_nodes = 1,
        .local_world_size = 4,
        .role = "trainer",
        .max_restarts = 1,
        .store_addr = "127.0.0.1",
        .store_port = 29500,
        .join_timeout_ns = 600 * NS_PER_S,
        .world_forms = world_forms,
        .context = f,
        .clock = &f->clock.clock,
    };
}

static int setup(void **state)
{
    static struct fixture fixture;
    memset(&fixture, 0, sizeof fixture);
    init_options(&fixture);
    fixture.node = membership_open(&fixture.options, &fixture.err);
    *state = &fixture;
    return fixture.node ? 0 : -1;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    membership_destroy(f->node, 0);
    return 0;
}

static void expect(struct fixture *f, enum membership_event_kind kind)
{
    assert_true(instant_reached(f->clock.now, membership_deadline(f->node)));
    assert_int_equal(membership_next(f->node, &f->event, &f->err), 1);
    assert_int_equal(f->event.kind, kind);
    struct membership_event none;
    assert_int_equal(membership_next(f->node, &none, &f->err), 0);
}

static void report(struct fixture *f, struct world_id id, enum membership_report_kind kind)
{
    assert_int_equal(membership_report(f->node, id, kind, NULL, &f->err), 0);
}

static void fail_with(struct fixture *f, struct world_id id, int signal, int code)
{
    struct worker_failure failure = {
        .rank = 2, .local_rank = 2, .pid = 77, .signal = signal, .exit_code = code, .host = "box"};
    assert_int_equal(membership_report(f->node, id, MEMBERSHIP_REPORT_FAILED, &failure, &f->err), 0);
}

static void nothing_waits(struct fixture *f)
{
    assert_int_equal(membership_next(f->node, &f->event, &f->err), 0);
}

static void a_world_forms_and_finishes(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(membership_fd(f->node), -1);
    expect(f, MEMBERSHIP_EVENT_WORLD);
    struct membership_world *world = &f->event.world;
    assert_string_equal(f->event.reason, "");
    assert_true(world->id.epoch != 0);
    assert_int_equal(world->id.round, 0);
    assert_int_equal(world->world_size, 4);
    assert_int_equal(world->rank_base, 0);
    assert_int_equal(world->role_world_size, 4);
    assert_int_equal(world->group_world_size, 1);
    assert_string_equal(world->master_addr, "127.0.0.1");
    assert_int_equal(world->master_port, 29500);
    struct world_id id = world->id;
    report(f, id, MEMBERSHIP_REPORT_RUNNING);
    nothing_waits(f);
    assert_true(membership_deadline(f->node).ns == INT64_MAX); /* an idle world wakes nobody */
    report(f, id, MEMBERSHIP_REPORT_DONE);
    expect(f, MEMBERSHIP_EVENT_VERDICT);
    assert_int_equal(f->event.exit_code, 0);
    assert_false(f->event.failed);
}

static void a_failure_restarts_then_ends_the_job(void **state)
{
    struct fixture *f = *state;
    expect(f, MEMBERSHIP_EVENT_WORLD);
    struct world_id first = f->event.world.id;
    report(f, first, MEMBERSHIP_REPORT_RUNNING);
    fail_with(f, first, SIGKILL, -1);
    expect(f, MEMBERSHIP_EVENT_STOP);
    assert_int_equal(f->event.stopped.round, 0);
    assert_non_null(
        strstr(f->event.reason, "rank 2 (pid 77 on box) was killed by signal 9 (SIGKILL): restart 1 of 1"));
    fake_clock_advance(&f->clock, 2 * NS_PER_S);
    nothing_waits(f);
    assert_int_equal(f->heralded, 1);
    f->moves_to = 29555;
    report(f, first, MEMBERSHIP_REPORT_STOPPED);
    assert_int_equal(f->heralded, 2); /* before the world is given out */
    assert_int_equal(f->last.round, 1);
    expect(f, MEMBERSHIP_EVENT_WORLD);
    assert_int_equal(f->event.world.id.round, 1);
    assert_int_equal(f->event.world.restart_count, 1);
    assert_string_equal(f->event.reason, "rank 2 (pid 77 on box) was killed by signal 9 (SIGKILL)");
    assert_int_equal(f->event.world.master_port, 29555);
    struct world_id second = f->event.world.id;
    fail_with(f, first, SIGKILL, -1); /* stale: says nothing about round 1 */
    nothing_waits(f);
    fail_with(f, second, 0, 3);
    expect(f, MEMBERSHIP_EVENT_STOP);
    fail_with(f, second, 0, 4); /* later in the same class: not the cause */
    report(f, second, MEMBERSHIP_REPORT_STOPPED);
    expect(f, MEMBERSHIP_EVENT_VERDICT);
    assert_int_equal(f->event.exit_code, 3);
    assert_true(f->event.failed);
    assert_int_equal(f->event.failure.pid, 77);
}

static void workers_that_cannot_be_stopped_end_the_job(void **state)
{
    struct fixture *f = *state;
    expect(f, MEMBERSHIP_EVENT_WORLD);
    fail_with(f, f->event.world.id, SIGSEGV, -1);
    expect(f, MEMBERSHIP_EVENT_STOP);
    struct instant deadline = membership_deadline(f->node);
    fake_clock_advance(&f->clock, instant_diff_ns(deadline, f->clock.now));
    expect(f, MEMBERSHIP_EVENT_VERDICT);
    assert_int_equal(f->event.exit_code, EXIT_CODE_NODE);
}

static void leaving_says_nothing_more(void **state)
{
    struct fixture *f = *state;
    expect(f, MEMBERSHIP_EVENT_WORLD);
    report(f, f->event.world.id, MEMBERSHIP_REPORT_RUNNING);
    assert_int_equal(membership_leave(f->node, EXIT_CODE_TERMINATED, &f->err), 0);
    assert_int_equal(membership_leave(f->node, EXIT_CODE_TERMINATED, &f->err), 0);
    nothing_waits(f);
}

static void bad_options_are_rejected(void **state)
{
    struct fixture *f = *state;
    struct membership_options options = f->options;
    options.max_nodes = 4;
    assert_null(membership_open(&options, &f->err));
    assert_int_equal(f->err.code, MUSTER_E_INVALID);
    options.min_nodes = 4;
    assert_null(membership_open(&options, &f->err));
    assert_int_equal(f->err.code, MUSTER_E_INVALID);
    options = f->options;
    options.node_rank = 1;
    struct membership *node = membership_open(&options, &f->err);
    assert_non_null(node);
    assert_int_equal(membership_next(node, &f->event, &f->err), 1);
    assert_int_equal(f->event.kind, MEMBERSHIP_EVENT_REFUSED);
    assert_string_equal(f->event.reason, "node rank: 1 is not in 0..0 (nnodes is 1)");
    membership_destroy(node, 0);
    membership_destroy(NULL, 0);
}

static int open_and_close(void *context)
{
    struct fixture f = {0};
    (void)context;
    init_options(&f);
    f.node = membership_open(&f.options, &f.err);
    if (!f.node)
        return f.err.code == MUSTER_E_NOMEM ? -1 : 1;
    membership_destroy(f.node, 0);
    return 0;
}

static void no_allocation_failure_leaks(void **state)
{
    (void)state;
    faults_sweep(open_and_close, NULL);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_world_forms_and_finishes),
        TEST(a_failure_restarts_then_ends_the_job),
        TEST(workers_that_cannot_be_stopped_end_the_job),
        TEST(leaving_says_nothing_more),
        TEST(bad_options_are_rejected),
        cmocka_unit_test(no_allocation_failure_leaks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
