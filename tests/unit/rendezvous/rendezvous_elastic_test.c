/* rendezvous_elastic_test.c - an elastic world's roster by itself: the last call, who gets which rank,
 * spares, newcomers, drains, nodes that do not stop. */
#include <stdio.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "proto/exit_code.h"
#include "tests/support/cmocka_all.h"
#include "tests/unit/rendezvous/elastic_fixture.h"

static void the_last_call_starts_with_the_least(void **state)
{
    struct elastic_fixture *f = *state;
    elastic_join(f, 0, "node0");
    elastic_expect_progress(f, "1 of at least 2 nodes");
    elastic_pass(f, 100, elastic_all, 0);
    assert_int_equal(roster_state(f->roster), JOB_FORMING);
    elastic_join(f, 1, "node1");
    elastic_expect_progress(f, "2 of 2 to 4 nodes; last call of 30 s for more");
    assert_int_equal(roster_deadline(f->roster).ns,
                     f->now.ns + 2500 * NS_PER_MS); /* node1 may be lost before */
    elastic_pass(f, LAST_CALL_S - 1, elastic_all, 1);
    assert_int_equal(roster_state(f->roster), JOB_FORMING);
    elastic_pass(f, 1, elastic_all, 1);
    assert_int_equal(roster_state(f->roster), JOB_STARTING);
    assert_int_equal(f->world[1].group_world_size, 2);
    assert_int_equal(f->world[1].world_size, 3);
    assert_string_equal(f->world[1].master_addr, "node0");
}

static void a_leaver_ends_the_last_call(void **state)
{
    struct elastic_fixture *f = *state;
    elastic_join(f, 0, "node0");
    elastic_join(f, 1, "node1");
    elastic_pass(f, LAST_CALL_S - 1, elastic_all, 1);
    elastic_event_of(f, 1, (struct roster_event){.kind = ROSTER_LEAVE, .exit_code = EXIT_CODE_TERMINATED});
    elastic_pass(f, LAST_CALL_S, elastic_all, 0);
    assert_int_equal(roster_state(f->roster), JOB_FORMING);
    elastic_join(f, 2, "node2");
    elastic_pass(f, LAST_CALL_S - 1, elastic_all + 1, 1);
    assert_int_equal(roster_state(f->roster), JOB_FORMING); /* a new last call for the new pair */
    elastic_pass(f, 1, elastic_all + 1, 1);
    assert_int_equal(roster_state(f->roster), JOB_STARTING);
}

static void the_most_form_at_once_and_one_more_is_a_spare(void **state)
{
    struct elastic_fixture *f = *state;
    static const char *const names[] = {"node7", "node10", "node9", "node2", "node1"};
    for (int i = 0; i < 4; i++)
        elastic_join(f, i, names[i]);
    assert_int_equal(f->worlds, 4);
    /* The hosting agent, then by name, numbers by value. */
    static const int ranks[] = {0, 3, 2, 1}, bases[] = {0, 8, 5, 1};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(f->world[i].group_rank, ranks[i]);
        assert_int_equal(f->world[i].rank_base, bases[i]);
        elastic_report(f, i, MEMBERSHIP_REPORT_RUNNING);
    }
    elastic_join(f, 4, names[4]);
    elastic_pass(f, 100, elastic_all, 4);
    elastic_expect_state(f, "RUNNING round 0 restarts 0/2: 0=RUNNING 1=RUNNING 2=RUNNING 3=RUNNING 4=JOINED");
    for (int i = 0; i < 4; i++)
        elastic_report(f, i, MEMBERSHIP_REPORT_DONE);
    assert_int_equal(f->verdict[4].kind, MEMBERSHIP_EVENT_VERDICT); /* the spare is told too */
    assert_int_equal(f->verdict[4].exit_code, EXIT_CODE_OK);
}

