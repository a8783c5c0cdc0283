/* rendezvous_roster_test.c - the roster by itself: its tables, claims of rank, ranks, causes, and the largest
 * world. */
#include <signal.h>
#include <stdio.h>

#include "proto/base/buffer.h"
#include "proto/exit_code.h"
#include "rendezvous/failure.h"
#include "rendezvous/roster.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/faults.h"

enum { NODES = 3 };

struct fixture {
    struct roster *roster;
    struct roster_actions actions;
    struct instant now;
    uint64_t sequence[NODES];
    struct muster_error err;
};

static struct roster_options options_of(int nodes)
{
    return (struct roster_options){.job_id = "job",
                                   .min_nodes = nodes,
                                   .max_nodes = nodes,
                                   .max_restarts = 1,
                                   .epoch = 42,
                                   .join_timeout_ns = 10 * NS_PER_S};
}

static int setup(void **state)
{
    static struct fixture fixture;
    memset(&fixture, 0, sizeof fixture);
    struct roster_options options = options_of(NODES);
    fixture.roster = roster_create(&options, fixture.now, &fixture.err);
    *state = &fixture;
    return roster_actions_init(&fixture.actions, NODES, NULL);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    roster_actions_free(&f->actions);
    roster_destroy(f->roster);
    return 0;
}

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
                                .local_world_size = rank + 1,
                                .role = rank == 1 ? "reader" : "trainer",
                                .store_addr = names[rank],
                                .store_port = 29500};
}

static int step(struct fixture *f, const struct roster_event *event)
{
    return roster_step(f->roster, event, f->now, &f->actions, &f->err);
}

/* Sessions are 1 + rank. */
static void join(struct fixture *f, uint64_t session, const struct roster_join *who)
{
    assert_int_equal(step(f, &(struct roster_event){.kind = ROSTER_JOIN, .session = session, .join = who}),
                     0);
}

static int report(struct fixture *f, int rank, uint32_t round, enum membership_report_kind kind,
                  const struct worker_failure *failure)
{
    struct roster_event event = {.kind = ROSTER_REPORT, .session = (uint64_t)rank + 1, .member = rank};
    event.report.id = (struct world_id){42, round};
    event.report.kind = kind;
    event.report.sequence = ++f->sequence[rank];
    event.report.failure = failure;
    return step(f, &event);
}

static void all_join(struct fixture *f)
{
    for (int rank = 0; rank < NODES; rank++) {
        struct roster_join who = join_of(rank);
        join(f, (uint64_t)rank + 1, &who);
    }
}

static void all_run(struct fixture *f)
{
    all_join(f);
    for (int rank = 0; rank < NODES; rank++)
        assert_int_equal(report(f, rank, 0, MEMBERSHIP_REPORT_RUNNING, NULL), 0);
    assert_int_equal(roster_state(f->roster), JOB_RUNNING);
}

/* The only action, which is a refusal with exactly this text. */
static void expect_refusal(struct fixture *f, const char *text)
{
    assert_int_equal(f->actions.count, 1);
    assert_int_equal(f->actions.items[0].kind, ROSTER_REFUSE);
    assert_string_equal(f->actions.items[0].reason, text);
}

static void ranks_are_contiguous_by_node_rank(void **state)
{
    struct fixture *f = *state;
    static const int base[] = {0, 1, 3}, role_base[] = {0, 0, 1}, role_size[] = {4, 2, 4};
    all_join(f);
    assert_int_equal(f->actions.count, 1 + NODES); /* ACCEPT for the last, WORLD for all */
    for (int rank = 0; rank < NODES; rank++) {
        struct membership_event event;
        const struct roster_action *action = &f->actions.items[1 + rank];
        assert_int_equal(action->kind, ROSTER_SEND_WORLD);
        roster_fill_event(f->roster, action, &event);
        assert_int_equal(event.world.rank_base, base[rank]);
        assert_int_equal(event.world.world_size, 6);
        assert_int_equal(event.world.role_rank_base, role_base[rank]);
        assert_int_equal(event.world.role_world_size, role_size[rank]);
        assert_string_equal(event.world.master_addr, "a");
    }
    scope_buffer line = {0};
    assert_int_equal(roster_format(f->roster, &line), 0);
    assert_string_equal(line.data, "STARTING round 0 restarts 0/1: 0=ASSIGNED 1=ASSIGNED 2=ASSIGNED");
}

