/* cluster_liveness.c - required outcomes of a simulated job: states that end in time, and the end of the
 * job when the faults are over. */
#include <inttypes.h>

#include "proto/exit_code.h"
#include "tests/simulation/cluster_internal.h"

static const int64_t slack_ns = 15 * NS_PER_S; /* detection, the slowest start, and some round trips */

static bool is_ready(const struct cluster *cluster, int i)
{
    const struct node *node = &cluster->nodes[i];
    return node->phase == NODE_UP && !node->cut[TO_SERVER] && !node->cut[TO_AGENT] && !node->replaced &&
           !node->terminated && !node->foreign && !node->membership_over && !is_frozen(cluster, node) &&
           node->group.state == GROUP_WAITING && (node->client || i == cluster->endpoint) &&
           cluster->now.ns >= node->not_before[TO_SERVER].ns;
}

/* Agents that could be in a world, and are in no other. There is none to be had where nobody serves, or who
 * does stands still: that time counts for nothing, its last call may have stood with it. */
void cluster_count_ready(struct cluster *cluster)
{
    const struct node *first = &cluster->nodes[cluster->endpoint];
    bool served =
        cluster_server(cluster) && !first->membership_over && !first->parted && !is_frozen(cluster, first);
    uint64_t ready = 0;
    int count = 0;
    for (int i = 0; served && i < cluster->used; i++)
        if (is_ready(cluster, i)) {
            ready |= UINT64_C(1) << i;
            count++;
        }
    if (ready != cluster->ready)
        cluster->ready_since = cluster->now;
    cluster->ready = ready;
    cluster->ready_nodes = count;
}

/* A world forms when enough nodes are alive and connected: an elastic one within its last call, a static one
 * at once. */
static void check_forming(struct cluster *cluster)
{
    const struct cluster_options *options = &cluster->options;
    int64_t last_call = options->last_call_ns ? options->last_call_ns : 30 * NS_PER_S;
    int64_t limit = 10 * NS_PER_S + 5 * options->backoff_ns + (options->elastic ? last_call : 0);
    int64_t since = instant_diff_ns(cluster->now, cluster->ready_since);
    if (cluster->ready_nodes >= options->min_nodes && since > limit)
        cluster_break(cluster, INVARIANT_PROGRESS, "%d nodes are ready for %.3f s and form no world",
                      cluster->ready_nodes, (double)since / NS_PER_S);
}

/* A job may run, or wait for somebody to join, as long as it likes; starting and stopping have an end, which
 * is far below the time-outs that would hide a lost message. */
void cluster_check_progress(struct cluster *cluster)
{
    struct server *server = cluster_server(cluster);
    const struct node *first = &cluster->nodes[cluster->endpoint];
    if (!server || first->parted || is_frozen(cluster, first))
        return;
    enum roster_job_state state = roster_state(server->roster);
    if (state != server->state) {
        server->state = state;
        server->state_since = cluster->now;
        cluster->ready_since = cluster->now;
    }
    int64_t since = instant_diff_ns(cluster->now, server->state_since);
    if (state == JOB_FORMING)
        check_forming(cluster);
    else if ((state == JOB_STARTING && since > slack_ns) ||
             ((state == JOB_STOPPING || state == JOB_FINISHING) &&
              since > slack_ns + cluster->options.grace_ns +
                          cluster->nodes[cluster->endpoint].group.kill_bound_ns))
        cluster_break(cluster, INVARIANT_PROGRESS, "%s for %.3f s", roster_job_state_name(state),
                      (double)since / NS_PER_S);
}

/* -- the end
 * ------------------------------------------------------------------------------------------------------ */

/* A job that failed has used its restarts up, or something was done to it that ends a job by design. */
static void check_failed(struct cluster *cluster)
{
    const struct roster *roster = cluster_roster(cluster);
    if (!cluster->may_fail && roster_restart_count(roster) < cluster->options.max_restarts)
        cluster_break(cluster, INVARIANT_END,
                      "the job failed with code %d after %" PRId64 " of %" PRId64 " restarts",
                      cluster->verdict, roster_restart_count(roster), cluster->options.max_restarts);
    if (cluster_exit_code(cluster, cluster->endpoint) == EXIT_CODE_OK)
        cluster_break(cluster, INVARIANT_END, "the serving agent left 0 from a job that failed");
}

/* Its agent left at once with workers that it could not kill, or took for such ones. */
static bool thinks_stuck(const struct node *node)
{
    return node->stuck || (node->hurried && node->exit_code == EXIT_CODE_NODE);
}

static void check_codes(struct cluster *cluster)
{
    for (int i = 0; i < cluster->used; i++) {
        const struct node *node = &cluster->nodes[i];
        if (node->phase != NODE_EXITED || thinks_stuck(node) || !node->exited_at.ns)
            continue; /* or it crashed */
        if (node->terminated && node->exit_code != EXIT_CODE_TERMINATED && !node->judged &&
            !node->membership_over)
            cluster_break(cluster, INVARIANT_END, "%s left with %d after TERM", node->name, node->exit_code);
        if (node->judged && !node->terminated && node->exit_code != node->verdict)
            cluster_break(cluster, INVARIANT_END, "%s left with %d after a verdict of %d", node->name,
                          node->exit_code, node->verdict);
        if (node->exit_code == EXIT_CODE_TERMINATED && !node->terminated && !cluster->may_fail)
            cluster_break(cluster, INVARIANT_END, "%s left with 143 without a TERM", node->name);
    }
}

void cluster_check_end(struct cluster *cluster)
{
    const struct roster *roster = cluster_roster(cluster);
    for (int i = 0; i < cluster->used; i++)
        if (cluster->nodes[i].phase == NODE_UP)
            cluster_break(cluster, INVARIANT_END, "%s has not left; the job is %s", cluster->nodes[i].name,
                          roster ? roster_job_state_name(roster_state(roster)) : "not served");
    if (cluster->broken)
        return;
    if (!roster && !cluster->hopeless)
        cluster_break(cluster, INVARIANT_END, "nobody served the job");
    if (!roster)
        return;
    check_codes(cluster);
    enum roster_job_state state = roster_state(roster);
    if (cluster->nodes[cluster->endpoint].terminated || thinks_stuck(&cluster->nodes[cluster->endpoint]))
        return; /* the server went with its agent, in whatever state */
    if (state != JOB_FINISHED)
        cluster_break(cluster, INVARIANT_END, "the job has not come to its end: it is %s",
                      roster_job_state_name(state));
    else if (roster_has_remote(roster))
        cluster_break(cluster, INVARIANT_END, "an agent still holds a membership");
    else if (roster_verdict_code(roster) != EXIT_CODE_OK)
        check_failed(cluster);
    else if (cluster_exit_code(cluster, cluster->endpoint) != EXIT_CODE_OK)
        cluster_break(cluster, INVARIANT_END, "the serving agent failed a job that succeeded");
}
