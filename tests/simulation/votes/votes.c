/* votes.c - a simulated job from its start to its end, with the faults of its schedule. See votes.h. */
#include "tests/simulation/votes/votes.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/mem.h"
#include "tests/simulation/votes/votes_internal.h"

/* After the last fault a world runs within this time, if one can: 10 s, or 25 s where lost voters are waited
 * for first, and two round trips of the slowest messages (a round trip takes up to 1 s in some schedules). */
static int64_t patience_ns(const struct votes_job *job)
{
    return (job->schedule->all_ranks ? 25 : 10) * NS_PER_S + 4 * job->schedule->delay_ms * NS_PER_MS;
}

static void kill_node(struct votes_job *job, int node, int64_t for_ms)
{
    if (node < 0 || !job->nodes[node].up)
        return;
    votes_crash(job, node);
    votes_later(job, for_ms, VOTES_RESTART, node);
}

static void cut(struct votes_job *job, unsigned side, bool one_way, int64_t for_ms)
{
    for (int i = 0; i < job->schedule->nodes; i++)
        for (int to = 0; to < job->schedule->nodes; to++)
            if ((side >> i & 1) != (side >> to & 1) && !(one_way && (side >> i & 1)))
                job->reach[i] &= ~(1u << to);
    votes_say(job, -1, "cut %x%s", side, one_way ? ", one way" : "");
    votes_later(job, for_ms, VOTES_HEAL, -1);
}

static void freeze(struct votes_job *job, int node, int64_t for_ms)
{
    if (node < 0 || !job->nodes[node].up)
        return;
    job->nodes[node].frozen_until = job->now + for_ms * NS_PER_MS;
    votes_say(job, node, "freezes for %lld ms", (long long)for_ms);
}

static void kill_server_and_voters(struct votes_job *job, const struct votes_fault *fault)
{
    const int server = votes_server(job);
    if (server < 0)
        return;
    const struct world_record known = job->nodes[server].t.known;
    for (int i = 1; i < known.voter_count && i <= (int)fault->side; i++)
        kill_node(job, votes_node_of(&known.voters[i]), fault->for_ms);
    kill_node(job, server, fault->for_ms);
    job->dead_at = job->dead_at ? job->dead_at : job->now;
}

/* In a schedule of drains a member leaves: the server instead of a spare. */
static void drain(struct votes_job *job, const struct votes_fault *fault, int server)
{
    int node = fault->node < 0 ? server : fault->node;
    if (node < 0 || !job->nodes[node].up)
        return;
    const struct votes_world *world = server < 0 ? NULL : votes_known(job, server);
    for (int i = 0; i < job->schedule->nodes && job->spare < 0; i++)
        if (job->nodes[i].up && world && !votes_is_member(world, i, job->nodes[i].self->incarnation))
            job->spare = i;
    if (job->schedule->drains && node == job->spare)
        node = server;
    votes_drain(job, node, fault->for_ms);
}

static void heal(struct votes_job *job)
{
    for (int i = 0; i < job->schedule->nodes; i++)
        job->reach[i] = ~0u;
}

static void calm_down(struct votes_job *job)
{
    job->calm = true;
    job->calm_at = job->now;
    job->drop_permille = 0;
    job->kill_at_chosen = job->kill_at_revision = 0;
    heal(job);
    votes_say(job, -1, "no more faults");
    for (int i = 0; i < job->schedule->nodes; i++)
        job->nodes[i].frozen_until = 0;
    for (int i = 0; i < job->world_count; i++)
        job->ended |= votes_trains(job, &job->worlds[i]);
}