static void who_was_refused_is_told_until_it_is_in(void **state)
{
    struct fixture *f = *state;
    struct roster_join who = join_of(0), other = join_of(1);
    char text[MUSTER_ERROR_TEXT];
    join(f, 1, &who);
    other.max_nodes = other.min_nodes = 7;
    other.incarnation.low = 77;
    other.agent_name = "pod";
    join(f, 5, &other);
    roster_describe_refused(f->roster, text, sizeof text);
    assert_string_equal(
        text, "agent \"pod\" (nnodes: this agent has 7, the server 3: give all nodes one --nnodes)");
    roster_describe_progress(f->roster, text, sizeof text);
    assert_string_equal(text, "1 of 3 nodes, missing ranks 1-2; agent \"pod\" was refused");
    other.min_nodes = other.max_nodes = 3;
    join(f, 6, &other);
    roster_describe_progress(f->roster, text, sizeof text);
    assert_string_equal(text, "2 of 3 nodes, missing rank 2");
    who.local_world_size = 0;
    for (int i = 0; i < 2; i++)
        join(f, 7, &who);
    f->now = roster_deadline(f->roster);
    while (roster_state(f->roster) == JOB_FORMING) {
        f->now = roster_deadline(f->roster);
        assert_int_equal(step(f, &(struct roster_event){.kind = ROSTER_TICK}), 0);
    }
    struct membership_event event;
    struct roster_action verdict = {.kind = ROSTER_SEND_VERDICT};
    roster_fill_event(f->roster, &verdict, &event);
    assert_non_null(strstr(event.reason, "(--join-timeout); missing rank"));
    assert_non_null(
        strstr(event.reason, "; refused 2 times, the last agent \"a\" (nproc_per_node: 0 is not in"));
}

static void what_does_not_fit_is_refused_by_name(void **state)
{
    struct fixture *f = *state;
    struct roster_join who = join_of(1);
    who.job_id = "other";
    join(f, 2, &who);
    expect_refusal(f, "job id: this agent has \"other\", the server \"job\": one job has one --rdzv-id, two "
                      "jobs need two ports");
    who = join_of(1);
    who.protocol_version = 9;
    join(f, 2, &who);
    expect_refusal(f, "protocol version: this agent has 9, the server 2; run the same muster on all nodes");
    who = join_of(1);
    who.min_nodes = who.max_nodes = 4;
    join(f, 2, &who);
    expect_refusal(f, "nnodes: this agent has 4, the server 3: give all nodes one --nnodes");
    who = join_of(1);
    who.elastic = true;
    join(f, 2, &who);
    expect_refusal(f, "mode: this agent has elastic, the server static: give all nodes one --rdzv-backend");
    who = join_of(1);
    who.node_rank = 3;
    join(f, 2, &who);
    expect_refusal(f, "node rank: 3 is not in 0..2 (nnodes is 3)");
    who = join_of(1);
    who.agent_name = "node1\nmuster: error: all is lost";
    join(f, 2, &who);
    expect_refusal(f, "agent name: it holds a control character");
    who = join_of(1);
    who.store_addr = "10.0.0.1\x1b[2J";
    join(f, 2, &who);
    expect_refusal(f, "store address: it holds a control character");
    who = join_of(1);
    who.local_world_size = 0;
    join(f, 2, &who);
    expect_refusal(f, "nproc_per_node: 0 is not in 1..65536");
    assert_int_equal(roster_member_state(f->roster, 1), MEMBER_EMPTY);
}

static void an_old_incarnation_cannot_come_back(void **state)
{
    struct fixture *f = *state;
    struct roster_join old = join_of(1), fresh = join_of(1);
    fresh.incarnation.low = 77;
    join(f, 2, &old);
    join(f, 5, &fresh);
    assert_int_equal(f->actions.count, 2);
    assert_int_equal(f->actions.items[0].kind, ROSTER_REFUSE);
    assert_int_equal(f->actions.items[0].session, 2);
    assert_int_equal(f->actions.items[1].kind, ROSTER_ACCEPT);
    /* It missed the refusal and registers again. */
    join(f, 6, &old);
    expect_refusal(f, "superseded: node rank 1 is held by a newer start of agent \"b\"");
    /* The same one again, on a new connection, is welcome. */
    join(f, 7, &fresh);
    assert_int_equal(f->actions.items[0].kind, ROSTER_ACCEPT);
}

