/* rendezvous_elastic_test.c - an elastic world's roster by itself: the last call, who gets which rank,
 * spares, newcomers, drains, nodes that do not stop. */
#include <stdio.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "proto/exit_code.h"
#include "rendezvous/roster/roster.h"
#include "tests/support/cmocka_all.h"

enum { NAMES = 8, LAST_CALL_S = 30, NOTICE_S = 20 };

struct fixture {
    struct roster *roster;
    struct roster_actions actions;
    struct instant now;
    int slot[NAMES]; /* slot of the agent with this session - 1 */
    uint64_t sequence[NAMES];
    struct membership_world world[NAMES]; /* the last that it was sent */
    int failed_class[NAMES];              /* that came with it */
    struct membership_event stop[NAMES], verdict[NAMES];
    int stops, worlds, verdicts, handovers; /* sent by the last step */
    struct muster_error err;
};

static void create_held_back(struct fixture *f, int min, int max, int64_t backoff_ns)
{
    struct roster_options options = {.job_id = "job",
                                     .min_nodes = min,
                                     .max_nodes = max,
                                     .elastic = true,
                                     .max_restarts = 2,
                                     .backoff_ns = backoff_ns,
                                     .backoff_cap_ns = backoff_ns,
                                     .epoch = 42,
                                     .join_timeout_ns = 600 * NS_PER_S,
                                     .last_call_ns = LAST_CALL_S * NS_PER_S,
                                     .notice_ns = NOTICE_S * NS_PER_S,
                                     .stop_timeout_ns = 60 * NS_PER_S};
    *f = (struct fixture){.roster = roster_create(&options, (struct instant){0}, NULL)};
    assert_non_null(f->roster);
    assert_int_equal(roster_actions_init(&f->actions, roster_slot_count(f->roster), NULL), 0);
}

static void create(struct fixture *f, int min, int max)
{
    create_held_back(f, min, max, 0);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    roster_actions_free(&f->actions);
    roster_destroy(f->roster);
    return 0;
}

static int setup(void **state)
{
    static struct fixture fixture;
    *state = &fixture;
    create(&fixture, 2, 4);
    return 0;
}

static int step(struct fixture *f, const struct roster_event *event)
{
    int result = roster_step(f->roster, event, f->now, &f->actions, &f->err);
    f->stops = f->worlds = f->verdicts = f->handovers = 0;
    for (size_t i = 0; i < f->actions.count; i++) {
        const struct roster_action *action = &f->actions.items[i];
        struct membership_event sent;
        int who = (int)action->session - 1;
        roster_fill_event(f->roster, action, &sent);
        if (action->kind == ROSTER_ACCEPT) {
            f->slot[who] = action->member;
        } else if (action->kind == ROSTER_SEND_WORLD) {
            f->world[who] = sent.world;
            f->failed_class[who] = sent.failed_class;
            f->worlds++;
        } else if (action->kind == ROSTER_SEND_STOP) {
            f->stop[who] = sent;
            f->stops++;
        } else if (action->kind == ROSTER_SEND_VERDICT) {
            f->verdict[who] = sent;
            f->verdicts++;
        } else if (action->kind == ROSTER_HANDOVER) {
            f->handovers++;
        }
    }
    return result;
}

static struct roster_join join_of(int who, const char *name)
{
    return (struct roster_join){.protocol_version = ROSTER_PROTOCOL_VERSION,
                                .job_id = "job",
                                .min_nodes = 2,
                                .max_nodes = 4,
                                .elastic = true,
                                .agent_name = name,
                                .node_rank = -1,
                                .incarnation = {7, (uint64_t)who + 1},
                                .local_world_size = who + 1,
                                .role = "trainer",
                                .store_addr = name,
                                .store_port = 29500,
                                .local = who == 0};
}

static void join_as(struct fixture *f, int who, const struct roster_join *join)
{
    struct roster_event event = {.kind = ROSTER_JOIN, .session = (uint64_t)who + 1, .join = join};
    assert_int_equal(step(f, &event), 0);
}

static void join(struct fixture *f, int who, const char *name)
{
    struct roster_join as = join_of(who, name);
    join_as(f, who, &as);
}

static void event_of(struct fixture *f, int who, struct roster_event event)
{
    event.session = (uint64_t)who + 1;
    event.member = f->slot[who];
    assert_int_equal(step(f, &event), 0);
}

