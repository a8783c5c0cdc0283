/* rendezvous_roster_vote_test.c - a roster whose worlds are voted about: no WORLD before CHOSEN, the record
 * that is proposed, and members that go while the voters decide. */
#include <string.h>

#include "proto/exit_code.h"
#include "rendezvous/roster/roster.h"
#include "tests/support/cmocka_all.h"

enum { AGENTS = 6 };

struct fixture {
    struct roster *roster;
    struct roster_actions actions;
    struct instant now;
    int slots[AGENTS];
    uint64_t sequence[AGENTS];
    int proposals, worlds, verdicts; /* of the last step */
    struct membership_event last;    /* WORLD or VERDICT */
};

static const char *const names[] = {"a", "b", "c", "d", "e", "f"};

static void step(struct fixture *f, struct roster_event event)
{
    assert_int_equal(roster_step(f->roster, &event, f->now, &f->actions, NULL), 0);
    f->proposals = f->worlds = f->verdicts = 0;
    for (size_t i = 0; i < f->actions.count; i++) {
        const struct roster_action *action = &f->actions.items[i];
        if (action->kind == ROSTER_ACCEPT)
            f->slots[action->session - 1] = action->member;
        f->proposals += action->kind == ROSTER_PROPOSE;
        f->worlds += action->kind == ROSTER_SEND_WORLD;
        f->verdicts += action->kind == ROSTER_SEND_VERDICT;
        if (action->kind == ROSTER_SEND_WORLD || action->kind == ROSTER_SEND_VERDICT)
            roster_fill_event(f->roster, action, &f->last);
        if (action->kind == ROSTER_PROPOSE)
            assert_int_equal(action->session, 1); /* the hosting agent's */
    }
}

static void create(struct fixture *f, int min, int max)
{
    const struct roster_options options = {.job_id = "job",
                                           .min_nodes = min,
                                           .max_nodes = max,
                                           .elastic = min < max || max == 2,
                                           .max_restarts = 3,
                                           .epoch = 42,
                                           .votes = true,
                                           .join_timeout_ns = 10 * NS_PER_S,
                                           .last_call_ns = 5 * NS_PER_S};
    *f = (struct fixture){.roster = roster_create(&options, (struct instant){0}, NULL)};
    assert_non_null(f->roster);
    assert_int_equal(roster_actions_init(&f->actions, roster_slot_count(f->roster), NULL), 0);
}

static void destroy(struct fixture *f)
{
    roster_actions_free(&f->actions);
    roster_destroy(f->roster);
}

static void join(struct fixture *f, int who, int min, int max)
{
    const struct roster_join join = {.protocol_version = ROSTER_PROTOCOL_VERSION,
                                     .job_id = "job",
                                     .min_nodes = min,
                                     .max_nodes = max,
                                     .elastic = min < max || max == 2,
                                     .agent_name = names[who],
                                     .node_rank = max == 2 ? -1 : who,
                                     .incarnation = {1, (uint64_t)who + 1},
                                     .local_world_size = 1,
                                     .role = "trainer",
                                     .store_addr = names[who],
                                     .store_port = 29500,
                                     .vote_addr = "10.0.0.9",
                                     .vote_port = (uint16_t)(7000 + who),
                                     .local = who == 0};
    step(f, (struct roster_event){.kind = ROSTER_JOIN, .session = (uint64_t)who + 1, .join = &join});
}

static void event_of(struct fixture *f, int who, enum roster_event_kind kind)
{
    step(f, (struct roster_event){.kind = kind,
                                  .session = (uint64_t)who + 1,
                                  .member = f->slots[who],
                                  .exit_code = EXIT_CODE_TERMINATED});
}

static void report(struct fixture *f, int who, uint32_t round, enum membership_report_kind kind)
{
    struct roster_event event = {
        .kind = ROSTER_REPORT, .session = (uint64_t)who + 1, .member = f->slots[who]};
    event.report.id = (struct world_id){42, round};
    event.report.kind = kind;
    event.report.sequence = ++f->sequence[who];
    step(f, event);
}

static void no_world_goes_out_before_it_is_chosen(void **state)
{
    struct fixture f;
    struct world_record record;
    char text[256];
    (void)state;
    create(&f, 5, 5);
    for (int i = 0; i < 5; i++)
        join(&f, i, 5, 5);
    assert_int_equal(f.proposals, 1);
    assert_int_equal(f.worlds, 0);
    assert_int_equal(roster_state(f.roster), JOB_FORMING);
    assert_true(roster_deadline(f.roster).ns > f.now.ns); /* it waits without a loop */
    roster_describe_progress(f.roster, text, sizeof text);
    assert_string_equal(text, "5 nodes; waiting for a majority of the last round's voters");
    roster_fill_record(f.roster, &record);
    assert_int_equal(record.nodes, 5);
    assert_int_equal(record.voter_count, 5);
    for (int i = 0; i < 5; i++) {
        assert_string_equal(record.voters[i].name, names[i]);
        assert_string_equal(record.voters[i].address, "10.0.0.9");
        assert_int_equal(record.voters[i].port, 7000 + i);
        assert_int_equal(record.voters[i].incarnation.low, i + 1);
    }
    step(&f, (struct roster_event){.kind = ROSTER_TICK});
    assert_int_equal(f.proposals, 0); /* once */
    step(&f, (struct roster_event){.kind = ROSTER_CHOSEN});
    assert_int_equal(f.worlds, 5);
    assert_int_equal(f.last.world.id.round, 0);
    step(&f, (struct roster_event){.kind = ROSTER_CHOSEN}); /* nothing is proposed any more */
    assert_int_equal(f.worlds + f.proposals, 0);
    destroy(&f);
}