static void nobody_evicts_the_hosting_agent(void **state)
{
    struct fixture *f = *state;
    struct roster_join host = join_of(0), twin = join_of(0);
    host.local = true;
    twin.incarnation.low = 99;
    join(f, 1, &host);
    join(f, 2, &twin);
    assert_int_equal(f->actions.items[0].kind, ROSTER_REFUSE);
    assert_int_equal(roster_member_state(f->roster, 0), MEMBER_JOINED);
}

static void an_agent_without_a_rank_gets_one(void **state)
{
    struct fixture *f = *state;
    for (int rank = 0; rank < NODES; rank++) {
        struct roster_join who = join_of(rank);
        who.node_rank = -1;
        join(f, (uint64_t)rank + 1, &who);
        assert_int_equal(f->actions.items[0].member, rank);
    }
    struct roster_join who = join_of(0);
    who.node_rank = -1;
    who.incarnation.low = 50;
    join(f, 9, &who);
    expect_refusal(f, "the world is full: all 3 node ranks are held");
}

static void an_unknown_session_is_told_to_register(void **state)
{
    struct fixture *f = *state;
    all_run(f);
    struct roster_event beat = {.kind = ROSTER_BEAT, .session = 9, .member = -1};
    assert_int_equal(step(f, &beat), 0);
    assert_int_equal(f->actions.count, 1);
    assert_int_equal(f->actions.items[0].kind, ROSTER_AGAIN);
    beat.member = 1; /* somebody else's slot */
    assert_int_equal(step(f, &beat), 0);
    assert_int_equal(f->actions.items[0].kind, ROSTER_AGAIN);
    beat.session = 2;
    assert_int_equal(step(f, &beat), 0);
    assert_int_equal(f->actions.count, 0);
    struct roster_event leave = {.kind = ROSTER_LEAVE, .session = 9, .member = 1, .exit_code = 143};
    assert_int_equal(step(f, &leave), 0);
    assert_int_equal(roster_state(f->roster), JOB_RUNNING);
}

/* The pairs that the report table does not know. */
static void a_broken_protocol_is_an_error(void **state)
{
    struct fixture *f = *state;
    all_run(f);
    assert_int_equal(report(f, 0, 0, MEMBERSHIP_REPORT_FAILED, NULL), -1);
    assert_int_equal(f->err.code, MUSTER_E_INVALID);
    assert_int_equal(report(f, 0, 0, MEMBERSHIP_REPORT_DONE, NULL), 0);
    assert_int_equal(report(f, 0, 0, MEMBERSHIP_REPORT_STOPPED, NULL), -1);
    assert_string_equal(f->err.text, "agent \"a\" reports STOPPED while it is DONE");
    assert_int_equal(step(f, &(struct roster_event){.kind = ROSTER_EVENT_COUNT}), -1);
    assert_int_equal(step(f, &(struct roster_event){.kind = ROSTER_BEAT}), -1);
    assert_int_equal(step(f, &(struct roster_event){.kind = ROSTER_JOIN, .session = 1}), -1);
    /* A stale id is not an error: it may have been on its way. */
    assert_int_equal(report(f, 1, 9, MEMBERSHIP_REPORT_STOPPED, NULL), 0);
    assert_int_equal(roster_member_state(f->roster, 1), MEMBER_RUNNING);
    assert_int_equal(roster_state(f->roster), JOB_RUNNING);
}

/* It took the server for lost, and was heard again before it was given up. */
static void who_stops_unasked_costs_a_restart(void **state)
{
    struct fixture *f = *state;
    all_run(f);
    assert_int_equal(report(f, 1, 0, MEMBERSHIP_REPORT_STOPPED, NULL), 0);
    assert_int_equal(roster_state(f->roster), JOB_STOPPING);
    for (int rank = 0; rank < NODES; rank += 2)
        assert_int_equal(report(f, rank, 0, MEMBERSHIP_REPORT_STOPPED, NULL), 0);
    assert_int_equal(roster_state(f->roster), JOB_STARTING);
    assert_int_equal(roster_restart_count(f->roster), 1);
}

