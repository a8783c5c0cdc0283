/* schedule_faults.c - what happens to a job that is drawn from a seed: single faults at any time, faults that
 * wait for a state of the job, and some whole stories. See schedule_maker.h. */
#include "tests/simulation/schedule_maker.h"

enum { CALM_RUN_MS = 2000 };

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
    int64_t luck = maker_below(m, total);
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

/* An elastic server that was done and dies, while there are agents enough for a world without agents that are
 * still at work, is not told from a job's first: known, and left out. */
static bool unknown_when_back(const struct maker *m)
{
    return (m->server_dies || m->shares) && m->spares;
}

/* Its machine is often out of reach, and comes back later. */
static void add_twin(struct maker *m, int64_t at, int node)
{
    int64_t lasts = 1000 + maker_below(m, 8000);
    if (m->next_extra == CLUSTER_NODE_LIMIT)
        return;
    if (maker_one_in(m, 3)) {
        maker_step(m, at, STEP_CUT, node, 0);
        maker_step(m, at + lasts, STEP_HEAL, node, 0);
    } else if (maker_one_in(m, 2)) {
        maker_step(m, at, STEP_FREEZE, node, lasts);
    }
    maker_step(m, at + maker_below(m, 4000), STEP_TWIN, m->next_extra++, node);
}

static void add_fault(struct maker *m)
{
    const struct fault *fault = draw_fault(m);
    int64_t at = maker_below(m, FAULTS_UNTIL_MS), longest = fault->longest_ms;
    int node = (int)maker_below(m, m->nodes);
    if (node == 0 && spares_the_server(fault->kind) && !(fault->kind == STEP_TERM && maker_one_in(m, 3)))
        node = 1 + (int)maker_below(m, m->nodes - 1);
    bool valued = *step_unit(fault->kind) != '\0';
    int64_t lasts = longest ? 1 + maker_below(m, maker_one_in(m, 2) ? longest : 1500) : 0;
    bool may_serve = node == 0 || m->schedule->options.beside[node];
    if (fault->kind == STEP_FINISH && may_serve && unknown_when_back(m))
        return;
    if (fault->kind == STEP_STICK && !maker_one_in(m, 4))
        return;
    if (fault->kind == STEP_TWIN) {
        add_twin(m, at, node);
        return;
    }
    maker_step(m, at, fault->kind, node, valued ? lasts : 0);
    if (fault->kind == STEP_CUT || fault->kind == STEP_CUT_OUT || fault->kind == STEP_CUT_IN)
        maker_step(m, at + lasts, STEP_HEAL, node, 0);
    else if (longest && !valued)
        maker_start(m, at + lasts, node);
}

/* Some nodes lose their network together. */
static void add_partition(struct maker *m)
{
    static const enum step_kind kinds[] = {STEP_CUT, STEP_CUT_OUT, STEP_CUT_IN};
    enum step_kind kind = kinds[maker_below(m, 3)];
    int64_t at = maker_below(m, FAULTS_UNTIL_MS), lasts = maker_below(m, 12000);
    bool all = maker_one_in(m, 3); /* the server is alone */
    for (int i = 1; i < m->nodes; i++)
        if (all || maker_one_in(m, 2)) {
            maker_step(m, at, kind, i, 0);
            maker_step(m, at + lasts, STEP_HEAL, i, 0);
        }
}

/* One node has several troubles in a row, often while the world forms. */
static void add_troubled(struct maker *m)
{
    static const enum step_kind kinds[] = {STEP_RESET, STEP_LAG, STEP_FREEZE, STEP_CUT, STEP_RESET, STEP_LAG};
    int64_t at = maker_below(m, maker_one_in(m, 2) ? 4000 : FAULTS_UNTIL_MS);
    int node = 1 + (int)maker_below(m, m->nodes - 1);
    for (int k = 2 + (int)maker_below(m, 3); k > 0; k--) {
        enum step_kind kind = kinds[maker_below(m, 6)];
        int64_t lasts = 1 + maker_below(m, 3000);
        maker_step(m, at, kind, node, *step_unit(kind) ? lasts : 0);
        if (kind == STEP_CUT)
            maker_step(m, at + lasts, STEP_HEAL, node, 0);
        at += maker_below(m, 1500);
    }
}

/* Names that still lead to where the server was: its agents find it one after the other. */
static void mislead(struct maker *m, int64_t at)
{
    for (int i = 1; i < m->nodes; i++)
        if (maker_one_in(m, 2)) {
            maker_step(m, at, STEP_CUT, i, 0);
            maker_step(m, at + maker_below(m, 6000), STEP_HEAL, i, 0);
        }
}

