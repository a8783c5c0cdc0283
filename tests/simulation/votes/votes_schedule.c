/* votes_schedule.c - schedules from a seed, and directed ones. See votes.h. */
#include <string.h>

#include "tests/simulation/votes/votes_internal.h"

static void add(struct votes_schedule *s, int64_t at_ms, enum votes_fault_kind kind, int node, int64_t for_ms,
                unsigned side)
{
    if (s->fault_count < VOTES_FAULTS)
        s->faults[s->fault_count++] = (struct votes_fault){at_ms, kind, node, for_ms, side};
}

static int64_t duration(uint64_t *random)
{
    return votes_below(random, 4) ? 100 + votes_below(random, 12000) : -1;
}

static void add_random(struct votes_schedule *s, uint64_t *random, int64_t until_ms)
{
    static const enum votes_fault_kind kinds[] = {
        VOTES_CRASH,
        VOTES_FREEZE,
        VOTES_CUT,
        VOTES_CUT,
        VOTES_CUT_ONE_WAY,
        VOTES_CUT_SERVER,
        VOTES_KILL_SERVER,
        VOTES_KILL_SERVER,
        VOTES_KILL_SERVER_AND_VOTERS,
        VOTES_KILL_AT_CHOSEN,
        VOTES_FREEZE_SERVER,
        VOTES_KILL_AT_REVISION,
        VOTES_DRAIN,
    };
    const enum votes_fault_kind kind = kinds[votes_below(random, sizeof kinds / sizeof *kinds)];
    const int64_t at = 1000 + votes_below(random, until_ms - 2000);
    int node = (int)votes_below(random, s->nodes);
    unsigned side = (unsigned)test_random(random) & ((1u << s->nodes) - 1);
    int64_t time = duration(random);
    switch (kind) {
    case VOTES_FREEZE:
    case VOTES_FREEZE_SERVER:
        time = votes_below(random, 9000);
        break;
    case VOTES_CUT:
    case VOTES_CUT_ONE_WAY:
    case VOTES_CUT_SERVER:
        time = 200 + votes_below(random, 12000);
        break;
    case VOTES_DRAIN:
        node = votes_below(random, 2) ? node : -1;
        break;
    case VOTES_KILL_SERVER_AND_VOTERS:
    case VOTES_KILL_AT_REVISION:
        side = 1 + (unsigned)votes_below(random, 2);
        break;
    default:
        break;
    }
    add(s, at, kind, node, time, side);
}

void votes_random(uint64_t seed, struct votes_schedule *s)
{
    uint64_t random = seed * UINT64_C(0x2545f4914f6cdd1d) + 1;
    *s = (struct votes_schedule){.seed = seed};
    s->nodes = 3 + (int)votes_below(&random, VOTES_NODES - 2);
    const bool spares = votes_below(&random, 4) == 0;
    s->max = s->nodes - (spares ? 1 : 0);
    const bool trio = spares && votes_below(&random, 2); /* the spare is the third voter */
    if (trio)
        s->nodes = 3, s->max = 2;
    s->min = trio ? 1 : votes_below(&random, 3) ? s->nodes / 2 + 1 : 1 + (int)votes_below(&random, s->max);
    s->endpoints = 1 + 2 * (int)votes_below(&random, 2);
    s->delay_ms = 1 + votes_below(&random, votes_below(&random, 3) ? 20 : 500);
    s->drop_permille = votes_below(&random, 2) ? 0 : (int)votes_below(&random, 120);
    const int64_t until_ms = 12000 + votes_below(&random, 14000);
    const int faults = 1 + (int)votes_below(&random, 6);
    for (int i = 0; i < faults; i++)
        add_random(s, &random, until_ms);
    add(s, until_ms, VOTES_CALM, -1, 0, 0);
}

/* As a random one, but most agents come back. */
void votes_all_ranks(uint64_t seed, struct votes_schedule *s)
{
    uint64_t random = seed * UINT64_C(0x2545f4914f6cdd1d) + 4;
    votes_random(seed, s);
    s->all_ranks = true;
    s->min = s->max = s->nodes;
    for (int i = 0; i < s->fault_count; i++)
        if (s->faults[i].for_ms < 0 && votes_below(&random, 10))
            s->faults[i].for_ms = 100 + votes_below(&random, 12000);
}

/* The voters stand 300 ms apart: an election of three messages is over by then. */
void votes_quiet(uint64_t seed, struct votes_schedule *s)
{
    enum { LONGEST_DELAY_MS = 70, APART_MS = 12000 };
    uint64_t random = seed * UINT64_C(0x2545f4914f6cdd1d) + 2;
    *s = (struct votes_schedule){.seed = seed, .quiet = true};
    s->nodes = 3 + (int)votes_below(&random, VOTES_NODES - 2);
    s->max = s->nodes;
    s->min = s->nodes / 2 + 1;
    s->endpoints = 1 + 2 * (int)votes_below(&random, 2);
    s->delay_ms = 1 + votes_below(&random, LONGEST_DELAY_MS);
    const int faults = 1 + (int)votes_below(&random, 3);
    for (int i = 0; i < faults; i++) {
        const bool server = votes_below(&random, 3);
        const int64_t for_ms = i + 1 == faults && votes_below(&random, 2) ? -1 : votes_below(&random, 4000);
        add(s, (i + 1) * APART_MS + votes_below(&random, 1000), server ? VOTES_KILL_SERVER : VOTES_CRASH,
            (int)votes_below(&random, s->nodes), for_ms, 0);
    }
    add(s, (faults + 2) * APART_MS, VOTES_CALM, -1, 0, 0);
}

/* One or two agents leave, the server among them or not, and another ends before the next round is decided,
 * or about then. With two nodes and a spare it is the spare: the node that is left runs alone. */
