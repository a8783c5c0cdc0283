/* cluster_faults.c - a schedule's events for a node of a simulated cluster. See cluster.h. */
#include <signal.h>

#include "proto/exit_code.h"
#include "tests/simulation/cluster_internal.h"

/* TERM to the agent that serves an elastic job, or a forming one: it is waited for. */
static bool has_departed(const struct cluster *cluster)
{
    const struct node *first = &cluster->nodes[cluster->endpoint];
    if (!first->server || first->exit_code != EXIT_CODE_TERMINATED)
        return false;
    enum roster_job_state state = roster_state(first->server->roster);
    return state == JOB_FORMING || (cluster->options.elastic && state < JOB_FINISHING);
}

/* The verdict is out, or the agent that serves has been asked to end, and the server has gone with it. */
bool cluster_is_over(const struct cluster *cluster)
{
    const struct node *first = &cluster->nodes[cluster->endpoint];
    if (first->phase == NODE_UP && first->server)
        return roster_state(first->server->roster) >= JOB_FINISHING;
    return first->phase == NODE_EXITED && first->exited_at.ns && !has_departed(cluster);
}

static void reschedule(struct cluster *cluster, const struct happening *h, struct instant at)
{
    struct happening later = *h;
    later.at = at;
    cluster_schedule(cluster, &later);
}

/* An agent's last message is not lost because its successor has a connection of its own. */
static bool must_wait(struct cluster *cluster, const struct happening *h)
{
    const struct node *node = &cluster->nodes[h->node];
    if (!node->exited_at.ns || instant_diff_ns(cluster->now, node->exited_at) >= NS_PER_S)
        return false;
    reschedule(cluster, h, instant_add(node->exited_at, NS_PER_S));
    return true;
}

/* The job is over, and the server has gone. */
static bool nobody_needs_it(const struct cluster *cluster)
{
    return cluster->nodes[cluster->endpoint].phase != NODE_UP && cluster_is_over(cluster);
}

/* A pod that succeeded is not started again, nor a pod that would serve when the job is over. */
static bool has_ended(const struct cluster *cluster, int i)
{
    const struct node *node = &cluster->nodes[i];
    bool left = node->phase == NODE_EXITED && node->exited_at.ns;
    return node->replaced || (left && node->exit_code == EXIT_CODE_OK) ||
           (is_at_endpoint(cluster, i) && nobody_needs_it(cluster));
}

static void start(struct cluster *cluster, const struct happening *h)
{
    struct node *node = &cluster->nodes[h->node];
    if (cluster->options.votes && node->phase == NODE_UP &&
        node->terminated) { /* its pod waits for its end */
        reschedule(cluster, h, instant_add(cluster->now, NS_PER_S));
        return;
    }
    if (node->phase == NODE_UP || has_ended(cluster, h->node) || must_wait(cluster, h))
        return;
    bool twin = node->phase == NODE_EXITED && node->named_after != h->node;
    int rank = twin ? node->claimed_rank : (int)h->value;
    if (rank < 0 && !cluster->options.elastic)
        rank = h->node;
    node->foreign = h->step == STEP_FOREIGN;
    /* Two that claim rank 0 have the port for a lock, if they are of one machine. */
    bool locked = rank == 0 && is_at_endpoint(cluster, h->node);
    if (!cluster->options.elastic && !twin && !node->foreign && rank != h->node && !locked)
        cluster->replaced_ranks = true;
    cluster_start_agent(cluster, h->node, rank, twin ? node->named_after : h->node);
}

/* The pod was started again elsewhere; nobody has told the old one. */
static void start_twin(struct cluster *cluster, const struct happening *h)
{
    int of = (int)h->value;
    struct node *old = &cluster->nodes[of];
    if (cluster->nodes[h->node].phase != NODE_OFF || is_at_endpoint(cluster, of) ||
        of >= cluster->options.nodes || old->phase == NODE_OFF || old->replaced || must_wait(cluster, h))
        return;
    cluster_say(cluster, old, "is replaced");
    cluster->faults += 2; /* whichever comes last is the successor, and the other may be started again */
    cluster->losses++;
    old->replaced = cluster->replaced_ranks = true;
    cluster->may_fail |= cluster->server_lives > 1;
    cluster_start_agent(cluster, h->node, old->claimed_rank, of);
}

