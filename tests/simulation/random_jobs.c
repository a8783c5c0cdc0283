/* random_jobs.c - see random_jobs.h. */
#include "tests/simulation/random_jobs.h"

#include "proto/exit_code.h"

enum {
    FAULTS_UNTIL_MS = 20000,
    JOIN_TIMEOUT_MS = 30000,
    CALM_RUN_MS = 2000,
    /* Detection, stop, join and restart of every node, once for each restart that is left, and the run
       itself. */
    END_BY_MS = FAULTS_UNTIL_MS + 2 * JOIN_TIMEOUT_MS + 6 * 10000,
};

static uint64_t next(uint64_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random;
}

struct plan {
    bool elastic;
    bool none_done_early; /* a server that was done and dies while there are spares is not told from a new one
                           */
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
    int claimed = nodes > 1 && next(&random) % 3 == 0 ? 1 + (int)(next(&random) % (uint64_t)(nodes - 1)) : 0;
    options.strangers = claimed > 0;
    options.local_world_size[nodes] = options.local_world_size[claimed];
    struct cluster *cluster = cluster_create(&options);
    for (int i = 0; i < nodes; i++)
        cluster_start(cluster, (int64_t)(next(&random) % 3000), i);
    if (claimed) /* another host that thinks it is this node */
        cluster_claim(cluster, (int64_t)(next(&random) % FAULTS_UNTIL_MS), nodes, claimed);
    int faults = (int)(next(&random) % 6);
    for (int k = 0; k < faults; k++) {
        int64_t at = (int64_t)(next(&random) % FAULTS_UNTIL_MS);
        int node = (int)(next(&random) % (uint64_t)nodes);
        uint64_t kind = next(&random) % 11;
        if (kind == 10) {
            cluster_reset(cluster, at, node);
        } else if (kind < 3 || (node == 0 && kind < 9)) {
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
    if (next(&random) % 4 == 0) { /* and the server with it */
        int64_t at = (int64_t)(next(&random) % FAULTS_UNTIL_MS);
        cluster_crash(cluster, at, 0);
        cluster_start(cluster, at + (int64_t)(next(&random) % 6000), 0);
    }
    cluster_calm(cluster, FAULTS_UNTIL_MS, CALM_RUN_MS);
    return cluster;
}

/* Nodes that come late and beyond max, go, freeze and come back. */
static void elastic_faults(struct cluster *cluster, struct plan *plan, uint64_t *random)
{
    int faults = (int)(next(random) % 8);
    for (int k = 0; k < faults; k++) {
        int64_t at = (int64_t)(next(random) % FAULTS_UNTIL_MS);
        int node = (int)(next(random) % (uint64_t)plan->nodes);
        uint64_t kind = next(random) % 15;
        if (kind == 14) {
            cluster_reset(cluster, at, node);
        } else if (kind < 3) {
            cluster_kill(cluster, at, node);
        } else if (kind < 5 && node) {
            cluster_crash(cluster, at, node);
            cluster_start(cluster, at + (int64_t)(next(random) % 6000), node);
        } else if (kind < 7 && node) {
            cluster_cut(cluster, at, node);
            cluster_heal(cluster, at + (int64_t)(next(random) % 12000), node);
        } else if (kind < 9) {
            cluster_freeze(cluster, at, node, (int64_t)(next(random) % 5000));
        } else if (kind < 10) {
            if (!plan->none_done_early)
                cluster_finish(cluster, at, node);
        } else if (node || kind == 13) {
            cluster_term(cluster, at, node);
            if (node)
                cluster_start(cluster, at + (int64_t)(next(random) % 10000), node);
            plan->term = true;
        }
    }
}

static struct cluster *random_elastic_job(uint64_t seed, struct plan *plan)
{
    uint64_t random = seed * UINT64_C(0x9e3779b97f4a7c15) + 77;
    int largest = next(&random) % 50 == 0 ? CLUSTER_NODE_LIMIT - 3 : 5;
    int max = 1 + (int)(next(&random) % (uint64_t)largest), min = 1 + (int)(next(&random) % (uint64_t)max);
    int nodes = max + (int)(next(&random) % 4);
    *plan = (struct plan){.elastic = true, .nodes = nodes < CLUSTER_NODE_LIMIT ? nodes : CLUSTER_NODE_LIMIT};
    struct cluster_options options = {
        .seed = seed,
        .nodes = plan->nodes,
        .elastic = true,
        .min_nodes = min,
        .max_nodes = max,
        .last_call_ns = (int64_t)(500 + next(&random) % 8000) * NS_PER_MS,
        .regroup_ns = (int64_t)(500 + next(&random) % 4000) * NS_PER_MS,
        .max_restarts = (int64_t)(next(&random) % 4),
        .join_timeout_ns = JOIN_TIMEOUT_MS * NS_PER_MS,
        .delay_min_ns = 100 * NS_PER_US,
        .delay_max_ns = (int64_t)(1 + next(&random) % 300) * NS_PER_MS,
        .duplicate_percent = next(&random) % 2 ? 10 : 0,
        .start_ns = (int64_t)(1 + next(&random) % 500) * NS_PER_MS,
        .stop_ns = (int64_t)(1 + next(&random) % 2000) * NS_PER_MS,
    };
    for (int i = 0; i < plan->nodes; i++)
        options.local_world_size[i] = 1 + (int)(next(&random) % 8);
    bool server_dies = next(&random) % 3 == 0;
    plan->none_done_early = server_dies && plan->nodes > max;
    if (server_dies) /* its last call must be longer than a lease */
        options.last_call_ns += 4500 * NS_PER_MS;
    struct cluster *cluster = cluster_create(&options);
    if (server_dies) {
        int64_t at = 4000 + (int64_t)(next(&random) % (FAULTS_UNTIL_MS - 4000));
        cluster_crash(cluster, at, 0);
        cluster_start(cluster, at + 100 + (int64_t)(next(&random) % 5000), 0);
    }
    for (int i = 0; i < plan->nodes; i++) /* some are late, when the world runs */
        cluster_start(cluster, (int64_t)(next(&random) % (i % 3 == 2 ? 15000 : 3000)), i);
    elastic_faults(cluster, plan, &random);
    cluster_calm(cluster, FAULTS_UNTIL_MS, CALM_RUN_MS);
    return cluster;
}

static const char *check_end(const struct cluster *cluster, const struct plan *plan)
{
    for (int i = 0; i < plan->nodes; i++)
        if (cluster_exit_code(cluster, i) < 0)
            return "an agent has not left";
    enum roster_job_state state = roster_state(cluster_roster(cluster));
    if (plan->elastic && plan->term && cluster_exit_code(cluster, 0) == EXIT_CODE_TERMINATED)
        return NULL; /* the server went with its agent, in whatever state */
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

struct random_run random_run(enum random_kind kind, uint64_t seed)
{
    struct plan plan;
    struct random_run run = {0};
    run.cluster = kind == RANDOM_STATIC ? random_job(seed, &plan) : random_elastic_job(seed, &plan);
    cluster_run(run.cluster, END_BY_MS);
    run.wrong = cluster_broken(run.cluster);
    if (!run.wrong)
        run.wrong = check_end(run.cluster, &plan);
    return run;
}
