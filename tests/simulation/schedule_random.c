/* schedule_random.c - schedules from seeds: jobs of 3 to 64 agents, most of them small, with faults of every
 * kind for twenty seconds and a calm after. See schedule.h. */
#include "tests/simulation/schedule.h"

enum {
    FAULTS_UNTIL_MS = 20000,
    JOIN_TIMEOUT_MS = 30000,
    CALM_RUN_MS = 2000,
    /* Detection, stop, join and restart of every node, once for each restart that is left, and the run. */
    END_BY_MS = FAULTS_UNTIL_MS + 2 * JOIN_TIMEOUT_MS + 6 * 10000,
    CLOCK_SPREAD_DAYS = 300,
};

struct maker {
    struct schedule *schedule;
    uint64_t random;
    int nodes; /* of the job */
    bool server_dies;
    bool spares;    /* of an elastic job */
    int next_extra; /* the next place for an agent that is not of the job */
};

/* splitmix64 */
static uint64_t next(struct maker *m)
{
    uint64_t z = (m->random += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static int64_t below(struct maker *m, int64_t limit)
{
    return (int64_t)(next(m) % (uint64_t)limit);
}

static bool one_in(struct maker *m, int64_t chance)
{
    return below(m, chance) == 0;
}

static void step(struct maker *m, int64_t at_ms, enum step_kind kind, int node, int64_t value)
{
    struct schedule *schedule = m->schedule;
    if (schedule->count < SCHEDULE_STEPS_LIMIT)
        schedule->steps[schedule->count++] = (struct schedule_step){at_ms, kind, node, value};
}

/* -- the job
 * ----------------------------------------------------------------------------------------------------- */

static int draw_size(struct maker *m)
{
    int64_t luck = below(m, 100);
    if (luck < 60)
        return 3 + (int)below(m, 4);
    if (luck < 85)
        return 7 + (int)below(m, 6);
    if (luck < 96)
        return 13 + (int)below(m, 12);
    return 25 + (int)below(m, 40);
}

static void draw_nodes(struct maker *m)
{
    struct cluster_options *options = &m->schedule->options;
    bool roles = one_in(m, 3), even = one_in(m, 3), listen = one_in(m, 3);
    int size = 1 + (int)below(m, 8);
    for (int i = 0; i < CLUSTER_NODE_LIMIT; i++) {
        options->local_world_size[i] = even ? size : 1 + (int)below(m, 8);
        options->role[i] = roles ? (int)below(m, CLUSTER_ROLES) : 0;
        options->listens[i] = listen && one_in(m, 2);
        options->clock_offset_ns[i] = below(m, CLOCK_SPREAD_DAYS * INT64_C(86400)) * NS_PER_S;
        options->clock_drift_ppm[i] = (int)below(m, 1001) - 500;
    }
}

static void draw_common(struct maker *m)
{
    struct cluster_options *options = &m->schedule->options;
    options->max_restarts = below(m, 4);
    options->backoff_ns = one_in(m, 4) ? below(m, 1000) * NS_PER_MS : 0;
    options->join_timeout_ns = JOIN_TIMEOUT_MS * NS_PER_MS;
    options->delay_min_ns = 100 * NS_PER_US;
    options->delay_max_ns = (1 + below(m, one_in(m, 4) ? 300 : 20)) * NS_PER_MS;
    options->duplicate_percent = one_in(m, 2) ? 10 : 0;
    options->drop_percent = one_in(m, 4) ? 1 + (int)below(m, 5) : 0;
    options->start_ns = (1 + below(m, 500)) * NS_PER_MS;
    options->stop_ns = (1 + below(m, 2000)) * NS_PER_MS;
    options->grace_ns = (500 + below(m, 3000)) * NS_PER_MS;
    draw_nodes(m);
}

/* -- the faults
 * -------------------------------------------------------------------------------------------------- */

struct fault {
    enum step_kind kind;
    int weight_static, weight_elastic;
    int64_t longest_ms; /* until it is over: a start, a heal, or its own value */
};

static const struct fault faults[] = {
    {STEP_KILL, 6, 6, 0},       {STEP_FOLLOW, 2, 2, 0},      {STEP_CRASH, 4, 4, 6000},
    {STEP_LOSE, 2, 2, 6000},    {STEP_CUT, 4, 4, 12000},     {STEP_CUT_OUT, 2, 2, 12000},
    {STEP_CUT_IN, 2, 2, 12000}, {STEP_LAG, 2, 2, 5000},      {STEP_RESET, 2, 2, 0},
    {STEP_FREEZE, 4, 7, 12000}, {STEP_SUSPEND, 1, 3, 12000}, {STEP_LEAP, 1, 2, 12000},
    {STEP_FINISH, 3, 2, 0},     {STEP_TERM, 1, 7, 10000},    {STEP_STICK, 1, 1, 0},
    {STEP_TWIN, 2, 1, 0},
};
enum { FAULTS = sizeof faults / sizeof *faults };

static const struct fault *draw_fault(struct maker *m)
{
    bool elastic = m->schedule->options.elastic;
    int64_t total = 0;
    for (int i = 0; i < FAULTS; i++)
        total += elastic ? faults[i].weight_elastic : faults[i].weight_static;
    int64_t luck = below(m, total);
    for (int i = 0;; i++) {
        luck -= elastic ? faults[i].weight_elastic : faults[i].weight_static;
        if (luck < 0)
            return &faults[i];
    }
}

/* The server's own end is drawn apart; the endpoint's network is everybody's. */
static bool spares_the_server(enum step_kind kind)
{
    return kind == STEP_CRASH || kind == STEP_LOSE || kind == STEP_STICK || kind == STEP_TWIN ||
           kind == STEP_TERM;
}

/* An elastic server that was done and dies, while there are agents enough for a world without those that are
 * still at work, is not told from a job's first: known, and left out. */
static bool unknown_when_back(const struct maker *m)
{
    return m->server_dies && m->spares;
}

/* Its machine is often out of reach, and comes back later. */
static void add_twin(struct maker *m, int64_t at, int node)
{
    int64_t lasts = 1000 + below(m, 8000);
    if (m->next_extra == CLUSTER_NODE_LIMIT)
        return;
    if (one_in(m, 3)) {
        step(m, at, STEP_CUT, node, 0);
        step(m, at + lasts, STEP_HEAL, node, 0);
    } else if (one_in(m, 2)) {
        step(m, at, STEP_FREEZE, node, lasts);
    }
    step(m, at + below(m, 4000), STEP_TWIN, m->next_extra++, node);
}

static void add_fault(struct maker *m)
{
    const struct fault *fault = draw_fault(m);
    int64_t at = below(m, FAULTS_UNTIL_MS), longest = fault->longest_ms;
    int node = (int)below(m, m->nodes);
    if (node == 0 && spares_the_server(fault->kind) && !(fault->kind == STEP_TERM && one_in(m, 3)))
        node = 1 + (int)below(m, m->nodes - 1);
    bool valued = *step_unit(fault->kind) != '\0';
    int64_t lasts = longest ? 1 + below(m, one_in(m, 2) ? longest : 1500) : 0;
    if (fault->kind == STEP_FINISH && node == 0 && unknown_when_back(m))
        return;
    if (fault->kind == STEP_STICK && !one_in(m, 4))
        return;
    if (fault->kind == STEP_TWIN) {
        add_twin(m, at, node);
        return;
    }
    step(m, at, fault->kind, node, valued ? lasts : 0);
    if (fault->kind == STEP_CUT || fault->kind == STEP_CUT_OUT || fault->kind == STEP_CUT_IN)
        step(m, at + lasts, STEP_HEAL, node, 0);
    else if (longest && !valued)
        step(m, at + lasts, STEP_START, node, -1);
}

/* Some nodes lose their network together. */
static void add_partition(struct maker *m)
{
    static const enum step_kind kinds[] = {STEP_CUT, STEP_CUT_OUT, STEP_CUT_IN};
    enum step_kind kind = kinds[below(m, 3)];
    int64_t at = below(m, FAULTS_UNTIL_MS), lasts = below(m, 12000);
    for (int i = 1; i < m->nodes; i++)
        if (one_in(m, 2)) {
            step(m, at, kind, i, 0);
            step(m, at + lasts, STEP_HEAL, i, 0);
        }
}

/* One node has several troubles in a row, often while the world forms. */
static void add_troubled(struct maker *m)
{
    static const enum step_kind kinds[] = {STEP_RESET, STEP_LAG, STEP_FREEZE, STEP_CUT, STEP_RESET, STEP_LAG};
    int64_t at = below(m, one_in(m, 2) ? 4000 : FAULTS_UNTIL_MS);
    int node = 1 + (int)below(m, m->nodes - 1);
    for (int k = 2 + (int)below(m, 3); k > 0; k--) {
        enum step_kind kind = kinds[below(m, 6)];
        int64_t lasts = 1 + below(m, 3000);
        step(m, at, kind, node, *step_unit(kind) ? lasts : 0);
        if (kind == STEP_CUT)
            step(m, at + lasts, STEP_HEAL, node, 0);
        at += below(m, 1500);
    }
}

/* An elastic server that may come back needs a last call that is longer than a lease (roster.h). */
static void lose_server(struct maker *m, int64_t at, int64_t for_ms)
{
    enum { LONG_ENOUGH_MS = 5000 };
    struct cluster_options *options = &m->schedule->options;
    step(m, at, one_in(m, 2) ? STEP_CRASH : STEP_LOSE, 0, 0);
    step(m, at + for_ms, STEP_START, 0, -1);
    if (options->elastic && options->last_call_ns < LONG_ENOUGH_MS * NS_PER_MS)
        options->last_call_ns += LONG_ENOUGH_MS * NS_PER_MS;
}

/* All nodes but one are done when something happens to it, or to the server. */
static void add_straggler(struct maker *m)
{
    static const enum step_kind kinds[] = {STEP_CUT, STEP_CUT_OUT, STEP_FREEZE, STEP_LOSE, STEP_LAG};
    enum step_kind kind = kinds[below(m, 5)];
    int last = 1 + (int)below(m, m->nodes - 1);
    int64_t at = 8000 + below(m, FAULTS_UNTIL_MS - 10000), lasts = below(m, 12000);
    for (int i = 0; i < m->nodes; i++)
        if (i != last)
            step(m, at + below(m, 500), STEP_FINISH, i, 0);
    if (one_in(m, 2) && !m->spares) {
        lose_server(m, at + 1000 + below(m, 1000), 1000 + below(m, 8000));
        if (one_in(m, 2))
            return;
    }
    step(m, at + below(m, 2000), kind, last, kind == STEP_LAG ? lasts / 3 : kind == STEP_FREEZE ? lasts : 0);
    if (kind == STEP_LOSE)
        step(m, at + 2000 + lasts, STEP_START, last, -1);
    else if (kind == STEP_CUT || kind == STEP_CUT_OUT)
        step(m, at + 2000 + lasts, STEP_HEAL, last, 0);
}

/* The job ends early, and something happens while its agents leave. */
static void add_early_end(struct maker *m)
{
    static const enum step_kind kinds[] = {STEP_CUT,   STEP_CUT_IN, STEP_FREEZE,
                                           STEP_CRASH, STEP_RESET,  STEP_TERM};
    int64_t at = 6000 + below(m, FAULTS_UNTIL_MS - 8000);
    for (int i = 0; i < m->nodes; i++)
        step(m, at + below(m, 300), STEP_FINISH, i, 0);
    if (one_in(m, 2) && !m->spares) {
        lose_server(m, at + below(m, 900), 1000 + below(m, 6000));
    }
    for (int k = (int)below(m, 3); k > 0; k--) {
        enum step_kind kind = kinds[below(m, 6)];
        int node = 1 + (int)below(m, m->nodes - 1);
        int64_t then = at + below(m, 900), lasts = 1 + below(m, 5000);
        step(m, then, kind, node, kind == STEP_FREEZE ? lasts : 0);
        if (kind == STEP_CUT || kind == STEP_CUT_IN)
            step(m, then + lasts, STEP_HEAL, node, 0);
        else if (kind == STEP_CRASH)
            step(m, then + lasts, STEP_START, node, -1);
    }
}

static void add_faults(struct maker *m)
{
    int count = (int)below(m, 7 + (m->nodes > 6 ? 3 : 0) + (m->nodes > 12 ? 4 : 0));
    if (m->server_dies)
        lose_server(m, below(m, FAULTS_UNTIL_MS), 100 + below(m, 8000));
    if (one_in(m, 10))
        add_partition(m);
    if (one_in(m, 5))
        add_troubled(m);
    if (one_in(m, 8) && !unknown_when_back(m))
        add_straggler(m);
    if (one_in(m, 10) && !unknown_when_back(m))
        add_early_end(m);
    for (int k = 0; k < count; k++)
        add_fault(m);
    step(m, FAULTS_UNTIL_MS, STEP_CALM, 0, CALM_RUN_MS);
}

/* -- the two kinds
 * ----------------------------------------------------------------------------------------------- */

static void make_static(struct maker *m)
{
    struct cluster_options *options = &m->schedule->options;
    m->nodes = draw_size(m);
    if (m->nodes > CLUSTER_NODE_LIMIT - 2)
        m->nodes = CLUSTER_NODE_LIMIT - 2;
    m->next_extra = m->nodes;
    options->nodes = m->nodes;
    draw_common(m);
    for (int i = 0; i < m->nodes; i++)
        step(m, below(m, one_in(m, 10) ? 15000 : 3000), STEP_START, i, -1);
    if (one_in(m, 5)) { /* another host that thinks it is this node */
        int rank = 1 + (int)below(m, m->nodes - 1);
        options->local_world_size[m->next_extra] = options->local_world_size[rank];
        step(m, below(m, FAULTS_UNTIL_MS), STEP_START, m->next_extra++, rank);
    }
    m->server_dies = one_in(m, 8);
    add_faults(m);
}

static void make_elastic(struct maker *m)
{
    struct cluster_options *options = &m->schedule->options;
    m->nodes = draw_size(m);
    int spares = (int)below(m, 4);
    int max = m->nodes > spares + 1 ? m->nodes - spares : 1;
    m->next_extra = m->nodes;
    options->elastic = true;
    options->nodes = m->nodes;
    options->max_nodes = max;
    m->spares = m->nodes > max;
    options->min_nodes = 1 + (int)below(m, max);
    draw_common(m);
    options->last_call_ns = (500 + below(m, 8000)) * NS_PER_MS;
    options->regroup_ns = (500 + below(m, 4000)) * NS_PER_MS;
    m->server_dies = one_in(m, 4);
    for (int i = 0; i < m->nodes; i++) /* some are late, when the world runs */
        step(m, below(m, i % 3 == 2 ? 15000 : 3000), STEP_START, i, -1);
    add_faults(m);
    if (one_in(m, 6)) { /* the pod that serves is moved */
        int64_t at = below(m, FAULTS_UNTIL_MS);
        step(m, at, STEP_TERM, 0, 0);
        step(m, at + 100 + below(m, 10000), STEP_START, 0, -1);
    }
}

void schedule_random(uint64_t seed, struct schedule *out)
{
    *out = (struct schedule){.options = {.seed = seed}, .until_ms = END_BY_MS};
    struct maker maker = {.schedule = out, .random = seed * UINT64_C(0xd1342543de82ef95) + 1};
    if (seed % 2)
        make_static(&maker);
    else
        make_elastic(&maker);
}