static void break_all(struct cluster *cluster)
{
    for (int i = 0; i < cluster->used; i++)
        cluster_break_seen(cluster, i);
}

static void vanish(struct cluster *cluster, int i, bool seen)
{
    struct node *node = &cluster->nodes[i];
    if (node->phase != NODE_UP)
        return;
    cluster_say(cluster, node, seen ? "crashes" : "vanishes");
    cluster->faults++;
    cluster->losses++;
    if (i != cluster->endpoint && seen)
        cluster_break_seen(cluster, i);
    cluster->may_fail |=
        i == cluster->endpoint && cluster_is_over(cluster); /* agents that know the verdict may be gone */
    cluster_end_agent(cluster, i, EXIT_CODE_SIGNAL_BASE + SIGKILL);
    if (i == cluster->endpoint && seen)
        break_all(cluster);
    if (i == cluster->endpoint && !seen)
        cluster->half_open = true;
    if (i == cluster->endpoint && cluster_has_successor(cluster))
        cluster_lose_server(cluster, seen);
    if (cluster->calm)
        cluster_schedule(cluster, &(struct happening){.at = instant_add(cluster->now, NS_PER_S),
                                                      .kind = HAPPEN_STEP,
                                                      .step = STEP_START,
                                                      .node = i,
                                                      .value = node->claimed_rank});
}

/* It is started again after a while, or never. */
static void end_server(struct cluster *cluster, int64_t for_ns)
{
    const int i = cluster->endpoint;
    const bool seen = cluster_luck(cluster, (uint64_t)i, cluster->server_lives, 9) % 2;
    if (!cluster_server(cluster) || cluster_is_over(cluster))
        return;
    if (!for_ns && !cluster_has_successor(cluster))
        for_ns = NS_PER_S; /* nobody else knows of the job */
    vanish(cluster, i, seen);
    cluster->nodes[i].gone = !for_ns;
    if (for_ns)
        cluster_schedule(cluster, &(struct happening){.at = instant_add(cluster->now, for_ns),
                                                      .kind = HAPPEN_STEP,
                                                      .step = STEP_START,
                                                      .node = i,
                                                      .value = cluster->nodes[i].claimed_rank});
}

/* A machine takes all its agents with it. */
static void lose(struct cluster *cluster, int i)
{
    vanish(cluster, i, false);
    for (int other = 0; is_at_endpoint(cluster, i) && other < cluster->used; other++)
        if (is_at_endpoint(cluster, other))
            vanish(cluster, other, false);
}

static void cut(struct cluster *cluster, int i, bool out, bool in)
{
    struct node *node = &cluster->nodes[i];
    if (node->phase != NODE_UP || is_at_endpoint(cluster, i) || node->cut[TO_SERVER] || node->cut[TO_AGENT])
        return;
    cluster_say(cluster, node,
                !in    ? "is cut off: what it sends is lost"
                : !out ? "is cut off: what is sent to it is lost"
                       : "is cut off");
    cluster->faults +=
        out ? 1 : 2; /* who is heard but hears nothing is lost twice: it stops, and is chosen again */
    cluster->losses++;
    cluster->changed = true;
    node->cut[TO_SERVER] = out;
    node->cut[TO_AGENT] = in;
    node->cut_at = cluster->now;
    const struct server *server = cluster->nodes[cluster->endpoint].server;
    if (server && roster_lease_ns(server->roster))
        cluster_after(cluster, roster_lease_ns(server->roster) + 50 * NS_PER_MS, i, HAPPEN_LEASE_OVER);
}

/* Whether the ends see that the old connection is over depends on who tries to send first. */
static void heal(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    if (!node->cut[TO_SERVER] && !node->cut[TO_AGENT])
        return;
    cluster_say(cluster, node, "is connected again");
    node->cut[TO_SERVER] = node->cut[TO_AGENT] = false;
    node->cut_at = INSTANT_NEVER;
    cluster->changed = true;
    if (cluster_luck(cluster, (uint64_t)i, node->connection, 5) % 2)
        cluster_break_seen(cluster, i);
    else
        cluster_new_connection(cluster, node);
}