static void report(struct fixture *f, int who, enum membership_report_kind kind)
{
    struct worker_failure failure = {.exit_code = 3, .pid = 12};
    struct roster_event event = {.kind = ROSTER_REPORT};
    event.report.id = f->world[who].id;
    event.report.kind = kind;
    event.report.sequence = ++f->sequence[who];
    event.report.failure = &failure;
    event_of(f, who, event);
}

/* Lets time pass; who says which agents go on beating. */
static void pass(struct fixture *f, double seconds, const int *who, int count)
{
    int64_t until = f->now.ns + (int64_t)(seconds * (double)NS_PER_S);
    while (f->now.ns < until) {
        int64_t left = until - f->now.ns;
        f->now.ns += left < NS_PER_S ? left : NS_PER_S;
        for (int i = 0; i < count; i++)
            event_of(f, who[i], (struct roster_event){.kind = ROSTER_BEAT});
        struct roster_event tick = {.kind = ROSTER_TICK};
        assert_int_equal(step(f, &tick), 0);
    }
}

static const int all[] = {1, 2, 3, 4, 5, 6, 7}; /* 0 hosts the roster and needs no beats */

static void expect_state(struct fixture *f, const char *expected)
{
    scope_buffer line = {0};
    assert_int_equal(roster_format(f->roster, &line), 0);
    assert_string_equal(line.data, expected);
}

/* Three of 2:4 after the last call; all run. */
static void three_run(struct fixture *f)
{
    join(f, 0, "node0");
    join(f, 1, "node1");
    join(f, 2, "node2");
    pass(f, LAST_CALL_S, all, 2);
    assert_int_equal(f->worlds, 3);
    for (int i = 0; i < 3; i++)
        report(f, i, MEMBERSHIP_REPORT_RUNNING);
    assert_int_equal(roster_state(f->roster), JOB_RUNNING);
}

static void stop_and_form(struct fixture *f, const int *who, int count)
{
    for (int i = 0; i < count; i++)
        report(f, who[i], MEMBERSHIP_REPORT_STOPPED);
}

static void three_fail(struct fixture *f)
{
    report(f, 1, MEMBERSHIP_REPORT_FAILED);
    for (int i = 0; i < 3; i++)
        report(f, i, MEMBERSHIP_REPORT_STOPPED);
}

static void expect_progress(struct fixture *f, const char *expected)
{
    char text[256];
    roster_describe_progress(f->roster, text, sizeof text);
    assert_string_equal(text, expected);
}

static void the_last_call_starts_with_the_least(void **state)
{
    struct fixture *f = *state;
    join(f, 0, "node0");
    expect_progress(f, "1 of at least 2 nodes");
    pass(f, 100, all, 0);
    assert_int_equal(roster_state(f->roster), JOB_FORMING);
    join(f, 1, "node1");
    expect_progress(f, "2 of 2 to 4 nodes; last call of 30 s for more");
    assert_int_equal(roster_deadline(f->roster).ns,
                     f->now.ns + 2500 * NS_PER_MS); /* node1 may be lost before */
    pass(f, LAST_CALL_S - 1, all, 1);
    assert_int_equal(roster_state(f->roster), JOB_FORMING);
    pass(f, 1, all, 1);
    assert_int_equal(roster_state(f->roster), JOB_STARTING);
    assert_int_equal(f->world[1].group_world_size, 2);
    assert_int_equal(f->world[1].world_size, 3);
    assert_string_equal(f->world[1].master_addr, "node0");
}

static void a_leaver_ends_the_last_call(void **state)
{
    struct fixture *f = *state;
    join(f, 0, "node0");
    join(f, 1, "node1");
    pass(f, LAST_CALL_S - 1, all, 1);
    event_of(f, 1, (struct roster_event){.kind = ROSTER_LEAVE, .exit_code = EXIT_CODE_TERMINATED});
    pass(f, LAST_CALL_S, all, 0);
    assert_int_equal(roster_state(f->roster), JOB_FORMING);
    join(f, 2, "node2");
    pass(f, LAST_CALL_S - 1, all + 1, 1);
    assert_int_equal(roster_state(f->roster), JOB_FORMING); /* a new last call for the new pair */
    pass(f, 1, all + 1, 1);
    assert_int_equal(roster_state(f->roster), JOB_STARTING);
}

