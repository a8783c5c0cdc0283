/* roster_mutations_test.c - the simulator finds bugs: each of those that mutation.h plants breaks an
 * invariant, or keeps a job from its end, within 10,000 seeds.
 *
 *     simulation_roster_mutations [number of the mutation [seed]]      prints the trace */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "rendezvous/mutation.h"
#include "tests/simulation/random_jobs.h"
#include "tests/support/cmocka_all.h"

enum mutation mutation_planted;

static const char *const meanings[] = {
#define MUTATION_MEANING(symbol, meaning) [symbol] = (meaning),
    MUTATIONS(MUTATION_MEANING)
#undef MUTATION_MEANING
};

/* Whether a job of the seed shows it. */
static bool shows(uint64_t seed, bool print)
{
    bool found = false;
    for (int kind = 0; kind < RANDOM_KIND_COUNT && !found; kind++) {
        struct random_run run = random_run((enum random_kind)kind, seed);
        found = run.wrong != NULL;
        if (found && print)
            (void)fprintf(stderr, "%s%s\n", cluster_trace(run.cluster), run.wrong);
        if (found)
            print_message("%s: seed %" PRIu64 ": %s\n", meanings[mutation_planted], seed, run.wrong);
        cluster_destroy(run.cluster);
    }
    return found;
}

static void every_planted_bug_is_found(void **state)
{
    enum { SEEDS = 10000 };
    (void)state;
    for (int which = MUTATION_NONE + 1; which < MUTATION_COUNT; which++) {
        mutation_planted = (enum mutation)which;
        uint64_t seed = 1;
        while (seed <= SEEDS && !shows(seed, false))
            seed++;
        if (seed > SEEDS)
            fail_msg("not found: %s", meanings[which]);
    }
}

int main(int argc, char **argv)
{
    if (argc > 2) {
        mutation_planted = (enum mutation)strtol(argv[1], NULL, 10);
        return !shows(strtoull(argv[2], NULL, 10), true);
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_planted_bug_is_found)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
