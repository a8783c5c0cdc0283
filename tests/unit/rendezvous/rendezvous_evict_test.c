/* rendezvous_evict_test.c - an operator asks an elastic job's roster that a node leaves: when it is told to
 * go, when nothing is changed, and how far it has come. */
#include <string.h>

#include "proto/exit_code.h"
#include "rendezvous/roster/roster.h"
#include "tests/support/cmocka_all.h"

enum { NAMES = 6 };

struct fixture {
    struct roster *roster;
    struct roster_actions actions;
    struct instant now;
    int slot[NAMES];
    uint64_t sequence[NAMES];
    struct world_id world[NAMES];
    struct membership_event answer; /* the last one */
    int gone;                       /* who was told to go by the last step; -1: none */
    struct muster_error err;
};

static void step(struct fixture *f, struct roster_event event, int who)
{
    event.session = (uint64_t)who + 1;
    event.member = f->slot[who];
    assert_int_equal(roster_step(f->roster, &event, f->now, &f->actions, &f->err), 0);
    f->gone = -1;
    bool proposes = false;
    for (size_t i = 0; i < f->actions.count; i++) {
        const struct roster_action *action = &f->actions.items[i];
        struct membership_event sent;
        roster_fill_event(f->roster, action, &sent);
        if (action->kind == ROSTER_ACCEPT)
            f->slot[action->session - 1] = action->member;
        else if (action->kind == ROSTER_SEND_WORLD)
            f->world[action->session - 1] = sent.world.id;
        else if (action->kind == ROSTER_SEND_EVICTION)
            membership_event_copy(&f->answer, &sent);
        else if (action->kind == ROSTER_SEND_GO)
            f->gone = (int)action->session - 1;
        proposes |= action->kind == ROSTER_PROPOSE;
    }
    if (proposes)
        step(f, (struct roster_event){.kind = ROSTER_CHOSEN}, 0);
}

static void join(struct fixture *f, int who, const char *name)
{
    const struct roster_join join = {.protocol_version = ROSTER_PROTOCOL_VERSION,
                                     .job_id = "job",
                                     .min_nodes = 2,
                                     .max_nodes = 3,
                                     .elastic = true,
                                     .agent_name = name,
                                     .node_rank = -1,
                                     .incarnation = {7, (uint64_t)who + 1},
                                     .local_world_size = 2,
                                     .role = "trainer",
                                     .store_addr = "10.0.0.1",
                                     .store_port = 29500,
                                     .vote_addr = "10.0.0.1",
                                     .vote_port = (uint16_t)(7000 + who),
                                     .local = who == 0};
    step(f, (struct roster_event){.kind = ROSTER_JOIN, .join = &join}, who);
}

static void report(struct fixture *f, int who, enum membership_report_kind kind)
{
    struct roster_event event = {.kind = ROSTER_REPORT};
    event.report.id = f->world[who];
    event.report.kind = kind;
    event.report.sequence = ++f->sequence[who];
    step(f, event, who);
}

static const char *ask(struct fixture *f, const char *node, bool without_spare,
                       struct agent_incarnation agent)
{
    const struct membership_evict evict = {
        .number = 5, .node = node, .without_spare = without_spare, .agent = agent};
    f->answer = (struct membership_event){0};
    step(f, (struct roster_event){.kind = ROSTER_EVICT, .evict = &evict}, 0);
    assert_int_equal(f->answer.kind, MEMBERSHIP_EVENT_EVICTION);
    assert_int_equal(f->answer.number, 5);
    return f->answer.reason;
}

static void expect(struct fixture *f, const char *node, enum membership_eviction state, const char *part)
{
    const char *text = ask(f, node, false, (struct agent_incarnation){0});
    if (f->answer.eviction != state || !strstr(text, part))
        fail_msg("%s: %s: %s", node, membership_eviction_name(f->answer.eviction), text);
}

/* Three of "a" to "c" run; the rest wait. */
static int setup(void **state)
{
    static struct fixture f;
    const struct roster_options options = {.job_id = "job",
                                           .min_nodes = 2,
                                           .max_nodes = 3,
                                           .elastic = true,
                                           .votes = true,
                                           .max_restarts = 2,
                                           .epoch = 42,
                                           .join_timeout_ns = 600 * NS_PER_S};
    f = (struct fixture){.roster = roster_create(&options, (struct instant){0}, NULL)};
    assert_int_equal(roster_actions_init(&f.actions, roster_slot_count(f.roster), NULL), 0);
    *state = &f;
    join(&f, 0, "a");
    expect(&f, "b", EVICTION_WAITS, "between two rounds (FORMING)");
    join(&f, 1, "b");
    join(&f, 2, "c");
    for (int i = 0; i < 3; i++)
        report(&f, i, MEMBERSHIP_REPORT_RUNNING);
    assert_int_equal(roster_state(f.roster), JOB_RUNNING);
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    roster_actions_free(&f->actions);
    roster_destroy(f->roster);
    return 0;
}

