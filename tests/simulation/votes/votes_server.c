/* votes_server.c - a simple roster for the agent that serves: members, their silence, and the next round. See
 * votes_internal.h. */
#include <string.h>

#include "tests/simulation/votes/votes_internal.h"

static const int64_t beat_ns = 500 * NS_PER_MS, lost_ns = 2500 * NS_PER_MS, last_call_ns = 2 * NS_PER_S,
                     gather_ns = NS_PER_S, regroup_ns = 3 * NS_PER_S;

static void set_phase(struct votes_job *job, struct votes_node *n, enum votes_phase phase)
{
    n->phase = phase;
    n->since = job->now;
    n->enough_at = n->regroup_at = 0;
    n->order_at = job->now;
}

void votes_server_begin(struct votes_job *job, int node)
{
    struct votes_node *n = &job->nodes[node];
    memset(n->entries, 0, sizeof n->entries);
    set_phase(job, n, n->t.proposing ? VOTES_PROPOSES : VOTES_STOPS);
}

static void order(struct votes_job *job, int node, int to)
{
    struct votes_node *n = &job->nodes[node];
    static const struct world_record none;
    const struct votes_world *known = votes_known(job, node); /* not its later voters */
    const struct votes_message message = {.kind = VOTES_ORDER,
                                          .from = n->self,
                                          .known = known ? &known->record : &none,
                                          .stop = n->phase != VOTES_RUNS,
                                          .left = n->left};
    votes_send(job, node, to, &message);
}

void votes_server_joined(struct votes_job *job, int node, const struct votes_message *message)
{
    struct votes_node *n = &job->nodes[node];
    const int from = votes_node_of(message->from);
    struct votes_entry *entry = &n->entries[from];
    const struct agent_incarnation incarnation = message->from->incarnation;
    const bool is_new = !entry->here || !agent_incarnation_equal(entry->incarnation, incarnation);
    const bool replaced =
        entry->here && is_new && votes_is_member(votes_known(job, node), from, entry->incarnation);
    if (is_new && entry->here && incarnation.low < entry->incarnation.low)
        return; /* a late message of an agent that has ended */
    if (agent_incarnation_equal(entry->gone, incarnation))
        return;
    *entry = (struct votes_entry){true, incarnation, message->from, message->runs, job->now, entry->gone};
    if (message->leaves && !message->runs) {
        entry->here = false;
        entry->gone = incarnation;
        return;
    }
    const bool leaves = message->leaves && votes_is_member(votes_known(job, node), from, incarnation);
    if ((replaced || leaves) && n->phase == VOTES_RUNS)
        set_phase(job, n, VOTES_STOPS);
    if (is_new)
        order(job, node, from);
}

/* How many agents could be in the next world; old: of the last one's members. */
static int count_ready(struct votes_job *job, int node, bool old)
{
    struct votes_node *n = &job->nodes[node];
    const struct votes_world *known = votes_known(job, node);
    int count = 0;
    for (int i = 0; i < job->schedule->nodes; i++) {
        const struct votes_entry *entry = &n->entries[i];
        count += entry->here && !entry->runs && (!old || votes_is_member(known, i, entry->incarnation));
    }
    return count;
}

static void add_member(struct votes_world *world, int node, struct agent_incarnation incarnation)
{
    world->members[world->record.nodes] = node;
    world->incarnations[world->record.nodes++] = incarnation;
}

static void propose(struct votes_job *job, int node)
{
    struct votes_node *n = &job->nodes[node];
    const struct votes_world *known = votes_known(job, node);
    static const struct votes_world none;
    const struct voter *spare = NULL;
    struct votes_world next = {
        .record = {.epoch = (uint64_t)(1 + job->world_count) << 32 | n->self->incarnation.low}};
    struct takeover_actions actions;
    add_member(&next, node, n->self->incarnation);
    for (int old = 1; old >= 0; old--)
        for (int i = 0; i < job->schedule->nodes; i++) {
            const struct votes_entry *entry = &n->entries[i];
            if (i == node || !entry->here || entry->runs ||
                votes_is_member(known, i, entry->incarnation) != old)
                continue;
            if (next.record.nodes < job->schedule->max)
                add_member(&next, i, entry->incarnation);
            else if (!spare)
                spare = entry->voter;
        }
    struct world_record *record = &next.record;
    record->voter_count = record_voter_count(record->nodes, spare ? 1 : 0);
    for (int i = 0; i < record->voter_count; i++) {
        const int rank = record_voter_rank(i, record->voter_count, record->nodes);
        record->voters[i] = rank < 0 ? *spare : job->voters[next.incarnations[rank].low];
    }
    set_phase(job, n, VOTES_PROPOSES);
    if (!takeover_propose(&n->t, record, job->instant, &actions)) {
        set_phase(job, n, VOTES_STOPS);
        return;
    }
    struct votes_world *kept = votes_keep(job, &n->t.proposal);
    if (kept->record.nodes == next.record.nodes &&
        memcmp(kept->incarnations, none.incarnations, sizeof none.incarnations) &&
        memcmp(kept->incarnations, next.incarnations, sizeof next.incarnations))
        votes_break(job, "two proposals of round %u have one ballot", kept->record.round);
    memcpy(kept->members, next.members, sizeof kept->members);
    memcpy(kept->incarnations, next.incarnations, sizeof kept->incarnations);
    votes_say(job, node, "proposes round %u of %d nodes", kept->record.round, kept->record.nodes);
    votes_carry_out(job, node, &actions);
}