static void a_wanted_rank_is_honoured_where_it_is_free(void **state)
{
    struct elastic_fixture *f = *state;
    static const int wanted[] = {-1, 2, 2, 0};
    static const char *const names[] = {"a", "b", "c", "d"};
    for (int i = 0; i < 4; i++) {
        struct roster_join as = elastic_join_of(i, names[i]);
        as.node_rank = wanted[i];
        elastic_join_as(f, i, &as);
    }
    /* b before c, since names decide among equals; 0 is the hosting agent's */
    static const int ranks[] = {0, 2, 1, 3};
    for (int i = 0; i < 4; i++)
        assert_int_equal(f->world[i].group_rank, ranks[i]);
}

static void a_lost_node_costs_one_and_ranks_stay(void **state)
{
    struct elastic_fixture *f = *state;
    elastic_three_run(f);
    elastic_pass(f, 3, elastic_all + 1, 1); /* node1 is silent */
    elastic_expect_state(f, "STOPPING round 0 restarts 0/2: 0=STOPPING 2=STOPPING");
    assert_false(f->stop[2].planned);
    assert_string_equal(f->stop[2].reason, "node rank 1 (node1) is lost: restart 1 of 2");
    static const int others[] = {0, 2};
    elastic_stop_and_form(f, others, 2);
    assert_int_equal(f->worlds, 2); /* at once, without a last call */
    assert_int_equal(f->world[2].id.round, 1);
    assert_int_equal(f->world[2].restart_count, 1);
    assert_int_equal(f->failed_class[2], 1 + FAILURE_LOST_NODE);
    assert_int_equal(f->world[2].group_rank, 1); /* 2 is no rank of two nodes */
    elastic_report(f, 0, MEMBERSHIP_REPORT_RUNNING);
    elastic_report(f, 2, MEMBERSHIP_REPORT_RUNNING);
    /* node1 comes back with its old incarnation and its old workers */
    struct roster_join back = elastic_join_of(1, "node1");
    back.held = (struct world_id){42, 0};
    elastic_join_as(f, 1, &back);
    assert_int_equal(f->stops, 1);
    assert_int_equal(f->stop[1].stopped.round, 0);
    elastic_report(f, 1, MEMBERSHIP_REPORT_STOPPED);
    elastic_pass(f, 9, elastic_all, 2);
    assert_int_equal(roster_state(f->roster), JOB_RUNNING);
    elastic_pass(f, 1, elastic_all, 2); /* ten seconds after the last world */
    elastic_expect_state(f, "STOPPING round 1 restarts 1/2: 0=STOPPING 1=JOINED 2=STOPPING");
    elastic_stop_and_form(f, others, 2);
    assert_int_equal(f->worlds, 3);
    assert_int_equal(f->world[2].restart_count, 1);
    assert_int_equal(f->failed_class[2], 0);     /* planned */
    assert_int_equal(f->world[2].group_rank, 1); /* it keeps its place */
    assert_int_equal(f->world[1].group_rank, 2);
    assert_true(roster_last_missed(f->roster).ns == INSTANT_NEVER.ns); /* the job goes on */
    for (int i = 0; i < 6; i++)
        elastic_report(f, i % 3, i < 3 ? MEMBERSHIP_REPORT_RUNNING : MEMBERSHIP_REPORT_DONE);
    assert_true(roster_last_missed(f->roster).ns < INSTANT_NEVER.ns);
}

static void a_broken_connection_is_given_half_a_second(void **state)
{
    struct elastic_fixture *f = *state;
    elastic_three_run(f);
    elastic_event_of(f, 1, (struct roster_event){.kind = ROSTER_DISCONNECT});
    elastic_pass(f, 0.49, elastic_all + 1, 1);
    assert_int_equal(roster_state(f->roster), JOB_RUNNING);
    assert_int_equal(roster_deadline(f->roster).ns, f->now.ns + 10 * NS_PER_MS);
    elastic_pass(f, 0.01, elastic_all + 1, 1);
    elastic_expect_state(f, "STOPPING round 0 restarts 0/2: 0=STOPPING 2=STOPPING");
}