static void the_first_cause_is_found_among_many(void **state)
{
    struct fixture *f = *state;
    struct worker_failure code = {.rank = 0, .exit_code = 7, .age_ns = 9 * NS_PER_S};
    struct worker_failure late = {.rank = 3, .exit_code = -1, .signal = SIGABRT};
    struct worker_failure early = {.rank = 4, .exit_code = -1, .signal = SIGSEGV, .age_ns = NS_PER_S};
    f->now.ns = 100 * NS_PER_S;
    all_run(f);
    f->sequence[0] = 10; /* the restart below uses a second round of reports */
    assert_int_equal(report(f, 0, 0, MEMBERSHIP_REPORT_FAILED, &code), 0);
    assert_int_equal(f->actions.count, NODES);
    assert_int_equal(report(f, 2, 0, MEMBERSHIP_REPORT_FAILED, &late), 0);
    for (int rank = 0; rank < NODES; rank++)
        assert_int_equal(report(f, rank, 0, MEMBERSHIP_REPORT_STOPPED, NULL), 0);
    assert_int_equal(roster_state(f->roster), JOB_STARTING);
    assert_int_equal(roster_world_id(f->roster).round, 1);
    assert_int_equal(report(f, 0, 1, MEMBERSHIP_REPORT_FAILED, &code), 0);
    assert_int_equal(report(f, 2, 1, MEMBERSHIP_REPORT_FAILED, &late), 0);
    f->now.ns += NS_PER_MS;
    assert_int_equal(report(f, 1, 1, MEMBERSHIP_REPORT_FAILED, &early), 0);
    for (int rank = 0; rank < NODES; rank++)
        assert_int_equal(report(f, rank, 1, MEMBERSHIP_REPORT_STOPPED, NULL), 0);
    assert_int_equal(roster_state(f->roster), JOB_FINISHING);
    struct membership_event event;
    assert_int_equal(f->actions.items[0].kind, ROSTER_SEND_VERDICT);
    roster_fill_event(f->roster, &f->actions.items[0], &event);
    assert_int_equal(event.exit_code, 128 + SIGSEGV);
    assert_int_equal(event.failure.rank, 4);
    assert_int_equal(event.failure.group_rank, 1);
    assert_int_equal(event.other_count, 2);
    assert_int_equal(event.other_total, 2);
    assert_int_equal(event.others[0].signal, SIGABRT);
    assert_true(event.others[0].after_ns == NS_PER_S - NS_PER_MS);
    assert_int_equal(event.others[1].exit_code, 7);
    assert_int_equal(event.others[1].group_rank, 0);
    assert_true(event.others[1].after_ns == -8 * NS_PER_S - NS_PER_MS);
}

static void of_many_failures_the_best_are_kept(void **state)
{
    enum { COUNT = FAILURE_OTHERS_LIMIT + 6 };
    struct fixture *f = *state;
    f->now.ns = 100 * NS_PER_S;
    all_run(f);
    for (int i = 0; i < COUNT; i++) { /* the later the report, the earlier it happened */
        struct worker_failure code = {.rank = i, .exit_code = 7, .age_ns = (i + 1) * NS_PER_S};
        assert_int_equal(report(f, 0, 0, MEMBERSHIP_REPORT_FAILED, &code), 0);
    }
    struct roster_action verdict = {.kind = ROSTER_SEND_VERDICT};
    for (int round = 0; round < 2 && roster_state(f->roster) != JOB_FINISHING; round++) {
        for (int rank = 0; rank < NODES; rank++)
            assert_int_equal(report(f, rank, (uint32_t)round, MEMBERSHIP_REPORT_STOPPED, NULL), 0);
        if (roster_state(f->roster) == JOB_FINISHING)
            break;
        for (int i = 0; i < COUNT; i++) {
            struct worker_failure code = {.rank = i, .exit_code = 7, .age_ns = (i + 1) * NS_PER_S};
            assert_int_equal(report(f, 0, 1, MEMBERSHIP_REPORT_FAILED, &code), 0);
        }
    }
    struct membership_event event;
    roster_fill_event(f->roster, &verdict, &event);
    assert_int_equal(event.failure.rank, COUNT - 1);
    assert_int_equal(event.other_count, FAILURE_OTHERS_LIMIT);
    assert_int_equal(event.other_total, COUNT - 1);
    for (int i = 0; i < event.other_count; i++) {
        assert_int_equal(event.others[i].rank, COUNT - 2 - i);
        assert_true(event.others[i].after_ns == (i + 1) * NS_PER_S);
    }
}