/* An elastic server that may come back needs a last call that is longer than a lease (roster.h). in: 1 + the
 * state of the job in which it dies; 0: any. */
static void lose_server(struct maker *m, int64_t at, int in, int64_t for_ms)
{
    enum { LONG_ENOUGH_MS = 5000 };
    struct cluster_options *options = &m->schedule->options;
    enum step_kind kind = maker_one_in(m, 2) ? STEP_CRASH : STEP_LOSE;
    if (in)
        maker_step_in(m, at, (enum roster_job_state)(in - 1), kind, 0, 0);
    else
        maker_step(m, at, kind, 0, 0);
    maker_start(m, at + for_ms, 0);
    if (maker_one_in(m, 4))
        mislead(m, at + for_ms);
    if (options->elastic && options->last_call_ns < LONG_ENOUGH_MS * NS_PER_MS)
        options->last_call_ns += LONG_ENOUGH_MS * NS_PER_MS;
}

/* All nodes but one are done when something happens to it, or to the server. */
static void add_straggler(struct maker *m)
{
    static const enum step_kind kinds[] = {STEP_CUT, STEP_CUT_OUT, STEP_FREEZE, STEP_LOSE, STEP_LAG};
    enum step_kind kind = kinds[maker_below(m, 5)];
    int last = 1 + (int)maker_below(m, m->nodes - 1);
    int64_t at = 8000 + maker_below(m, FAULTS_UNTIL_MS - 10000), lasts = maker_below(m, 12000);
    for (int i = 0; i < m->nodes; i++)
        if (i != last)
            maker_step(m, at + maker_below(m, 500), STEP_FINISH, i, 0);
    if (maker_one_in(m, 2) && !m->spares) {
        lose_server(m, at + 1000 + maker_below(m, 1000), 0, 1000 + maker_below(m, 8000));
        if (maker_one_in(m, 2))
            return;
    }
    maker_step(m, at + maker_below(m, 2000), kind, last,
               kind == STEP_LAG      ? lasts / 3
               : kind == STEP_FREEZE ? lasts
                                     : 0);
    if (kind == STEP_LOSE)
        maker_start(m, at + 2000 + lasts, last);
    else if (kind == STEP_CUT || kind == STEP_CUT_OUT)
        maker_step(m, at + 2000 + lasts, STEP_HEAL, last, 0);
}

/* The job ends early, and something happens while its agents leave. */
static void add_early_end(struct maker *m)
{
    static const enum step_kind kinds[] = {STEP_CUT,   STEP_CUT_IN, STEP_FREEZE,
                                           STEP_CRASH, STEP_RESET,  STEP_TERM};
    int64_t at = 6000 + maker_below(m, FAULTS_UNTIL_MS - 8000);
    for (int i = 0; i < m->nodes; i++)
        maker_step(m, at + maker_below(m, 300), STEP_FINISH, i, 0);
    if (maker_one_in(m, 2) && !m->spares)
        lose_server(m, at + maker_below(m, 900), maker_one_in(m, 3) ? 1 + JOB_FINISHING : 0,
                    1000 + maker_below(m, 6000));
    for (int k = (int)maker_below(m, 3); k > 0; k--) {
        enum step_kind kind = kinds[maker_below(m, 6)];
        int node = 1 + (int)maker_below(m, m->nodes - 1);
        int64_t then = at + maker_below(m, 900), lasts = 1 + maker_below(m, 5000);
        maker_step(m, then, kind, node, kind == STEP_FREEZE ? lasts : 0);
        if (kind == STEP_CUT || kind == STEP_CUT_IN)
            maker_step(m, then + lasts, STEP_HEAL, node, 0);
        else if (kind == STEP_CRASH)
            maker_start(m, then + lasts, node);
    }
}

/* Names that lead nowhere, or elsewhere, when the agents start. */
static void add_late_names(struct maker *m)
{
    static const enum step_kind kinds[] = {STEP_CUT, STEP_CUT_OUT, STEP_CUT_IN};
    for (int i = 1; i < m->nodes; i++)
        if (maker_one_in(m, 3)) {
            maker_step(m, m->start_ms[i], kinds[maker_below(m, 3)], i, 0);
            maker_step(m, m->start_ms[i] + maker_below(m, 8000), STEP_HEAL, i, 0);
        }
}

/* Its pod is started again before the server has heard of the first start, whose JOIN may arrive later. */
static void add_early_restart(struct maker *m)
{
    const int node = 1 + (int)maker_below(m, m->nodes - 1);
    const int64_t ends = m->start_ms[node] + 500 + maker_below(m, 5000);
    maker_step(m, m->start_ms[node], STEP_CUT, node, 0);
    maker_step(m, ends, STEP_CRASH, node, 0);
    maker_start(m, ends + maker_below(m, 2000), node);
}