static void strike(struct votes_job *job, const struct votes_fault *fault)
{
    const int server = votes_server(job);
    if (job->calm && fault->kind != VOTES_RESTART)
        return;
    switch (fault->kind) {
    case VOTES_CRASH:
        kill_node(job, fault->node < 0 ? job->spare : fault->node, fault->for_ms);
        break;
    case VOTES_RESTART:
        if (!job->nodes[fault->node].up)
            votes_start(job, fault->node);
        job->calm_at = job->now; /* not read before the last fault */
        break;
    case VOTES_FREEZE:
        freeze(job, fault->node, fault->for_ms);
        break;
    case VOTES_FREEZE_SERVER:
        freeze(job, server, fault->for_ms);
        break;
    case VOTES_CUT:
    case VOTES_CUT_ONE_WAY:
        cut(job, fault->side, fault->kind == VOTES_CUT_ONE_WAY, fault->for_ms);
        break;
    case VOTES_CUT_SERVER:
        if (server >= 0)
            cut(job, 1u << server, fault->side & 1, fault->for_ms);
        break;
    case VOTES_HEAL:
        heal(job);
        break;
    case VOTES_KILL_SERVER:
        if (server >= 0 && !job->dead_at)
            job->dead_at = job->now;
        kill_node(job, server, fault->for_ms);
        break;
    case VOTES_KILL_SERVER_AND_VOTERS:
        kill_server_and_voters(job, fault);
        break;
    case VOTES_KILL_AT_CHOSEN:
        job->kill_at_chosen = job->now;
        job->tells_leaving = fault->side == 1;
        job->kill_for_ms = fault->for_ms;
        break;
    case VOTES_KILL_AT_REVISION:
        job->kill_at_revision = job->now;
        job->kill_for_ms = fault->for_ms;
        job->told = (int)fault->side;
        break;
    case VOTES_DRAIN:
        drain(job, fault, server);
        break;
    case VOTES_CALM:
        calm_down(job);
        break;
    case VOTES_FAULT_COUNT:
        break;
    }
}

static void play(struct votes_job *job, const struct votes_happening *h)
{
    job->now = h->at;
    job->instant = (struct instant){h->at};
    job->outcome->events++;
    if (h->kind == VOTES_FAULT) {
        const struct votes_fault made = {.kind = (enum votes_fault_kind)(-1 - h->fault), .node = h->node};
        strike(job, h->fault < 0 ? &made : &job->schedule->faults[h->fault]);
        return;
    }
    struct votes_node *n = &job->nodes[h->node];
    if (!n->up || (h->kind == VOTES_TICKS && h->life != n->life))
        return;
    if (job->now < n->frozen_until) {
        struct votes_happening again = *h;
        again.at = n->frozen_until;
        votes_push(job, &again);
        return;
    }
    if (h->kind == VOTES_ARRIVES)
        votes_arrive(job, h->node, &h->message);
    else if (job->now >= n->tick_at)
        votes_tick(job, h->node);
}

static void judge(struct votes_job *job)
{
    if (job->outcome->broken || job->ended)
        return;
    job->outcome->stuck = !votes_can_go_on(job);
    if (!job->outcome->stuck || (job->schedule->drains && votes_one_can_stand(job)))
        votes_break(job, "no world runs %.0f s after the last fault",
                    (double)(job->now - job->calm_at) / NS_PER_S);
}

void votes_run(const struct votes_schedule *schedule, bool trace, struct votes_outcome *outcome)
{
    static struct votes_world worlds[VOTES_RECORDS]; /* one job at a time */
    static struct votes_job job;
    struct votes_happening *heap = job.heap, happening;
    const int room = job.heap_room;
    *outcome = (struct votes_outcome){0};
    memset(&job, 0, sizeof job);
    job.schedule = schedule;
    job.outcome = outcome;
    job.trace = trace;
    job.random = schedule->seed;
    job.heap = heap;
    job.heap_room = room;
    job.worlds = worlds;
    job.drop_permille = schedule->drop_permille;
    job.spare = -1;
    heal(&job);
    job.now = NS_PER_S; /* 0 means never in places */
    for (int i = 0; i < schedule->nodes; i++)
        votes_later(&job, votes_below(&job.random, 1000), VOTES_RESTART, i);
    for (int i = 0; i < schedule->fault_count; i++) {
        const struct votes_happening fault = {
            .at = schedule->faults[i].at_ms * NS_PER_MS, .kind = VOTES_FAULT, .fault = i};
        votes_push(&job, &fault);
    }
    while (!outcome->broken && !job.ended && votes_pop(&job, &happening)) {
        if (job.calm && happening.at - job.calm_at > patience_ns(&job))
            break;
        play(&job, &happening);
    }
    judge(&job);
    if (trace)
        printf("%s\n", outcome->broken  ? outcome->text
                       : outcome->stuck ? "no majority was left"
                                        : "nothing broke");
}