static void the_most_form_at_once_and_one_more_is_a_spare(void **state)
{
    struct fixture *f = *state;
    static const char *const names[] = {"node7", "node10", "node9", "node2", "node1"};
    for (int i = 0; i < 4; i++)
        join(f, i, names[i]);
    assert_int_equal(f->worlds, 4);
    /* The hosting agent, then by name, numbers by value. */
    static const int ranks[] = {0, 3, 2, 1}, bases[] = {0, 8, 5, 1};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(f->world[i].group_rank, ranks[i]);
        assert_int_equal(f->world[i].rank_base, bases[i]);
        report(f, i, MEMBERSHIP_REPORT_RUNNING);
    }
    join(f, 4, names[4]);
    pass(f, 100, all, 4);
    expect_state(f, "RUNNING round 0 restarts 0/2: 0=RUNNING 1=RUNNING 2=RUNNING 3=RUNNING 4=JOINED");
    for (int i = 0; i < 4; i++)
        report(f, i, MEMBERSHIP_REPORT_DONE);
    assert_int_equal(f->verdict[4].kind, MEMBERSHIP_EVENT_VERDICT); /* the spare is told too */
    assert_int_equal(f->verdict[4].exit_code, EXIT_CODE_OK);
}

static void a_wanted_rank_is_honoured_where_it_is_free(void **state)
{
    struct fixture *f = *state;
    static const int wanted[] = {-1, 2, 2, 0};
    static const char *const names[] = {"a", "b", "c", "d"};
    for (int i = 0; i < 4; i++) {
        struct roster_join as = join_of(i, names[i]);
        as.node_rank = wanted[i];
        join_as(f, i, &as);
    }
    /* b before c, since names decide among equals; 0 is the hosting agent's */
    static const int ranks[] = {0, 2, 1, 3};
    for (int i = 0; i < 4; i++)
        assert_int_equal(f->world[i].group_rank, ranks[i]);
}

static void a_lost_node_costs_one_and_ranks_stay(void **state)
{
    struct fixture *f = *state;
    three_run(f);
    pass(f, 3, all + 1, 1); /* node1 is silent */
    expect_state(f, "STOPPING round 0 restarts 0/2: 0=STOPPING 2=STOPPING");
    assert_false(f->stop[2].planned);
    assert_string_equal(f->stop[2].reason, "node rank 1 (node1) is lost: restart 1 of 2");
    static const int others[] = {0, 2};
    stop_and_form(f, others, 2);
    assert_int_equal(f->worlds, 2); /* at once, without a last call */
    assert_int_equal(f->world[2].id.round, 1);
    assert_int_equal(f->world[2].restart_count, 1);
    assert_int_equal(f->failed_class[2], 1 + FAILURE_LOST_NODE);
    assert_int_equal(f->world[2].group_rank, 1); /* 2 is no rank of two nodes */
    report(f, 0, MEMBERSHIP_REPORT_RUNNING);
    report(f, 2, MEMBERSHIP_REPORT_RUNNING);
    /* node1 comes back with its old incarnation and its old workers */
    struct roster_join back = join_of(1, "node1");
    back.held = (struct world_id){42, 0};
    join_as(f, 1, &back);
    assert_int_equal(f->stops, 1);
    assert_int_equal(f->stop[1].stopped.round, 0);
    report(f, 1, MEMBERSHIP_REPORT_STOPPED);
    pass(f, 9, all, 2);
    assert_int_equal(roster_state(f->roster), JOB_RUNNING);
    pass(f, 1, all, 2); /* ten seconds after the last world */
    expect_state(f, "STOPPING round 1 restarts 1/2: 0=STOPPING 1=JOINED 2=STOPPING");
    stop_and_form(f, others, 2);
    assert_int_equal(f->worlds, 3);
    assert_int_equal(f->world[2].restart_count, 1);
    assert_int_equal(f->failed_class[2], 0);     /* planned */
    assert_int_equal(f->world[2].group_rank, 1); /* it keeps its place */
    assert_int_equal(f->world[1].group_rank, 2);
    assert_true(roster_last_missed(f->roster).ns == INSTANT_NEVER.ns); /* the job goes on */
    for (int i = 0; i < 6; i++)
        report(f, i % 3, i < 3 ? MEMBERSHIP_REPORT_RUNNING : MEMBERSHIP_REPORT_DONE);
    assert_true(roster_last_missed(f->roster).ns < INSTANT_NEVER.ns);
}