/* Something happens in a state of the job that may last milliseconds. */
static void add_in_phase(struct maker *m)
{
    static const enum step_kind kinds[] = {STEP_TERM,   STEP_TERM, STEP_CRASH, STEP_LOSE, STEP_CUT,
                                           STEP_FREEZE, STEP_KILL, STEP_RESET, STEP_LAG};
    static const enum roster_job_state states[] = {JOB_FORMING, JOB_STARTING, JOB_RUNNING, JOB_STOPPING};
    enum step_kind kind = kinds[maker_below(m, 9)];
    enum roster_job_state state = states[maker_below(m, 4)];
    int64_t at = maker_below(m, FAULTS_UNTIL_MS), lasts = 1 + maker_below(m, 5000);
    int node = (int)maker_below(m, m->nodes);
    if (node == 0 && spares_the_server(kind) && kind != STEP_TERM)
        node = 1;
    if (state == JOB_STOPPING)
        maker_step_in(m, at, JOB_RUNNING, STEP_KILL, (int)maker_below(m, m->nodes), 0);
    maker_step_in(m, at, state, kind, node, *step_unit(kind) ? lasts : 0);
    if (kind == STEP_CUT)
        maker_step(m, at + 1000 + lasts, STEP_HEAL, node, 0);
    else if (kind == STEP_TERM || kind == STEP_CRASH || kind == STEP_LOSE)
        maker_start(m, at + 1000 + lasts, node);
}

/* The job is deleted, or its nodes are taken away: TERM to one, some or all, at once or one after the other,
 * in any phase. */
static void add_terms(struct maker *m)
{
    static const enum roster_job_state states[] = {JOB_FORMING, JOB_STARTING, JOB_RUNNING, JOB_STOPPING};
    int64_t at = maker_below(m, FAULTS_UNTIL_MS), within = maker_one_in(m, 2) ? 50 : 2000;
    bool all = maker_one_in(m, 2), waits = maker_one_in(m, 2);
    enum roster_job_state state = states[maker_below(m, 4)];
    for (int i = 0; i < m->nodes; i++)
        if (all || maker_one_in(m, m->nodes)) {
            int64_t then = at + maker_below(m, within);
            if (waits)
                maker_step_in(m, then, state, STEP_TERM, i, 0);
            else
                maker_step(m, then, STEP_TERM, i, 0);
            if (maker_one_in(m, 3))
                maker_start(m, then + 1000 + maker_below(m, 8000), i);
        }
}

/* The pod that serves an elastic job is moved. */
static void move_server(struct maker *m)
{
    int64_t at = maker_below(m, FAULTS_UNTIL_MS);
    maker_step(m, at, STEP_TERM, 0, 0);
    maker_start(m, at + 100 + maker_below(m, 10000), 0);
}

static void add_stories(struct maker *m)
{
    bool elastic = m->schedule->options.elastic;
    if (m->server_dies)
        lose_server(m, maker_below(m, FAULTS_UNTIL_MS), maker_one_in(m, 2) ? 0 : 1 + (int)maker_below(m, 4),
                    100 + maker_below(m, 8000));
    if (maker_one_in(m, 10))
        add_partition(m);
    if (maker_one_in(m, 5))
        add_troubled(m);
    if (maker_one_in(m, 8) && !unknown_when_back(m))
        add_straggler(m);
    if (maker_one_in(m, 10) && !unknown_when_back(m))
        add_early_end(m);
    if (maker_one_in(m, 20))
        add_late_names(m);
    if (maker_one_in(m, elastic ? 12 : 6))
        add_terms(m);
    for (int k = maker_one_in(m, 4) ? 1 + (int)maker_below(m, 3) : 0; k > 0; k--)
        add_in_phase(m);
    if (maker_one_in(m, 20) && m->next_extra < CLUSTER_NODE_LIMIT)
        maker_step(m, maker_below(m, FAULTS_UNTIL_MS), STEP_FOREIGN, m->next_extra++,
                   (int)maker_below(m, m->nodes));
    if (elastic && maker_one_in(m, 6))
        move_server(m);
}

void schedule_add_faults(struct maker *m)
{
    int count = (int)maker_below(m, 7 + (m->nodes > 6 ? 3 : 0) + (m->nodes > 12 ? 4 : 0));
    add_stories(m);
    for (int k = 0; k < count; k++)
        add_fault(m);
    if (maker_one_in(m, 25))
        add_early_restart(m);
    maker_step(m, FAULTS_UNTIL_MS, STEP_CALM, 0, CALM_RUN_MS);
}
