/* roster_random_test.c - thousands of jobs with random faults; the invariants are checked after every event
 * (cluster.c), and here that each job comes to its end once the faults are over.
 *
 *     simulation_roster_random [first seed [count]]      a failure prints its seed and the whole trace */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/exit_code.h"
#include "tests/simulation/cluster.h"
#include "tests/support/cmocka_all.h"

enum {
    FAULTS_UNTIL_MS = 20000,
    JOIN_TIMEOUT_MS = 30000,
    CALM_RUN_MS = 2000,
    /* Detection, stop, join and restart of every node, once for each restart that is left, and the run
       itself. */
    END_BY_MS = FAULTS_UNTIL_MS + 2 * JOIN_TIMEOUT_MS + 6 * 10000,
};

static uint64_t first_seed = 1, seed_count = 10000;

static uint64_t next(uint64_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random;
}

struct plan {
    int nodes;
    bool term; /* somebody gets TERM */
};

static struct cluster *random_job(uint64_t seed, struct plan *plan)
{
    uint64_t random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    int nodes = 1 + (int)(next(&random) % 5);
    struct cluster_options options = {
        .seed = seed,
        .nodes = nodes,
        .max_restarts = (int64_t)(next(&random) % 4),
        .join_timeout_ns = JOIN_TIMEOUT_MS * NS_PER_MS,
        .delay_min_ns = 100 * NS_PER_US,
        .delay_max_ns = (int64_t)(1 + next(&random) % 300) * NS_PER_MS,
        .duplicate_percent = next(&random) % 2 ? 10 : 0,
        .start_ns = (int64_t)(1 + next(&random) % 500) * NS_PER_MS,
        .stop_ns = (int64_t)(1 + next(&random) % 2000) * NS_PER_MS,
    };
    for (int i = 0; i < nodes; i++)
        options.local_world_size[i] = 1 + (int)(next(&random) % 8);
    *plan = (struct plan){.nodes = nodes};
    struct cluster *cluster = cluster_create(&options);
    for (int i = 0; i < nodes; i++)
        cluster_start(cluster, (int64_t)(next(&random) % 3000), i);
    int faults = (int)(next(&random) % 6);
    for (int k = 0; k < faults; k++) {
        int64_t at = (int64_t)(next(&random) % FAULTS_UNTIL_MS);
        int node = (int)(next(&random) % (uint64_t)nodes);
        uint64_t kind = next(&random) % 10;
        if (kind < 3 || (node == 0 && kind < 9)) {
            cluster_kill(cluster, at, node);
        } else if (kind < 5) {
            cluster_crash(cluster, at, node);
            cluster_start(cluster, at + (int64_t)(next(&random) % 6000), node);
        } else if (kind < 8) {
            cluster_cut(cluster, at, node);
            cluster_heal(cluster, at + (int64_t)(next(&random) % 6000), node);
        } else if (kind < 9) {
            cluster_finish(cluster, at, node);
        } else {
            cluster_term(cluster, at, node);
            plan->term = true;
        }
    }
    cluster_calm(cluster, FAULTS_UNTIL_MS, CALM_RUN_MS);
    return cluster;
}

static const char *check_end(const struct cluster *cluster, const struct plan *plan)
{
    for (int i = 0; i < plan->nodes; i++)
        if (cluster_exit_code(cluster, i) < 0)
            return "an agent has not left";
    enum roster_job_state state = roster_state(cluster_roster(cluster));
    if (state != JOB_FINISHED && state != JOB_FAILED)
        return "the job has not come to its end";
    if (roster_has_remote(cluster_roster(cluster)))
        return "somebody still holds a seat";
    int code = cluster_exit_code(cluster, 0);
    if (state == JOB_FINISHED && code != EXIT_CODE_OK && code != EXIT_CODE_TERMINATED)
        return "the serving agent failed a job that succeeded";
    if (state == JOB_FAILED && code == EXIT_CODE_OK)
        return "the serving agent left 0 from a job that failed";
    if (code == EXIT_CODE_TERMINATED && !plan->term)
        return "143 without a TERM";
    return NULL;
}

static void random_faults(void **state)
{
    (void)state;
    uint64_t finished = 0;
    int64_t restarts = 0;
    for (uint64_t seed = first_seed; seed < first_seed + seed_count; seed++) {
        struct plan plan;
        struct cluster *cluster = random_job(seed, &plan);
        cluster_run(cluster, END_BY_MS);
        const char *wrong = cluster_broken(cluster);
        if (!wrong)
            wrong = check_end(cluster, &plan);
        if (wrong) {
            print_message("%s\n", cluster_trace(cluster));
            fail_msg("seed %" PRIu64 ": %s", seed, wrong);
        }
        finished += roster_state(cluster_roster(cluster)) == JOB_FINISHED;
        restarts += roster_restart_count(cluster_roster(cluster));
        cluster_destroy(cluster);
    }
    print_message("seeds %" PRIu64 "..%" PRIu64 ": %" PRIu64 " jobs finished, %" PRIu64 " failed, %" PRId64
                  " restarts\n",
                  first_seed, first_seed + seed_count - 1, finished, seed_count - finished, restarts);
    /* A generator that only makes dead or only makes healthy jobs tests nothing. */
    if (seed_count >= 1000) {
        assert_true(finished > seed_count / 5 && finished < seed_count * 19 / 20);
        assert_true(restarts > (int64_t)seed_count / 5);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        first_seed = strtoull(argv[1], NULL, 10);
        seed_count = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_faults)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