static void newcomers_are_gathered_and_rate_limited(void **state)
{
    struct elastic_fixture *f = *state;
    static const int three[] = {0, 1, 2};
    elastic_three_run(f);
    elastic_pass(f, 60, elastic_all, 2);
    elastic_expect_progress(f, "");
    elastic_join(f, 3, "node3");
    elastic_pass(f, 0.5, elastic_all, 3);
    assert_int_equal(roster_state(f->roster), JOB_RUNNING);
    elastic_expect_progress(f, "a world of 3 nodes is running: new nodes are gathered until it makes room");
    elastic_pass(f, 0.5, elastic_all, 3);
    assert_int_equal(roster_state(f->roster), JOB_STOPPING);
    assert_true(f->stop[1].planned);
    assert_int_equal(f->stop[1].grace_ns, NOTICE_S * NS_PER_S);
    assert_string_equal(f->stop[1].reason, "1 more node joined: the world grows from 3 to 4");
    elastic_expect_progress(f, "the workers of round 0 are still being stopped on 3 nodes");
    assert_true(f->stop[1].change == MEMBERSHIP_CHANGE_JOIN && f->stop[1].next_nodes == 4);
    elastic_report(f, 1, MEMBERSHIP_REPORT_FAILED); /* how a worker ends after a planned stop is no failure */
    elastic_stop_and_form(f, three, 3);
    assert_int_equal(f->worlds, 4);
    assert_int_equal(f->world[3].restart_count, 0);
    /* It leaves and comes back again and again: each time it takes longer until the others stop for it. */
    double waits[3] = {0};
    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < 4; i++)
            elastic_report(f, i, MEMBERSHIP_REPORT_RUNNING);
        elastic_event_of(f, 3,
                         (struct roster_event){.kind = ROSTER_DRAIN, .exit_code = 143, .grace_ns = NS_PER_S});
        elastic_event_of(f, 3, (struct roster_event){.kind = ROSTER_LEAVE, .exit_code = 143});
        elastic_stop_and_form(f, three, 3);
        for (int i = 0; i < 3; i++)
            elastic_report(f, i, MEMBERSHIP_REPORT_RUNNING);
        f->sequence[3] = 0;
        struct roster_join as = elastic_join_of(3, "node3");
        as.incarnation.low = 100 + (uint64_t)k;
        elastic_join_as(f, 3, &as);
        struct instant from = f->now;
        while (roster_state(f->roster) == JOB_RUNNING)
            elastic_pass(f, 1, elastic_all, 3);
        waits[k] = (double)instant_diff_ns(f->now, from) / NS_PER_S;
        elastic_stop_and_form(f, three, 3);
    }
    assert_true(waits[0] >= 10 && waits[1] >= 2 * waits[0] && waits[2] >= 2 * waits[1]);
    assert_int_equal(roster_restart_count(f->roster), 0);
}

static void a_drain_lets_all_save_and_costs_nothing(void **state)
{
    struct elastic_fixture *f = *state;
    elastic_three_run(f);
    elastic_event_of(
        f, 1, (struct roster_event){.kind = ROSTER_DRAIN, .exit_code = 143, .grace_ns = 25 * NS_PER_S});
    assert_int_equal(f->stops, 3);
    assert_true(f->stop[1].planned && f->stop[2].planned);
    assert_int_equal(f->stop[0].grace_ns, 25 * NS_PER_S);
    assert_string_equal(f->stop[2].reason,
                        "agent \"node1\" (node rank 1) leaves: the others continue without it");
    assert_true(f->stop[0].change == MEMBERSHIP_CHANGE_LEAVE && f->stop[0].next_nodes == 2);
    elastic_report(f, 0, MEMBERSHIP_REPORT_STOPPED);
    elastic_report(f, 2, MEMBERSHIP_REPORT_STOPPED);
    assert_int_equal(roster_state(f->roster), JOB_STOPPING); /* it still saves */
    elastic_expect_progress(f, "the workers of round 0 are still being stopped on 1 node");
    elastic_event_of(f, 1, (struct roster_event){.kind = ROSTER_LEAVE, .exit_code = 143});
    assert_int_equal(f->worlds, 2);
    assert_int_equal(roster_restart_count(f->roster), 0);
    assert_int_equal(f->world[2].id.round, 1);
}

