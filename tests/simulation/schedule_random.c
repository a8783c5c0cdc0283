/* schedule_random.c - schedules from seeds: jobs of 3 to 64 agents, most of them small, with faults of every
 * kind (schedule_faults.c) for twenty seconds and a calm after. See schedule.h. */
#include "tests/simulation/schedule_maker.h"
#include "tests/support/walk.h"

enum {
    JOIN_TIMEOUT_MS = 40000, /* who freezes last must be back before */
    /* Detection, stop, join and restart of every node, once for each restart that is left, and the run. */
    END_BY_MS = FAULTS_UNTIL_MS + 2 * JOIN_TIMEOUT_MS + 6 * 10000,
    CLOCK_SPREAD_DAYS = 300,
};

int64_t maker_below(struct maker *m, int64_t limit)
{
    return (int64_t)(test_random(&m->random) % (uint64_t)limit);
}

bool maker_one_in(struct maker *m, int64_t chance)
{
    return maker_below(m, chance) == 0;
}

static void add(struct maker *m, const struct schedule_step *step)
{
    struct schedule *schedule = m->schedule;
    if (schedule->count < SCHEDULE_STEPS_LIMIT - (step->kind != STEP_CALM)) /* there is always a calm */
        schedule->steps[schedule->count++] = *step;
}

void maker_step(struct maker *m, int64_t at_ms, enum step_kind kind, int node, int64_t value)
{
    add(m, &(struct schedule_step){at_ms, kind, node, value, 0});
}

void maker_step_in(struct maker *m, int64_t at_ms, enum roster_job_state state, enum step_kind kind, int node,
                   int64_t value)
{
    add(m, &(struct schedule_step){at_ms, kind, node, value, 1 + (int)state});
}

void maker_start(struct maker *m, int64_t at_ms, int node)
{
    maker_step(m, at_ms, STEP_START, node, m->claim[node]);
}

/* -- the job
 * ----------------------------------------------------------------------------------------------------- */

static int draw_size(struct maker *m)
{
    int64_t luck = maker_below(m, 100);
    if (luck < 60)
        return 3 + (int)maker_below(m, 4);
    if (luck < 85)
        return 7 + (int)maker_below(m, 6);
    if (luck < 96)
        return 13 + (int)maker_below(m, 12);
    return 25 + (int)maker_below(m, 40);
}

static void draw_nodes(struct maker *m)
{
    struct cluster_options *options = &m->schedule->options;
    bool roles = maker_one_in(m, 3), even = maker_one_in(m, 3), listen = maker_one_in(m, 3);
    int size = 1 + (int)maker_below(m, 8);
    for (int i = 0; i < CLUSTER_NODE_LIMIT; i++) {
        options->local_world_size[i] = even ? size : 1 + (int)maker_below(m, 8);
        options->role[i] = roles ? (int)maker_below(m, CLUSTER_ROLES) : 0;
        options->listens[i] = listen && maker_one_in(m, 2);
        options->clock_offset_ns[i] = maker_below(m, CLOCK_SPREAD_DAYS * INT64_C(86400)) * NS_PER_S;
        options->clock_drift_ppm[i] = (int)maker_below(m, 1001) - 500;
    }
}

static void draw_common(struct maker *m)
{
    struct cluster_options *options = &m->schedule->options;
    options->max_restarts = maker_below(m, 4);
    options->backoff_ns = maker_one_in(m, 4) ? maker_below(m, 1000) * NS_PER_MS : 0;
    options->join_timeout_ns = JOIN_TIMEOUT_MS * NS_PER_MS;
    options->delay_min_ns = 100 * NS_PER_US;
    options->delay_max_ns = (1 + maker_below(m, maker_one_in(m, 4) ? 300 : 20)) * NS_PER_MS;
    options->duplicate_percent = maker_one_in(m, 2) ? 10 : 0;
    options->drop_percent = maker_one_in(m, 4) ? 1 + (int)maker_below(m, 5) : 0;
    options->loss_percent = maker_one_in(m, 5) ? 1 + (int)maker_below(m, 8) : 0;
    if (maker_one_in(m, 10)) { /* far away, rather than busy */
        options->delay_min_ns = 150 * NS_PER_MS;
        options->delay_max_ns = 250 * NS_PER_MS;
    }
    options->start_ns = (1 + maker_below(m, 500)) * NS_PER_MS;
    options->stop_ns = (1 + maker_below(m, 2000)) * NS_PER_MS;
    options->grace_ns = (500 + maker_below(m, 3000)) * NS_PER_MS;
    draw_nodes(m);
}

/* -- the two kinds
 * ----------------------------------------------------------------------------------------------- */

static void start_all(struct maker *m, bool some_late)
{
    for (int i = 0; i < m->nodes; i++) {
        m->start_ms[i] = maker_below(m, some_late && i % 3 == 2 ? 15000 : maker_one_in(m, 20) ? 15000 : 3000);
        maker_start(m, m->start_ms[i], i);
    }
}

