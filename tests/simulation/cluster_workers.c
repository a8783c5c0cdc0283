/* cluster_workers.c - the workers of one agent of a simulated cluster, from their start to their end. Stands
 * for launcher/agent/agent_start.c and the programs that it runs. */
#include <signal.h>
#include <stdio.h>

#include "tests/simulation/cluster_internal.h"

enum { KILLED_MS = 10 };

void cluster_set_workers(struct cluster *cluster, struct node *node, enum worker_phase phase)
{
    node->workers = phase;
    node->batch++;
    cluster->changed = true;
}

void cluster_start_workers(struct cluster *cluster, int i)
{
    cluster_set_workers(cluster, &cluster->nodes[i], WORKERS_STARTING);
    cluster->nodes[i].failed = 0;
    cluster->nodes[i].saving = false;
    cluster_after(cluster, cluster->options.start_ns, i, HAPPEN_STARTED);
}

void cluster_stop_workers(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    if (node->workers != WORKERS_STARTING && node->workers != WORKERS_RUNNING)
        return;
    bool none = node->workers == WORKERS_STARTING;
    cluster_set_workers(cluster, node, WORKERS_ENDING);
    if (!node->stuck)
        cluster_after(cluster, none ? 0 : cluster->options.stop_ns, i, HAPPEN_ENDED);
}

/* They save, and end by themselves; until then they work. */
void cluster_let_workers_save(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    if (node->saving || (node->workers != WORKERS_STARTING && node->workers != WORKERS_RUNNING))
        return;
    node->saving = true;
    uint64_t luck = cluster_luck(cluster, (uint64_t)i, node->batch, 6);
    cluster_after(cluster, (int64_t)(luck % (uint64_t)(2 * cluster->options.grace_ns)), i, HAPPEN_ENDED);
}

void cluster_kill_workers(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    if (has_workers(node) && !node->stuck)
        cluster_after(cluster, KILLED_MS * NS_PER_MS, i, HAPPEN_ENDED);
}

void cluster_workers_started(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    if (node->workers != WORKERS_STARTING)
        return;
    node->workers = WORKERS_RUNNING;
    cluster_report(cluster, i, MEMBERSHIP_REPORT_RUNNING, NULL);
    if (cluster->calm)
        cluster_schedule(cluster, &(struct happening){.at = instant_add(cluster->now, cluster->calm_run_ns),
                                                      .kind = HAPPEN_STEP,
                                                      .step = STEP_FINISH,
                                                      .node = i,
                                                      .batch = node->batch});
}

void cluster_workers_ended(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    cluster_set_workers(cluster, node, WORKERS_NONE);
    if (node->group.state == GROUP_SAVING)
        cluster_agent_event(cluster, i, &(struct worker_group_event){.kind = GROUP_SUCCESS}, NULL);
    cluster_look_for_the_end(cluster, i);
}

void cluster_fail_worker(struct cluster *cluster, int i, bool follows)
{
    struct node *node = &cluster->nodes[i];
    enum worker_group_state state = node->group.state;
    bool told = node->workers == WORKERS_ENDING && state == GROUP_STOPPING;
    bool runs = node->workers == WORKERS_RUNNING &&
                (state == GROUP_RUNNING || state == GROUP_DRAINING || state == GROUP_SAVING);
    int local = node->failed;
    if ((!runs && !told) || local == cluster->options.local_world_size[i])
        return;
    node->failed++;
    struct worker_failure failure = {.rank = node->world.rank_base + local,
                                     .local_rank = local,
                                     .pid = 1000 * (local + 1) + i,
                                     .exit_code = follows ? 1 : -1,
                                     .signal = follows ? 0 : SIGKILL,
                                     .after_stop = told,
                                     .step = -1};
    (void)snprintf(failure.host, sizeof failure.host, "%s", node->name);
    cluster_say(cluster, node, follows ? "a worker loses its peer" : "a worker is killed");
    cluster->faults++;
    cluster->round_exits++;
    cluster_agent_event(cluster, i, &(struct worker_group_event){.kind = GROUP_FAILURE}, &failure);
    /* Its remains are looked up in the meantime, and reported before the node says that it has stopped. */
    failure.completes = true;
    if (follows)
        (void)snprintf(failure.tail, sizeof failure.tail, "Connection closed by peer");
    cluster_report(cluster, i, MEMBERSHIP_REPORT_FAILED, &failure);
}

void cluster_finish_workers(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    enum worker_group_state state = node->group.state;
    if (node->workers != WORKERS_RUNNING || (state != GROUP_RUNNING && state != GROUP_DRAINING))
        return;
    cluster_say(cluster, node, "is done");
    cluster_set_workers(cluster, node, WORKERS_DONE);
    cluster_note_done(cluster, i);
    cluster_agent_event(cluster, i, &(struct worker_group_event){.kind = GROUP_SUCCESS}, NULL);
}
