/* rendezvous_roster_leave_test.c - agents of a static job that are done, drain or leave: members of the
 * world, and agents that only wait for the next one. */
#include "tests/unit/rendezvous/roster_fixture.h"

static void a_done_agent_may_go(void **state)
{
    struct fixture *f = *state;
    all_run(f);
    assert_int_equal(report(f, 2, 0, MEMBERSHIP_REPORT_DONE, NULL), 0);
    assert_int_equal(
        step(f, &(struct roster_event){.kind = ROSTER_LEAVE, .session = 3, .member = 2, .exit_code = 143}),
        0);
    assert_int_equal(roster_state(f->roster), JOB_RUNNING);
    assert_int_equal(roster_member_state(f->roster, 2), MEMBER_DONE_GONE);
    /* Started again, it waits with the others and is judged with them. */
    struct roster_join who = join_of(2);
    who.incarnation.low = 9;
    join(f, 30, &who);
    assert_int_equal(roster_member_state(f->roster, 2), MEMBER_DONE);
    assert_int_equal(report(f, 0, 0, MEMBERSHIP_REPORT_DONE, NULL), 0);
    assert_int_equal(report(f, 1, 0, MEMBERSHIP_REPORT_DONE, NULL), 0);
    assert_int_equal(roster_state(f->roster), JOB_FINISHING);
    assert_int_equal(f->actions.count, NODES);
}

static int drain(struct fixture *f, int rank, int64_t grace_ns)
{
    return step(f, &(struct roster_event){.kind = ROSTER_DRAIN,
                                          .session = (uint64_t)rank + 1,
                                          .member = rank,
                                          .exit_code = 143,
                                          .grace_ns = grace_ns});
}

static int leave(struct fixture *f, int rank)
{
    return step(f,
                &(struct roster_event){
                    .kind = ROSTER_LEAVE, .session = (uint64_t)rank + 1, .member = rank, .exit_code = 143});
}

/* All have the time of the leaving agent, and the job ends with its code. */
static void a_drain_ends_a_static_job_when_all_have_saved(void **state)
{
    struct fixture *f = *state;
    struct membership_event event;
    all_join(f);
    assert_int_equal(drain(f, 1, -1), -1);
    assert_int_equal(drain(f, 1, 25 * NS_PER_S), 0);
    assert_int_equal(roster_state(f->roster), JOB_STOPPING);
    assert_int_equal(f->actions.count, NODES);
    for (int i = 0; i < NODES; i++) {
        roster_fill_event(f->roster, &f->actions.items[i], &event);
        assert_true(event.kind == MEMBERSHIP_EVENT_STOP && event.planned && event.grace_ns == 25 * NS_PER_S);
        assert_true(event.change == MEMBERSHIP_CHANGE_END && event.next_nodes == 0);
        assert_string_equal(event.reason, "agent \"b\" (node rank 1) was stopped, and the job ends with it");
    }
    assert_int_equal(drain(f, 2, NS_PER_S), 0); /* asked a moment later */
    assert_int_equal(f->actions.count, 0);
    assert_int_equal(report(f, 0, 0, MEMBERSHIP_REPORT_STOPPED, NULL), 0);
    assert_int_equal(leave(f, 1), 0);
    assert_int_equal(roster_state(f->roster), JOB_STOPPING); /* one still saves */
    assert_int_equal(leave(f, 2), 0);
    assert_int_equal(f->actions.count, 1);
    roster_fill_event(f->roster, &f->actions.items[0], &event);
    assert_true(event.kind == MEMBERSHIP_EVENT_VERDICT && event.exit_code == 143 && !event.failed);
    assert_int_equal(roster_restart_count(f->roster), 0);
}