static void nothing_changes_without_a_spare(void **state)
{
    struct fixture *f = *state;
    expect(f, "b", EVICTION_REFUSED, "agent \"b\" (node rank 1) stays: no spare waits");
    assert_non_null(strstr(f->answer.reason, "with 2 nodes: --without-spare"));
    assert_int_equal(f->gone, -1);
    expect(f, "x", EVICTION_REFUSED, "no node \"x\": the job has the nodes 0 to 2");
    expect(f, "3", EVICTION_REFUSED, "no node \"3\"");
    assert_int_equal(roster_state(f->roster), JOB_RUNNING);
    (void)ask(f, "b", true, (struct agent_incarnation){0});
    assert_string_equal(f->answer.reason,
                        "agent \"b\" (node rank 1) leaves, and the job goes on with 2 nodes");
    assert_int_equal(f->gone, 1);
    (void)ask(f, "2", true, (struct agent_incarnation){0}); /* "b" is as good as gone */
    assert_int_equal(f->answer.eviction, EVICTION_REFUSED);
    assert_non_null(strstr(f->answer.reason, "needs 2 nodes (--nnodes=2:3), without it 1 would be left"));
    report(f, 0, MEMBERSHIP_REPORT_DONE);
    expect(f, "2", EVICTION_REFUSED, "the job is about to end");
}

static void a_spare_takes_its_place(void **state)
{
    struct fixture *f = *state;
    join(f, 3, "d");
    expect(f, "b", EVICTION_LEAVES, "agent \"b\" (node rank 1) leaves, and the spare \"d\" takes its place");
    const struct agent_incarnation b = f->answer.agent;
    assert_true(b.high == 7 && b.low == 2);
    assert_int_equal(f->gone, 1);
    expect(f, "1", EVICTION_LEAVES, "was asked to leave before");
    assert_int_equal(f->gone, -1);
    expect(f, "c", EVICTION_REFUSED, "no spare waits"); /* the one is taken */
    (void)ask(f, "b", false, b);
    assert_string_equal(f->answer.reason, "agent \"b\" (node rank 1) was asked to leave, and has not begun");
    assert_int_equal(f->gone, 1); /* the first word may be lost */
    step(f, (struct roster_event){.kind = ROSTER_DRAIN, .exit_code = 143, .grace_ns = NS_PER_S}, 1);
    (void)ask(f, "b", false, b);
    assert_string_equal(f->answer.reason, "agent \"b\" (node rank 1) leaves: its workers are being stopped");
    expect(f, "c", EVICTION_WAITS, "between two rounds (STOPPING)");
    step(f, (struct roster_event){.kind = ROSTER_LEAVE, .exit_code = 143}, 1);
    (void)ask(f, "b", false, b);
    assert_string_equal(f->answer.reason, "node \"b\" has left; the others do not run yet");
    report(f, 0, MEMBERSHIP_REPORT_STOPPED);
    report(f, 2, MEMBERSHIP_REPORT_STOPPED);
    for (int i = 0; i < 4; i++)
        if (i != 1)
            report(f, i, MEMBERSHIP_REPORT_RUNNING);
    (void)ask(f, "b", false, b);
    assert_int_equal(f->answer.eviction, EVICTION_LEFT);
    assert_string_equal(f->answer.reason, "node \"b\" has left; 3 nodes run");
    assert_int_equal(roster_restart_count(f->roster), 0);
}

static void word_to_go_waits_for_a_connection(void **state)
{
    struct fixture *f = *state;
    join(f, 3, "d");
    step(f, (struct roster_event){.kind = ROSTER_DISCONNECT}, 2);
    expect(f, "c", EVICTION_LEAVES, "takes its place");
    assert_int_equal(f->gone, -1);
    join(f, 2, "c");
    assert_int_equal(f->gone, 2);
}

static void spares_and_namesakes(void **state)
{
    struct fixture *f = *state;
    join(f, 3, "d");
    join(f, 4, "c");
    expect(f, "c", EVICTION_REFUSED, "several agents are named \"c\": give the node's number, 0 to 2");
    expect(f, "d", EVICTION_LEAVES, "spare \"d\" leaves: it has no ranks");
    assert_int_equal(f->gone, 3);
    expect(f, "2", EVICTION_LEAVES, "the spare \"c\" takes its place"); /* not "d", which goes */
    assert_int_equal(f->gone, 2);
}

/* One that has been elected knows nothing of the request before it. */
static void the_next_server_goes_on(void **state)
{
    struct fixture *f = *state;
    (void)ask(f, "b", false, (struct agent_incarnation){7, 2});
    assert_int_equal(f->answer.eviction, EVICTION_LEAVES);
    assert_int_equal(f->gone, 1);
}

static void a_static_job_has_no_spares(void **state)
{
    struct fixture *f = *state;
    struct roster_options options = {
        .job_id = "job", .min_nodes = 1, .max_nodes = 1, .epoch = 42, .join_timeout_ns = NS_PER_S};
    roster_destroy(f->roster);
    f->roster = roster_create(&options, f->now, NULL);
    const struct roster_join only = {.protocol_version = ROSTER_PROTOCOL_VERSION,
                                     .job_id = "job",
                                     .min_nodes = 1,
                                     .max_nodes = 1,
                                     .agent_name = "a",
                                     .incarnation = {7, 1},
                                     .local_world_size = 1,
                                     .role = "trainer",
                                     .store_addr = "a",
                                     .store_port = 29500};
    step(f, (struct roster_event){.kind = ROSTER_JOIN, .join = &only}, 0);
    expect(f, "0", EVICTION_REFUSED, "the job has a fixed set of nodes");
}

#define JOB(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        JOB(nothing_changes_without_a_spare),   JOB(a_spare_takes_its_place),
        JOB(word_to_go_waits_for_a_connection), JOB(spares_and_namesakes),
        JOB(the_next_server_goes_on),           JOB(a_static_job_has_no_spares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
