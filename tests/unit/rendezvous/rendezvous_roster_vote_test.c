/* rendezvous_roster_vote_test.c - a roster whose worlds are voted about: no WORLD before CHOSEN, the record
 * that is proposed, and members that go while the voters decide. */
#include <string.h>

#include "proto/exit_code.h"
#include "tests/unit/rendezvous/vote_fixture.h"

static void create_job(struct fixture *f, int nodes, bool elastic)
{
    const struct roster_options options = {.job_id = "job",
                                           .min_nodes = nodes,
                                           .max_nodes = nodes,
                                           .elastic = elastic,
                                           .max_restarts = 3,
                                           .epoch = 42,
                                           .votes = true,
                                           .join_timeout_ns = 10 * NS_PER_S,
                                           .last_call_ns = 5 * NS_PER_S};
    create_roster(f, &options, 0);
}

/* Two nodes are an elastic job, with room for spares. */
static void create(struct fixture *f, int nodes)
{
    create_job(f, nodes, nodes == 2);
}

static void join(struct fixture *f, int who)
{
    const struct roster_join join = join_of(f, who);
    join_as(f, who, &join);
}

static void event_of(struct fixture *f, int who, enum roster_event_kind kind)
{
    step(f, (struct roster_event){.kind = kind,
                                  .session = (uint64_t)who + 1,
                                  .member = f->slots[who],
                                  .exit_code = EXIT_CODE_TERMINATED});
}

