/* rendezvous_return_test.c - a static job's server that was started again, and hears from its agents what
 * there was before. */
#include "proto/exit_code.h"
#include "rendezvous/roster/roster.h"
#include "tests/support/cmocka_all.h"

enum { NODES = 3, FORMER_EPOCH = 41, EPOCH = 42, FORMER_ROUND = 5 };

struct fixture {
    struct roster *roster;
    struct roster_actions actions;
    struct instant now;
    uint64_t sequence[NODES];
    struct muster_error err;
};

static struct roster_join join_of(int rank)
{
    static const char *const names[] = {"a", "b", "c"};
    return (struct roster_join){.protocol_version = ROSTER_PROTOCOL_VERSION,
                                .job_id = "job",
                                .min_nodes = NODES,
                                .max_nodes = NODES,
                                .agent_name = names[rank],
                                .node_rank = rank,
                                .incarnation = {1, (uint64_t)rank + 1},
                                .local_world_size = 2,
                                .role = "trainer",
                                .store_addr = names[rank],
                                .store_port = 29500,
                                .local = rank == 0};
}

/* An agent of the former server's world. */
static struct roster_join member_of(int rank)
{
    struct roster_join who = join_of(rank);
    who.epoch = FORMER_EPOCH;
    who.held = who.last = (struct world_id){FORMER_EPOCH, FORMER_ROUND};
    who.last_nodes = NODES;
    who.restart_count = 2;
    who.server_done = true;
    return who;
}

static void step(struct fixture *f, const struct roster_event *event)
{
    if (roster_step(f->roster, event, f->now, &f->actions, &f->err))
        fail_msg("%s", f->err.text);
}

/* Sessions are 1 + rank. */
static void join(struct fixture *f, const struct roster_join *who)
{
    step(f,
         &(struct roster_event){.kind = ROSTER_JOIN, .session = (uint64_t)who->node_rank + 1, .join = who});
}

static void report(struct fixture *f, int rank, struct world_id id, enum membership_report_kind kind)
{
    struct worker_failure failure = {.rank = 2 * rank, .exit_code = 1};
    struct roster_event event = {.kind = ROSTER_REPORT, .session = (uint64_t)rank + 1, .member = rank};
    event.report.id = id;
    event.report.kind = kind;
    event.report.sequence = ++f->sequence[rank];
    event.report.failure = &failure;
    step(f, &event);
}

static const struct world_id former = {FORMER_EPOCH, FORMER_ROUND}, next = {EPOCH, FORMER_ROUND + 1};

static void make(struct fixture *f, int64_t max_restarts)
{
    struct roster_options options = {.job_id = "job",
                                     .min_nodes = NODES,
                                     .max_nodes = NODES,
                                     .max_restarts = max_restarts,
                                     .epoch = EPOCH,
                                     .join_timeout_ns = 600 * NS_PER_S};
    roster_destroy(f->roster);
    f->roster = roster_create(&options, f->now, &f->err);
    assert_non_null(f->roster);
    struct roster_join server = join_of(0);
    join(f, &server);
}

static int setup(void **state)
{
    static struct fixture fixture;
    memset(&fixture, 0, sizeof fixture);
    *state = &fixture;
    if (roster_actions_init(&fixture.actions, NODES, NULL))
        return -1;
    make(&fixture, 3);
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    roster_actions_free(&f->actions);
    roster_destroy(f->roster);
    return 0;
}

static bool was_sent(const struct fixture *f, enum roster_action_kind kind, int rank)
{
    for (size_t i = 0; i < f->actions.count; i++)
        if (f->actions.items[i].kind == kind && f->actions.items[i].session == (uint64_t)rank + 1)
            return true;
    return false;
}

static void expect_world(struct fixture *f, struct world_id id, int64_t restarts)
{
    assert_int_equal(roster_world_id(f->roster).epoch, id.epoch);
    assert_int_equal(roster_world_id(f->roster).round, id.round);
    assert_int_equal(roster_restart_count(f->roster), restarts);
}

