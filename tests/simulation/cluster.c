/* cluster.c - a simulated cluster from outside: its making, its settings, and the loop in which things
 * happen. See cluster.h. */
#include "tests/simulation/cluster.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/base/mem.h"
#include "tests/simulation/cluster_internal.h"

/* A simulation that runs out of memory has nothing to say. */
void *cluster_need(void *block)
{
    if (!block)
        abort();
    return block;
}

void cluster_say(struct cluster *cluster, const struct node *node, const char *format, ...)
{
    char text[1024];
    if (!cluster->options.trace)
        return;
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    buffer_printf(&cluster->trace, "%.3f %s %s\n", (double)cluster->now.ns / NS_PER_S,
                  node ? node->name : "job", text);
}

/* splitmix64's last step */
static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t cluster_luck(const struct cluster *cluster, uint64_t a, uint64_t b, uint64_t c)
{
    return mix(mix(cluster->options.seed + (a << 8 | b << 32) * UINT64_C(0x9e3779b97f4a7c15)) + c);
}

/* -- the loop
 * ------------------------------------------------------------------------------------------------------ */

static bool is_asked_of_the_agent(enum step_kind step)
{
    return step == STEP_KILL || step == STEP_FOLLOW || step == STEP_FINISH || step == STEP_TERM ||
           step == STEP_MISS;
}

/* A frozen agent's events wait until it thaws, in the order in which it came, messages before clocks.
 */
static bool postpone(struct cluster *cluster, struct happening *h)
{
    bool at_server = (h->kind == HAPPEN_ARRIVE && h->direction == TO_SERVER) || h->kind == HAPPEN_BROKEN;
    const struct node *node = &cluster->nodes[at_server ? cluster->endpoint : h->node];
    if (!is_frozen(cluster, node) || h->kind == HAPPEN_THAW || h->kind == HAPPEN_ELECT ||
        (h->kind == HAPPEN_STEP && !is_asked_of_the_agent(h->step)))
        return false;
    bool clock = h->kind == HAPPEN_TICK || h->kind == HAPPEN_DEADLINE;
    h->at = instant_add(node->frozen_until, clock);
    if (h->kind == HAPPEN_TICK && node->server) /* else it is of a former life */
        node->server->tick_at = h->at;
    h->connection = 0;
    cluster_schedule(cluster, h);
    h->letter = NULL;
    return true;
}

static void happen(struct cluster *cluster, const struct happening *h)
{
    struct node *node = &cluster->nodes[h->node];
    bool own_life = h->life == node->life && node->phase == NODE_UP;
    bool own_batch = own_life && h->batch == node->batch;
    switch (h->kind) {
    case HAPPEN_STEP:
        cluster_do_step(cluster, h);
        break;
    case HAPPEN_ARRIVE:
        cluster_arrive(cluster, h);
        break;
    case HAPPEN_TURN:
        if (own_life && h->at.ns == node->turn_at.ns)
            cluster_turn(cluster, h->node);
        break;
    case HAPPEN_TICK:
        if (own_life && node->server && h->at.ns == node->server->tick_at.ns)
            cluster_tick(cluster, h->node);
        break;
    case HAPPEN_LOCAL:
        if (own_life && node->server)
            cluster_local_events(cluster, h->node);
        break;
    case HAPPEN_STARTED:
        if (own_batch)
            cluster_workers_started(cluster, h->node);
        break;
    case HAPPEN_ENDED:
        if (own_batch)
            cluster_workers_ended(cluster, h->node);
        break;
    case HAPPEN_DEADLINE:
        if (own_life)
            cluster_deadline(cluster, h->node);
        break;
    case HAPPEN_EXIT:
    case HAPPEN_CLOSE:
        if (own_life)
            cluster_exit_agent(cluster, h->node);
        break;
    case HAPPEN_BROKEN:
        cluster_connection_broken(cluster, h->session);
        break;
    case HAPPEN_CUT_SEEN:
        if (own_life && node->client) {
            client_broken(node->client, node_time(cluster, node));
            cluster_plan_turn(cluster, h->node);
        }
        break;
    case HAPPEN_THAW:
        if (own_life)
            cluster_thaw(cluster, h->node);
        break;
    case HAPPEN_LEAVE_BY:
        if (own_life)
            cluster_check_leave(cluster, h->node);
        break;
    case HAPPEN_SEEK:
        if (own_life)
            cluster_seek(cluster, h->node);
        break;
    case HAPPEN_GIVE_UP:
        if (own_life)
            cluster_give_up(cluster, h->node);
        break;
    case HAPPEN_ELECT:
        cluster_elect(cluster);
        break;
    case HAPPEN_FOLLOW:
        if (own_life)
            cluster_meet_server(cluster, h->node);
        break;
    case HAPPEN_STEP_DOWN:
        if (own_life && (node->parted || h->node != cluster->endpoint))
            cluster_step_down(cluster, h->node);
        break;
    case HAPPEN_REJOIN:
        if (own_life)
            cluster_server_returns(cluster, h->node);
        break;
    case HAPPEN_CHOSEN:
        if (own_life)
            cluster_choose(cluster, h->node);
        break;
    case HAPPEN_LEASE_OVER:
        if (own_life)
            cluster_check_lease(cluster, h->node);
        break;
    }
}