static void a_broken_connection_is_given_half_a_second(void **state)
{
    struct fixture *f = *state;
    three_run(f);
    event_of(f, 1, (struct roster_event){.kind = ROSTER_DISCONNECT});
    pass(f, 0.49, all + 1, 1);
    assert_int_equal(roster_state(f->roster), JOB_RUNNING);
    assert_int_equal(roster_deadline(f->roster).ns, f->now.ns + 10 * NS_PER_MS);
    pass(f, 0.01, all + 1, 1);
    expect_state(f, "STOPPING round 0 restarts 0/2: 0=STOPPING 2=STOPPING");
}

static void newcomers_are_gathered_and_rate_limited(void **state)
{
    struct fixture *f = *state;
    static const int three[] = {0, 1, 2};
    three_run(f);
    pass(f, 60, all, 2);
    expect_progress(f, "");
    join(f, 3, "node3");
    pass(f, 0.5, all, 3);
    assert_int_equal(roster_state(f->roster), JOB_RUNNING);
    expect_progress(f, "a world of 3 nodes is running: new nodes are gathered until it makes room");
    pass(f, 0.5, all, 3);
    assert_int_equal(roster_state(f->roster), JOB_STOPPING);
    assert_true(f->stop[1].planned);
    assert_int_equal(f->stop[1].grace_ns, NOTICE_S * NS_PER_S);
    assert_string_equal(f->stop[1].reason, "1 more node joined: the world grows from 3 to 4");
    expect_progress(f, "the workers of round 0 are still being stopped on 3 nodes");
    assert_true(f->stop[1].change == MEMBERSHIP_CHANGE_JOIN && f->stop[1].next_nodes == 4);
    report(f, 1, MEMBERSHIP_REPORT_FAILED); /* how a worker ends after a planned stop is no failure */
    stop_and_form(f, three, 3);
    assert_int_equal(f->worlds, 4);
    assert_int_equal(f->world[3].restart_count, 0);
    /* It leaves and comes back again and again: each time it takes longer until the others stop for it. */
    double waits[3] = {0};
    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < 4; i++)
            report(f, i, MEMBERSHIP_REPORT_RUNNING);
        event_of(f, 3, (struct roster_event){.kind = ROSTER_DRAIN, .exit_code = 143, .grace_ns = NS_PER_S});
        event_of(f, 3, (struct roster_event){.kind = ROSTER_LEAVE, .exit_code = 143});
        stop_and_form(f, three, 3);
        for (int i = 0; i < 3; i++)
            report(f, i, MEMBERSHIP_REPORT_RUNNING);
        f->sequence[3] = 0;
        struct roster_join as = join_of(3, "node3");
        as.incarnation.low = 100 + (uint64_t)k;
        join_as(f, 3, &as);
        struct instant from = f->now;
        while (roster_state(f->roster) == JOB_RUNNING)
            pass(f, 1, all, 3);
        waits[k] = (double)instant_diff_ns(f->now, from) / NS_PER_S;
        stop_and_form(f, three, 3);
    }
    assert_true(waits[0] >= 10 && waits[1] >= 2 * waits[0] && waits[2] >= 2 * waits[1]);
    assert_int_equal(roster_restart_count(f->roster), 0);
}

static void a_drain_lets_all_save_and_costs_nothing(void **state)
{
    struct fixture *f = *state;
    three_run(f);
    event_of(f, 1, (struct roster_event){.kind = ROSTER_DRAIN, .exit_code = 143, .grace_ns = 25 * NS_PER_S});
    assert_int_equal(f->stops, 3);
    assert_true(f->stop[1].planned && f->stop[2].planned);
    assert_int_equal(f->stop[0].grace_ns, 25 * NS_PER_S);
    assert_string_equal(f->stop[2].reason,
                        "agent \"node1\" (node rank 1) leaves: the others continue without it");
    assert_true(f->stop[0].change == MEMBERSHIP_CHANGE_LEAVE && f->stop[0].next_nodes == 2);
    report(f, 0, MEMBERSHIP_REPORT_STOPPED);
    report(f, 2, MEMBERSHIP_REPORT_STOPPED);
    assert_int_equal(roster_state(f->roster), JOB_STOPPING); /* it still saves */
    expect_progress(f, "the workers of round 0 are still being stopped on 1 node");
    event_of(f, 1, (struct roster_event){.kind = ROSTER_LEAVE, .exit_code = 143});
    assert_int_equal(f->worlds, 2);
    assert_int_equal(roster_restart_count(f->roster), 0);
    assert_int_equal(f->world[2].id.round, 1);
}