/* The usual case: the server's workers died with it, and the others have stopped theirs. */
static void who_has_stopped_forms_the_next_round(void **state)
{
    struct fixture *f = *state;
    for (int rank = 1; rank < NODES; rank++) {
        struct roster_join who = member_of(rank);
        who.held = (struct world_id){0};
        who.server_done = false;
        join(f, &who);
        assert_false(was_sent(f, ROSTER_SEND_STOP, rank));
    }
    expect_world(f, next, 3);
    for (int rank = 0; rank < NODES; rank++)
        assert_true(was_sent(f, ROSTER_SEND_WORLD, rank));
}

static void who_still_works_is_stopped_first(void **state)
{
    struct fixture *f = *state;
    for (int rank = 1; rank < NODES; rank++) {
        struct roster_join who = member_of(rank);
        who.server_done = false;
        join(f, &who);
        assert_true(was_sent(f, ROSTER_SEND_STOP, rank));
        struct membership_event event;
        roster_fill_event(f->roster, &f->actions.items[1], &event);
        assert_int_equal(event.stopped.epoch, FORMER_EPOCH);
        assert_int_equal(event.stopped.round, FORMER_ROUND);
        assert_non_null(strstr(event.reason, "the server was restarted"));
    }
    assert_int_equal(roster_state(f->roster), JOB_FORMING);
    for (int rank = 1; rank < NODES; rank++)
        report(f, rank, former, MEMBERSHIP_REPORT_STOPPED);
    expect_world(f, next, 3);
}

static void a_world_that_lacks_nobody_goes_on(void **state)
{
    struct fixture *f = *state;
    struct roster_join who = member_of(1);
    join(f, &who);
    assert_int_equal(f->actions.count, 1); /* ACCEPT */
    assert_int_equal(roster_member_state(f->roster, 1), MEMBER_KEEPS);
    assert_int_equal(roster_server_done(f->roster).epoch, 0);
    who = member_of(2);
    who.held_done = true;
    join(f, &who);
    expect_world(f, former, 2);
    assert_int_equal(roster_state(f->roster), JOB_RUNNING);
    assert_int_equal(roster_server_done(f->roster).round, FORMER_ROUND);
    const struct rank_ranges *done = roster_done_ranks(f->roster);
    assert_int_equal(done->count, 2); /* the server, and c */
    assert_true(done->items[0].first == 0 && done->items[0].last == 0);
    assert_true(done->items[1].first == 2 && done->items[1].last == 2);
    assert_int_equal(roster_epoch(f->roster), EPOCH);
    report(f, 1, former, MEMBERSHIP_REPORT_RUNNING); /* reports that the former server had not acknowledged */
    report(f, 2, former, MEMBERSHIP_REPORT_DONE);
    assert_int_equal(roster_state(f->roster), JOB_RUNNING);
    report(f, 1, former, MEMBERSHIP_REPORT_DONE);
    assert_true(was_sent(f, ROSTER_SEND_VERDICT, 1));
    assert_true(was_sent(f, ROSTER_SEND_VERDICT, 2));
    assert_int_equal(roster_state(f->roster), JOB_FINISHING);
    assert_int_equal(roster_done_ranks(f->roster)->count, 1);
    assert_int_equal(roster_done_ranks(f->roster)->items[0].last, 2);
}

static void all_were_done(void **state)
{
    struct fixture *f = *state;
    for (int rank = 1; rank < NODES; rank++) {
        struct roster_join who = member_of(rank);
        who.held_done = true;
        join(f, &who);
    }
    struct membership_event event;
    assert_true(was_sent(f, ROSTER_SEND_VERDICT, 2));
    roster_fill_event(f->roster, &f->actions.items[f->actions.count - 1], &event);
    assert_int_equal(event.exit_code, EXIT_CODE_OK);
}

/* A world that continued under a new server is stopped and counted like any other; rounds continue under its
 * name. */
