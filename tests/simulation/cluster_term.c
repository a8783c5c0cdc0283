/* cluster_term.c - required effects of a TERM to an agent: it goes in time, a static job ends with it, and
 * jobs whose workers listen get time to save. See cluster.h. */
#include "proto/exit_code.h"
#include "tests/simulation/cluster_internal.h"

/* Without workers an agent that is asked to end goes at once; with some when they have had their time, which
 * may begin anew where something fails in the meantime. */
static int64_t leaving_ns(const struct cluster *cluster, const struct node *node)
{
    return has_workers(node) ? 2 * cluster->options.grace_ns + node->group.kill_bound_ns + 2 * NS_PER_S
                             : NS_PER_S;
}

void cluster_expect_leave(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    node->asked_at = cluster->now;
    node->leaving_ns = leaving_ns(cluster, node);
    cluster_after(cluster, node->leaving_ns, i, HAPPEN_LEAVE_BY);
}

/* Who serves need not be gone: the others may still need it. */
void cluster_check_leave(struct cluster *cluster, int i)
{
    const struct node *node = &cluster->nodes[i];
    struct instant from = node->frozen_until.ns > node->asked_at.ns ? node->frozen_until : node->asked_at;
    struct instant limit = instant_add(from, node->leaving_ns);
    if (node->group.state == GROUP_OVER)
        return;
    if (instant_reached(cluster->now, limit))
        cluster_break(cluster, INVARIANT_PROGRESS, "%s got TERM and is still %s %.3f s later", node->name,
                      worker_group_state_name(node->group.state),
                      (double)instant_diff_ns(cluster->now, node->asked_at) / NS_PER_S);
    else
        cluster_at(cluster, limit, i, HAPPEN_LEAVE_BY);
}

/* A static world cannot go on without a member that leaves, or is to, before it was done: no round follows.
 * Where it may save first, all may. */
void cluster_note_word(struct cluster *cluster, const struct roster_event *event)
{
    const struct server *server = cluster->nodes[cluster->endpoint].server;
    const struct roster *roster = server->roster;
    if (cluster->options.elastic || (event->kind != ROSTER_LEAVE && event->kind != ROSTER_DRAIN) ||
        event->exit_code != EXIT_CODE_TERMINATED || event->member < 0)
        return;
    int i = event->session == LOCAL_SESSION ? cluster->endpoint : cluster->sessions[event->session].node;
    bool served = server->slot_session[event->member] == event->session;
    enum roster_job_state state = roster_state(roster);
    enum roster_member_state member = roster_member_state(roster, event->member);
    bool has_some = member == MEMBER_ASSIGNED || member == MEMBER_RUNNING;
    bool runs = (state == JOB_STARTING || state == JOB_RUNNING) &&
                (has_some || (i == cluster->endpoint && event->kind == ROSTER_LEAVE));
    bool waits = (member == MEMBER_JOINED || member == MEMBER_ORPHANED) && i != cluster->endpoint;
    bool sits = served && member != MEMBER_EMPTY && member != MEMBER_DONE_GONE && !waits;
    if (!sits || (!runs && state != JOB_STOPPING))
        return;
    cluster->may_fail = true;
    cluster->ending = roster_world_id(roster);
    if (event->kind == ROSTER_LEAVE || !runs)
        return;
    cluster->drained = cluster->ending;
    cluster->drained_faults = cluster->faults;
}

/* Unless a node was out of reach, or something fails in the meantime, listening workers are informed in
 * time. */
void cluster_check_notice(struct cluster *cluster, int i, const struct membership_event *event)
{
    const struct node *node = &cluster->nodes[i];
    bool listens = cluster->options.listens[i] && node->workers == WORKERS_RUNNING;
    bool told = event->kind == MEMBERSHIP_EVENT_STOP && event->planned && event->grace_ns > 0;
    if (!listens || told || node->group.state != GROUP_RUNNING || !cluster->drained.epoch ||
        !world_id_equal(node->world.id, cluster->drained) || cluster->losses ||
        cluster->faults != cluster->drained_faults)
        return;
    cluster_break(cluster, INVARIANT_NOTICE, "%s ends its workers, which listen, without a notice",
                  node->name);
}
