/* roster_fixture.h - for tests of the roster by itself: a static world of three nodes "a", "b" and "c",
 * brought to where a test begins. */
#ifndef MUSTER_TESTS_ROSTER_FIXTURE_H
#define MUSTER_TESTS_ROSTER_FIXTURE_H

#include "rendezvous/roster/roster.h"
#include "tests/support/cmocka_all.h"

enum { NODES = 3 };

struct fixture {
    struct roster *roster;
    struct roster_actions actions;
    struct instant now;
    uint64_t sequence[NODES];
    struct muster_error err;
};

static inline struct roster_options options_of(int nodes)
{
    return (struct roster_options){.job_id = "job",
                                   .min_nodes = nodes,
                                   .max_nodes = nodes,
                                   .max_restarts = 1,
                                   .epoch = 42,
                                   .join_timeout_ns = 10 * NS_PER_S};
}

static inline int setup(void **state)
{
    static struct fixture fixture;
    memset(&fixture, 0, sizeof fixture);
    struct roster_options options = options_of(NODES);
    fixture.roster = roster_create(&options, fixture.now, &fixture.err);
    *state = &fixture;
    return roster_actions_init(&fixture.actions, NODES, NULL);
}

static inline int teardown(void **state)
{
    struct fixture *f = *state;
    roster_actions_free(&f->actions);
    roster_destroy(f->roster);
    return 0;
}

static inline struct roster_join join_of(int rank)
{
    static const char *const names[] = {"a", "b", "c", "d"};
    assert_in_range(rank, 0, sizeof names / sizeof names[0] - 1);
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

static inline int step(struct fixture *f, const struct roster_event *event)
{
    return roster_step(f->roster, event, f->now, &f->actions, &f->err);
}

/* Sessions are 1 + rank. An agent that lives answers AGAIN. */
static inline void join(struct fixture *f, uint64_t session, const struct roster_join *who)
{
    struct roster_join again = *who;
    const struct roster_event event = {.kind = ROSTER_JOIN, .session = session, .join = &again};
    assert_int_equal(step(f, &event), 0);
    if (f->actions.count == 1 && f->actions.items[0].kind == ROSTER_AGAIN) {
        again.proof = f->actions.items[0].proof;
        assert_int_equal(step(f, &event), 0);
    }
}

static inline int report(struct fixture *f, int rank, uint32_t round, enum membership_report_kind kind,
                         const struct worker_failure *failure)
{
    struct roster_event event = {.kind = ROSTER_REPORT, .session = (uint64_t)rank + 1, .member = rank};
    event.report.id = (struct world_id){42, round};
    event.report.kind = kind;
    event.report.sequence = ++f->sequence[rank];
    event.report.failure = failure;
    return step(f, &event);
}

static inline void all_join(struct fixture *f)
{
    for (int rank = 0; rank < NODES; rank++) {
        struct roster_join who = join_of(rank);
        join(f, (uint64_t)rank + 1, &who);
    }
}

static inline void all_run(struct fixture *f)
{
    all_join(f);
    for (int rank = 0; rank < NODES; rank++)
        assert_int_equal(report(f, rank, 0, MEMBERSHIP_REPORT_RUNNING, NULL), 0);
    assert_int_equal(roster_state(f->roster), JOB_RUNNING);
}

#define WITH_WORLD(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

#endif