static void a_spare_takes_over(void **state)
{
    struct fixture *f = *state;
    static const int three[] = {0, 2, 3};
    for (int i = 0; i < 4; i++)
        join(f, i, i == 0 ? "a" : i == 1 ? "b" : i == 2 ? "c" : "d");
    for (int i = 0; i < 4; i++)
        report(f, i, MEMBERSHIP_REPORT_RUNNING);
    expect_progress(f, "");
    join(f, 4, "e");
    expect_progress(f, "the world has its 4 nodes: a spare waits for one to leave");
    event_of(f, 1, (struct roster_event){.kind = ROSTER_DRAIN, .exit_code = 143, .grace_ns = NS_PER_S});
    event_of(f, 1, (struct roster_event){.kind = ROSTER_LEAVE, .exit_code = 143});
    stop_and_form(f, three, 3);
    assert_int_equal(f->worlds, 4);
    assert_int_equal(f->world[4].group_rank, 1); /* where b was; c and d stay */
    assert_int_equal(f->world[2].group_rank, 2);
    assert_int_equal(f->world[3].group_rank, 3);
}

static void fewer_than_the_least_wait_again(void **state)
{
    struct fixture *f = *state;
    join(f, 0, "node0");
    join(f, 1, "node1");
    pass(f, LAST_CALL_S, all, 1);
    report(f, 0, MEMBERSHIP_REPORT_RUNNING);
    report(f, 1, MEMBERSHIP_REPORT_RUNNING);
    event_of(f, 1, (struct roster_event){.kind = ROSTER_DRAIN, .exit_code = 143, .grace_ns = NS_PER_S});
    event_of(f, 1, (struct roster_event){.kind = ROSTER_LEAVE, .exit_code = 143});
    report(f, 0, MEMBERSHIP_REPORT_STOPPED);
    assert_int_equal(roster_state(f->roster), JOB_FORMING);
    pass(f, 599, all, 0);
    assert_int_equal(roster_state(f->roster), JOB_FORMING);
    pass(f, 1, all, 0);
    assert_int_equal(f->verdict[0].exit_code, EXIT_CODE_NODE);
    assert_string_equal(f->verdict[0].reason, "1 of at least 2 nodes joined within 600 s (--join-timeout)");
}

static void goes(struct fixture *f, int who, enum roster_event_kind kind, int exit_code)
{
    event_of(f, who, (struct roster_event){.kind = kind, .exit_code = exit_code, .grace_ns = 5 * NS_PER_S});
}

static void a_person_ends_the_serving_agent_and_the_job_with_it(void **state)
{
    struct fixture *f = *state;
    three_run(f);
    goes(f, 0, ROSTER_DRAIN, 130);
    assert_int_equal(f->stops, 3);
    assert_string_equal(f->stop[1].reason, "agent \"node0\" (node rank 0) leaves: the server goes with it");
    assert_true(f->stop[1].change == MEMBERSHIP_CHANGE_END && f->stop[1].next_nodes == 0);
    assert_false(roster_holds_server(f->roster));
    goes(f, 0, ROSTER_LEAVE, 130);
    assert_int_equal(f->verdicts, 2);
    assert_int_equal(f->verdict[1].exit_code, 130);
}

static void expect_departed(struct fixture *f, int handovers, int64_t restarts)
{
    assert_int_equal(roster_state(f->roster), JOB_DEPARTED);
    assert_int_equal(f->handovers, handovers);
    assert_int_equal(f->verdicts, 0);
    assert_int_equal(roster_restart_count(f->roster), restarts);
    assert_false(roster_holds_server(f->roster));
}

