/* roster_random_test.c - thousands of jobs with random faults; the invariants are checked after every event
 * (cluster.c), and here that each job comes to its end once the faults are over.
 *
 *     simulation_roster_random [first seed [count]]      a failure prints its seed and the whole trace
 *
 * Every seed stands for a static job and for an elastic one. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/simulation/random_jobs.h"
#include "tests/support/cmocka_all.h"

static uint64_t first_seed = 1, seed_count = 10000;

static void run_seeds(enum random_kind kind, const char *name)
{
    uint64_t finished = 0;
    int64_t restarts = 0;
    for (uint64_t seed = first_seed; seed < first_seed + seed_count; seed++) {
        struct random_run run = random_run(kind, seed);
        struct cluster *cluster = run.cluster;
        if (run.wrong) {
            (void)fputs(cluster_trace(cluster), stderr); /* cmocka's message has a limit */
            fail_msg("%s, seed %" PRIu64 ": %s", name, seed, run.wrong);
        }
        finished += roster_state(cluster_roster(cluster)) == JOB_FINISHED;
        restarts += roster_restart_count(cluster_roster(cluster));
        cluster_destroy(cluster);
    }
    print_message("%s, seeds %" PRIu64 "..%" PRIu64 ": %" PRIu64 " jobs finished, %" PRIu64
                  " failed, %" PRId64 " restarts\n",
                  name, first_seed, first_seed + seed_count - 1, finished, seed_count - finished, restarts);
    /* A generator that only makes dead or only makes healthy jobs tests nothing. */
    if (seed_count >= 1000) {
        assert_true(finished > seed_count / 5 && finished < seed_count * 19 / 20);
        assert_true(restarts > (int64_t)seed_count / 5);
    }
}

static void static_jobs(void **state)
{
    (void)state;
    run_seeds(RANDOM_STATIC, "static");
}

static void elastic_jobs(void **state)
{
    (void)state;
    run_seeds(RANDOM_ELASTIC, "elastic");
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        first_seed = strtoull(argv[1], NULL, 10);
        seed_count = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(static_jobs), cmocka_unit_test(elastic_jobs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