static void lag(struct cluster *cluster, int i, int64_t for_ns)
{
    struct node *node = &cluster->nodes[i];
    if (node->phase != NODE_UP || is_at_endpoint(cluster, i))
        return;
    cluster_say(cluster, node, "has a slow network for %.3f s", (double)for_ns / NS_PER_S);
    cluster->faults++;
    cluster->losses++;
    cluster->changed = true;
    node->not_before[TO_SERVER] = node->not_before[TO_AGENT] = instant_add(cluster->now, for_ns);
}

static void reset(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    if (node->phase != NODE_UP || node->cut[TO_SERVER] || node->cut[TO_AGENT] || !node->client)
        return;
    cluster_say(cluster, node, "has its connection broken");
    cluster->faults++; /* its last word may be lost with it */
    cluster->losses++;
    cluster_break_seen(cluster, i);
}

static void freeze(struct cluster *cluster, int i, enum step_kind kind, int64_t for_ns)
{
    struct node *node = &cluster->nodes[i];
    if (node->phase != NODE_UP || is_frozen(cluster, node))
        return;
    cluster_say(cluster, node, "%s for %.3f s", kind == STEP_FREEZE ? "freezes" : "is suspended",
                (double)for_ns / NS_PER_S);
    cluster->faults++;
    cluster->losses++;
    cluster->changed = true;
    node->frozen_until = instant_add(cluster->now, for_ns);
    node->gap_ns = kind == STEP_SUSPEND ? 0 : for_ns;
    if (kind == STEP_SUSPEND) { /* nobody looks at its clock before it thaws */
        node->clock.offset_ns -= for_ns;
        node->slept = true;
        node->stood_until = node->frozen_until;
    }
    cluster_after(cluster, for_ns, i, HAPPEN_THAW);
}

/* Its clock may show another time than was planned with. gap_ns: between two of its turns. */
static void plan_anew(struct cluster *cluster, int i, int64_t gap_ns)
{
    struct node *node = &cluster->nodes[i];
    if (node->phase != NODE_UP)
        return;
    node->group_at = node->turn_at = INSTANT_NEVER;
    cluster_at(cluster, cluster->now, i, HAPPEN_TURN);
    node->turn_at = cluster->now;
    if (node->server) {
        cluster_wake_server(cluster, i, gap_ns);
        node->server->tick_at = instant_add(cluster->now, 1); /* all messages before the clock */
        cluster_at(cluster, node->server->tick_at, i, HAPPEN_TICK);
    }
    cluster_at(cluster, cluster->now, i, HAPPEN_DEADLINE);
}

void cluster_thaw(struct cluster *cluster, int i)
{
    cluster->changed = true;
    if (cluster->options.votes && cluster->nodes[i].server && !cluster->nodes[i].parted)
        cluster_server_returns(cluster, i);
    plan_anew(cluster, i, cluster->nodes[i].gap_ns);
    cluster_turn(cluster, i);                        /* it looks at its lease before anything else */
    struct server *server = cluster_server(cluster); /* another agent's of this machine goes on with it */
    if (server && is_at_endpoint(cluster, i))
        server->state_since = cluster->now;
}

static void leap(struct cluster *cluster, int i, int64_t by_ns)
{
    struct node *node = &cluster->nodes[i];
    if (node->phase != NODE_UP || is_frozen(cluster, node))
        return;
    cluster_say(cluster, node, "has its clock leap by %.3f s", (double)by_ns / NS_PER_S);
    cluster->faults++;
    cluster->losses++;
    /* Its join time-out is over sooner, or the time that its workers have to end. */
    node->hurried |= node->group.deadline.ns != INT64_MAX;
    cluster->may_fail |= i == cluster->endpoint || node->hurried;
    cluster->leapt |= i == cluster->endpoint;
    node->clock.offset_ns += by_ns;
    plan_anew(cluster, i, by_ns);
}

/* A machine stands, or has its clock leap, with all its agents; not where an agent is stalled already.
 */
