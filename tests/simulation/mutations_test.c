/* mutations_test.c - the simulator finds bugs: each of those in planted_bugs.cmake breaks an invariant, or
 * keeps a job from its end, within 10,000 seeds, or in the kept schedule that was made for it. Prints the
 * seed at which each was found.
 *
 *     simulation_mutations DIRECTORY
 *     simulate_mutated --mutation N --seed M --shrink      shows it */
#include <inttypes.h>
#include <stdio.h>

#include "tests/simulation/planted_bugs.h"
#include "tests/simulation/schedule.h"
#include "tests/support/cmocka_all.h"

static const char *directory;

/* Too rare for the seeds. */
static const char *const directed[BUG_COUNT] = {
    [BUG_STALE_JOIN] = "stale_join_after_a_return.txt",
    [BUG_REFUSED_ENDS] = "refused_and_taken_in.txt",
    [BUG_FEW_VOTERS] = "done_voter_comes_back.txt",
    [BUG_OUT_OF_TOUCH] = "suspended_server_reads_closed_connections.txt",
};

static bool kept_shows_it(const char *name, struct outcome *outcome)
{
    struct schedule schedule;
    struct muster_error err;
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    if (schedule_load(path, &schedule, &err) < 0)
        fail_msg("%s", err.text);
    schedule_run(&schedule, outcome, NULL);
    return outcome->broken;
}

/* 0: none of them shows it. */
static uint64_t find_seed(uint64_t seeds, struct outcome *outcome)
{
    struct schedule schedule;
    const bool moves = planted_bug == BUG_FREE_LOSS || planted_bug == BUG_COSTLY_HANDOVER;
    const uint64_t kind = moves ? SCHEDULE_MOVING : 0;
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        schedule_random(kind | seed, &schedule);
        schedule_run(&schedule, outcome, NULL);
        if (outcome->broken)
            return seed;
    }
    return 0;
}

static void every_planted_bug_is_found(void **state)
{
    enum { SEEDS = 10000 };
    int missed = 0;
    (void)state;
    for (int which = BUG_NONE + 1; which < BUG_COUNT; which++) {
        struct outcome outcome;
        planted_bug = (enum planted_bug)which;
        bool kept = directed[which] && kept_shows_it(directed[which], &outcome);
        uint64_t seed = directed[which] ? 0 : find_seed(SEEDS, &outcome);
        if (kept)
            print_message("%2d in %s: %s: %s\n", which, directed[which], planted_meanings[which],
                          outcome.text);
        else if (seed)
            print_message("%2d at seed %5" PRIu64 ": %s: %s\n", which, seed, planted_meanings[which],
                          outcome.text);
        else
            print_message("%2d was NOT FOUND: %s\n", which, planted_meanings[which]);
        missed += !seed && !kept;
    }
    assert_int_equal(missed, 0);
}

static void without_a_bug_none_is_found(void **state)
{
    struct outcome outcome;
    (void)state;
    planted_bug = BUG_NONE;
    if (find_seed(500, &outcome))
        fail_msg("%s", outcome.text);
}

int main(int argc, char **argv)
{
    directory = argc > 1 ? argv[1] : "tests/simulation/kept";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_planted_bug_is_found),
        cmocka_unit_test(without_a_bug_none_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