void votes_drains(uint64_t seed, struct votes_schedule *s)
{
    enum { LONGEST_DELAY_MS = 70, AT_MS = 9000, AROUND_MS = 4000 };
    uint64_t random = seed * UINT64_C(0x2545f4914f6cdd1d) + 3;
    *s = (struct votes_schedule){.seed = seed, .drains = true, .min = 1};
    const bool trio = votes_below(&random, 3) == 0;
    s->nodes = trio ? 3 : 4 + (int)votes_below(&random, VOTES_NODES - 3);
    s->max = trio ? 2 : s->nodes - (int)votes_below(&random, 2);
    s->endpoints = 3;
    s->delay_ms = 1 + votes_below(&random, LONGEST_DELAY_MS);
    const int drains = trio ? 1 : 1 + (int)votes_below(&random, 2);
    const int first = (int)votes_below(&random, trio ? 2 : s->nodes);
    for (int i = 0; i < drains; i++)
        add(s, AT_MS + votes_below(&random, 200), VOTES_DRAIN,
            votes_below(&random, 3) ? (first + i) % s->nodes : -1, -1, 0);
    add(s, AT_MS - 500 + votes_below(&random, AROUND_MS), VOTES_CRASH,
        trio ? -1 : (first + drains + (int)votes_below(&random, s->nodes - drains)) % s->nodes, -1, 0);
    add(s, AT_MS + 2 * AROUND_MS, VOTES_CALM, -1, 0, 0);
}

const struct votes_schedule *votes_directed(int index)
{
    static struct votes_schedule s;
    static const struct {
        int nodes, min, max;
        struct votes_fault faults[3];
    } table[] = {
        {3, 2, 3, {{8000, VOTES_KILL_SERVER, -1, -1, 0}}},
        {5, 3, 5, {{8000, VOTES_KILL_SERVER, -1, -1, 0}}},
        {9, 5, 9, {{8000, VOTES_KILL_SERVER_AND_VOTERS, -1, -1, 1}}},
        {9, 5, 9, {{8000, VOTES_KILL_SERVER_AND_VOTERS, -1, -1, 2}}}, /* 2 of 5 voters are left */
        {3, 2, 2, {{8000, VOTES_KILL_SERVER, -1, -1, 0}}},            /* two nodes and a spare */
        {3, 2, 2, {{8000, VOTES_CRASH, 1, -1, 0}}},
        /* the spare comes later, and one of the two that are left knows that all three vote */
        {3, 2, 2, {{2500, VOTES_CRASH, 2, 6000, 0}, {5000, VOTES_KILL_AT_REVISION, -1, -1, 1}}},
        {3, 2, 2, {{2500, VOTES_CRASH, 2, 6000, 0}, {5000, VOTES_KILL_AT_REVISION, -1, -1, 2}}},
        {5, 3, 5, {{8000, VOTES_FREEZE_SERVER, -1, 5000, 0}}},
        {5, 3, 5, {{8000, VOTES_CUT_ONE_WAY, -1, 6000, 1}}},
        {5, 3, 5, {{8000, VOTES_CUT_SERVER, -1, 6000, 0}}},
        {5, 3, 5, {{8000, VOTES_KILL_SERVER, -1, 3000, 0}}}, /* the endpoint comes back */
        {5, 3, 5, {{1000, VOTES_KILL_AT_CHOSEN, -1, 3000, 0}}},
        {5, 3, 5, {{8000, VOTES_KILL_AT_CHOSEN, -1, -1, 0}, {8000, VOTES_CRASH, 4, 2000, 0}}},
        /* each server dies before the WORLD of its round */
        {7,
         4,
         7,
         {{8000, VOTES_KILL_AT_CHOSEN, -1, 1000, 0},
          {8000, VOTES_CRASH, 5, 500, 0},
          {12000, VOTES_KILL_AT_CHOSEN, -1, 1000, 0}}},
        /* a voter leaves, and knows the next round as the only one when its server dies */
        {4, 2, 4, {{8000, VOTES_DRAIN, 3, -1, 0}, {8000, VOTES_KILL_AT_CHOSEN, -1, -1, 1}}},
        /* a voter leaves, and the spare ends just then; the server leaves, and another ends */
        {3, 1, 2, {{8000, VOTES_DRAIN, 1, -1, 0}, {8010, VOTES_CRASH, 2, -1, 0}}},
        {3, 1, 3, {{8000, VOTES_DRAIN, -1, -1, 0}, {8010, VOTES_CRASH, 2, -1, 0}}},
        /* the spare leaves, or ends, and later another: two of three voters would be gone */
        {3, 1, 2, {{8000, VOTES_DRAIN, 2, -1, 0}, {14000, VOTES_CRASH, 1, -1, 0}}},
        {3, 1, 2, {{8000, VOTES_CRASH, 2, -1, 0}, {14000, VOTES_CRASH, 1, -1, 0}}},
    };
    if (index < 0 || index >= (int)(sizeof table / sizeof *table))
        return NULL;
    s = (struct votes_schedule){.seed = (uint64_t)index + 1,
                                .nodes = table[index].nodes,
                                .min = table[index].min,
                                .max = table[index].max,
                                .stuck = table[index].faults[0].kind == VOTES_KILL_SERVER_AND_VOTERS &&
                                         table[index].faults[0].side == 2,
                                .endpoints = 3,
                                .delay_ms = 2};
    for (int i = 0; i < 3 && table[index].faults[i].at_ms; i++)
        s.faults[s.fault_count++] = table[index].faults[i];
    add(&s, 22000, VOTES_CALM, -1, 0, 0);
    return &s;
}
