/* rendezvous_touch_test.c - members whose connection is down while a static world forms or runs, and a server
 * that stood still. */
#include "tests/unit/rendezvous/roster_fixture.h"

static void event_of(struct fixture *f, int rank, enum roster_event_kind kind)
{
    assert_int_equal(
        step(f, &(struct roster_event){.kind = kind, .session = (uint64_t)rank + 1, .member = rank}), 0);
}

static void tick_at(struct fixture *f, int64_t ms)
{
    f->now.ns = ms * NS_PER_MS;
    assert_int_equal(step(f, &(struct roster_event){.kind = ROSTER_TICK}), 0);
}

/* All but "c", which comes last; the connection of "b" has ended by then. */
static void all_join_but_one_is_apart(struct fixture *f)
{
    for (int rank = 0; rank < NODES; rank++) {
        struct roster_join who = join_of(rank);
        if (rank == 2)
            event_of(f, 1, ROSTER_DISCONNECT);
        join(f, (uint64_t)rank + 1, &who);
    }
    assert_int_equal(roster_state(f->roster), JOB_FORMING);
}

static void a_world_waits_for_a_connection(void **state)
{
    struct fixture *f = *state;
    struct roster_join who = join_of(1);
    all_join_but_one_is_apart(f);
    assert_true(roster_deadline(f->roster).ns > f->now.ns);
    f->now.ns = NS_PER_S / 2;
    join(f, 2, &who);
    assert_int_equal(roster_state(f->roster), JOB_STARTING);
    assert_int_equal(f->actions.count, 1 + NODES); /* ACCEPT, and WORLD for all */
}

static void a_lost_member_costs_nothing_yet(void **state)
{
    struct fixture *f = *state;
    all_join_but_one_is_apart(f);
    tick_at(f, 999);
    assert_int_equal(roster_member_state(f->roster, 1), MEMBER_JOINED);
    tick_at(f, 1000);
    assert_int_equal(roster_member_state(f->roster, 1), MEMBER_EMPTY);
    assert_int_equal(roster_state(f->roster), JOB_FORMING);
    struct roster_join who = join_of(1);
    who.incarnation.low = 20; /* another start */
    join(f, 2, &who);
    assert_int_equal(roster_state(f->roster), JOB_STARTING);
    assert_int_equal(roster_restart_count(f->roster), 0);
}

/* At the end of the time to join it is formed all the same. */
static void the_join_timeout_waits_for_no_connection(void **state)
{
    struct fixture *f = *state;
    for (int rank = 0; rank < 2; rank++) {
        struct roster_join who = join_of(rank);
        join(f, (uint64_t)rank + 1, &who);
    }
    for (int64_t ms = 1000; ms <= 9000; ms += 1000) {
        f->now.ns = ms * NS_PER_MS;
        event_of(f, 0, ROSTER_BEAT);
        event_of(f, 1, ROSTER_BEAT);
    }
    f->now.ns = 9900 * NS_PER_MS;
    event_of(f, 1, ROSTER_DISCONNECT);
    struct roster_join last = join_of(2);
    join(f, 3, &last);
    assert_int_equal(roster_state(f->roster), JOB_FORMING);
    tick_at(f, 10000);
    assert_int_equal(roster_state(f->roster), JOB_STARTING);
}

/* Agents that were given up by nobody have replaced their connections meanwhile: the ends of the old ones are
 * read before the first words on the new ones. */
static void a_connection_that_ended_during_a_freeze_has_time(void **state)
{
    struct fixture *f = *state;
    all_run(f);
    f->now.ns = 2 * NS_PER_S;
    roster_wake(f->roster, f->now);
    event_of(f, 1, ROSTER_DISCONNECT);
    f->now.ns = 4 * NS_PER_S;
    event_of(f, 0, ROSTER_BEAT);
    event_of(f, 2, ROSTER_BEAT);
    tick_at(f, 4499);
    assert_int_equal(roster_state(f->roster), JOB_RUNNING);
    tick_at(f, 4500);
    assert_int_equal(roster_state(f->roster), JOB_STOPPING);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_WORLD(a_world_waits_for_a_connection),
        WITH_WORLD(a_lost_member_costs_nothing_yet),
        WITH_WORLD(the_join_timeout_waits_for_no_connection),
        WITH_WORLD(a_connection_that_ended_during_a_freeze_has_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