/* The others hear of it before the server is gone, and keep their time. */
static void the_hosting_agent_that_drains_leaves_a_verdict(void **state)
{
    struct fixture *f = *state;
    struct membership_event event;
    for (int rank = 0; rank < NODES; rank++) {
        struct roster_join who = join_of(rank);
        who.local = rank == 0;
        join(f, (uint64_t)rank + 1, &who);
    }
    assert_int_equal(drain(f, 0, NS_PER_S), 0);
    assert_int_equal(leave(f, 0), 0);
    assert_int_equal(f->actions.count, NODES - 1);
    for (int i = 0; i < NODES - 1; i++) {
        roster_fill_event(f->roster, &f->actions.items[i], &event);
        assert_true(event.kind == MEMBERSHIP_EVENT_VERDICT && event.exit_code == 143 && !event.failed);
    }
}

/* Where nothing can be saved it is no word at all, and the agent goes alone. */
static void a_drain_without_workers_says_nothing(void **state)
{
    struct fixture *f = *state;
    struct roster_join who = join_of(0);
    join(f, 1, &who);
    assert_int_equal(drain(f, 0, NS_PER_S), 0);
    assert_int_equal(roster_state(f->roster), JOB_FORMING);
    assert_int_equal(f->actions.count, 0);
}

/* Given up while it was cut off, it comes back and repeats its reports. */
static void a_done_agent_may_come_back(void **state)
{
    struct fixture *f = *state;
    all_run(f);
    assert_int_equal(report(f, 2, 0, MEMBERSHIP_REPORT_DONE, NULL), 0);
    f->now.ns = 2 * NS_PER_S;
    for (int rank = 0; rank < 2; rank++)
        assert_int_equal(
            step(f,
                 &(struct roster_event){.kind = ROSTER_BEAT, .session = (uint64_t)rank + 1, .member = rank}),
            0);
    f->now.ns = 2500 * NS_PER_MS;
    assert_int_equal(step(f, &(struct roster_event){.kind = ROSTER_TICK}), 0);
    assert_int_equal(roster_member_state(f->roster, 2), MEMBER_DONE_GONE);
    struct roster_join who = join_of(2);
    who.held = (struct world_id){42, 0};
    join(f, 3, &who);
    f->sequence[2]--;
    assert_int_equal(report(f, 2, 0, MEMBERSHIP_REPORT_DONE, NULL), 0);
    assert_int_equal(roster_member_state(f->roster, 2), MEMBER_DONE);
    assert_int_equal(roster_state(f->roster), JOB_RUNNING);
}

/* "b" is lost, the world stops, and another agent waits in its place as member 1 of session 20. */
static void replace_while_stopping(struct fixture *f, struct roster_join *who)
{
    all_run(f);
    f->now.ns = 2 * NS_PER_S;
    for (int rank = 0; rank < NODES; rank += 2)
        assert_int_equal(
            step(f,
                 &(struct roster_event){.kind = ROSTER_BEAT, .session = (uint64_t)rank + 1, .member = rank}),
            0);
    f->now.ns = 2500 * NS_PER_MS;
    assert_int_equal(step(f, &(struct roster_event){.kind = ROSTER_TICK}), 0);
    assert_int_equal(roster_state(f->roster), JOB_STOPPING);
    *who = join_of(1);
    who->agent_name = "d";
    who->incarnation.low = 20;
    join(f, 20, who);
    assert_int_equal(roster_member_state(f->roster, 1), MEMBER_JOINED);
}

static void expect_next_round(struct fixture *f)
{
    assert_int_equal(roster_member_state(f->roster, 1), MEMBER_EMPTY);
    assert_int_equal(report(f, 0, 0, MEMBERSHIP_REPORT_STOPPED, NULL), 0);
    assert_int_equal(report(f, 2, 0, MEMBERSHIP_REPORT_STOPPED, NULL), 0);
    assert_int_equal(roster_state(f->roster), JOB_FORMING);
    assert_int_equal(roster_restart_count(f->roster), 1);
}

