/* rendezvous_succession_test.c - the roster of a server that has taken a job over: it gathers the members
 * that are left, counts the loss of the server before it, and gives a verdict if no restart is left. */
#include <string.h>

#include "proto/exit_code.h"
#include "tests/unit/rendezvous/vote_fixture.h"

enum { LOST = 0, SERVER = 1 }; /* agent 0 was the server before */

static const struct world_id before = {7, 4};

static void create(struct fixture *f, bool elastic, int nodes, int64_t restarts)
{
    const struct voter lost = {.incarnation = {1, LOST + 1}, .name = "a"};
    const struct roster_options options = {.job_id = "job",
                                           .min_nodes = elastic ? 1 : nodes,
                                           .max_nodes = nodes,
                                           .elastic = elastic,
                                           .max_restarts = restarts,
                                           .epoch = 42,
                                           .votes = true,
                                           .continues = true,
                                           .before = &lost,
                                           .round = before.round + 1,
                                           .join_timeout_ns = 10 * NS_PER_S};
    create_roster(f, &options, SERVER);
}

/* WORKS: its workers of the world before go on, since the server's were done. ENDS: they are still ending. */
enum { IS_NEW = 0, IS_PAST = 1, WORKS = 2, ENDS = 3 };

/* done: nodes that were done, as WORKS knows them. */
static void join_knowing(struct fixture *f, int who, int how, const struct rank_ranges *done)
{
    const bool works = how == WORKS;
    struct roster_join join = join_of(f, who);
    rank_ranges_copy(&join.done, done);
    if (how == IS_NEW) {
        join.incarnation.high = 2;
    } else {
        join.last = before;
        join.last_nodes = f->options.max_nodes;
        join.last_rank = who;
        join.epoch = before.epoch;
        join.server_done = works;
        join.held = works || how == ENDS ? before : (struct world_id){0};
    }
    join_as(f, who, &join);
}

static void join(struct fixture *f, int who, int how)
{
    join_knowing(f, who, how, &(struct rank_ranges){0});
}

static void tick_at(struct fixture *f, int64_t ms)
{
    f->now = (struct instant){ms * NS_PER_MS};
    step(f, (struct roster_event){.kind = ROSTER_TICK});
}

static void the_members_that_are_left_form_the_next_round_at_once(void **state)
{
    struct fixture f;
    (void)state;
    create(&f, true, 4, 3);
    join(&f, SERVER, IS_PAST);
    join(&f, 2, IS_PAST);
    assert_int_equal(f.proposals, 0);
    join(&f, 3, IS_PAST);
    assert_int_equal(f.proposals, 1);
    step(&f, (struct roster_event){.kind = ROSTER_CHOSEN});
    assert_int_equal(f.worlds, 3);
    assert_int_equal(f.last.world.id.round, before.round + 1);
    assert_int_equal(f.last.world.restart_count, 1);
    assert_string_equal(f.last.world.master_addr, "b");
    destroy(&f);
}

/* Workers that stay need the places that they had. */
static void a_spare_takes_the_lost_servers_place(void **state)
{
    struct fixture f;
    (void)state;
    create(&f, true, 4, 3);
    join(&f, 4, IS_NEW); /* it was never in a world */
    join(&f, SERVER, IS_PAST);
    join(&f, 3, IS_PAST);
    join(&f, 2, IS_PAST);
    assert_int_equal(f.proposals, 1);
    step(&f, (struct roster_event){.kind = ROSTER_CHOSEN});
    assert_int_equal(f.worlds, 4);
    assert_int_equal(f.rank[4], 0);
    for (int who = SERVER; who < 4; who++)
        assert_int_equal(f.rank[who], who);
    assert_string_equal(f.last.world.master_addr, "b"); /* the store is the server's */
    destroy(&f);
}

/* With fewer nodes all workers are started anew, and the server has rank 0. */
static void a_smaller_world_begins_with_the_server(void **state)
{
    struct fixture f;
    (void)state;
    create(&f, true, 4, 3);
    join(&f, SERVER, IS_PAST);
    join(&f, 3, IS_PAST);
    tick_at(&f, 1000);
    assert_int_equal(f.proposals, 1);
    step(&f, (struct roster_event){.kind = ROSTER_CHOSEN});
    assert_true(f.rank[SERVER] == 0 && f.rank[3] == 1);
    destroy(&f);
}

