/* vote_fixture.h - for tests of a roster whose worlds are voted about: agents "a" to "f", each with a session
 * of its own, and the actions of the last step. */
#ifndef MUSTER_TESTS_VOTE_FIXTURE_H
#define MUSTER_TESTS_VOTE_FIXTURE_H

#include "rendezvous/roster/roster.h"
#include "tests/support/cmocka_all.h"

enum { AGENTS = 6 };

struct fixture {
    struct roster_options options;
    struct roster *roster;
    struct roster_actions actions;
    struct instant now;
    int server; /* the hosting agent */
    int slots[AGENTS];
    uint64_t sequence[AGENTS];
    int proposals, worlds, stops, verdicts; /* of the last step */
    struct membership_event last;           /* WORLD or VERDICT */
    int rank[AGENTS];                       /* group ranks of the last worlds */
};

static const char *const names[AGENTS] = {"a", "b", "c", "d", "e", "f"};

static inline void step(struct fixture *f, struct roster_event event)
{
    assert_int_equal(roster_step(f->roster, &event, f->now, &f->actions, NULL), 0);
    f->proposals = f->worlds = f->stops = f->verdicts = 0;
    for (size_t i = 0; i < f->actions.count; i++) {
        const struct roster_action *action = &f->actions.items[i];
        if (action->kind == ROSTER_ACCEPT)
            f->slots[action->session - 1] = action->member;
        f->proposals += action->kind == ROSTER_PROPOSE;
        f->worlds += action->kind == ROSTER_SEND_WORLD;
        f->stops += action->kind == ROSTER_SEND_STOP;
        f->verdicts += action->kind == ROSTER_SEND_VERDICT;
        if (action->kind == ROSTER_SEND_WORLD || action->kind == ROSTER_SEND_VERDICT)
            roster_fill_event(f->roster, action, &f->last);
        if (action->kind == ROSTER_SEND_WORLD)
            f->rank[action->session - 1] = f->last.world.group_rank;
        if (action->kind == ROSTER_PROPOSE)
            assert_int_equal(action->session, f->server + 1);
    }
}

static inline void create_roster(struct fixture *f, const struct roster_options *options, int server)
{
    *f = (struct fixture){.options = *options, .server = server};
    f->roster = roster_create(options, f->now, NULL);
    assert_non_null(f->roster);
    assert_int_equal(roster_actions_init(&f->actions, roster_slot_count(f->roster), NULL), 0);
}

static inline void destroy(struct fixture *f)
{
    roster_actions_free(&f->actions);
    roster_destroy(f->roster);
}

/* Without a past. */
static inline struct roster_join join_of(const struct fixture *f, int who)
{
    return (struct roster_join){.protocol_version = ROSTER_PROTOCOL_VERSION,
                                .job_id = f->options.job_id,
                                .min_nodes = f->options.min_nodes,
                                .max_nodes = f->options.max_nodes,
                                .elastic = f->options.elastic,
                                .agent_name = names[who],
                                .node_rank = f->options.elastic ? -1 : who,
                                .incarnation = {1, (uint64_t)who + 1},
                                .local_world_size = 1,
                                .role = "trainer",
                                .store_addr = names[who],
                                .store_port = who == f->server ? 29500 : 0,
                                .vote_addr = "10.0.0.9",
                                .vote_port = (uint16_t)(7000 + who),
                                .local = who == f->server};
}

static inline void join_as(struct fixture *f, int who, const struct roster_join *join)
{
    step(f, (struct roster_event){.kind = ROSTER_JOIN, .session = (uint64_t)who + 1, .join = join});
}

static inline void report(struct fixture *f, int who, struct world_id id, enum membership_report_kind kind)
{
    struct roster_event event = {
        .kind = ROSTER_REPORT, .session = (uint64_t)who + 1, .member = f->slots[who]};
    event.report.id = id;
    event.report.kind = kind;
    event.report.sequence = ++f->sequence[who];
    step(f, event);
}

#endif