void cluster_run(struct cluster *cluster, int64_t until_ms)
{
    while (cluster->heap_count && cluster->heap[0].at.ns <= until_ms * NS_PER_MS && !cluster->broken) {
        struct happening h = cluster_pop(cluster);
        cluster->now = h.at;
        cluster->events++;
        if (postpone(cluster, &h))
            continue;
        happen(cluster, &h);
        cluster_free_letter(cluster, h.letter);
        cluster_check(cluster);
    }
}

/* -- settings
 * -------------------------------------------------------------------------------------------- */

static void schedule_step(struct cluster *cluster, int64_t at_ms, int phase, enum step_kind kind, int node,
                          int64_t value)
{
    bool plain = kind == STEP_START || kind == STEP_TWIN || kind == STEP_FOREIGN;
    cluster_schedule(cluster, &(struct happening){.at = {at_ms * NS_PER_MS},
                                                  .kind = HAPPEN_STEP,
                                                  .step = kind,
                                                  .node = node,
                                                  .phase = phase,
                                                  .value = plain ? value : value * NS_PER_MS});
}

void cluster_step(struct cluster *cluster, int64_t at_ms, enum step_kind kind, int node, int64_t value)
{
    schedule_step(cluster, at_ms, 0, kind, node, value);
}

void cluster_step_in(struct cluster *cluster, int64_t at_ms, enum roster_job_state state, enum step_kind kind,
                     int node, int64_t value)
{
    schedule_step(cluster, at_ms, 1 + (int)state, kind, node, value);
}

void cluster_start(struct cluster *cluster, int64_t at_ms, int node)
{
    cluster_step(cluster, at_ms, STEP_START, node, -1);
}

void cluster_claim(struct cluster *cluster, int64_t at_ms, int node, int rank)
{
    cluster_step(cluster, at_ms, STEP_START, node, rank);
}

void cluster_crash(struct cluster *cluster, int64_t at_ms, int node)
{
    cluster_step(cluster, at_ms, STEP_CRASH, node, 0);
}

void cluster_cut(struct cluster *cluster, int64_t at_ms, int node)
{
    cluster_step(cluster, at_ms, STEP_CUT, node, 0);
}

void cluster_heal(struct cluster *cluster, int64_t at_ms, int node)
{
    cluster_step(cluster, at_ms, STEP_HEAL, node, 0);
}

void cluster_reset(struct cluster *cluster, int64_t at_ms, int node)
{
    cluster_step(cluster, at_ms, STEP_RESET, node, 0);
}

void cluster_freeze(struct cluster *cluster, int64_t at_ms, int node, int64_t for_ms)
{
    cluster_step(cluster, at_ms, STEP_FREEZE, node, for_ms);
}