static void the_server_in_office_asks_for_each_round(void **state)
{
    struct fixture f;
    (void)state;
    create(&f, 3, 3);
    for (int i = 0; i < 3; i++)
        join(&f, i, 3, 3);
    step(&f, (struct roster_event){.kind = ROSTER_CHOSEN});
    for (int i = 0; i < 3; i++)
        report(&f, i, 0, MEMBERSHIP_REPORT_RUNNING);
    f.now = instant_add(f.now, 3 * NS_PER_S); /* c is silent */
    event_of(&f, 1, ROSTER_BEAT);
    step(&f, (struct roster_event){.kind = ROSTER_TICK});
    for (int i = 0; i < 2; i++)
        report(&f, i, 0, MEMBERSHIP_REPORT_STOPPED);
    assert_int_equal(f.proposals, 0); /* a static world waits for its rank */
    join(&f, 2, 3, 3);
    assert_int_equal(f.proposals, 1);
    assert_int_equal(f.worlds, 0);
    step(&f, (struct roster_event){.kind = ROSTER_CHOSEN});
    assert_int_equal(f.worlds, 3);
    assert_int_equal(f.last.world.id.round, 1);
    assert_int_equal(f.last.world.restart_count, 1);
    destroy(&f);
}

static void a_round_whose_member_has_gone_has_no_world(void **state)
{
    struct fixture f;
    struct world_record record;
    (void)state;
    create(&f, 2, 2);
    join(&f, 0, 2, 2);
    join(&f, 1, 2, 2);
    assert_int_equal(f.proposals, 1);
    event_of(&f, 1, ROSTER_LEAVE);
    join(&f, 2, 2, 2);
    assert_int_equal(f.proposals, 0); /* the voters may still choose the first proposal */
    step(&f, (struct roster_event){.kind = ROSTER_CHOSEN});
    assert_int_equal(f.worlds, 0);
    assert_int_equal(f.proposals, 1);
    roster_fill_record(f.roster, &record);
    assert_string_equal(record.voters[0].name, "a");
    step(&f, (struct roster_event){.kind = ROSTER_CHOSEN});
    assert_int_equal(f.worlds, 2);
    assert_int_equal(f.last.world.id.round, 1);
    destroy(&f);
}

static void a_spare_is_the_third_voter_of_two_nodes(void **state)
{
    struct fixture f;
    struct world_record record;
    (void)state;
    create(&f, 2, 2);
    join(&f, 0, 2, 2);
    join(&f, 1, 2, 2);
    roster_fill_record(f.roster, &record);
    assert_int_equal(record.voter_count, 1);
    assert_string_equal(record.voters[0].name, "a");
    join(&f, 2, 2, 2);
    join(&f, 3, 2, 2);
    roster_fill_record(f.roster, &record);
    assert_int_equal(record.voter_count, 3);
    assert_string_equal(record.voters[1].name, "b");
    assert_string_equal(record.voters[2].name, "c");
    assert_int_equal(record.nodes, 2);
    destroy(&f);
}

static void without_a_majority_the_job_ends_with_the_join_timeout(void **state)
{
    struct fixture f;
    (void)state;
    create(&f, 2, 2);
    join(&f, 0, 2, 2);
    join(&f, 1, 2, 2);
    for (int s = 0; s < 10; s++) {
        f.now = instant_add(f.now, NS_PER_S);
        event_of(&f, 1, ROSTER_BEAT);
        step(&f, (struct roster_event){.kind = ROSTER_TICK});
    }
    assert_int_equal(f.verdicts, 1);
    assert_int_equal(f.last.exit_code, EXIT_CODE_NODE);
    assert_string_equal(f.last.reason,
                        "no majority of the last round's voters answered within 10 s (--join-timeout)");
    step(&f, (struct roster_event){.kind = ROSTER_CHOSEN}); /* too late */
    assert_int_equal(f.worlds, 0);
    destroy(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_world_goes_out_before_it_is_chosen),
        cmocka_unit_test(the_server_in_office_asks_for_each_round),
        cmocka_unit_test(a_round_whose_member_has_gone_has_no_world),
        cmocka_unit_test(a_spare_is_the_third_voter_of_two_nodes),
        cmocka_unit_test(without_a_majority_the_job_ends_with_the_join_timeout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