static void lose_silent(struct votes_job *job, int node)
{
    struct votes_node *n = &job->nodes[node];
    bool gone = false;
    for (int i = 0; i < job->schedule->nodes; i++) {
        struct votes_entry *entry = &n->entries[i];
        if (i == node || !entry->here || job->now - entry->heard < lost_ns)
            continue;
        gone |= votes_is_member(votes_known(job, node), i, entry->incarnation);
        entry->here = false;
    }
    if (gone && n->phase == VOTES_RUNS)
        set_phase(job, n, VOTES_STOPS);
}

/* A spare that registered after the world had formed becomes the third voter of two nodes, and is none when
 * it has gone. */
static void tend_voters(struct votes_job *job, int node)
{
    struct votes_node *n = &job->nodes[node];
    const struct votes_world *world = votes_known(job, node);
    struct voter voters[RECORD_VOTERS];
    struct takeover_actions actions;
    int spare = -1;
    bool kept = false;
    for (int i = 0; i < job->schedule->nodes; i++)
        if (n->entries[i].here && !votes_is_member(world, i, n->entries[i].incarnation)) {
            spare = i;
            kept |= record_find_voter(&n->t.known, n->entries[i].incarnation) == RECORD_SPARE_VOTER;
        }
    const int count = record_voter_count(world->record.nodes, spare >= 0);
    if (world->record.nodes != 2 || (n->t.known.voter_count == count && (kept || count == 1)) ||
        !takeover_may_revise(&n->t, job->instant))
        return;
    voters[0] = *n->self;
    voters[1] = job->voters[world->incarnations[1].low];
    if (spare >= 0)
        voters[RECORD_SPARE_VOTER] = *n->entries[spare].voter;
    (void)takeover_revise(&n->t, voters, count, job->instant, &actions);
    votes_keep(job, &n->t.proposal)->base = votes_keep(job, &world->record);
    votes_carry_out(job, node, &actions);
}

static void tend_running(struct votes_job *job, int node)
{
    struct votes_node *n = &job->nodes[node];
    const struct votes_world *known = votes_known(job, node);
    int members = 0, others = 0;
    votes_want_workers(job, node, known);
    for (int i = 0; i < job->schedule->nodes; i++) {
        const bool member = votes_is_member(known, i, n->entries[i].incarnation);
        members += n->entries[i].here && member;
        others += n->entries[i].here && !member;
    }
    if (job->now - n->since > lost_ns && members < known->record.nodes)
        set_phase(job, n, VOTES_STOPS);
    else if (!others || known->record.nodes >= job->schedule->max)
        n->regroup_at = 0;
    else if (!n->regroup_at)
        n->regroup_at = job->now + regroup_ns;
    else if (job->now >= n->regroup_at)
        set_phase(job, n, VOTES_STOPS);
}

static void tend_gathering(struct votes_job *job, int node)
{
    struct votes_node *n = &job->nodes[node];
    const bool first = !n->t.known.epoch;
    const int ready = count_ready(job, node, false);
    if (ready < job->schedule->min)
        n->enough_at = 0;
    else if (!n->enough_at)
        n->enough_at = job->now;
    if (!n->enough_at)
        return;
    const bool all_back = !first && count_ready(job, node, true) >= n->t.known.nodes - 1;
    if (all_back || ready >= job->schedule->max ||
        job->now - n->enough_at >= (first ? last_call_ns : gather_ns))
        propose(job, node);
}

/* All have stopped, and the server leaves them. */
static void hand_over(struct votes_job *job, int node)
{
    struct votes_node *n = &job->nodes[node];
    n->left = true;
    for (int i = 0; i < job->schedule->nodes; i++)
        if (i != node && n->entries[i].here)
            order(job, node, i);
    votes_leave(job, node);
}

void votes_server_turn(struct votes_job *job, int node)
{
    struct votes_node *n = &job->nodes[node];
    n->entries[node] = (struct votes_entry){
        true, n->self->incarnation, n->self, n->runs || n->starts ? 1 + n->t.known.round : 0, job->now, {0}};
    lose_silent(job, node);
    if (n->phase == VOTES_PROPOSES && !n->t.proposing)
        set_phase(job, n, VOTES_STOPS);
    if (n->phase == VOTES_RUNS && n->leaves)
        set_phase(job, n, VOTES_STOPS);
    if (n->phase == VOTES_RUNS)
        tend_voters(job, node);
    if (n->phase == VOTES_RUNS)
        tend_running(job, node);
    if (n->phase == VOTES_STOPS) {
        votes_stop_workers(job, node);
        bool all = !n->runs;
        for (int i = 0; i < job->schedule->nodes; i++)
            all = all && (i == node || !n->entries[i].here || !n->entries[i].runs);
        if (all)
            set_phase(job, n, VOTES_GATHERS);
    }
    if (n->phase == VOTES_GATHERS && n->leaves && takeover_may_propose(&n->t)) {
        hand_over(job, node);
        return;
    }
    if (n->phase == VOTES_GATHERS && takeover_may_propose(&n->t))
        tend_gathering(job, node);
    if (!n->up || n->t.state != TAKEOVER_SERVE || job->now < n->order_at)
        return;
    n->order_at = job->now + beat_ns;
    for (int i = 0; i < job->schedule->nodes; i++)
        if (i != node && n->entries[i].here)
            order(job, node, i);
}
