/* cluster_moving.c - a simulated job whose server may be gone for good: a voter takes the office.
 * Stands for rendezvous/moving/. votes/ has the rules of the vote, with several servers at a time: here the
 * vote goes as it should, and the rosters and clients are the real ones. */
#include <stdio.h>

#include "proto/exit_code.h"
#include "tests/simulation/cluster_internal.h"

static const int64_t broken_ns = NS_PER_S, silent_ns = 2500 * NS_PER_MS, again_ns = 300 * NS_PER_MS;
static const int64_t patience_ns = 3 * NS_PER_S; /* a server's, with voters that do not answer */

static int64_t luck_below(const struct cluster *cluster, int node, uint64_t what, int64_t limit_ms)
{
    const uint64_t luck = cluster_luck(cluster, (uint64_t)node, cluster->server_lives, what);
    return NS_PER_MS * (1 + (int64_t)(luck % (uint64_t)limit_ms));
}

bool cluster_has_successor(const struct cluster *cluster)
{
    return cluster->options.votes && cluster->record.voter_count > 1;
}

/* --- the voters --- */

static bool is_reachable(const struct cluster *cluster, int i)
{
    const struct node *node = &cluster->nodes[i];
    return node->phase == NODE_UP && !node->parted && !node->cut[TO_SERVER] && !node->cut[TO_AGENT] &&
           !is_frozen(cluster, node) && !node->membership_over && !node->membership_left && !node->terminated;
}

/* -1: it has ended, or cannot be reached. */
static int node_of_voter(const struct cluster *cluster, const struct voter *voter)
{
    for (int i = 0; i < cluster->used; i++)
        if (agent_incarnation_equal(cluster->nodes[i].incarnation, voter->incarnation))
            return is_reachable(cluster, i) ? i : -1;
    return -1;
}

static bool has_majority(const struct cluster *cluster)
{
    const struct world_record *record = &cluster->record;
    int count = 0;
    for (int i = 0; i < record->voter_count; i++)
        count += node_of_voter(cluster, &record->voters[i]) >= 0;
    return !record->epoch || count >= record_majority(record);
}

/* The first voter that was a member: a spare does not stand. */
static int candidate(const struct cluster *cluster)
{
    const struct world_record *record = &cluster->record;
    for (int i = 0; i < record->voter_count; i++) {
        const int node = node_of_voter(cluster, &record->voters[i]);
        if (node >= 0 && record_voter_rank(i, record->voter_count, record->nodes) >= 0)
            return node;
    }
    return -1;
}

/* It has gone, or is out of reach, and may live. */
static bool is_lost(const struct cluster *cluster)
{
    return cluster->server_lives_lost == cluster->server_lives;
}

/* --- a member --- */

void cluster_seek(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    if (!node->client || node->membership_over || node->server_life == cluster->server_lives_lost + 1)
        return; /* it is a member of the next one */
    client_fill_known(node->client, &node->past);
    node->sequence = client_sequence(node->client);
    node->numbers = client_numbers(node->client);
    client_destroy(node->client);
    node->client = NULL;
    cluster_look(cluster, i);
}

void cluster_look(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    node->turn_at = INSTANT_NEVER;
    node->seeks_since = cluster->now;
    cluster_after(cluster, cluster->options.join_timeout_ns, i, HAPPEN_GIVE_UP);
    const bool needs_no_server = node->past.server_done && world_id_equal(node->past.last, node->current);
    if (!node->current.epoch || node->stops || needs_no_server)
        return;
    struct membership_event stop = {.kind = MEMBERSHIP_EVENT_STOP, .stopped = node->current};
    (void)snprintf(stop.reason, sizeof stop.reason, "looking for the agent that serves next");
    cluster_take_event(cluster, i, &stop);
}

void cluster_give_up(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    const int64_t sought_ns = instant_diff_ns(cluster->now, node->seeks_since);
    if (node->client || node->membership_over || (node->server && i == cluster->endpoint) ||
        sought_ns < cluster->options.join_timeout_ns)
        return;
    cluster_say(cluster, node, "has found no server");
    cluster->hopeless |= !has_majority(cluster);
    cluster->may_fail = node->membership_over = true;
    cluster_agent_event(cluster, i,
                        &(struct worker_group_event){.kind = GROUP_LOST, .exit_code = EXIT_CODE_NODE}, NULL);
}

void cluster_meet_server(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    if (!cluster_server(cluster) || is_lost(cluster) || i == cluster->endpoint || node->membership_over ||
        node->membership_left || node->parted || node->server)
        return;
    cluster_seek(cluster, i);
    if (!node->client && node->phase == NODE_UP)
        cluster_open_client(cluster, i);
}

/* --- the server --- */

void cluster_lose_server(struct cluster *cluster, bool seen)
{
    const int64_t noticed_ns = seen ? broken_ns : silent_ns;
    if (!is_lost(cluster))
        cluster->server_lives_lost_before = cluster->server_lives_lost;
    cluster->server_lives_lost = cluster->server_lives;
    for (int i = 0; i < cluster->used; i++)
        if (cluster->nodes[i].client)
            cluster_after(cluster, noticed_ns + luck_below(cluster, i, 6, 200), i, HAPPEN_SEEK);
    cluster_after(cluster, noticed_ns + luck_below(cluster, cluster->endpoint, 7, 800), cluster->endpoint,
                  HAPPEN_ELECT);
}