static void suspend_or_leap(struct cluster *cluster, int i, enum step_kind kind, int64_t ns)
{
    for (int other = 0; is_at_endpoint(cluster, i) && other < cluster->used; other++)
        if (is_at_endpoint(cluster, other) && is_frozen(cluster, &cluster->nodes[other]))
            return;
    for (int other = 0; other < cluster->used; other++) {
        bool same = other == i || (is_at_endpoint(cluster, i) && is_at_endpoint(cluster, other));
        if (same && kind == STEP_LEAP)
            leap(cluster, other, ns);
        else if (same)
            freeze(cluster, other, kind, ns);
    }
}

static void terminate(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    if (node->phase != NODE_UP || node->terminated || node->group.state == GROUP_OVER)
        return;
    cluster_say(cluster, node, "gets TERM");
    node->terminated = true;
    cluster_expect_leave(cluster, i);
    cluster->faults += cluster->faults > 0; /* its word may be lost with something else */
    const enum roster_job_state state = node->server ? roster_state(node->server->roster) : JOB_RUNNING;
    cluster->faults += state == JOB_FORMING; /* nobody is told */
    cluster->may_fail |= state >= JOB_FINISHING;
    cluster_agent_event(cluster, i, &(struct worker_group_event){.kind = GROUP_SIGNAL, .signal = SIGTERM},
                        NULL);
}

/* A server that stands still for a moment is not lost; one that is silent for longer is replaced. */
static void disturb_server(struct cluster *cluster, enum step_kind kind, int64_t ns)
{
    enum { LOST_MS = 2500 };
    const int i = cluster->endpoint;
    struct node *node = &cluster->nodes[i];
    if (!cluster_server(cluster) || cluster_is_over(cluster) || !cluster_has_successor(cluster) ||
        is_frozen(cluster, node) || node->parted || node->terminated)
        return;
    if (kind == STEP_FREEZE_SERVER) {
        freeze(cluster, i, STEP_FREEZE, ns);
        if (ns > LOST_MS * NS_PER_MS)
            cluster_lose_server(cluster, false);
    } else if (kind == STEP_CUT_SERVER) {
        cluster_say(cluster, node, "serves, and is cut off for %.3f s", (double)ns / NS_PER_S);
        cluster->faults += 2; /* its node, and its office */
        cluster->losses++;
        cluster_part_server(cluster, ns);
    } else {
        terminate(cluster, i);
        node->gone = !ns;
        if (ns)
            cluster_schedule(cluster, &(struct happening){.at = instant_add(cluster->now, ns),
                                                          .kind = HAPPEN_STEP,
                                                          .step = STEP_START,
                                                          .node = i,
                                                          .value = node->claimed_rank});
    }
}

static void stick(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    if (node->phase != NODE_UP || node->stuck || cluster->options.beside[i])
        return;
    cluster_say(cluster, node, "has workers that cannot be killed");
    node->stuck = cluster->may_fail = true;
    cluster->faults++;
    cluster->losses++;
}

/* -- the end of faults
 * -------------------------------------------------------------------------------------------- */

/* A restart of a pod: not where the job is over, or where it cannot be used. */
static bool is_missing(const struct cluster *cluster, int i)
{
    const struct node *node = &cluster->nodes[i];
    bool wanted = i < cluster->options.nodes || node->named_after != i;
    return wanted && node->phase != NODE_UP && !node->replaced && !node->gone && !cluster_is_over(cluster) &&
           !node->stuck;
}

static void begin_calm(struct cluster *cluster, int64_t run_ns)
{
    cluster->calm = true;
    cluster->calm_at = cluster->now;
    cluster->waiting_count = 0;
    cluster->calm_run_ns = run_ns;
    int nodes = cluster->options.nodes > cluster->used ? cluster->options.nodes : cluster->used;
    for (int i = 0; i < nodes; i++) {
        const struct node *node = &cluster->nodes[i];
        heal(cluster, i);
        struct happening next = {
            .at = instant_add(cluster->now, NS_PER_S), .kind = HAPPEN_STEP, .node = i, .value = -1};
        if (node->phase != NODE_OFF)
            next.value = node->claimed_rank;
        next.step = STEP_START;
        if (is_missing(cluster, i))
            cluster_schedule(cluster, &next);
        next.at = instant_add(cluster->now, run_ns);
        next.step = STEP_FINISH;
        next.batch = node->batch;
        if (node->workers == WORKERS_RUNNING)
            cluster_schedule(cluster, &next);
    }
}

