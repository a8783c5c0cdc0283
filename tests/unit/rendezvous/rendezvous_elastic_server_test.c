/* rendezvous_elastic_server_test.c - an elastic world's roster by itself: its serving agent leaves, by a
 * person or in order, and comes back. */
#include <string.h>

#include "proto/exit_code.h"
#include "tests/support/cmocka_all.h"
#include "tests/unit/rendezvous/elastic_fixture.h"

static void a_person_ends_the_serving_agent_and_the_job_with_it(void **state)
{
    struct elastic_fixture *f = *state;
    elastic_three_run(f);
    elastic_goes(f, 0, ROSTER_DRAIN, 130);
    assert_int_equal(f->stops, 3);
    assert_string_equal(f->stop[1].reason, "agent \"node0\" (node rank 0) leaves: the server goes with it");
    assert_true(f->stop[1].change == MEMBERSHIP_CHANGE_END && f->stop[1].next_nodes == 0);
    assert_false(roster_holds_server(f->roster));
    elastic_goes(f, 0, ROSTER_LEAVE, 130);
    assert_int_equal(f->verdicts, 2);
    assert_int_equal(f->verdict[1].exit_code, 130);
}

static void expect_departed(struct elastic_fixture *f, int handovers, int64_t restarts)
{
    assert_int_equal(roster_state(f->roster), JOB_DEPARTED);
    assert_int_equal(f->handovers, handovers);
    assert_int_equal(f->verdicts, 0);
    assert_int_equal(roster_restart_count(f->roster), restarts);
    assert_false(roster_holds_server(f->roster));
}

static void the_serving_agent_leaves_when_all_have_stopped(void **state)
{
    struct elastic_fixture *f = *state;
    elastic_three_run(f);
    elastic_goes(f, 0, ROSTER_DRAIN, 143);
    assert_int_equal(f->stops, 3);
    assert_string_equal(f->stop[1].reason,
                        "agent \"node0\" (node rank 0) leaves, and the server with it: the "
                        "others wait for it to come back");
    assert_true(f->stop[1].change == MEMBERSHIP_CHANGE_LEAVE && f->stop[1].next_nodes == 0);
    assert_true(f->stop[1].planned && f->stop[1].grace_ns == 5 * NS_PER_S);
    elastic_report(f, 1, MEMBERSHIP_REPORT_STOPPED);
    elastic_goes(f, 0, ROSTER_LEAVE, 143);
    assert_true(roster_holds_server(f->roster)); /* one still saves */
    elastic_join(f, 3, "node3");
    assert_int_equal(f->worlds, 0);
    elastic_report(f, 2, MEMBERSHIP_REPORT_STOPPED);
    expect_departed(f, 3, 0);
    elastic_join(f, 2, "node2"); /* its connection broke before it heard that */
    assert_int_equal(f->handovers, 1);
    elastic_goes(f, 2, ROSTER_DRAIN, 143);
    elastic_goes(f, 2, ROSTER_LEAVE, 143);
    elastic_pass(f, 10, NULL, 0);
    expect_departed(f, 0, 0);
}

/* Its workers were done, or its server did not answer its DRAIN. */
static void it_leaves_without_a_drain(void **state)
{
    struct elastic_fixture *f = *state;
    elastic_three_run(f);
    elastic_report(f, 0, MEMBERSHIP_REPORT_DONE);
    elastic_goes(f, 0, ROSTER_LEAVE, 143);
    assert_int_equal(f->stops, 2);
    assert_int_equal(f->stop[1].grace_ns, NOTICE_S * NS_PER_S);
    assert_true(roster_holds_server(f->roster));
    elastic_report(f, 1, MEMBERSHIP_REPORT_STOPPED);
    elastic_report(f, 2, MEMBERSHIP_REPORT_STOPPED);
    expect_departed(f, 2, 0);
}

static void it_leaves_while_others_drain(void **state)
{
    struct elastic_fixture *f = *state;
    elastic_three_run(f);
    elastic_goes(f, 1, ROSTER_DRAIN, 143);
    elastic_goes(f, 0, ROSTER_DRAIN, 143);
    assert_int_equal(f->stops, 0); /* all are stopping already */
    elastic_goes(f, 2, ROSTER_DRAIN, 143);
    elastic_goes(f, 0, ROSTER_LEAVE, 143);
    elastic_goes(f, 1, ROSTER_LEAVE, 143);
    assert_true(roster_holds_server(f->roster));
    elastic_goes(f, 2, ROSTER_LEAVE, 143);
    expect_departed(f, 0, 0);
}

static void a_loss_while_it_leaves_costs_a_restart(void **state)
{
    struct elastic_fixture *f = *state;
    elastic_three_run(f);
    elastic_goes(f, 0, ROSTER_DRAIN, 143);
    elastic_goes(f, 0, ROSTER_LEAVE, 143);
    elastic_report(f, 1, MEMBERSHIP_REPORT_STOPPED);
    elastic_pass(f, 3, elastic_all, 1); /* node2 is silent */
    assert_int_equal(roster_state(f->roster), JOB_DEPARTED);
    assert_int_equal(roster_restart_count(f->roster), 1);
}