static void a_late_joiner_is_told_how_it_ended(void **state)
{
    struct fixture *f = *state;
    all_run(f);
    for (int rank = 0; rank < NODES; rank++)
        assert_int_equal(report(f, rank, 0, MEMBERSHIP_REPORT_DONE, NULL), 0);
    for (int rank = 0; rank < NODES; rank++) {
        struct roster_event leave = {.kind = ROSTER_LEAVE, .session = (uint64_t)rank + 1, .member = rank};
        assert_int_equal(step(f, &leave), 0);
    }
    assert_int_equal(roster_state(f->roster), JOB_FINISHED);
    struct roster_join who = join_of(2);
    who.incarnation.low = 1234;
    join(f, 20, &who);
    struct membership_event event;
    assert_int_equal(f->actions.count, 1);
    roster_fill_event(f->roster, &f->actions.items[0], &event);
    assert_int_equal(event.kind, MEMBERSHIP_EVENT_VERDICT);
    assert_int_equal(event.exit_code, 0);
    who.job_id = "other";
    join(f, 21, &who);
    assert_int_equal(f->actions.items[0].kind, ROSTER_REFUSE);
}

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

/* All have the time of the one that is to go, and the job ends with its code. */
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
        assert_string_equal(event.reason,
                            "agent \"b\" (node rank 1) was asked to end, and the job ends with it");
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

/* Given up while it was cut off, it comes back and repeats what it had reported. */
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

static void causes_are_ranked(void **state)
{
    (void)state;
    struct worker_failure killed = {.rank = 1, .signal = SIGKILL, .exit_code = -1};
    struct worker_failure memory = {.rank = 2, .exit_code = 1, .out_of_memory = true};
    struct worker_failure lost = {.rank = 3, .lost_node = true};
    struct worker_failure code = {.rank = 4, .exit_code = 300};
    struct worker_failure hung = {.rank = 5, .signal = SIGABRT, .hung = true, .tail = "NCCL error"};
    struct instant early = {1}, later = {2};
    assert_true(failure_precedes(&killed, later, &lost, early));
    assert_true(failure_precedes(&lost, later, &code, early));
    assert_true(failure_precedes(&memory, early, &killed, later));
    assert_true(failure_precedes(&killed, early, &memory, early));
    assert_false(failure_precedes(&memory, early, &killed, early));
    assert_true(failure_precedes(&hung, later, &code, early)); /* we ended it: what it says is no cascade */
    assert_int_equal(failure_exit_code(&hung), 134);
    assert_int_equal(failure_exit_code(&killed), 137);
    assert_int_equal(failure_exit_code(&lost), EXIT_CODE_NODE);
    assert_int_equal(failure_exit_code(&code), EXIT_CODE_FAILURE);
    assert_string_equal(failure_class_name(failure_class_of(&memory)), "signal");
}

static void worlds_of_impossible_sizes_are_refused(void **state)
{
    struct fixture *f = *state;
    struct roster_options options = options_of(4);
    options.min_nodes = 2;
    assert_null(roster_create(&options, f->now, &f->err));
    assert_int_equal(f->err.code, MUSTER_E_INVALID);
    options.elastic = true;
    options.min_nodes = 5;
    assert_null(roster_create(&options, f->now, &f->err));
    options = options_of(ROSTER_MEMBER_LIMIT + 1);
    assert_null(roster_create(&options, f->now, &f->err));
    assert_int_equal(f->err.code, MUSTER_E_INVALID);
}

