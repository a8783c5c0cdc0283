/* votes_test.c - the rules of the vote hold in random and in directed schedules (votes.h). soak_votes plays
 * 2,000,000. */
#include "tests/simulation/votes/votes.h"
#include "tests/support/cmocka_all.h"

enum { SEEDS = 2500, QUIET_SEEDS = 600, DRAINS_SEEDS = 1000, ALL_RANKS_SEEDS = 1000 };

struct sums {
    unsigned takeovers, stuck, again;
};

/* Seeds 1 to `seeds`, none of which may break. option: that of simulate_votes. */
static struct sums play(void (*make)(uint64_t, struct votes_schedule *), const char *option, uint64_t seeds)
{
    struct votes_schedule schedule;
    struct votes_outcome outcome;
    struct sums sums = {0};
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        make(seed, &schedule);
        votes_run(&schedule, false, &outcome);
        if (outcome.broken)
            fail_msg("seed %llu: %s (simulate_votes %s --seed %llu --trace)", (unsigned long long)seed,
                     outcome.text, option, (unsigned long long)seed);
        sums.takeovers += outcome.takeovers;
        sums.stuck += outcome.stuck;
        sums.again += outcome.jobs > 1;
    }
    return sums;
}

static void random_schedules_hold(void **state)
{
    const struct sums sums = play(votes_random, "", SEEDS);
    (void)state;
    /* Servers are lost, and mostly a majority remains. */
    assert_true(sums.takeovers > SEEDS / 2);
    assert_true(sums.stuck < SEEDS / 2);
}

/* Agents end one at a time, and messages overtake each other: each loss of a server is one election. */
static void nobody_leaves_a_server_that_serves(void **state)
{
    const struct sums sums = play(votes_quiet, "--quiet", QUIET_SEEDS);
    (void)state;
    assert_true(sums.takeovers > QUIET_SEEDS);
    assert_int_equal(sums.stuck, 0); /* a majority is always left */
}

/* Whatever was lost, and however many voters: a job whose agents are all there trains again. */
static void a_job_with_all_its_ranks_waits_for_no_voter(void **state)
{
    const struct sums sums = play(votes_all_ranks, "--all-ranks", ALL_RANKS_SEEDS);
    (void)state;
    assert_true(sums.again > ALL_RANKS_SEEDS / 20);
    assert_true(sums.stuck < ALL_RANKS_SEEDS / 2);
}

/* Agents that have left vote until the next round is decided. */
static void the_end_of_one_more_agent_costs_no_majority(void **state)
{
    const struct sums sums = play(votes_drains, "--drains", DRAINS_SEEDS);
    (void)state;
    assert_true(sums.takeovers > DRAINS_SEEDS / 2);
}

static void directed_schedules_hold(void **state)
{
    struct votes_outcome outcome;
    const struct votes_schedule *schedule;
    (void)state;
    for (int i = 0; (schedule = votes_directed(i)); i++) {
        votes_run(schedule, false, &outcome);
        if (outcome.broken || outcome.stuck != schedule->stuck)
            fail_msg("directed %d: %s (simulate_votes --directed %d --trace)", i,
                     outcome.broken ? outcome.text : "a majority is left, or is not, against the table", i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_schedules_hold),
        cmocka_unit_test(nobody_leaves_a_server_that_serves),
        cmocka_unit_test(the_end_of_one_more_agent_costs_no_majority),
        cmocka_unit_test(a_job_with_all_its_ranks_waits_for_no_voter),
        cmocka_unit_test(directed_schedules_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