static void a_member_that_is_lost_too_is_waited_for_a_second(void **state)
{
    struct fixture f;
    (void)state;
    create(&f, true, 4, 3);
    join(&f, SERVER, IS_PAST);
    join(&f, 2, IS_PAST);
    tick_at(&f, 999);
    assert_int_equal(f.proposals, 0);
    tick_at(&f, 1000);
    assert_int_equal(f.proposals, 1);
    destroy(&f);
}

/* A world without the server would count that agent among the voters twice: as the proposer, and as the
 * spare. */
static void no_world_is_formed_before_the_workers_of_the_server_have_ended(void **state)
{
    struct fixture f;
    struct world_record record;
    (void)state;
    create(&f, true, 3, 3);
    join(&f, SERVER, ENDS);
    join(&f, 2, IS_PAST);
    join(&f, 3, IS_NEW);
    tick_at(&f, 1500); /* more than min_nodes are here, and have been waited for */
    assert_int_equal(f.proposals, 0);
    report(&f, SERVER, before, MEMBERSHIP_REPORT_STOPPED);
    assert_int_equal(f.proposals, 1);
    roster_fill_record(f.roster, &record);
    assert_int_equal(record.nodes, 3);
    assert_string_equal(record.voters[0].name, "b");
    for (int i = 1; i < record.voter_count; i++)
        assert_string_not_equal(record.voters[i].name, "b");
    destroy(&f);
}

static void without_a_restart_all_get_the_verdict(void **state)
{
    struct fixture f;
    (void)state;
    create(&f, false, 3, 0);
    join(&f, SERVER, IS_PAST);
    assert_int_equal(f.verdicts, 0); /* the other one is waited for */
    join(&f, 2, IS_PAST);
    assert_int_equal(f.verdicts, 1);
    assert_int_equal(f.last.exit_code, EXIT_CODE_NODE);
    assert_non_null(strstr(f.last.reason,
                           "node rank 0 (a) is lost, it served the job in round 4; restarts used: 0 of 0"));
    destroy(&f);
    create(&f, false, 3, 0);
    join(&f, SERVER, IS_PAST);
    tick_at(&f, 1000);
    assert_int_equal(roster_state(f.roster), JOB_FINISHED); /* not for long */
    destroy(&f);
}

static void a_static_job_keeps_its_ranks_and_has_its_store_on_the_server(void **state)
{
    struct fixture f;
    struct world_record record;
    (void)state;
    create(&f, false, 3, 3);
    join(&f, SERVER, IS_PAST);
    join(&f, 2, IS_PAST);
    join(&f, 0, IS_NEW); /* started again: a new agent */
    assert_int_equal(f.proposals, 1);
    roster_fill_record(f.roster, &record);
    assert_int_equal(record.voter_count, 3);
    assert_string_equal(record.voters[0].name, "b"); /* the server */
    assert_string_equal(record.voters[1].name, "c");
    assert_string_equal(record.voters[2].name, "a");
    step(&f, (struct roster_event){.kind = ROSTER_CHOSEN});
    assert_int_equal(f.worlds, 3);
    assert_string_equal(f.last.world.master_addr, "b");
    assert_int_equal(f.last.world.master_port, 29500);
    destroy(&f);
}

/* The first member that returns does not know it. Together the members show it: by the name of the server's
 * next agent, or because only a single agent is new. */
static void the_restart_names_the_lost_servers_rank(void **state)
{
    static const struct {
        int at_rank[3]; /* at ranks 0, 2 and 3; an agent with another number is new */
        const char *said;
    } cases[] = {
        {{LOST, 2, 3}, "node rank 0 (a) is lost, it served the job in round 4"},
        {{4, 2, 3}, "node rank 0 (a) is lost, it served the job in round 4"},
        {{LOST, 4, 3}, "node rank 0 (a) is lost, it served the job in round 4"},
        {{4, 5, 3}, "node a is lost, it served the job in round 4"},
    };
    static const int ranks[] = {0, 2, 3};
    struct fixture f;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        create(&f, false, 4, 3);
        join(&f, SERVER, IS_PAST);
        for (int turn = 2; turn >= 0; turn--) {
            const int who = cases[i].at_rank[turn];
            struct roster_join again = join_of(&f, who);
            again.node_rank = ranks[turn];
            again.incarnation.high = 2;
            if (who == ranks[turn] && who != LOST)
                join(&f, who, IS_PAST);
            else
                join_as(&f, who, &again);
        }
        assert_int_equal(f.proposals, 1);
        step(&f, (struct roster_event){.kind = ROSTER_CHOSEN});
        assert_int_equal(f.worlds, 4);
        assert_string_equal(f.last.reason, cases[i].said);
        destroy(&f);
    }
}