/* 4,096 nodes, one of which is lost: every step fits its actions, and nobody is forgotten. */
static void the_largest_world(void **state)
{
    (void)state;
    enum { MANY = ROSTER_MEMBER_LIMIT };
    struct roster_options options = options_of(MANY);
    struct instant now = {0};
    struct roster *roster = roster_create(&options, now, NULL);
    struct roster_actions actions;
    assert_non_null(roster);
    assert_int_equal(roster_actions_init(&actions, MANY, NULL), 0);
    for (int i = 0; i < MANY; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "node%d", i);
        struct roster_join who = join_of(0);
        who.min_nodes = who.max_nodes = MANY;
        who.agent_name = who.store_addr = name;
        who.node_rank = i;
        who.incarnation.low = (uint64_t)i + 1;
        struct roster_event event = {.kind = ROSTER_JOIN, .session = (uint64_t)i + 1, .join = &who};
        assert_int_equal(roster_step(roster, &event, now, &actions, NULL), 0);
    }
    assert_int_equal(actions.count, MANY + 1);
    assert_int_equal(roster_state(roster), JOB_STARTING);
    now.ns = 2 * NS_PER_S;
    for (int i = 1; i < MANY; i++) {
        struct roster_event event = {.kind = ROSTER_BEAT, .session = (uint64_t)i + 1, .member = i};
        assert_int_equal(roster_step(roster, &event, now, &actions, NULL), 0);
    }
    now = roster_deadline(roster);
    assert_int_equal(now.ns, 2500 * NS_PER_MS);
    assert_int_equal(roster_step(roster, &(struct roster_event){.kind = ROSTER_TICK}, now, &actions, NULL),
                     0);
    assert_int_equal(roster_state(roster), JOB_STOPPING);
    assert_int_equal(actions.count, MANY - 1);
    assert_int_equal(roster_member_state(roster, 0), MEMBER_EMPTY);
    roster_actions_free(&actions);
    roster_destroy(roster);
}

/* Jobs without an id, on one machine and one port. */
static void another_command_is_another_job(void **state)
{
    (void)state;
    struct instant now = {0};
    for (int named = 0; named < 2; named++) {
        struct roster_options options = options_of(2);
        options.job_id = named ? "job" : "none";
        struct roster *roster = roster_create(&options, now, NULL);
        struct roster_actions actions;
        assert_int_equal(roster_actions_init(&actions, 2, NULL), 0);
        for (int i = 0; i < 3; i++) {
            struct roster_join who = join_of(i > 0);
            who.job_id = options.job_id;
            who.min_nodes = who.max_nodes = 2;
            who.local = i == 0;
            who.incarnation.low = 10 + (uint64_t)i;
            who.command = 1 + (uint64_t)(i == 2); /* the third claims the second's rank */
            who.program = "train.py";
            struct roster_event event = {.kind = ROSTER_JOIN, .session = 1 + (uint64_t)i, .join = &who};
            assert_int_equal(roster_step(roster, &event, now, &actions, NULL), 0);
        }
        assert_int_equal(actions.items[0].kind, ROSTER_REFUSE);
        assert_non_null(strstr(actions.items[0].reason, named ? "superseded" : "two jobs meet at this port"));
        roster_actions_free(&actions);
        roster_destroy(roster);
    }
}

/* Under another name it may be of the job, and is pointed out. */
static void nodes_may_run_different_commands(void **state)
{
    (void)state;
    struct instant now = {0};
    char text[MUSTER_ERROR_TEXT];
    struct roster_options options = options_of(2);
    options.job_id = "none";
    struct roster *roster = roster_create(&options, now, NULL);
    struct roster_actions actions;
    assert_int_equal(roster_actions_init(&actions, 2, NULL), 0);
    for (int i = 0; i < 2; i++) {
        struct roster_join who = join_of(i);
        who.job_id = options.job_id;
        who.min_nodes = who.max_nodes = 2;
        who.local = i == 0;
        who.command = 1 + (uint64_t)i;
        who.program = i ? "eval.py" : "train.py";
        struct roster_event event = {.kind = ROSTER_JOIN, .session = 1 + (uint64_t)i, .join = &who};
        assert_int_equal(roster_step(roster, &event, now, &actions, NULL), 0);
    }
    assert_int_equal(roster_state(roster), JOB_STARTING);
    assert_true(roster_describe_stranger(roster, 1, text, sizeof text));
    assert_non_null(strstr(text, "\"b\" runs eval.py and this node train.py"));
    assert_false(roster_describe_stranger(roster, 0, text, sizeof text));
    roster_actions_free(&actions);
    roster_destroy(roster);
}

