/* votes_invariants.c - what holds at every instant of a simulated job. See votes.h. */
#include <stdarg.h>
#include <stdio.h>

#include "tests/simulation/votes/votes_internal.h"

static const int64_t quiet_pause_ns = 5 * NS_PER_S;

void votes_break(struct votes_job *job, const char *format, ...)
{
    va_list arguments;
    if (job->outcome->broken)
        return;
    job->outcome->broken = true;
    va_start(arguments, format);
    (void)vsnprintf(job->outcome->text, sizeof job->outcome->text, format, arguments);
    va_end(arguments);
}

/* The chosen record that this one follows; NULL: none does. */
static const struct votes_world *record_before(const struct votes_job *job, const struct world_record *record)
{
    const struct votes_world *found = NULL;
    for (int i = 0; i < job->world_count; i++) {
        const struct votes_world *world = &job->worlds[i];
        if (world->chosen && record_follows(record, &world->record) &&
            (!found || world->record.revision > found->record.revision))
            found = world;
    }
    return found;
}

static const struct votes_world *chosen_rival(const struct votes_job *job, const struct world_record *record)
{
    for (int i = 0; i < job->world_count; i++)
        if (job->worlds[i].chosen && job->worlds[i].record.epoch == record->epoch &&
            record_compare(&job->worlds[i].record, record) == 0)
            return &job->worlds[i];
    return NULL;
}

static void note_epoch(struct votes_job *job, uint64_t epoch)
{
    for (int i = 0; i < job->epoch_count; i++)
        if (job->epochs[i] == epoch)
            return;
    if (job->epoch_count == 8)
        votes_break(job, "the job began more than 8 times");
    else
        job->epochs[job->epoch_count++] = epoch;
    job->outcome->jobs = (unsigned)job->epoch_count;
}

/* A record becomes known somewhere for the first time. */
static void check_choice(struct votes_job *job, struct votes_world *world)
{
    const struct world_record *record = &world->record;
    const struct votes_world *other = chosen_rival(job, record);
    note_epoch(job, record->epoch);
    if (other)
        votes_break(job, "round %u has two records: of n%d and of n%d", record->round,
                    votes_node_of(&other->record.voters[0]), votes_node_of(&record->voters[0]));
    world->chosen = true;
    job->outcome->rounds++;
    if (record->round == 0 && record->revision == 0)
        return;
    const struct votes_world *before = record_before(job, record);
    if (!before) {
        votes_break(job, "round %u follows a round that was not chosen", record->round);
        return;
    }
    if (__builtin_popcount(world->accepted) < before->record.voter_count / 2 + 1)
        votes_break(job, "round %u was accepted by %d of %d voters", record->round,
                    __builtin_popcount(world->accepted), before->record.voter_count);
    if (!agent_incarnation_equal(record->ballot.agent, before->record.ballot.agent))
        job->outcome->takeovers++;
}

void votes_check_knowledge(struct votes_job *job, int node, bool chosen)
{
    const struct takeover *t = &job->nodes[node].t;
    const struct votes_world *last = t->known.epoch ? votes_keep(job, &t->known) : NULL;
    for (int i = 0; t->has_accepted && i < t->known.voter_count; i++)
        if (agent_incarnation_equal(t->known.voters[i].incarnation, t->self.incarnation))
            votes_keep(job, &t->accepted)->accepted |= 1u << i;
    if (!last || last->chosen)
        return;
    struct votes_world *world = votes_keep(job, &t->known);
    const struct votes_world *before = record_before(job, &t->known);
    if (chosen && before && before->record.voter_count == 1 &&
        agent_incarnation_equal(before->record.voters[0].incarnation, t->self.incarnation))
        world->accepted |= 1; /* accepted and chosen in one step */
    check_choice(job, world);
}

/* --- the office --- */

/* Whether the agent serves in the office in which it was followed. */
static bool serves_still(const struct votes_job *job, const struct voter *followed, struct ballot office)
{
    const struct votes_node *server = &job->nodes[votes_node_of(followed)];
    return server->up && agent_incarnation_equal(server->self->incarnation, followed->incarnation) &&
           server->t.state == TAKEOVER_SERVE && ballot_compare(server->t.ballot, office) == 0;
}

void votes_check_office(struct votes_job *job, int node, const struct takeover_actions *actions)
{
    struct votes_node *n = &job->nodes[node];
    const bool quiet = job->schedule->quiet;
    const struct takeover_action *change = NULL;
    for (int i = actions->count - 1; i >= 0; i--)
        if (actions->items[i].kind == TAKEOVER_CHANGE)
            change = &actions->items[i]; /* the first one */
    if (change && n->follows && (quiet || change->reason == TAKEOVER_STEPPED_DOWN) &&
        serves_still(job, n->followed, n->office))
        votes_break(job, "n%d leaves n%d, which serves: %s", node, votes_node_of(n->followed),
                    takeover_reason_text(change->reason));
    if (change && quiet && n->t.state == TAKEOVER_SERVE && n->t.known.epoch &&
        ++job->elections > job->servers_lost)
        votes_break(job, "n%d is elected, and no server was lost since the last election", node);
    if (change && n->t.state == TAKEOVER_FOLLOW &&
        agent_incarnation_equal(n->t.server.incarnation, n->t.gone))
        votes_break(job, "n%d follows n%d, which has left", node, votes_node_of(&n->t.server));
    n->follows = n->t.state == TAKEOVER_FOLLOW;
    n->followed = n->follows ? votes_keep_voter(job, &n->t.server) : NULL;
    n->office = n->t.office;
}