/* The two that worked are done, and the job ends well. */
static void finish(struct fixture *f)
{
    for (int who = SERVER; who < 3; who++)
        report(f, who, before, MEMBERSHIP_REPORT_DONE);
    assert_int_equal(roster_state(f->roster), JOB_FINISHING);
    assert_int_equal(f->last.exit_code, EXIT_CODE_OK);
}

/* The server before had nothing left to do: its loss costs nothing. */
static void a_world_that_needs_no_server_goes_on(void **state)
{
    struct fixture f;
    (void)state;
    for (int elastic = 0; elastic < 2; elastic++) {
        create(&f, elastic, 3, 0);
        join(&f, SERVER, WORKS);
        join(&f, 2, WORKS);
        assert_int_equal(f.stops + f.proposals + f.verdicts, 0);
        assert_int_equal(roster_state(f.roster), JOB_RUNNING);
        assert_int_equal(roster_restart_count(f.roster), 0);
        finish(&f);
        destroy(&f);
    }
}

static void beat(struct fixture *f, int who, int missing, int ended)
{
    step(f, (struct roster_event){.kind = ROSTER_BEAT,
                                  .session = (uint64_t)who + 1,
                                  .member = f->slots[who],
                                  .missing = missing,
                                  .ended = ended});
}

/* Until then both agents are heard. */
static void wait_with(struct fixture *f, int other, int64_t ms)
{
    for (int64_t at = f->now.ns / NS_PER_MS + 2000; at < ms; at += 2000) {
        tick_at(f, at);
        beat(f, SERVER, 0, 0);
        beat(f, other, 0, 0);
    }
    tick_at(f, ms);
}

/* Agent 3 had gone before the server did, and only the server knew it. */
static const struct rank_ranges lost_and_3 = {2, {{0, 0}, {3, 3}}};

static void nodes_that_were_done_may_have_gone(void **state)
{
    struct fixture f;
    (void)state;
    for (int elastic = 0; elastic < 2; elastic++) {
        create(&f, elastic, 4, 0);
        join_knowing(&f, SERVER, WORKS, &lost_and_3);
        join_knowing(&f, 2, WORKS, &lost_and_3);
        wait_with(&f, 2, 2499);
        assert_int_equal(roster_state(f.roster), JOB_FORMING);
        tick_at(&f, 2500);
        assert_int_equal(f.stops + f.proposals + f.verdicts, 0);
        assert_int_equal(roster_state(f.roster), JOB_RUNNING);
        finish(&f);
        destroy(&f);
    }
}

/* It was only late. In an elastic job its name is not known before. */
static void a_node_that_was_done_comes_back_to_its_place(void **state)
{
    struct fixture f;
    (void)state;
    for (int elastic = 0; elastic < 2; elastic++) {
        create(&f, elastic, 4, 0);
        join_knowing(&f, SERVER, WORKS, &lost_and_3);
        join_knowing(&f, 2, WORKS, &lost_and_3);
        wait_with(&f, 2, 2500);
        struct roster_join late = join_of(&f, 3);
        late.last = late.held = before;
        late.last_nodes = 4;
        late.last_rank = 3;
        late.epoch = before.epoch;
        late.held_done = late.server_done = true;
        join_as(&f, 3, &late);
        assert_int_equal(f.stops, 0);
        assert_int_equal(roster_member_state(f.roster, f.slots[3]), MEMBER_DONE);
        finish(&f);
        assert_int_equal(f.verdicts, 2); /* to agents 2 and 3; the server's own is the last */
        destroy(&f);
    }
}

/* Agent 2 is not here, and was not done. */
static void a_world_that_lacks_a_node_that_works_does_not_go_on(void **state)
{
    struct fixture f;
    (void)state;
    create(&f, true, 4, 3);
    join_knowing(&f, SERVER, WORKS, &lost_and_3);
    join_knowing(&f, 3, WORKS, &lost_and_3);
    wait_with(&f, 3, 9999);
    assert_int_equal(roster_state(f.roster), JOB_FORMING);
    join_knowing(&f, 2, WORKS, &lost_and_3);
    assert_int_equal(roster_state(f.roster), JOB_RUNNING);
    assert_int_equal(roster_restart_count(f.roster), 0);
    destroy(&f);
}