static void the_serving_agent_leaves_when_all_have_stopped(void **state)
{
    struct fixture *f = *state;
    three_run(f);
    goes(f, 0, ROSTER_DRAIN, 143);
    assert_int_equal(f->stops, 3);
    assert_string_equal(f->stop[1].reason,
                        "agent \"node0\" (node rank 0) leaves, and the server with it: the "
                        "others wait for it to come back");
    assert_true(f->stop[1].change == MEMBERSHIP_CHANGE_LEAVE && f->stop[1].next_nodes == 0);
    assert_true(f->stop[1].planned && f->stop[1].grace_ns == 5 * NS_PER_S);
    report(f, 1, MEMBERSHIP_REPORT_STOPPED);
    goes(f, 0, ROSTER_LEAVE, 143);
    assert_true(roster_holds_server(f->roster)); /* one still saves */
    join(f, 3, "node3");
    assert_int_equal(f->worlds, 0);
    report(f, 2, MEMBERSHIP_REPORT_STOPPED);
    expect_departed(f, 3, 0);
    join(f, 2, "node2"); /* its connection broke before it heard that */
    assert_int_equal(f->handovers, 1);
    goes(f, 2, ROSTER_DRAIN, 143);
    goes(f, 2, ROSTER_LEAVE, 143);
    pass(f, 10, NULL, 0);
    expect_departed(f, 0, 0);
}

/* Its workers were done, or its server did not answer its DRAIN. */
static void it_leaves_without_a_drain(void **state)
{
    struct fixture *f = *state;
    three_run(f);
    report(f, 0, MEMBERSHIP_REPORT_DONE);
    goes(f, 0, ROSTER_LEAVE, 143);
    assert_int_equal(f->stops, 2);
    assert_int_equal(f->stop[1].grace_ns, NOTICE_S * NS_PER_S);
    assert_true(roster_holds_server(f->roster));
    report(f, 1, MEMBERSHIP_REPORT_STOPPED);
    report(f, 2, MEMBERSHIP_REPORT_STOPPED);
    expect_departed(f, 2, 0);
}

static void it_leaves_while_others_drain(void **state)
{
    struct fixture *f = *state;
    three_run(f);
    goes(f, 1, ROSTER_DRAIN, 143);
    goes(f, 0, ROSTER_DRAIN, 143);
    assert_int_equal(f->stops, 0); /* all are stopping already */
    goes(f, 2, ROSTER_DRAIN, 143);
    goes(f, 0, ROSTER_LEAVE, 143);
    goes(f, 1, ROSTER_LEAVE, 143);
    assert_true(roster_holds_server(f->roster));
    goes(f, 2, ROSTER_LEAVE, 143);
    expect_departed(f, 0, 0);
}

static void a_loss_while_it_leaves_costs_a_restart(void **state)
{
    struct fixture *f = *state;
    three_run(f);
    goes(f, 0, ROSTER_DRAIN, 143);
    goes(f, 0, ROSTER_LEAVE, 143);
    report(f, 1, MEMBERSHIP_REPORT_STOPPED);
    pass(f, 3, all, 1); /* node2 is silent */
    assert_int_equal(roster_state(f->roster), JOB_DEPARTED);
    assert_int_equal(roster_restart_count(f->roster), 1);
}

static void one_that_does_not_stop_does_not_keep_it(void **state)
{
    struct fixture *f = *state;
    three_run(f);
    goes(f, 0, ROSTER_DRAIN, 143);
    goes(f, 0, ROSTER_LEAVE, 143);
    report(f, 1, MEMBERSHIP_REPORT_STOPPED);
    pass(f, 64, all, 2);
    assert_true(roster_holds_server(f->roster));
    pass(f, 1, all, 2); /* its grace and the stop time-out are over */
    expect_departed(f, 1, 1);
}

static void it_leaves_a_world_that_failed(void **state)
{
    struct fixture *f = *state;
    three_run(f);
    report(f, 1, MEMBERSHIP_REPORT_FAILED);
    report(f, 0, MEMBERSHIP_REPORT_STOPPED);
    goes(f, 0, ROSTER_LEAVE, 143); /* it waited for the next world */
    assert_true(roster_holds_server(f->roster));
    report(f, 1, MEMBERSHIP_REPORT_STOPPED);
    report(f, 2, MEMBERSHIP_REPORT_STOPPED);
    expect_departed(f, 2, 1);
}

/* The next world is held back after the second failure in a row; both have cost a restart: the others are
 * told so. */
