/* rendezvous_again_test.c - agents of a job whose worlds have all ranks: they wait for lost voters for a
 * while only. Schedules at random are played by simulate_votes --all-ranks. */
#include "tests/support/cmocka_all.h"
#include "tests/unit/rendezvous/takeover/takeover_fixture.h"

/* Agents 0 to 4 have the record of five voters; agent 0 is at the endpoint. */
static void begin_with_all_ranks(struct cluster *c)
{
    begin(c, 5, 5);
    for (int i = 0; i < AGENTS; i++)
        takeover_all_ranks(&c->agents[i]);
    takeover_at_endpoint(&c->agents[0]);
}

static const int64_t alone_ms = TAKEOVER_ALONE_MS + 2 * TAKEOVER_LOST_MS;

static void tick_for(struct cluster *c, int64_t ms)
{
    for (int64_t passed = 0; passed < ms; passed += 100)
        tick_all(c, 100);
}

/* A new agent at the endpoint, in the place of the lost agent. */
static void start_again(struct cluster *c, int agent)
{
    struct takeover_actions actions;
    const struct voter self = voter_of(agent);
    takeover_init(&c->agents[agent], &self, 77, c->now);
    c->agents[agent].self.incarnation.low += 100;
    takeover_all_ranks(&c->agents[agent]);
    takeover_at_endpoint(&c->agents[agent]);
    takeover_begin(&c->agents[agent], c->now, &actions);
    c->dead[agent] = false;
}

static void agents_with_all_ranks_forget_lost_voters(void **state)
{
    struct cluster c;
    struct takeover_actions actions;
    (void)state;
    begin_with_all_ranks(&c);
    c.dead[0] = c.dead[1] = c.dead[2] = true;
    tick_for(&c, TAKEOVER_LOST_MS + 100);
    assert_int_not_equal(c.agents[3].state, TAKEOVER_FOLLOW);
    tick_for(&c, 2 * alone_ms); /* no agent serves anew: their votes may still be needed */
    assert_int_equal(c.agents[3].known.epoch, 9);
    start_again(&c, 0);
    takeover_asked(&c.agents[0], &c.agents[3].self, &c.agents[3].known, c.now, &actions);
    assert_int_equal(c.agents[0].state, TAKEOVER_SERVE); /* it does not give way to an agent that asks */
    assert_int_equal(c.agents[0].known.epoch, 0);
    carry_out(&c, 0, &actions);
    tick_all(&c, 100);
    assert_int_equal(c.agents[3].state, TAKEOVER_SEEK);
    assert_int_equal(c.agents[3].reason, TAKEOVER_AGAIN);
    assert_int_equal(c.agents[3].known.epoch, 0);
}

static void the_endpoint_agent_begins_again(void **state)
{
    struct cluster c;
    (void)state;
    begin_with_all_ranks(&c);
    c.agents[0].state = TAKEOVER_FOLLOW; /* agent 1 has taken over */
    c.agents[0].server = c.agents[1].self;
    c.agents[0].heard = c.now;
    c.dead[1] = c.dead[2] = c.dead[3] = c.dead[4] = true;
    tick_for(&c, TAKEOVER_LOST_MS);
    assert_int_not_equal(c.agents[0].state, TAKEOVER_FOLLOW);
    tick_for(&c, alone_ms - 100);
    assert_int_equal(c.agents[0].known.epoch, 9);
    const uint32_t before = c.agents[0].highest;
    tick_all(&c, 100);
    assert_int_equal(c.agents[0].state, TAKEOVER_SERVE);
    assert_int_equal(c.agents[0].reason, TAKEOVER_AGAIN);
    assert_int_equal(c.agents[0].known.epoch, 0);
    assert_true(c.agents[0].ballot.number > before);
}

/* In an elastic job agent 4 is no voter, and gives up only later. A new agent at the endpoint receives
 * the lost round's record. */