/* The ranks of nodes count that the new server has never seen. */
static void a_worker_that_has_ended_is_blamed_under_the_next_server_too(void **state)
{
    struct fixture f;
    (void)state;
    create(&f, true, 3, 3);
    join(&f, SERVER, WORKS);
    beat(&f, SERVER, 0, 1 + 1);
    join(&f, 2, WORKS);
    assert_int_equal(roster_state(f.roster), JOB_RUNNING);
    beat(&f, 2, 1 + 2, 0);
    f.now.ns += NS_PER_S / 10;
    beat(&f, 2, 1 + 2, 0);
    assert_int_equal(f.stops, 2);
    struct membership_event stop;
    roster_fill_event(f.roster, &f.actions.items[0], &stop);
    assert_non_null(strstr(stop.reason, "its own code was 0, but rank 2 still needs it"));
    assert_non_null(strstr(stop.reason, "rank 1 "));
    destroy(&f);
}

/* An agent that was elected kept its rank, and is lost with its workers. */
static void the_rank_of_a_lost_server_need_not_be_0(void **state)
{
    static const int ranks[] = {2, 0, 1, 3}; /* by agent */
    struct fixture f;
    (void)state;
    create(&f, true, 4, 3);
    for (int who = SERVER; who < 4; who++) {
        struct roster_join join = join_of(&f, who);
        join.last = before;
        join.last_nodes = 4;
        join.last_rank = ranks[who];
        join.epoch = before.epoch;
        join_as(&f, who, &join);
    }
    assert_int_equal(f.proposals, 1);
    step(&f, (struct roster_event){.kind = ROSTER_CHOSEN});
    assert_string_equal(f.last.reason, "node rank 2 (a) is lost, it served the job in round 4");
    destroy(&f);
}

/* Started again, and sooner here than a member that works. */
static void the_next_agent_of_the_server_is_waited_with(void **state)
{
    struct fixture f;
    (void)state;
    for (int elastic = 0; elastic < 2; elastic++) {
        create(&f, elastic, 3, 0);
        join(&f, SERVER, WORKS);
        join(&f, LOST, IS_NEW);
        tick_at(&f, 1500);
        assert_int_equal(f.stops + f.proposals + f.verdicts, 0);
        join(&f, 2, WORKS);
        assert_int_equal(f.stops + f.proposals + f.verdicts, 0);
        assert_int_equal(roster_state(f.roster), JOB_RUNNING);
        finish(&f);
        destroy(&f);
    }
}

/* Rank 2's agent is a new one: its workers of the former world are gone. */
static void a_static_world_that_lost_a_member_too_is_stopped(void **state)
{
    struct fixture f;
    (void)state;
    create(&f, false, 3, 3);
    join(&f, SERVER, WORKS);
    join(&f, 2, IS_NEW);
    tick_at(&f, 999);
    assert_int_equal(f.stops, 0);
    tick_at(&f, 1000);
    assert_int_equal(f.stops, 1);
    assert_int_equal(roster_restart_count(f.roster), 1);
    destroy(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_members_that_are_left_form_the_next_round_at_once),
        cmocka_unit_test(a_spare_takes_the_lost_servers_place),
        cmocka_unit_test(a_smaller_world_begins_with_the_server),
        cmocka_unit_test(a_member_that_is_lost_too_is_waited_for_a_second),
        cmocka_unit_test(no_world_is_formed_before_the_workers_of_the_server_have_ended),
        cmocka_unit_test(without_a_restart_all_get_the_verdict),
        cmocka_unit_test(a_static_job_keeps_its_ranks_and_has_its_store_on_the_server),
        cmocka_unit_test(the_restart_names_the_lost_servers_rank),
        cmocka_unit_test(a_world_that_needs_no_server_goes_on),
        cmocka_unit_test(nodes_that_were_done_may_have_gone),
        cmocka_unit_test(a_node_that_was_done_comes_back_to_its_place),
        cmocka_unit_test(a_world_that_lacks_a_node_that_works_does_not_go_on),
        cmocka_unit_test(a_worker_that_has_ended_is_blamed_under_the_next_server_too),
        cmocka_unit_test(the_rank_of_a_lost_server_need_not_be_0),
        cmocka_unit_test(the_next_agent_of_the_server_is_waited_with),
        cmocka_unit_test(a_static_world_that_lost_a_member_too_is_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