/* -- steps that wait for a state of the job
 * -------------------------------------------------------------------------------------- */

/* Or comes too late. */
static bool waits(struct cluster *cluster, const struct happening *h)
{
    const struct server *server = cluster_server(cluster);
    bool now = h->phase < 0 || (server && h->phase == 1 + (int)roster_state(server->roster));
    if (!h->phase || (now && !cluster->calm))
        return false;
    if (!cluster->calm && cluster->waiting_count < WAITING_LIMIT)
        cluster->waiting[cluster->waiting_count++] = *h;
    return true;
}

/* At once, while the state's first messages are on their way, or a little later. */
void cluster_enter(struct cluster *cluster, enum roster_job_state state)
{
    for (int k = 0; k < cluster->waiting_count;) {
        struct happening h = cluster->waiting[k];
        if (h.phase != 1 + (int)state) {
            k++;
            continue;
        }
        cluster->waiting[k] = cluster->waiting[--cluster->waiting_count];
        uint64_t luck = cluster_luck(cluster, (uint64_t)h.node, (uint64_t)(h.at.ns / NS_PER_MS), h.step);
        h.at = instant_add(cluster->now, (int64_t)((luck >> 8) % (luck % 2 ? 20 : 600)) * NS_PER_MS);
        h.phase = -1;
        cluster_schedule(cluster, &h);
    }
}

/* Nothing begins or ends on a machine that stands. */
static bool stands(struct cluster *cluster, const struct happening *h)
{
    bool touches = h->step == STEP_START || h->step == STEP_CRASH;
    if (!touches || !is_at_endpoint(cluster, h->node))
        return false;
    for (int i = 0; i < cluster->used; i++)
        if (i != h->node && is_at_endpoint(cluster, i) &&
            cluster->now.ns < cluster->nodes[i].stood_until.ns) {
            reschedule(cluster, h, cluster->nodes[i].stood_until);
            return true;
        }
    return false;
}

void cluster_do_step(struct cluster *cluster, const struct happening *h)
{
    int i = h->node;
    int64_t ns = h->value;
    if ((h->batch && h->batch != cluster->nodes[i].batch) || waits(cluster, h) || stands(cluster, h))
        return;
    switch (h->step) {
    case STEP_START:
    case STEP_FOREIGN:
        start(cluster, h);
        break;
    case STEP_TWIN:
        start_twin(cluster, h);
        break;
    case STEP_CRASH:
        vanish(cluster, i, true);
        break;
    case STEP_LOSE:
        lose(cluster, i);
        break;
    case STEP_CUT:
    case STEP_CUT_OUT:
    case STEP_CUT_IN:
        cut(cluster, i, h->step != STEP_CUT_IN, h->step != STEP_CUT_OUT);
        break;
    case STEP_HEAL:
        heal(cluster, i);
        break;
    case STEP_LAG:
        lag(cluster, i, ns);
        break;
    case STEP_RESET:
        reset(cluster, i);
        break;
    case STEP_FREEZE:
        freeze(cluster, i, h->step, ns);
        break;
    case STEP_SUSPEND:
    case STEP_LEAP:
        suspend_or_leap(cluster, i, h->step, ns);
        break;
    case STEP_KILL:
    case STEP_FOLLOW:
        cluster_fail_worker(cluster, i, h->step == STEP_FOLLOW);
        break;
    case STEP_FINISH:
        cluster_finish_workers(cluster, i);
        break;
    case STEP_MISS:
        cluster_miss_peer(cluster, i);
        break;
    case STEP_STICK:
        stick(cluster, i);
        break;
    case STEP_TERM:
        terminate(cluster, i);
        break;
    case STEP_CALM:
        begin_calm(cluster, ns);
        break;
    case STEP_END_SERVER:
        end_server(cluster, ns);
        break;
    case STEP_FREEZE_SERVER:
    case STEP_CUT_SERVER:
    case STEP_TERM_SERVER:
        disturb_server(cluster, h->step, ns);
        break;
    case STEP_COUNT:
        break;
    }
}