static void one_that_does_not_stop_does_not_keep_it(void **state)
{
    struct elastic_fixture *f = *state;
    elastic_three_run(f);
    elastic_goes(f, 0, ROSTER_DRAIN, 143);
    elastic_goes(f, 0, ROSTER_LEAVE, 143);
    elastic_report(f, 1, MEMBERSHIP_REPORT_STOPPED);
    elastic_pass(f, 64, elastic_all, 2);
    assert_true(roster_holds_server(f->roster));
    elastic_pass(f, 1, elastic_all, 2); /* its grace and the stop time-out are over */
    expect_departed(f, 1, 1);
}

static void it_leaves_a_world_that_failed(void **state)
{
    struct elastic_fixture *f = *state;
    elastic_three_run(f);
    elastic_report(f, 1, MEMBERSHIP_REPORT_FAILED);
    elastic_report(f, 0, MEMBERSHIP_REPORT_STOPPED);
    elastic_goes(f, 0, ROSTER_LEAVE, 143); /* it waited for the next world */
    assert_true(roster_holds_server(f->roster));
    elastic_report(f, 1, MEMBERSHIP_REPORT_STOPPED);
    elastic_report(f, 2, MEMBERSHIP_REPORT_STOPPED);
    expect_departed(f, 2, 1);
}

/* The next world is held back after the second failure in a row; both have cost a restart: the others are
 * told so. */
static void it_leaves_while_the_next_world_forms(void **state)
{
    struct elastic_fixture *f = *state;
    (void)elastic_teardown(state);
    elastic_create_held_back(f, 2, 4, 10 * NS_PER_S);
    elastic_three_run(f);
    elastic_three_fail(f);
    assert_int_equal(f->worlds, 3); /* the first is not held back */
    for (int i = 0; i < 3; i++)
        elastic_report(f, i, MEMBERSHIP_REPORT_RUNNING);
    struct world_id last = roster_world_id(f->roster);
    elastic_three_fail(f);
    assert_int_equal(roster_state(f->roster), JOB_FORMING);
    elastic_goes(f, 0, ROSTER_LEAVE, 143);
    expect_departed(f, 2, 2);
    assert_int_equal(roster_world_id(f->roster).epoch, last.epoch);
    assert_int_equal(roster_world_id(f->roster).round, last.round); /* whose count it is */
}

/* Nothing is told where there was no world: nobody has lost anything. */
static void it_leaves_while_the_first_world_forms(void **state)
{
    struct elastic_fixture *f = *state;
    elastic_join(f, 0, "node0");
    elastic_join(f, 1, "node1");
    elastic_goes(f, 0, ROSTER_LEAVE, 143);
    assert_int_equal(roster_state(f->roster), JOB_FORMING);
    assert_int_equal(f->handovers, 0);
}

/* The others are enough for a world, which would be without its server before its workers run. */
static void no_world_forms_when_it_has_left(void **state)
{
    struct elastic_fixture *f = *state;
    elastic_join(f, 0, "node0");
    elastic_join(f, 1, "node1");
    elastic_join(f, 2, "node2");
    assert_int_equal(roster_state(f->roster), JOB_FORMING);
    elastic_goes(f, 0, ROSTER_LEAVE, 143);
    elastic_pass(f, LAST_CALL_S + 1, elastic_all + 1, 2);
    assert_int_equal(roster_state(f->roster), JOB_FORMING);
    assert_int_equal(f->worlds, 0);
}

/* The server that comes back; left: the agents' reports about the server before. */
static void come_back(struct elastic_fixture *f, bool left)
{
    for (int i = 0; i < 3; i++) {
        struct roster_join who = elastic_join_of(i, i == 0 ? "node0" : i == 1 ? "node1" : "node2");
        who.epoch = i ? 41 : 0;
        who.last = i ? (struct world_id){41, 5} : (struct world_id){0};
        who.last_nodes = i ? 3 : 0;
        who.restart_count = i ? 1 : 0;
        who.server_left = left && i;
        elastic_join_as(f, i, &who);
    }
    elastic_pass(f, LAST_CALL_S, elastic_all, 2);
    assert_int_equal(f->world[1].id.round, 6);
    assert_int_equal(f->world[1].group_rank, 1);
}

static void what_was_stopped_on_purpose_costs_nothing_when_the_server_is_back(void **state)
{
    struct elastic_fixture *f = *state;
    come_back(f, true);
    assert_int_equal(f->world[1].restart_count, 1);
}

static void a_server_that_was_lost_costs_a_restart_when_it_is_back(void **state)
{
    struct elastic_fixture *f = *state;
    come_back(f, false);
    assert_int_equal(f->world[1].restart_count, 2);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, elastic_setup, elastic_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_person_ends_the_serving_agent_and_the_job_with_it),
        TEST(the_serving_agent_leaves_when_all_have_stopped),
        TEST(it_leaves_without_a_drain),
        TEST(it_leaves_while_others_drain),
        TEST(a_loss_while_it_leaves_costs_a_restart),
        TEST(one_that_does_not_stop_does_not_keep_it),
        TEST(it_leaves_a_world_that_failed),
        TEST(it_leaves_while_the_next_world_forms),
        TEST(it_leaves_while_the_first_world_forms),
        TEST(no_world_forms_when_it_has_left),
        TEST(what_was_stopped_on_purpose_costs_nothing_when_the_server_is_back),
        TEST(a_server_that_was_lost_costs_a_restart_when_it_is_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