static void it_leaves_while_the_next_world_forms(void **state)
{
    struct fixture *f = *state;
    (void)teardown(state);
    create_held_back(f, 2, 4, 10 * NS_PER_S);
    three_run(f);
    three_fail(f);
    assert_int_equal(f->worlds, 3); /* the first is not held back */
    for (int i = 0; i < 3; i++)
        report(f, i, MEMBERSHIP_REPORT_RUNNING);
    struct world_id last = roster_world_id(f->roster);
    three_fail(f);
    assert_int_equal(roster_state(f->roster), JOB_FORMING);
    goes(f, 0, ROSTER_LEAVE, 143);
    expect_departed(f, 2, 2);
    assert_int_equal(roster_world_id(f->roster).epoch, last.epoch);
    assert_int_equal(roster_world_id(f->roster).round, last.round); /* whose count it is */
}

/* Nothing is told where there was no world: nobody has lost anything. */
static void it_leaves_while_the_first_world_forms(void **state)
{
    struct fixture *f = *state;
    join(f, 0, "node0");
    join(f, 1, "node1");
    goes(f, 0, ROSTER_LEAVE, 143);
    assert_int_equal(roster_state(f->roster), JOB_FORMING);
    assert_int_equal(f->handovers, 0);
}

/* The others are enough for a world, which would be without its server before its workers run. */
static void no_world_forms_when_it_has_left(void **state)
{
    struct fixture *f = *state;
    join(f, 0, "node0");
    join(f, 1, "node1");
    join(f, 2, "node2");
    assert_int_equal(roster_state(f->roster), JOB_FORMING);
    goes(f, 0, ROSTER_LEAVE, 143);
    pass(f, LAST_CALL_S + 1, all + 1, 2);
    assert_int_equal(roster_state(f->roster), JOB_FORMING);
    assert_int_equal(f->worlds, 0);
}

/* The server that comes back; left: the agents' reports about the server before. */
static void come_back(struct fixture *f, bool left)
{
    for (int i = 0; i < 3; i++) {
        struct roster_join who = join_of(i, i == 0 ? "node0" : i == 1 ? "node1" : "node2");
        who.epoch = i ? 41 : 0;
        who.last = i ? (struct world_id){41, 5} : (struct world_id){0};
        who.last_nodes = i ? 3 : 0;
        who.restart_count = i ? 1 : 0;
        who.server_left = left && i;
        join_as(f, i, &who);
    }
    pass(f, LAST_CALL_S, all, 2);
    assert_int_equal(f->world[1].id.round, 6);
    assert_int_equal(f->world[1].group_rank, 1);
}

static void what_was_stopped_on_purpose_costs_nothing_when_the_server_is_back(void **state)
{
    struct fixture *f = *state;
    come_back(f, true);
    assert_int_equal(f->world[1].restart_count, 1);
}

static void a_server_that_was_lost_costs_a_restart_when_it_is_back(void **state)
{
    struct fixture *f = *state;
    come_back(f, false);
    assert_int_equal(f->world[1].restart_count, 2);
}

static void a_node_that_does_not_stop_is_put_out(void **state)
{
    struct fixture *f = *state;
    three_run(f);
    report(f, 1, MEMBERSHIP_REPORT_FAILED);
    report(f, 0, MEMBERSHIP_REPORT_STOPPED);
    report(f, 1, MEMBERSHIP_REPORT_STOPPED);
    pass(f, 59, all, 2);
    assert_int_equal(roster_state(f->roster), JOB_STOPPING);
    pass(f, 1, all, 2);
    assert_int_equal(f->actions.items[0].kind, ROSTER_REFUSE);
    assert_int_equal(f->actions.items[0].session, 3);
    assert_int_equal(f->worlds, 2);
    assert_int_equal(roster_restart_count(f->roster), 1);
}

static void agents_of_one_host_share_its_name(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < 4; i++)
        join(f, i, "box");
    assert_int_equal(f->worlds, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(f->world[i].group_rank, i); /* by arrival */
}

static void a_late_joiner_is_told_how_it_ended(void **state)
{
    struct fixture *f = *state;
    three_run(f);
    for (int i = 0; i < 3; i++)
        report(f, i, MEMBERSHIP_REPORT_DONE);
    join(f, 5, "late");
    assert_int_equal(f->verdict[5].kind, MEMBERSHIP_EVENT_VERDICT);
    assert_int_equal(f->verdict[5].exit_code, EXIT_CODE_OK);
}

