/* schedule_host.c - jobs of several agents on the host of the endpoint: who is there, and how who serves goes
 * and comes back. See schedule_maker.h. */
#include "tests/simulation/schedule_maker.h"

/* Drawn apart, so that all other seeds stay the same. */
bool schedule_draws_host(uint64_t seed)
{
    enum { ONE_STATIC_IN = 10, ONE_ELASTIC_IN = 4 };
    struct maker own = {.random = seed * UINT64_C(0x9fb21c651e98df25) + 3};
    return maker_one_in(&own, seed % 2 ? ONE_STATIC_IN : ONE_ELASTIC_IN);
}

static void draw_neighbours(struct maker *m)
{
    struct cluster_options *options = &m->schedule->options;
    int most = 1 + (int)maker_below(m, 3);
    for (; most > 0; most--)
        options->beside[1 + maker_below(m, m->nodes - 1)] = true;
    options->own_name = maker_one_in(m, 2);
    options->max_restarts += maker_below(m, 3); /* each that is lost costs one */
}

/* The agent that serves goes, and comes back after a while; an agent that starts there in the meantime
 * serves. */
static void end_server(struct maker *m, int64_t at, int node)
{
    static const enum step_kind kinds[] = {STEP_CRASH, STEP_CRASH, STEP_CRASH,
                                           STEP_TERM,  STEP_LOSE,  STEP_FREEZE};
    static const enum roster_job_state states[] = {JOB_FORMING, JOB_STARTING, JOB_RUNNING, JOB_STOPPING};
    enum step_kind kind = kinds[maker_below(m, 6)];
    int64_t away = 100 + maker_below(m, maker_one_in(m, 3) ? 3000 : 30000);
    int64_t value = kind == STEP_FREEZE ? 1 + maker_below(m, 8000) : 0;
    if (maker_one_in(m, 3))
        maker_step_in(m, at, states[maker_below(m, 4)], kind, node, value);
    else
        maker_step(m, at, kind, node, value);
    if (at + away < FAULTS_UNTIL_MS)
        maker_start(m, at + away, node);
}

static int draw_neighbour(struct maker *m)
{
    int node = (int)maker_below(m, m->nodes);
    while (node && !m->schedule->options.beside[node])
        node--;
    return node;
}

/* In a static job rank 0 serves, and nobody else: its pod's successor may come to the same host, too early or
 * in time. */
static void draw_successor(struct maker *m, int64_t at)
{
    struct cluster_options *options = &m->schedule->options;
    int next = m->next_extra;
    if (next == CLUSTER_NODE_LIMIT)
        return;
    m->next_extra++;
    options->beside[next] = true;
    options->local_world_size[next] = options->local_world_size[0];
    m->claim[next] = 0;
    maker_start(m, at - maker_below(m, at < 2000 ? at + 1 : 2000), next);
    maker_start(m, at + maker_below(m, 8000), next);
    if (maker_one_in(m, 3))
        end_server(m, at + maker_below(m, 10000), next);
}

void schedule_share_host(struct maker *m)
{
    enum { LONG_ENOUGH_MS = 5000 };
    struct cluster_options *options = &m->schedule->options;
    int64_t at = maker_below(m, FAULTS_UNTIL_MS - 4000);
    draw_neighbours(m);
    if (options->elastic && options->last_call_ns < LONG_ENOUGH_MS * NS_PER_MS)
        options->last_call_ns += LONG_ENOUGH_MS * NS_PER_MS;
    end_server(m, at, 0);
    if (!options->elastic)
        draw_successor(m, at);
    for (int more = (int)maker_below(m, 4) - 1; options->elastic && more > 0; more--) {
        at += maker_below(m, 10000);
        if (at < FAULTS_UNTIL_MS)
            end_server(m, at, draw_neighbour(m));
    }
}