static void a_spare_takes_over(void **state)
{
    struct elastic_fixture *f = *state;
    static const int three[] = {0, 2, 3};
    for (int i = 0; i < 4; i++)
        elastic_join(f, i, i == 0 ? "a" : i == 1 ? "b" : i == 2 ? "c" : "d");
    for (int i = 0; i < 4; i++)
        elastic_report(f, i, MEMBERSHIP_REPORT_RUNNING);
    elastic_expect_progress(f, "");
    elastic_join(f, 4, "e");
    elastic_expect_progress(f, "the world has its 4 nodes: a spare waits for one to leave");
    elastic_event_of(f, 1,
                     (struct roster_event){.kind = ROSTER_DRAIN, .exit_code = 143, .grace_ns = NS_PER_S});
    elastic_event_of(f, 1, (struct roster_event){.kind = ROSTER_LEAVE, .exit_code = 143});
    elastic_stop_and_form(f, three, 3);
    assert_int_equal(f->worlds, 4);
    assert_int_equal(f->world[4].group_rank, 1); /* where b was; c and d stay */
    assert_int_equal(f->world[2].group_rank, 2);
    assert_int_equal(f->world[3].group_rank, 3);
}

static void two_run(struct elastic_fixture *f)
{
    elastic_join(f, 0, "node0");
    elastic_join(f, 1, "node1");
    elastic_pass(f, LAST_CALL_S, elastic_all, 1);
    elastic_report(f, 0, MEMBERSHIP_REPORT_RUNNING);
    elastic_report(f, 1, MEMBERSHIP_REPORT_RUNNING);
}

static void fewer_than_the_least_wait_again(void **state)
{
    struct elastic_fixture *f = *state;
    two_run(f);
    elastic_event_of(f, 1,
                     (struct roster_event){.kind = ROSTER_DRAIN, .exit_code = 143, .grace_ns = NS_PER_S});
    elastic_event_of(f, 1, (struct roster_event){.kind = ROSTER_LEAVE, .exit_code = 143});
    elastic_report(f, 0, MEMBERSHIP_REPORT_STOPPED);
    assert_int_equal(roster_state(f->roster), JOB_FORMING);
    elastic_pass(f, 599, elastic_all, 0);
    assert_int_equal(roster_state(f->roster), JOB_FORMING);
    elastic_pass(f, 1, elastic_all, 0);
    assert_int_equal(f->verdict[0].exit_code, EXIT_CODE_NODE);
    assert_string_equal(f->verdict[0].reason, "1 of at least 2 nodes joined within 600 s (--join-timeout)");
}

static void a_node_that_does_not_stop_is_put_out(void **state)
{
    struct elastic_fixture *f = *state;
    elastic_three_run(f);
    elastic_report(f, 1, MEMBERSHIP_REPORT_FAILED);
    elastic_report(f, 0, MEMBERSHIP_REPORT_STOPPED);
    elastic_report(f, 1, MEMBERSHIP_REPORT_STOPPED);
    elastic_pass(f, 59, elastic_all, 2);
    assert_int_equal(roster_state(f->roster), JOB_STOPPING);
    elastic_pass(f, 1, elastic_all, 2);
    assert_int_equal(f->actions.items[0].kind, ROSTER_REFUSE);
    assert_int_equal(f->actions.items[0].session, 3);
    assert_int_equal(f->worlds, 2);
    assert_int_equal(roster_restart_count(f->roster), 1);
}