/* It was in no world, so the others lose nothing by it. */
static void a_newcomer_that_leaves_ends_nothing(void **state)
{
    struct fixture *f = *state;
    struct roster_join who;
    replace_while_stopping(f, &who);
    const struct roster_event left = {.kind = ROSTER_LEAVE, .session = 20, .member = 1, .exit_code = 1};
    assert_int_equal(step(f, &left), 0);
    expect_next_round(f);
}

static void a_newcomer_that_drains_ends_nothing(void **state)
{
    struct fixture *f = *state;
    struct roster_join who;
    replace_while_stopping(f, &who);
    struct roster_event left = {.kind = ROSTER_DRAIN, .session = 20, .member = 1, .exit_code = 143};
    assert_int_equal(step(f, &left), 0);
    left.kind = ROSTER_LEAVE;
    assert_int_equal(step(f, &left), 0);
    expect_next_round(f);
}

/* Given up and back, its workers are of a world that goes on without it. */
static void an_orphan_that_leaves_ends_nothing(void **state)
{
    struct fixture *f = *state;
    struct roster_join who;
    replace_while_stopping(f, &who);
    const struct roster_event left = {.kind = ROSTER_LEAVE, .session = 20, .member = 1, .exit_code = 143};
    assert_int_equal(step(f, &left), 0);
    who = join_of(1);
    who.held = (struct world_id){42, 0};
    join(f, 20, &who);
    assert_int_equal(roster_member_state(f->roster, 1), MEMBER_ORPHANED);
    assert_int_equal(step(f, &left), 0);
    expect_next_round(f);
}

/* A member of the world that stops ends the job, as before the stop. */
static void a_member_that_leaves_a_stopped_world_ends_the_job(void **state)
{
    struct fixture *f = *state;
    struct roster_join who;
    replace_while_stopping(f, &who);
    assert_int_equal(report(f, 2, 0, MEMBERSHIP_REPORT_STOPPED, NULL), 0);
    assert_int_equal(leave(f, 2), 0);
    assert_int_equal(report(f, 0, 0, MEMBERSHIP_REPORT_STOPPED, NULL), 0);
    assert_int_equal(roster_state(f->roster), JOB_FINISHING);
}

/* The agent ends when the refusal reaches it, whatever JOIN of it is under way then. */
static void a_refused_agent_does_not_become_a_member(void **state)
{
    struct fixture *f = *state;
    struct roster_join who = join_of(1), late = join_of(1);
    join(f, 2, &who);
    late.agent_name = "d";
    late.incarnation.low = 20;
    join(f, 20, &late);
    assert_int_equal(f->actions.items[0].kind, ROSTER_REFUSE);
    assert_int_equal(leave(f, 1), 0);
    assert_int_equal(roster_member_state(f->roster, 1), MEMBER_EMPTY);
    join(f, 20, &late);
    assert_int_equal(f->actions.count, 1);
    assert_int_equal(f->actions.items[0].kind, ROSTER_REFUSE);
    assert_string_equal(f->actions.items[0].reason,
                        "agent \"d\" was refused before, and ends: only another start of it may join");
    assert_int_equal(roster_member_state(f->roster, 1), MEMBER_EMPTY);
    late.incarnation.low = 21; /* another start */
    join(f, 21, &late);
    assert_int_equal(roster_member_state(f->roster, 1), MEMBER_JOINED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_WORLD(a_done_agent_may_go),
        WITH_WORLD(a_drain_ends_a_static_job_when_all_have_saved),
        WITH_WORLD(the_hosting_agent_that_drains_leaves_a_verdict),
        WITH_WORLD(a_drain_without_workers_says_nothing),
        WITH_WORLD(a_done_agent_may_come_back),
        WITH_WORLD(a_newcomer_that_leaves_ends_nothing),
        WITH_WORLD(a_newcomer_that_drains_ends_nothing),
        WITH_WORLD(an_orphan_that_leaves_ends_nothing),
        WITH_WORLD(a_member_that_leaves_a_stopped_world_ends_the_job),
        WITH_WORLD(a_refused_agent_does_not_become_a_member),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
