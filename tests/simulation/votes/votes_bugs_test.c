/* votes_bugs_test.c - each bug of votes_bugs.cmake is found within 20,000 random schedules, or in a directed
 * one.
 *
 *     simulation_votes_bugs SEEDS BUGS    at least so many bugs are found within so many schedules; most need
 * few */
#include <inttypes.h>
#include <stdlib.h>

#include "tests/simulation/planted_bugs.h"
#include "tests/simulation/votes/votes.h"
#include "tests/support/cmocka_all.h"

static int64_t seeds = 20000, wanted = BUG_COUNT - 1;

static bool is_shown(const struct votes_schedule *schedule, struct votes_outcome *outcome)
{
    votes_run(schedule, false, outcome);
    return outcome->broken || (outcome->stuck && !schedule->stuck);
}

/* < 0: a directed one shows it, from -1; 0: none of them. */
static int64_t find_seed(struct votes_outcome *outcome)
{
    struct votes_schedule schedule;
    const struct votes_schedule *directed;
    for (int i = 0; (directed = votes_directed(i)); i++)
        if (is_shown(directed, outcome))
            return -1 - i;
    for (int64_t seed = 1; seed <= seeds; seed++) {
        (seed % 4 == 0   ? votes_drains
         : seed % 8 == 1 ? votes_all_ranks
                         : votes_random)((uint64_t)seed, &schedule);
        votes_run(&schedule, false, outcome);
        if (outcome->broken)
            return seed;
    }
    return 0;
}

static void planted_bugs_are_found(void **state)
{
    int found = 0;
    (void)state;
    for (int which = BUG_NONE + 1; which < BUG_COUNT; which++) {
        struct votes_outcome outcome;
        planted_bug = (enum planted_bug)which;
        const int64_t seed = find_seed(&outcome);
        found += seed != 0;
        print_message("%2d %s %5" PRId64 ": %s: %s\n", which,
                      seed > 0   ? "at seed"
                      : seed < 0 ? "in a directed one"
                                 : "NOT within",
                      seed > 0   ? seed
                      : seed < 0 ? -1 - seed
                                 : seeds,
                      planted_meanings[which], seed ? outcome.text : "");
    }
    assert_in_range(found, (uintmax_t)wanted, BUG_COUNT - 1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(planted_bugs_are_found)};
    if (argc == 3) {
        seeds = strtol(argv[1], NULL, 10);
        wanted = strtol(argv[2], NULL, 10);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