static void agents_of_one_host_share_its_name(void **state)
{
    struct elastic_fixture *f = *state;
    for (int i = 0; i < 4; i++)
        elastic_join(f, i, "box");
    assert_int_equal(f->worlds, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(f->world[i].group_rank, i); /* by arrival */
}

static void a_late_joiner_is_told_how_it_ended(void **state)
{
    struct elastic_fixture *f = *state;
    elastic_three_run(f);
    for (int i = 0; i < 3; i++)
        elastic_report(f, i, MEMBERSHIP_REPORT_DONE);
    elastic_join(f, 5, "late");
    assert_int_equal(f->verdict[5].kind, MEMBERSHIP_EVENT_VERDICT);
    assert_int_equal(f->verdict[5].exit_code, EXIT_CODE_OK);
}

/* The spare of a name that is in the world is another run's agent; an agent with its own name waits for a
 * place. */
static void a_spare_of_a_members_name_is_a_second_runs(void **state)
{
    struct elastic_fixture *f = *state;
    static const char *const names[] = {"node0", "node1", "node2", "node3", "node1", "node9"};
    for (int i = 0; i < 6; i++)
        elastic_join(f, i, names[i]);
    assert_int_equal(f->world[3].group_world_size, 4);
    for (int i = 0; i < 4; i++)
        elastic_report(f, i, MEMBERSHIP_REPORT_RUNNING);
    for (int i = 0; i < 4; i++)
        elastic_report(f, i, MEMBERSHIP_REPORT_DONE);
    for (int i = 1; i < 6; i++) {
        assert_int_equal(f->verdict[i].kind, MEMBERSHIP_EVENT_VERDICT);
        assert_int_equal(f->verdict[i].doubled, i == 4);
    }
}

/* It was killed and came back twice, once as a spare that was killed, too: none has a place in the world. */
static void a_spare_of_a_lost_members_name_is_no_second_runs(void **state)
{
    struct elastic_fixture *f = *state;
    static const char *const names[] = {"node0", "node1", "node2", "node3", "node9"};
    static const int others[] = {2, 3, 4}, stay[] = {0, 2, 3};
    for (int i = 0; i < 5; i++)
        elastic_join(f, i, names[i]);
    for (int i = 0; i < 4; i++)
        elastic_report(f, i, MEMBERSHIP_REPORT_RUNNING);
    elastic_pass(f, 3, others, 3); /* the first node1 is lost, and the spare gets its place */
    elastic_stop_and_form(f, stay, 3);
    assert_int_equal(roster_restart_count(f->roster), 1);
    elastic_join(f, 6, "node1");
    elastic_join(f, 5, "node1");
    for (int i = 0; i < 5; i++)
        if (i != 1)
            elastic_report(f, i, MEMBERSHIP_REPORT_RUNNING);
    for (int i = 0; i < 5; i++)
        if (i != 1)
            elastic_report(f, i, MEMBERSHIP_REPORT_DONE);
    assert_int_equal(f->verdict[5].kind, MEMBERSHIP_EVENT_VERDICT);
    assert_false(f->verdict[5].doubled);
}

static void the_done_keep_the_lost_from_being_forgotten(void **state)
{
    struct elastic_fixture *f = *state;
    two_run(f);
    elastic_report(f, 0, MEMBERSHIP_REPORT_DONE);
    elastic_pass(f, 3, elastic_all,
                 0); /* node1 is lost, and its workers may go on without node0, which is done */
    elastic_report(f, 0, MEMBERSHIP_REPORT_STOPPED);
    for (int i = 2; i < 5; i++)
        elastic_join(f, i, i == 2 ? "node2" : i == 3 ? "node3" : "node4");
    assert_int_equal(roster_state(f->roster), JOB_FORMING);
    int64_t lease = roster_lease_ns(f->roster);
    assert_int_equal(lease, 20 * NS_PER_S);
    elastic_pass(f, 18, elastic_all + 1, 3);
    assert_int_equal(roster_state(f->roster), JOB_FORMING);
    elastic_pass(f, 1, elastic_all + 1, 3); /* lease and margin after it was heard last */
    assert_int_equal(f->worlds, 4);
}

static void a_full_job_rejects_more(void **state)
{
    struct elastic_fixture *f = *state;
    int slots = roster_slot_count(f->roster);
    char name[16];
    for (int i = 0; i < slots; i++) {
        struct roster_join as = elastic_join_of(0, name);
        (void)snprintf(name, sizeof name, "n%d", i);
        as.incarnation.low = 1000 + (uint64_t)i;
        as.local = false;
        struct roster_event event = {.kind = ROSTER_JOIN, .session = 1000 + (uint64_t)i, .join = &as};
        assert_int_equal(roster_step(f->roster, &event, f->now, &f->actions, &f->err), 0);
        assert_int_equal(f->actions.items[0].kind, ROSTER_ACCEPT);
    }
    struct roster_join as = elastic_join_of(1, "more");
    struct roster_event event = {.kind = ROSTER_JOIN, .session = 5000, .join = &as};
    assert_int_equal(roster_step(f->roster, &event, f->now, &f->actions, &f->err), 0);
    assert_int_equal(f->actions.items[0].kind, ROSTER_REFUSE);
    assert_non_null(strstr(f->actions.items[0].reason, "the job is full: 24 nodes are in or wait as spares"));
}

/* By name, numbers by their value, and agents of one name in the order in which they came; whichever agent is
 * first.
 */
static void ranks_are_in_the_order_of_names(void **state)
{
    static const char *const orders[][4] = {{"node2", "node10", "node11", "node100"},
                                            {"n", "n1", "n1-2", "n1-10"},
                                            {"N9", "a1", "a1b", "b1"},
                                            {"n1x", "n02", "n2a", "na"},
                                            {"x0", "x1", "x9y", "x\xc3\xa9"}};
    struct elastic_fixture *f = *state;
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
        for (int turn = 0; turn < 24; turn++) {
            int left[] = {0, 1, 2, 3}, count = 4, rank_of[5];
            (void)elastic_teardown(state);
            elastic_create(f, 2, 4);
            for (int who = 1, pick = turn; count; who++, pick /= count + 1) {
                int name = left[pick % count];
                left[pick % count] = left[count - 1];
                count--;
                elastic_join(f, who, orders[i][name]);
                rank_of[who] = name;
            }
            assert_int_equal(f->worlds, 4);
            for (int who = 1; who <= 4; who++)
                assert_int_equal(f->world[who].group_rank, rank_of[who]);
        }
    (void)elastic_teardown(state);
    elastic_create(f, 2, 4);
    for (int who = 1; who <= 4; who++)
        elastic_join(f, who, "one-host");
    for (int who = 1; who <= 4; who++)
        assert_int_equal(f->world[who].group_rank, who - 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, elastic_setup, elastic_teardown)
    const struct CMUnitTest tests[] = {
        TEST(the_last_call_starts_with_the_least),
        TEST(a_leaver_ends_the_last_call),
        TEST(the_most_form_at_once_and_one_more_is_a_spare),
        TEST(a_wanted_rank_is_honoured_where_it_is_free),
        TEST(a_lost_node_costs_one_and_ranks_stay),
        TEST(a_broken_connection_is_given_half_a_second),
        TEST(newcomers_are_gathered_and_rate_limited),
        TEST(a_drain_lets_all_save_and_costs_nothing),
        TEST(a_spare_takes_over),
        TEST(a_spare_of_a_members_name_is_a_second_runs),
        TEST(fewer_than_the_least_wait_again),
        TEST(a_node_that_does_not_stop_is_put_out),
        TEST(agents_of_one_host_share_its_name),
        TEST(a_late_joiner_is_told_how_it_ended),
        TEST(a_spare_of_a_lost_members_name_is_no_second_runs),
        TEST(the_done_keep_the_lost_from_being_forgotten),
        TEST(a_full_job_rejects_more),
        TEST(ranks_are_in_the_order_of_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