void votes_note_end(struct votes_job *job, int node)
{
    if (!job->schedule->quiet || job->nodes[node].t.state != TAKEOVER_SERVE ||
        !job->nodes[node].t.known.epoch)
        return;
    job->servers_lost++;
    job->lost_at = job->now;
}

bool votes_trains(const struct votes_job *job, const struct votes_world *world)
{
    for (int i = 0; i < world->record.nodes; i++) {
        const struct votes_node *n = &job->nodes[world->members[i]];
        if (!n->up || n->runs != world ||
            !agent_incarnation_equal(n->self->incarnation, world->incarnations[i]))
            return false;
    }
    return world->record.nodes > 0;
}

void votes_check_training(struct votes_job *job, int node)
{
    const struct votes_world *world = job->nodes[node].runs;
    if (!votes_trains(job, world))
        return;
    for (int i = 0; i < job->schedule->nodes; i++) {
        const struct votes_world *other = job->nodes[i].up ? job->nodes[i].runs : NULL;
        const bool may = other && other->record.epoch != world->record.epoch &&
                         2 * job->schedule->min <= job->schedule->nodes; /* votes.h: it begins again */
        if (other && other != world && !may && votes_trains(job, other))
            votes_break(job, "rounds %u and %u train at the same time%s", other->record.round,
                        world->record.round,
                        other->record.epoch == world->record.epoch ? "" : ", of two jobs");
    }
    if (job->lost_at && job->now - job->lost_at > quiet_pause_ns)
        votes_break(job, "a world runs %.1f s after the loss of the server",
                    (double)(job->now - job->lost_at) / NS_PER_S);
    job->lost_at = 0;
    if (job->dead_at && !job->outcome->pause_ms)
        job->outcome->pause_ms = (job->now - job->dead_at) / NS_PER_MS;
    if (job->calm)
        job->ended = true;
}

/* That a living agent knows; NULL: there is none. */
static const struct world_record *newest(const struct votes_job *job)
{
    const struct world_record *last = NULL;
    for (int i = 0; i < job->schedule->nodes; i++) {
        const struct votes_node *n = &job->nodes[i];
        if (n->up && n->t.known.epoch && (!last || record_compare(&n->t.known, last) > 0))
            last = &n->t.known;
    }
    return last;
}

static bool is_left(const struct votes_job *job, const struct voter *voter)
{
    const struct votes_node *n = &job->nodes[votes_node_of(voter)];
    return n->up && !n->leaves && agent_incarnation_equal(n->self->incarnation, voter->incarnation);
}

bool votes_one_can_stand(const struct votes_job *job)
{
    const struct world_record *last = newest(job);
    bool found = false;
    for (int i = 0; last && i < last->voter_count && i < last->nodes; i++)
        found |= is_left(job, &last->voters[i]);
    return found;
}

static bool has_all(const struct votes_job *job)
{
    int nodes = 0;
    for (int i = 0; i < job->schedule->nodes; i++)
        nodes += job->nodes[i].up && !job->nodes[i].leaves;
    return nodes == job->schedule->nodes;
}

/* A majority of the newest record's voters lives, a member that may stand among them, and as many agents as a
 * world needs can find them. */
bool votes_can_go_on(const struct votes_job *job)
{
    const struct world_record *last = newest(job);
    bool endpoint = false;
    int voters = 0, nodes = 0;
    if (job->schedule->all_ranks)
        return has_all(job);
    for (int i = 0; i < job->schedule->nodes; i++) {
        const struct votes_node *n = &job->nodes[i];
        if (!n->up)
            continue;
        endpoint |= i < job->schedule->endpoints;
        /* Survivors without a majority exit only later: until then the endpoint's new job is another one. */
        if (last && n->t.known.epoch && n->t.known.epoch != last->epoch)
            return false;
    }
    for (int i = 0; i < job->schedule->nodes; i++)
        nodes += job->nodes[i].up && !job->nodes[i].leaves && (endpoint || job->nodes[i].t.known.epoch);
    if (!last)
        return job->nodes[0].up && nodes >= job->schedule->min;
    for (int i = 0; i < last->voter_count; i++)
        voters += is_left(job, &last->voters[i]);
    return voters >= last->voter_count / 2 + 1 && votes_one_can_stand(job) && nodes >= job->schedule->min;
}
