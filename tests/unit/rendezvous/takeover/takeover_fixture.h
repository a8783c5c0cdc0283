/* takeover_fixture.h - five agents with the rules of the vote, which exchange messages without delay. */
#ifndef MUSTER_TESTS_UNIT_RENDEZVOUS_TAKEOVER_FIXTURE_H
#define MUSTER_TESTS_UNIT_RENDEZVOUS_TAKEOVER_FIXTURE_H

#include <stdio.h>
#include <string.h>

#include "rendezvous/takeover/takeover.h"
#include "tests/support/cmocka_all.h"

static inline struct voter voter_of(int number)
{
    struct voter voter = {.incarnation = {1, (uint64_t)number + 1}, .port = (uint16_t)(7000 + number)};
    (void)snprintf(voter.name, sizeof voter.name, "node%d", number);
    (void)snprintf(voter.address, sizeof voter.address, "10.0.0.%d", number + 1);
    return voter;
}

static inline struct world_record record_of(int nodes, int voters)
{
    struct world_record record = {.epoch = 9, .round = 4, .nodes = nodes, .voter_count = voters};
    for (int i = 0; i < voters && i < RECORD_VOTERS; i++)
        record.voters[i] = voter_of(i);
    record.ballot = (struct ballot){2, record.voters[0].incarnation};
    return record;
}

/* --- agents that exchange messages without delay --- */

enum { AGENTS = 5 };

struct cluster {
    struct takeover agents[AGENTS];
    bool dead[AGENTS];
    struct instant now;
    int chosen; /* the agent whose last proposal was; -1: none */
};

/* A message on its way. The sender's next step changes its own copy. */
struct letter {
    int to;
    struct takeover_message message;
    struct voter from, server;
    struct world_record known, value;
};

static inline void seal(struct letter *letter, const struct takeover_action *action)
{
    const struct takeover_message *m = &action->message;
    *letter = (struct letter){
        .to = (int)action->to->incarnation.low - 1, .message = *m, .from = *m->from, .known = *m->known};
    letter->message.from = &letter->from;
    letter->message.known = &letter->known;
    if (m->value) {
        letter->value = *m->value;
        letter->message.value = &letter->value;
    }
    if (m->server) {
        letter->server = *m->server;
        letter->message.server = &letter->server;
    }
}

static inline void carry_out(struct cluster *c, int from, const struct takeover_actions *actions)
{
    struct letter letters[TAKEOVER_ACTIONS_LIMIT];
    int count = 0;
    for (int i = 0; i < actions->count; i++) {
        if (actions->items[i].kind == TAKEOVER_SEND)
            seal(&letters[count++], &actions->items[i]);
        else if (actions->items[i].kind == TAKEOVER_CHOSEN)
            c->chosen = from;
    }
    for (int i = 0; i < count; i++) {
        struct takeover_actions answers;
        const int to = letters[i].to;
        if (to >= AGENTS || c->dead[to])
            continue;
        takeover_receive(&c->agents[to], &letters[i].message, c->now, &answers);
        carry_out(c, to, &answers);
    }
}

static inline void tick_all(struct cluster *c, int64_t ms)
{
    struct takeover_actions actions;
    c->now = instant_add(c->now, ms * NS_PER_MS);
    for (int i = 0; i < AGENTS; i++) {
        if (c->dead[i])
            continue;
        takeover_tick(&c->agents[i], c->now, &actions);
        carry_out(c, i, &actions);
    }
}

/* Agent 0 serves round 0 of `nodes` nodes with so many voters; the others follow it. */
static inline void begin(struct cluster *c, int nodes, int voters)
{
    struct takeover_actions actions;
    *c = (struct cluster){.now = {NS_PER_S}, .chosen = -1};
    for (int i = 0; i < AGENTS; i++) {
        const struct voter self = voter_of(i);
        takeover_init(&c->agents[i], &self, (uint64_t)i, c->now);
    }
    takeover_begin(&c->agents[0], c->now, &actions);
    struct world_record record = record_of(nodes, voters);
    record.round = 0;
    assert_true(takeover_propose(&c->agents[0], &record, c->now, &actions));
    for (int i = 1; i < AGENTS; i++) {
        takeover_asked(&c->agents[0], &c->agents[i].self, &c->agents[i].known, c->now, &actions);
        carry_out(c, 0, &actions);
        assert_int_equal(c->agents[i].state, TAKEOVER_FOLLOW);
        assert_int_equal(takeover_learn(&c->agents[i], &c->agents[0].known, c->now, &actions, NULL), 0);
    }
}

#endif