static void make_static(struct maker *m)
{
    struct cluster_options *options = &m->schedule->options;
    m->nodes = draw_size(m);
    if (m->nodes > CLUSTER_NODE_LIMIT - 3)
        m->nodes = CLUSTER_NODE_LIMIT - 3;
    m->next_extra = m->nodes;
    options->nodes = m->nodes;
    draw_common(m);
    start_all(m, false);
    if (maker_one_in(m, 5)) { /* another host that thinks it is this node */
        int rank = 1 + (int)maker_below(m, m->nodes - 1);
        options->local_world_size[m->next_extra] = options->local_world_size[rank];
        maker_step(m, maker_below(m, FAULTS_UNTIL_MS), STEP_START, m->next_extra++, rank);
    }
    m->server_dies = maker_one_in(m, 8);
    if (m->shares)
        schedule_share_host(m);
    schedule_add_faults(m);
}

/* Wishes, some of them the same, some beyond the world. */
static void draw_claims(struct maker *m)
{
    for (int i = 0; i < m->nodes; i++)
        if (maker_one_in(m, 2))
            m->claim[i] = maker_one_in(m, 2) ? i : (int)maker_below(m, m->nodes);
}

static void make_elastic(struct maker *m)
{
    struct cluster_options *options = &m->schedule->options;
    m->nodes = draw_size(m);
    if (m->nodes > CLUSTER_NODE_LIMIT - 2)
        m->nodes = CLUSTER_NODE_LIMIT - 2;
    int spares = (int)maker_below(m, 4);
    int max = m->nodes > spares + 1 ? m->nodes - spares : 1;
    m->next_extra = m->nodes;
    options->elastic = true;
    options->nodes = m->nodes;
    options->max_nodes = max;
    m->spares = m->nodes > max;
    options->min_nodes = 1 + (int)maker_below(m, max);
    draw_common(m);
    options->last_call_ns = (500 + maker_below(m, 8000)) * NS_PER_MS;
    options->regroup_ns = (500 + maker_below(m, 4000)) * NS_PER_MS;
    m->server_dies = maker_one_in(m, 4);
    if (maker_one_in(m, 4))
        draw_claims(m);
    start_all(m, true); /* some are late, when the world runs */
    if (m->shares)
        schedule_share_host(m);
    schedule_add_faults(m);
}

static void make_moving(struct maker *m)
{
    struct cluster_options *options = &m->schedule->options;
    m->nodes = 4 + (int)maker_below(m, 9);
    options->votes = true;
    options->nodes = m->nodes;
    options->elastic = options->seed % 2 == 0;
    draw_common(m);
    options->max_restarts += 2;
    if (options->elastic) {
        options->max_nodes = m->nodes - (maker_one_in(m, 3) ? 1 : 0);
        options->min_nodes = 3 + (int)maker_below(m, options->max_nodes - 2);
        options->last_call_ns = (500 + maker_below(m, 4000)) * NS_PER_MS;
        options->regroup_ns = (500 + maker_below(m, 4000)) * NS_PER_MS;
    }
    start_all(m, false);
    schedule_move(m);
}

/* A node is done, and ranks of others miss a peer on it, or on a node that is lost in the same second. Agents
 * repeat the message, as launcher/agent/agent_notices.c does. */
static void add_misses(struct maker *m)
{
    const int64_t at = 4000 + maker_below(m, FAULTS_UNTIL_MS - 8000);
    const int done = (int)maker_below(m, m->nodes), lost = (int)maker_below(m, m->nodes);
    if (!maker_one_in(m, 4))
        maker_step(m, at - maker_below(m, 1000), STEP_FINISH, done, 0);
    if (lost && maker_one_in(m, 2)) {
        const int64_t then = at + maker_below(m, 1000);
        maker_step(m, then, STEP_CUT, lost, 0);
        maker_step(m, then + maker_below(m, 6000), STEP_HEAL, lost, 0);
    }
    for (int i = 1 + (int)maker_below(m, 3); i > 0; i--) {
        const int node = (int)maker_below(m, m->nodes);
        const int64_t first = at + maker_below(m, 1000);
        for (int again = 0; again < 6; again++)
            maker_step(m, first + 500 * again, STEP_MISS, node, 0);
    }
}

void schedule_random(uint64_t seed, struct schedule *out)
{
    *out = (struct schedule){.options = {.seed = seed}, .until_ms = END_BY_MS};
    struct maker maker = {.schedule = out,
                          .random = seed * UINT64_C(0xd1342543de82ef95) + 1,
                          .shares = schedule_draws_host(seed)};
    for (int i = 0; i < CLUSTER_NODE_LIMIT; i++)
        maker.claim[i] = -1;
    if (seed & SCHEDULE_MOVING)
        make_moving(&maker);
    else if (seed % 2)
        make_static(&maker);
    else
        make_elastic(&maker);
    if (seed % 7 == 3 && !maker.shares)
        add_misses(&maker);
    out->options.stale_percent = seed % 5 < 2 ? 60 : 0;
}