static void a_round_that_nobody_knows_any_more_is_forgotten(void **state)
{
    struct cluster c;
    struct takeover_actions actions;
    (void)state;
    for (int at_endpoint = 0; at_endpoint < 2; at_endpoint++) {
        struct takeover *t = &c.agents[0];
        begin(&c, 5, 3);
        c.dead[0] = c.dead[1] = c.dead[2] = true;
        tick_for(&c, TAKEOVER_LOST_MS + 100);
        const struct voter self = voter_of(0);
        takeover_init(t, &self, 77, c.now);
        t->self.incarnation.low += 100;
        if (at_endpoint)
            takeover_at_endpoint(t);
        takeover_begin(t, c.now, &actions);
        for (int64_t passed = 0; passed < 2 * alone_ms; passed += 100) {
            takeover_asked(t, &c.agents[4].self, takeover_word(&c.agents[4]), c.now, &actions);
            c.now = instant_add(c.now, 100 * NS_PER_MS);
            takeover_tick(t, c.now, &actions);
            assert_int_equal(t->known.epoch, 9);
        }
        for (int64_t passed = 0; passed < alone_ms - 200; passed += 100) {
            c.now = instant_add(c.now, 100 * NS_PER_MS);
            takeover_tick(t, c.now, &actions);
        }
        assert_int_equal(t->known.epoch, 9);
        c.now = instant_add(c.now, 200 * NS_PER_MS);
        takeover_tick(t, c.now, &actions);
        assert_int_equal(t->state, at_endpoint ? TAKEOVER_SERVE : TAKEOVER_SEEK);
        assert_int_equal(t->known.epoch, at_endpoint ? 0 : 9);
    }
}

/* It has forgotten its promise, too. */
static void a_voter_that_has_forgotten_votes_no_more(void **state)
{
    struct takeover t;
    struct takeover_actions actions;
    const struct instant now = {NS_PER_S};
    const struct voter self = voter_of(1), server = voter_of(2);
    struct world_record record = record_of(3, 3), next = record;
    (void)state;
    for (int forgets = 0; forgets < 2; forgets++) {
        takeover_init(&t, &self, 1, now);
        takeover_all_ranks(&t);
        assert_int_equal(takeover_learn(&t, &record, now, &actions, NULL), 0);
        if (forgets)
            takeover_forget(&t, now);
        const struct ballot ballot = {9, server.incarnation};
        const struct takeover_message moved = {
            .kind = TAKEOVER_MOVED, .from = &server, .known = &record, .ballot = ballot, .server = &server};
        takeover_receive(&t, &moved, now, &actions);
        assert_int_equal(t.state, TAKEOVER_FOLLOW);
        assert_int_equal(t.known.epoch, record.epoch);
        next.round = record.round + 1;
        next.ballot = ballot;
        next.voters[0] = server;
        next.voters[2] = voter_of(0);
        const struct takeover_message accept = {
            .kind = TAKEOVER_ACCEPT, .from = &server, .known = &record, .ballot = ballot, .value = &next};
        takeover_receive(&t, &accept, now, &actions);
        assert_int_equal(t.has_accepted, !forgets);
    }
}

/* Its agent at the endpoint serves, and has begun again since. */
static void a_server_that_has_begun_again_is_followed(void **state)
{
    struct cluster c;
    struct takeover_actions actions;
    (void)state;
    begin_with_all_ranks(&c);
    takeover_forget(&c.agents[0], c.now);
    takeover_begin(&c.agents[0], c.now, &actions);
    takeover_asked(&c.agents[0], &c.agents[3].self, &c.agents[3].known, c.now, &actions);
    carry_out(&c, 0, &actions);
    assert_int_equal(c.agents[3].state, TAKEOVER_FOLLOW);
    assert_int_equal(c.agents[3].known.epoch, 0);
    assert_int_equal(c.agents[3].office.number, c.agents[0].ballot.number);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agents_with_all_ranks_forget_lost_voters),
        cmocka_unit_test(the_endpoint_agent_begins_again),
        cmocka_unit_test(a_round_that_nobody_knows_any_more_is_forgotten),
        cmocka_unit_test(a_voter_that_has_forgotten_votes_no_more),
        cmocka_unit_test(a_server_that_has_begun_again_is_followed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