static void it_may_fail_later(void **state)
{
    struct fixture *f = *state;
    for (int rank = 1; rank < NODES; rank++) {
        struct roster_join who = member_of(rank);
        join(f, &who);
    }
    report(f, 2, former, MEMBERSHIP_REPORT_FAILED);
    assert_true(was_sent(f, ROSTER_SEND_STOP, 1));
    assert_true(was_sent(f, ROSTER_SEND_STOP, 2));
    report(f, 1, former, MEMBERSHIP_REPORT_STOPPED);
    report(f, 2, former, MEMBERSHIP_REPORT_STOPPED);
    expect_world(f, next, 3);
}

/* An agent that the former server had left was lost as well. */
static void a_newcomer_ends_it(void **state)
{
    struct fixture *f = *state;
    struct roster_join who = member_of(1);
    join(f, &who);
    who = join_of(2);
    join(f, &who);
    assert_true(was_sent(f, ROSTER_SEND_STOP, 1));
    report(f, 1, former, MEMBERSHIP_REPORT_STOPPED);
    expect_world(f, next, 3);
}

static void a_failure_ends_it(void **state)
{
    struct fixture *f = *state;
    struct roster_join who = member_of(1);
    join(f, &who);
    report(f, 1, former, MEMBERSHIP_REPORT_FAILED);
    assert_true(was_sent(f, ROSTER_SEND_STOP, 1));
    report(f, 1, former, MEMBERSHIP_REPORT_STOPPED);
    who = member_of(2); /* does not know yet that it is over */
    join(f, &who);
    assert_true(was_sent(f, ROSTER_SEND_STOP, 2));
    report(f, 2, former, MEMBERSHIP_REPORT_STOPPED);
    expect_world(f, next, 3);
}

static void no_restart_is_left(void **state)
{
    struct fixture *f = *state;
    for (int keeps = 0; keeps < 2; keeps++) {
        make(f, 2);
        struct roster_join who = member_of(1);
        who.server_done = keeps;
        join(f, &who);
        if (keeps) {
            assert_int_equal(roster_state(f->roster), JOB_FORMING);
            who = join_of(2);
            join(f, &who);
        }
        assert_int_equal(roster_state(f->roster), JOB_FINISHING);
        struct membership_event event;
        roster_fill_event(f->roster,
                          &(struct roster_action){.kind = ROSTER_SEND_VERDICT, .session = 2, .member = 1},
                          &event);
        assert_int_equal(event.exit_code, EXIT_CODE_NODE);
        assert_string_equal(event.reason,
                            "node rank 0 (a) is lost, it served the job in round 5; restarts used: 2 of 2");
    }
}

/* After a freeze of the server the others have connections that it does not know yet. */
static void a_freeze_costs_nothing(void **state)
{
    struct fixture *f = *state;
    for (int rank = 1; rank < NODES; rank++) {
        struct roster_join who = join_of(rank);
        join(f, &who);
    }
    step(f, &(struct roster_event){.kind = ROSTER_DISCONNECT, .session = 2, .member = 1});
    f->now = instant_add(f->now, 30 * NS_PER_S);
    roster_wake(f->roster, f->now);
    step(f, &(struct roster_event){.kind = ROSTER_TICK});
    assert_int_equal(roster_state(f->roster), JOB_STARTING);
    f->now = instant_add(f->now, 2 * NS_PER_S);
    struct roster_join who = join_of(1);
    who.held = roster_world_id(f->roster);
    join(f, &who);
    step(f, &(struct roster_event){.kind = ROSTER_TICK});
    assert_int_equal(roster_state(f->roster), JOB_STARTING);
    f->now = instant_add(f->now, NS_PER_S); /* the third says nothing */
    step(f, &(struct roster_event){.kind = ROSTER_TICK});
    assert_int_equal(roster_state(f->roster), JOB_STOPPING);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(who_has_stopped_forms_the_next_round),
        TEST(who_still_works_is_stopped_first),
        TEST(a_world_that_lacks_nobody_goes_on),
        TEST(all_were_done),
        TEST(it_may_fail_later),
        TEST(a_newcomer_ends_it),
        TEST(a_failure_ends_it),
        TEST(no_restart_is_left),
        TEST(a_freeze_costs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