void cluster_kill(struct cluster *cluster, int64_t at_ms, int node)
{
    cluster_step(cluster, at_ms, STEP_KILL, node, 0);
}

void cluster_follow(struct cluster *cluster, int64_t at_ms, int node)
{
    cluster_step(cluster, at_ms, STEP_FOLLOW, node, 0);
}

void cluster_finish(struct cluster *cluster, int64_t at_ms, int node)
{
    cluster_step(cluster, at_ms, STEP_FINISH, node, 0);
}

void cluster_term(struct cluster *cluster, int64_t at_ms, int node)
{
    cluster_step(cluster, at_ms, STEP_TERM, node, 0);
}

void cluster_miss(struct cluster *cluster, int64_t at_ms, int node)
{
    cluster_step(cluster, at_ms, STEP_MISS, node, 0);
}

/* -- from making to end
 * ------------------------------------------------------------------------------------------- */

static int64_t or_else(int64_t value, int64_t initial)
{
    return value ? value : initial;
}

static void fill_defaults(struct cluster_options *options)
{
    options->join_timeout_ns = or_else(options->join_timeout_ns, 60 * NS_PER_S);
    options->start_ns = or_else(options->start_ns, 100 * NS_PER_MS);
    options->stop_ns = or_else(options->stop_ns, 100 * NS_PER_MS);
    options->grace_ns = or_else(options->grace_ns, 30 * NS_PER_S);
    if (!options->elastic)
        options->min_nodes = options->max_nodes = options->nodes;
    if (options->elastic && !options->nodes)
        options->nodes = CLUSTER_NODE_LIMIT;
    if (!options->delay_max_ns)
        options->delay_min_ns = options->delay_max_ns = NS_PER_MS;
    for (int i = 0; i < CLUSTER_NODE_LIMIT; i++)
        if (!options->local_world_size[i])
            options->local_world_size[i] = 1;
}

struct cluster *cluster_create(const struct cluster_options *options)
{
    struct cluster *cluster = cluster_need(mem_calloc(1, sizeof *cluster));
    cluster->options = *options;
    fill_defaults(&cluster->options);
    cluster->last_session = LOCAL_SESSION;
    cluster->verdict = -1;
    for (int i = 0; i < CLUSTER_NODE_LIMIT; i++) {
        struct node *node = &cluster->nodes[i];
        (void)snprintf(node->name, sizeof node->name, "node%d", i);
        node->named_after = i;
        node->exit_code = -1;
        node->cut_at = INSTANT_NEVER;
        node->clock.drift_ppm = options->clock_drift_ppm[i];
        node->clock.offset_ns = options->clock_offset_ns[i];
    }
    return cluster;
}

void cluster_destroy(struct cluster *cluster)
{
    if (!cluster)
        return;
    cluster_free_queue(cluster);
    for (struct letter *letter = cluster->letters, *next; letter; letter = next) {
        next = letter->next;
        mem_free(letter);
    }
    for (int i = 0; i < CLUSTER_NODE_LIMIT; i++) {
        client_destroy(cluster->nodes[i].client);
        report_queue_forget(&cluster->nodes[i].reports, UINT64_MAX);
        cluster_free_server(cluster->nodes[i].server);
    }
    mem_free(cluster->sessions);
    buffer_free(&cluster->trace);
    mem_free(cluster);
}

const char *cluster_trace(const struct cluster *cluster)
{
    return cluster->trace.data ? cluster->trace.data : "";
}

enum invariant cluster_broken(const struct cluster *cluster, const char **text)
{
    if (text)
        *text = cluster->broken ? cluster->broken_text : NULL;
    return cluster->broken;
}

int cluster_exit_code(const struct cluster *cluster, int node)
{
    return cluster->nodes[node].phase == NODE_EXITED ? cluster->nodes[node].exit_code : -1;
}

uint64_t cluster_events(const struct cluster *cluster)
{
    return cluster->events;
}

const struct roster *cluster_roster(const struct cluster *cluster)
{
    const struct server *server = cluster->nodes[cluster->endpoint].server;
    return server ? server->roster : NULL;
}