static void who_is_missing_is_told(void **state)
{
    (void)state;
    struct instant now = {0};
    struct roster_options options = options_of(40);
    struct roster *roster = roster_create(&options, now, NULL);
    struct roster_actions actions;
    assert_int_equal(roster_actions_init(&actions, 40, NULL), 0);
    static const struct {
        int joins, leaves;
        const char *text;
    } rows[] = {
        {0, -1, "1 of 40 nodes, missing ranks 1-39"},
        {4, -1, "2 of 40 nodes, missing ranks 1-3, 5-39"},
        {39, 4, "2 of 40 nodes, missing ranks 1-3, 4 (last held by \"b\"), 5-38"},
        {4, -1, "3 of 40 nodes, missing ranks 1-3, 5-38"},
        {6, -1, "4 of 40 nodes, missing ranks 1-3, 5, 7-38"},
        {8, -1, NULL},
        {10, -1, NULL},
        {12, -1, NULL},
        {14, -1, "8 of 40 nodes, missing ranks 1-3, 5, 7, 9, 11, 13, 15-38"},
        {16, -1, NULL},
        {18, -1, "10 of 40 nodes, missing ranks 1-3, 5, 7, 9, 11, 13, 15, 17 and 20 more"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct roster_join who = join_of(1);
        who.min_nodes = who.max_nodes = 40;
        who.node_rank = rows[i].joins;
        who.incarnation.low = 100 + i;
        struct roster_event event = {
            .kind = ROSTER_JOIN, .session = 1 + (uint64_t)who.node_rank, .join = &who};
        assert_int_equal(roster_step(roster, &event, now, &actions, NULL), 0);
        if (rows[i].leaves >= 0) {
            event = (struct roster_event){
                .kind = ROSTER_LEAVE, .session = 1 + (uint64_t)rows[i].leaves, .member = rows[i].leaves};
            assert_int_equal(roster_step(roster, &event, now, &actions, NULL), 0);
        }
        char text[256];
        roster_describe_progress(roster, text, sizeof text);
        if (rows[i].text)
            assert_string_equal(text, rows[i].text);
    }
    roster_actions_free(&actions);
    roster_destroy(roster);
}

static void names_are_printable(void **state)
{
    (void)state;
    assert_string_equal(roster_job_state_name(JOB_FORMING), "FORMING");
    assert_string_equal(roster_member_state_name(MEMBER_DONE_GONE), "DONE_GONE");
    assert_string_equal(roster_event_name(ROSTER_DISCONNECT), "DISCONNECT");
    assert_string_equal(roster_action_name(ROSTER_AGAIN), "AGAIN");
    assert_string_equal(roster_job_state_name(JOB_STATE_COUNT), "?");
    assert_string_equal(roster_report_name(MEMBERSHIP_REPORT_STOPPED), "STOPPED");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(ranks_are_contiguous_by_node_rank),
        TEST(who_was_refused_is_told_until_it_is_in),
        TEST(what_does_not_fit_is_refused_by_name),
        TEST(an_old_incarnation_cannot_come_back),
        TEST(nobody_evicts_the_hosting_agent),
        TEST(an_agent_without_a_rank_gets_one),
        TEST(an_unknown_session_is_told_to_register),
        TEST(a_broken_protocol_is_an_error),
        TEST(who_stops_unasked_costs_a_restart),
        TEST(the_first_cause_is_found_among_many),
        TEST(of_many_failures_the_best_are_kept),
        TEST(a_late_joiner_is_told_how_it_ended),
        TEST(a_done_agent_may_go),
        TEST(a_drain_ends_a_static_job_when_all_have_saved),
        TEST(the_hosting_agent_that_drains_leaves_a_verdict),
        TEST(a_drain_without_workers_says_nothing),
        TEST(a_done_agent_may_come_back),
        cmocka_unit_test(causes_are_ranked),
        TEST(worlds_of_impossible_sizes_are_refused),
        cmocka_unit_test(the_largest_world),
        cmocka_unit_test(another_command_is_another_job),
        cmocka_unit_test(nodes_may_run_different_commands),
        cmocka_unit_test(who_is_missing_is_told),
        cmocka_unit_test(names_are_printable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