/* The spare of a name that is in the world is another run's agent; an agent with its own name waits for a
 * place. */
static void a_spare_of_a_members_name_is_a_second_runs(void **state)
{
    struct fixture *f = *state;
    static const char *const names[] = {"node0", "node1", "node2", "node3", "node1", "node9"};
    for (int i = 0; i < 6; i++)
        join(f, i, names[i]);
    assert_int_equal(f->world[3].group_world_size, 4);
    for (int i = 0; i < 4; i++)
        report(f, i, MEMBERSHIP_REPORT_RUNNING);
    for (int i = 0; i < 4; i++)
        report(f, i, MEMBERSHIP_REPORT_DONE);
    for (int i = 1; i < 6; i++) {
        assert_int_equal(f->verdict[i].kind, MEMBERSHIP_EVENT_VERDICT);
        assert_int_equal(f->verdict[i].doubled, i == 4);
    }
}

static void the_done_keep_the_lost_from_being_forgotten(void **state)
{
    struct fixture *f = *state;
    join(f, 0, "node0");
    join(f, 1, "node1");
    pass(f, LAST_CALL_S, all, 1);
    report(f, 0, MEMBERSHIP_REPORT_RUNNING);
    report(f, 1, MEMBERSHIP_REPORT_RUNNING);
    report(f, 0, MEMBERSHIP_REPORT_DONE);
    pass(f, 3, all, 0); /* node1 is lost, and its workers may go on without node0, which is done */
    report(f, 0, MEMBERSHIP_REPORT_STOPPED);
    for (int i = 2; i < 5; i++)
        join(f, i, i == 2 ? "node2" : i == 3 ? "node3" : "node4");
    assert_int_equal(roster_state(f->roster), JOB_FORMING);
    int64_t lease = roster_lease_ns(f->roster);
    assert_int_equal(lease, 20 * NS_PER_S);
    pass(f, 18, all + 1, 3);
    assert_int_equal(roster_state(f->roster), JOB_FORMING);
    pass(f, 1, all + 1, 3); /* lease and margin after it was heard last */
    assert_int_equal(f->worlds, 4);
}

static void a_full_job_rejects_more(void **state)
{
    struct fixture *f = *state;
    int slots = roster_slot_count(f->roster);
    char name[16];
    for (int i = 0; i < slots; i++) {
        struct roster_join as = join_of(0, name);
        (void)snprintf(name, sizeof name, "n%d", i);
        as.incarnation.low = 1000 + (uint64_t)i;
        as.local = false;
        struct roster_event event = {.kind = ROSTER_JOIN, .session = 1000 + (uint64_t)i, .join = &as};
        assert_int_equal(roster_step(f->roster, &event, f->now, &f->actions, &f->err), 0);
        assert_int_equal(f->actions.items[0].kind, ROSTER_ACCEPT);
    }
    struct roster_join as = join_of(1, "more");
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
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
        for (int turn = 0; turn < 24; turn++) {
            int left[] = {0, 1, 2, 3}, count = 4, rank_of[5];
            (void)teardown(state);
            create(f, 2, 4);
            for (int who = 1, pick = turn; count; who++, pick /= count + 1) {
                int name = left[pick % count];
                left[pick % count] = left[count - 1];
                count--;
                join(f, who, orders[i][name]);
                rank_of[who] = name;
            }
            assert_int_equal(f->worlds, 4);
            for (int who = 1; who <= 4; who++)
                assert_int_equal(f->world[who].group_rank, rank_of[who]);
        }
    (void)teardown(state);
    create(f, 2, 4);
    for (int who = 1; who <= 4; who++)
        join(f, who, "one-host");
    for (int who = 1; who <= 4; who++)
        assert_int_equal(f->world[who].group_rank, who - 1);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
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
        TEST(a_node_that_does_not_stop_is_put_out),
        TEST(agents_of_one_host_share_its_name),
        TEST(a_late_joiner_is_told_how_it_ended),
        TEST(the_done_keep_the_lost_from_being_forgotten),
        TEST(a_full_job_rejects_more),
        TEST(ranks_are_in_the_order_of_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