void cluster_hand_over(struct cluster *cluster, int i)
{
    if (!cluster_has_successor(cluster))
        return;
    const bool former = cluster->nodes[i].server_life != cluster->server_lives;
    if (!former && !is_lost(cluster)) {
        cluster->server_lives_lost_before = cluster->server_lives_lost;
        cluster->server_lives_lost = cluster->server_lives;
        cluster_after(cluster, luck_below(cluster, i, 7, 800), cluster->endpoint, HAPPEN_ELECT);
    }
    cluster->handed_over |= !former;
    cluster_after(cluster, 0, i, HAPPEN_SEEK);
}

void cluster_part_server(struct cluster *cluster, int64_t for_ns)
{
    const int i = cluster->endpoint;
    cluster->nodes[i].parted = cluster->changed = true;
    cluster_lose_server(cluster, false);
    cluster_after(cluster, silent_ns + patience_ns, i, HAPPEN_STEP_DOWN);
    cluster_after(cluster, for_ns, i, HAPPEN_REJOIN);
}

/* Its office has ended: it stops its workers, and looks for the agent that serves. */
void cluster_step_down(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    if (!node->server || node->server->closing || node->membership_over || node->membership_left)
        return;
    cluster_say(cluster, node, "serves no more");
    cluster_free_server(node->server);
    node->server = NULL;
    cluster->changed = true;
    cluster_look(cluster, i);
}

/* Another agent may serve since; else it goes on, and the others find it again. */
void cluster_server_returns(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    node->parted = false;
    cluster->changed = true;
    if (i != cluster->endpoint)
        cluster_step_down(cluster, i);
    else if (node->server && is_lost(cluster)) {
        cluster->server_lives_lost = cluster->server_lives_lost_before;
        for (int other = 0; other < cluster->used; other++)
            if (other != i && cluster->nodes[other].phase == NODE_UP)
                cluster_after(cluster, luck_below(cluster, other, 8, 300), other, HAPPEN_FOLLOW);
    }
    if (i != cluster->endpoint && !node->client)
        cluster_after(cluster, luck_below(cluster, i, 8, 300), i, HAPPEN_FOLLOW);
}

static void take_office(struct cluster *cluster, int i)
{
    struct node *node = &cluster->nodes[i];
    cluster_seek(cluster, i);
    if (node->phase != NODE_UP || node->membership_over)
        return;
    cluster_say(cluster, node, "is elected");
    struct roster_join own = cluster_join_of(cluster, i, true);
    const bool held_done = node->past.held_done && node->current.epoch;
    cluster_add_past(node, &own);
    own.held_done = held_done;
    cluster->endpoint = i;
    cluster->proposed = false;
    cluster->elected = true;
    cluster->ran &= !cluster->handed_over; /* its world has ended in order, and costs nothing */
    cluster->handed_over = false;
    cluster_open_server(cluster, i, &own);
    cluster_report_again(cluster, i);
    for (int other = 0; other < cluster->used; other++)
        if (other != i && cluster->nodes[other].phase == NODE_UP)
            cluster_after(cluster, luck_below(cluster, other, 8, 300), other, HAPPEN_FOLLOW);
}

void cluster_elect(struct cluster *cluster)
{
    const bool serves = cluster_server(cluster) && !is_lost(cluster);
    if (serves || cluster_is_over(cluster))
        return;
    const int next = has_majority(cluster) ? candidate(cluster) : -1;
    /* A server that leaves in order is followed until its word has arrived, or its connection has ended. */
    const bool follows = next >= 0 && cluster->handed_over && cluster->nodes[next].client;
    if (next >= 0 && !follows)
        take_office(cluster, next);
    if (!cluster_server(cluster) || is_lost(cluster))
        cluster_after(cluster, again_ns, cluster->endpoint, HAPPEN_ELECT);
}

void cluster_propose(struct cluster *cluster, int i)
{
    roster_fill_record(cluster->nodes[i].server->roster, &cluster->proposal);
    cluster->proposed = true;
    cluster_after(cluster, 2 * cluster->options.delay_max_ns, i, HAPPEN_CHOSEN);
}

/* The proposer's own workers have ended: two worlds in a row share this node. */
void cluster_choose(struct cluster *cluster, int i)
{
    const struct node *node = &cluster->nodes[i];
    if (!node->server || i != cluster->endpoint || !cluster->proposed)
        return;
    if (node->current.epoch || node->parted || !has_majority(cluster)) {
        cluster_after(cluster, again_ns, i, HAPPEN_CHOSEN);
        return;
    }
    if (cluster->elected && cluster->ran && cluster->proposal.restart_count <= cluster->record.restart_count)
        cluster_break(cluster, INVARIANT_COUNTED_ONCE, "the loss of a server costs no restart in round %u",
                      cluster->proposal.round);
    cluster->proposed = cluster->elected = cluster->ran = false;
    cluster->record = cluster->proposal;
    struct roster_event chosen = {.kind = ROSTER_CHOSEN};
    cluster_local_step(cluster, i, &chosen);
}

/* A spare that has registered since a world of two nodes formed is a voter; a member that has gone is none.
 */
void cluster_revise_voters(struct cluster *cluster, int i)
{
    const struct roster *roster = cluster->nodes[i].server->roster;
    struct world_record record;
    if (has_majority(cluster) && roster_revise_record(roster, &cluster->record, &record))
        cluster->record = record;
}