static void no_world_goes_out_before_it_is_chosen(void **state)
{
    struct fixture f;
    struct world_record record;
    char text[256];
    (void)state;
    create(&f, 5);
    for (int i = 0; i < 5; i++)
        join(&f, i);
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
    create(&f, 3);
    for (int i = 0; i < 3; i++)
        join(&f, i);
    step(&f, (struct roster_event){.kind = ROSTER_CHOSEN});
    for (int i = 0; i < 3; i++)
        report(&f, i, (struct world_id){42, 0}, MEMBERSHIP_REPORT_RUNNING);
    f.now = instant_add(f.now, 3 * NS_PER_S); /* c is silent */
    event_of(&f, 1, ROSTER_BEAT);
    step(&f, (struct roster_event){.kind = ROSTER_TICK});
    for (int i = 0; i < 2; i++)
        report(&f, i, (struct world_id){42, 0}, MEMBERSHIP_REPORT_STOPPED);
    assert_int_equal(f.proposals, 0); /* a static world waits for its rank */
    join(&f, 2);
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
    create(&f, 2);
    join(&f, 0);
    join(&f, 1);
    assert_int_equal(f.proposals, 1);
    event_of(&f, 1, ROSTER_LEAVE);
    join(&f, 2);
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

/* Their workers are done, so the others go on. */
static void voters_that_have_gone_are_replaced(void **state)
{
    struct fixture f;
    struct world_record known, record;
    (void)state;
    create(&f, 5);
    for (int i = 0; i < 5; i++)
        join(&f, i);
    step(&f, (struct roster_event){.kind = ROSTER_CHOSEN});
    roster_fill_record(f.roster, &known);
    assert_false(roster_revise_record(f.roster, &known, &record)); /* it does not run yet */
    for (int i = 0; i < 5; i++)
        report(&f, i, (struct world_id){42, 0}, MEMBERSHIP_REPORT_RUNNING);
    for (int i = 1; i < 4; i++) {
        report(&f, i, (struct world_id){42, 0}, MEMBERSHIP_REPORT_DONE);
        assert_false(roster_revise_record(f.roster, &known, &record)); /* it is here, and may stand */
        event_of(&f, i, ROSTER_LEAVE);
        assert_true(roster_revise_record(f.roster, &known, &record));
        assert_int_equal(record.nodes, 5);
        assert_int_equal(record.voter_count,
                         i < 3 ? 3 : 1); /* two nodes have no majority without each other */
        assert_string_equal(record.voters[0].name, "a");
        if (i < 3)
            assert_string_equal(record.voters[2].name, "e");
        known = record;
        assert_false(roster_revise_record(f.roster, &known, &record));
    }
    destroy(&f);
}

/* Two nodes are left, and a spare. Then the third comes back. */
static void voters_are_as_many_as_can_be(void **state)
{
    struct fixture f;
    struct world_record known, record;
    (void)state;
    for (int spare = 0; spare < 2; spare++) {
        create_job(&f, 3, true);
        for (int i = 0; i < 3 + spare; i++)
            join(&f, i);
        step(&f, (struct roster_event){.kind = ROSTER_CHOSEN});
        roster_fill_record(f.roster, &known);
        assert_int_equal(known.voter_count, 3);
        for (int i = 0; i < 3; i++)
            report(&f, i, (struct world_id){42, 0}, MEMBERSHIP_REPORT_RUNNING);
        report(&f, 2, (struct world_id){42, 0}, MEMBERSHIP_REPORT_DONE);
        event_of(&f, 2, ROSTER_LEAVE);
        assert_true(roster_revise_record(f.roster, &known, &record));
        assert_int_equal(record.voter_count, spare ? 3 : 1);
        if (spare)
            assert_string_equal(record.voters[2].name, "d");
        known = record;
        assert_false(roster_revise_record(f.roster, &known, &record));
        join(&f, 2);
        assert_int_equal(roster_revise_record(f.roster, &known, &record), !spare); /* the spare may stay */
        if (!spare)
            assert_int_equal(record.voter_count, 3);
        if (spare) {
            event_of(&f, 3, ROSTER_LEAVE);
            assert_true(roster_revise_record(f.roster, &known, &record));
        }
        assert_string_equal(record.voters[2].name, "c");
        destroy(&f);
    }
}

static void a_spare_is_the_third_voter_of_two_nodes(void **state)
{
    struct fixture f;
    struct world_record record;
    (void)state;
    create(&f, 2);
    join(&f, 0);
    join(&f, 1);
    roster_fill_record(f.roster, &record);
    assert_int_equal(record.voter_count, 1);
    assert_string_equal(record.voters[0].name, "a");
    join(&f, 2);
    join(&f, 3);
    roster_fill_record(f.roster, &record);
    assert_int_equal(record.voter_count, 3);
    assert_string_equal(record.voters[1].name, "b");
    assert_string_equal(record.voters[2].name, "c");
    assert_int_equal(record.nodes, 2);
    destroy(&f);
}

static void join_without_a_port(struct fixture *f, int who)
{
    struct roster_join without = join_of(f, who);
    without.vote_port = 0;
    join_as(f, who, &without);
}

static void an_agent_without_a_port_is_no_voter(void **state)
{
    struct fixture f;
    struct world_record record;
    (void)state;
    create(&f, 4);
    for (int i = 0; i < 3; i++)
        join(&f, i);
    join_without_a_port(&f, 3);
    roster_fill_record(f.roster, &record);
    assert_int_equal(record.nodes, 4);
    assert_int_equal(record.voter_count, 3);
    for (int i = 0; i < 3; i++)
        assert_string_equal(record.voters[i].name, names[i]);
    destroy(&f);
}

static void spare_without_a_port(bool with_another)
{
    struct fixture f;
    struct world_record record;
    struct membership_event stop = {0};
    create(&f, 2);
    join(&f, 0);
    join(&f, 1);
    step(&f, (struct roster_event){.kind = ROSTER_CHOSEN});
    join_without_a_port(&f, 2);
    roster_fill_record(f.roster, &record);
    assert_int_equal(record.voter_count, 1);
    if (with_another) {
        join(&f, 3);
        roster_fill_record(f.roster, &record);
        assert_int_equal(record.voter_count, 3);
        assert_string_equal(record.voters[2].name, "d");
    }
    event_of(&f, 0, ROSTER_DRAIN);
    for (size_t i = 0; i < f.actions.count; i++)
        if (f.actions.items[i].kind == ROSTER_SEND_STOP)
            roster_fill_event(f.roster, &f.actions.items[i], &stop);
    assert_non_null(
        strstr(stop.reason, with_another ? "another node takes over" : "wait for it to come back"));
    destroy(&f);
}

static void a_spare_without_a_port_is_no_voter(void **state)
{
    (void)state;
    spare_without_a_port(false);
    spare_without_a_port(true);
}

static void without_a_majority_the_job_ends_with_the_join_timeout(void **state)
{
    struct fixture f;
    (void)state;
    create(&f, 2);
    join(&f, 0);
    join(&f, 1);
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

/* A job of one voter has no record of it. */
static void a_restart_of_a_world_that_no_member_saw_has_its_round(void **state)
{
    struct fixture f;
    (void)state;
    create(&f, 3);
    join(&f, 0);
    join(&f, 2);
    struct roster_join told = join_of(&f, 1);
    told.epoch = 7;
    told.server_left = true;
    told.restart_count = 3;
    join_as(&f, 1, &told);
    step(&f, (struct roster_event){.kind = ROSTER_CHOSEN});
    assert_int_equal(f.worlds, 3);
    assert_int_equal(f.last.world.restart_count, 3);
    assert_int_equal(f.last.world.id.round, 3);
    destroy(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_world_goes_out_before_it_is_chosen),
        cmocka_unit_test(the_server_in_office_asks_for_each_round),
        cmocka_unit_test(a_round_whose_member_has_gone_has_no_world),
        cmocka_unit_test(voters_that_have_gone_are_replaced),
        cmocka_unit_test(voters_are_as_many_as_can_be),
        cmocka_unit_test(a_spare_is_the_third_voter_of_two_nodes),
        cmocka_unit_test(an_agent_without_a_port_is_no_voter),
        cmocka_unit_test(a_spare_without_a_port_is_no_voter),
        cmocka_unit_test(without_a_majority_the_job_ends_with_the_join_timeout),
        cmocka_unit_test(a_restart_of_a_world_that_no_member_saw_has_its_round),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
