/* rendezvous_takeover_test.c - the choice of voters, the checks of a record, and the life of three voters
 * whose server is lost. Schedules at random are played in tests/simulation/votes/votes.h. */
#include <stdio.h>
#include <string.h>

#include "tests/support/cmocka_all.h"
#include "tests/unit/rendezvous/takeover/takeover_fixture.h"

static void voters_are_spread_over_the_ranks(void **state)
{
    static const struct {
        int nodes, spares, voters, ranks[RECORD_VOTERS];
    } rows[] = {
        {1, 0, 1, {0}},
        {1, 3, 1, {0}},
        {2, 0, 1, {0}},
        {2, 1, 3, {0, 1, -1}},
        {3, 0, 3, {0, 1, 2}},
        {4, 0, 3, {0, 1, 3}},
        {5, 0, 5, {0, 1, 2, 3, 4}},
        {9, 2, 5, {0, 2, 4, 6, 8}},
        {4096, 0, 5, {0, 1023, 2047, 3071, 4095}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(record_voter_count(rows[i].nodes, rows[i].spares), rows[i].voters);
        for (int k = 0; k < rows[i].voters; k++)
            assert_int_equal(record_voter_rank(k, rows[i].voters, rows[i].nodes), rows[i].ranks[k]);
    }
}

static void a_majority_is_more_than_half(void **state)
{
    (void)state;
    for (int voters = 1; voters <= RECORD_VOTERS; voters++) {
        const struct world_record record = record_of(5, voters);
        assert_true(2 * record_majority(&record) > voters);
        assert_true(2 * (record_majority(&record) - 1) <= voters);
    }
}

static void expect_refused(const struct world_record *record, const char *text)
{
    struct muster_error err = {0};
    assert_int_equal(record_check(record, &err), -1);
    if (!strstr(err.text, text))
        fail_msg("\"%s\" does not say \"%s\"", err.text, text);
}

static void a_record_that_cannot_be_is_refused_with_its_value(void **state)
{
    struct world_record record = record_of(5, 5);
    (void)state;
    assert_int_equal(record_check(&record, NULL), 0);
    record.voter_count = 0;
    expect_refused(&record, "has 0 voters, not 1 to 5");
    record.voter_count = 6;
    expect_refused(&record, "has 6 voters, not 1 to 5");
    record = record_of(5, 5);
    memset(record.voters[3].name, 'n', sizeof record.voters[3].name);
    expect_refused(&record, "the name of an agent of a world's record is not of 1 to 255 bytes");
    record = record_of(5, 5);
    record.voters[2].name[0] = '\0';
    expect_refused(&record, "not of 1 to 255 bytes");
    record = record_of(5, 5);
    memset(record.voters[1].address, '1', sizeof record.voters[1].address);
    expect_refused(&record, "address of agent node1");
    record = record_of(5, 5);
    record.voters[4] = record.voters[1];
    expect_refused(&record, "voters 1 and 4 of a world's record are one agent");
    record = record_of(5, 5);
    record.ballot.agent = record.voters[1].incarnation;
    expect_refused(&record, "not proposed by its server");
    record = record_of(0, 1);
    expect_refused(&record, "0 nodes");
    record = record_of(3, 3);
    record.epoch = 0;
    expect_refused(&record, "no epoch");
    record = record_of(3, 3);
    record.restart_count = -1;
    expect_refused(&record, "restart count of -1");
}

static void the_next_voter_takes_over_a_second_after_the_connection_broke(void **state)
{
    struct cluster c;
    struct takeover_actions actions;
    (void)state;
    begin(&c, 5, 5);
    c.dead[0] = true;
    for (int i = 1; i < AGENTS; i++)
        takeover_connection(&c.agents[i], false, c.now);
    tick_all(&c, 990);
    assert_int_equal(c.agents[1].state, TAKEOVER_FOLLOW);
    tick_all(&c, 10);
    assert_int_equal(c.agents[1].state, TAKEOVER_SERVE);
    for (int i = 2; i < AGENTS; i++) {
        assert_int_equal(c.agents[i].state, TAKEOVER_FOLLOW);
        assert_string_equal(c.agents[i].server.name, "node1");
    }
    struct world_record next = record_of(4, 3);
    next.voters[0] = c.agents[1].self;
    next.voters[1] = c.agents[2].self;
    next.voters[2] = c.agents[4].self;
    takeover_workers(&c.agents[1], true);
    assert_false(takeover_propose(&c.agents[1], &next, c.now, &actions)); /* its own workers run */
    takeover_workers(&c.agents[1], false);
    assert_true(takeover_propose(&c.agents[1], &next, c.now, &actions));
    assert_int_equal(c.agents[1].known.round, 0); /* not before the voters have accepted it */
    carry_out(&c, 1, &actions);
    assert_int_equal(c.chosen, 1);
    assert_int_equal(c.agents[1].known.round, 1);
    assert_int_equal(c.agents[1].known.epoch, 9);
}

/* It goes on with the round of the server before, and replaces that server's vote. */
static void an_elected_server_revises_the_voters(void **state)
{
    struct cluster c;
    struct takeover_actions actions;
    (void)state;
    begin(&c, 5, 5);
    c.dead[0] = true;
    for (int i = 1; i < AGENTS; i++)
        takeover_connection(&c.agents[i], false, c.now);
    tick_all(&c, TAKEOVER_BROKEN_MS);
    struct takeover *server = &c.agents[1];
    assert_int_equal(server->state, TAKEOVER_SERVE);
    const struct voter voters[] = {c.agents[1].self, c.agents[2].self, c.agents[4].self};
    c.now = instant_add(c.now, TAKEOVER_DOUBT_MS * NS_PER_MS);
    assert_false(takeover_may_revise(server, c.now)); /* no voter answers: it would cost the office */
    takeover_heard(server, c.agents[2].self.incarnation, c.now);
    takeover_heard(server, c.agents[4].self.incarnation, c.now);
    takeover_workers(server, true);
    assert_true(takeover_revise(server, voters, 3, c.now, &actions));
    carry_out(&c, 1, &actions);
    assert_int_equal(server->state, TAKEOVER_SERVE);
    assert_int_equal(server->known.round, 0);
    assert_int_equal(server->known.revision, 1);
    assert_int_equal(server->known.voter_count, 3);
    tick_all(&c, TAKEOVER_ASK_MS);
    assert_int_equal(c.agents[4].known.revision, 1);
    assert_int_equal(c.agents[4].state, TAKEOVER_FOLLOW);
    c.dead[1] = true; /* and two of three are left */
    for (int i = 2; i < AGENTS; i++)
        takeover_connection(&c.agents[i], false, c.now);
    tick_all(&c, TAKEOVER_BROKEN_MS);
    assert_int_equal(c.agents[2].state, TAKEOVER_SERVE);
}

static void without_a_majority_nobody_takes_over(void **state)
{
    struct cluster c;
    char text[256];
    (void)state;
    begin(&c, 5, 5);
    c.dead[0] = c.dead[2] = c.dead[4] = true;
    for (int ms = 0; ms < 12000; ms += 100)
        tick_all(&c, 100);
    for (int i = 1; i < AGENTS; i += 2)
        assert_true(c.agents[i].state == TAKEOVER_SEEK || c.agents[i].state == TAKEOVER_STAND);
    takeover_heard(&c.agents[3], c.agents[1].self.incarnation, c.now);
    takeover_describe(&c.agents[3], c.now, text, sizeof text);
    assert_string_equal(text,
                        "2 of 5 voters answer: node1, node3; waiting for one more; no answer from node0 "
                        "(10.0.0.1 port 7000), node2 (10.0.0.3 port 7002), node4 (10.0.0.5 port 7004)");
}

static void records_of_others_change_nothing_and_are_counted(void **state)
{
    struct cluster c;
    struct takeover_actions actions;
    struct muster_error err = {0};
    (void)state;
    begin(&c, 5, 5);
    struct takeover *t = &c.agents[2];
    struct world_record record = record_of(5, 5);
    record.round = 0; /* as old as its own */
    assert_int_equal(takeover_learn(t, &record, c.now, &actions, &err), 0);
    record.round = 7;
    record.epoch = 10;
    assert_int_equal(takeover_learn(t, &record, c.now, &actions, &err), -1);
    assert_non_null(strstr(err.text, "another job"));
    record.epoch = 9;
    record.voter_count = 6;
    assert_int_equal(takeover_learn(t, &record, c.now, &actions, &err), -1);
    assert_int_equal(t->refused, 2);
    /* a vote of an agent that is not in the round, and a proposal of one */
    record = t->known;
    const struct voter stranger = voter_of(40);
    struct takeover_message message = {
        .kind = TAKEOVER_PREPARE, .from = &stranger, .known = &record, .ballot = {9, stranger.incarnation}};
    takeover_receive(t, &message, c.now, &actions);
    struct world_record proposal = record_of(5, 5);
    proposal.round = 1;
    proposal.voters[0] = stranger;
    proposal.ballot.agent = stranger.incarnation;
    message = (struct takeover_message){.kind = TAKEOVER_ACCEPT,
                                        .from = &c.agents[0].self,
                                        .known = &record,
                                        .value = &proposal,
                                        .ballot = c.agents[0].ballot};
    takeover_receive(t, &message, c.now, &actions);
    assert_int_equal(t->refused, 4);
    assert_int_equal(t->known.round, 0);
    assert_false(t->has_accepted);
    assert_int_equal(t->state, TAKEOVER_FOLLOW);
}

static void a_voter_that_hears_its_server_elects_no_other(void **state)
{
    struct cluster c;
    struct takeover_actions actions;
    (void)state;
    begin(&c, 5, 5);
    takeover_connection(&c.agents[1], false, c.now); /* its own only */
    for (int ms = 0; ms < 3000; ms += 100) {
        for (int i = 2; i < AGENTS; i++) {
            takeover_heard(&c.agents[i], c.agents[0].self.incarnation, c.now);
            takeover_heard(&c.agents[0], c.agents[i].self.incarnation, c.now);
        }
        tick_all(&c, 100);
    }
    assert_int_equal(c.agents[0].state, TAKEOVER_SERVE);
    assert_int_not_equal(c.agents[1].state, TAKEOVER_SERVE);
    (void)actions;
}

/* The older messages may come last: connections overtake each other. */
static void an_answer_from_before_the_election_is_late(void **state)
{
    struct cluster c;
    struct takeover_actions late, actions;
    (void)state;
    begin(&c, 3, 3);
    c.dead[0] = true;
    for (int i = 1; i < 3; i++)
        takeover_connection(&c.agents[i], false, c.now);
    c.now = instant_add(c.now, TAKEOVER_BROKEN_MS * NS_PER_MS);
    takeover_asked(&c.agents[1], &c.agents[2].self, &c.agents[2].known, c.now, &late);
    assert_int_equal(late.count, 1);
    struct takeover_message answer = late.items[0].message;
    const struct world_record known = *answer.known;
    answer.known = &known;
    assert_null(answer.server);
    takeover_tick(&c.agents[1], c.now, &actions); /* it stands, and is elected */
    carry_out(&c, 1, &actions);
    assert_int_equal(c.agents[1].state, TAKEOVER_SERVE);
    assert_int_equal(c.agents[2].state, TAKEOVER_FOLLOW);
    takeover_receive(&c.agents[2], &answer, c.now, &actions);
    assert_int_equal(c.agents[2].state, TAKEOVER_FOLLOW);
    assert_int_equal(actions.count, 0);
    /* An answer from after its office is believed. */
    const struct takeover_message nack = {
        .kind = TAKEOVER_NACK,
        .from = &c.agents[2].self,
        .known = &known,
        .ballot = {c.agents[1].ballot.number + 1, c.agents[0].self.incarnation}};
    takeover_receive(&c.agents[1], &nack, c.now, &actions);
    assert_int_equal(c.agents[1].state, TAKEOVER_STAND);
    takeover_asked(&c.agents[1], &c.agents[2].self, &c.agents[2].known, c.now, &late);
    carry_out(&c, 1, &late);
    assert_int_equal(c.agents[2].state, TAKEOVER_SEEK);
    assert_int_equal(c.agents[2].reason, TAKEOVER_STEPPED_DOWN);
}

/* A candidate's message comes before this agent's own patience is over. */
static void a_candidate_does_not_hide_how_the_server_was_lost(void **state)
{
    struct cluster c;
    struct takeover_actions actions;
    (void)state;
    begin(&c, 3, 3);
    takeover_connection(&c.agents[2], false, c.now);
    const struct takeover_message prepare = {.kind = TAKEOVER_PREPARE,
                                             .from = &c.agents[1].self,
                                             .known = &c.agents[1].known,
                                             .ballot = {7, c.agents[1].self.incarnation}};
    takeover_receive(&c.agents[2], &prepare, c.now, &actions);
    assert_int_equal(c.agents[2].state, TAKEOVER_SEEK);
    assert_int_equal(c.agents[2].reason, TAKEOVER_BROKEN);
}

static void a_spare_votes_and_does_not_stand(void **state)
{
    struct cluster c;
    struct takeover_actions actions;
    (void)state;
    begin(&c, 2, 1);
    const struct voter voters[] = {c.agents[0].self, c.agents[1].self, c.agents[2].self};
    assert_true(takeover_revise(&c.agents[0], voters, 3, c.now, &actions));
    carry_out(&c, 0, &actions);
    assert_int_equal(c.agents[0].known.revision, 1);
    for (int i = 1; i < AGENTS; i++)
        assert_int_equal(takeover_learn(&c.agents[i], &c.agents[0].known, c.now, &actions, NULL), 0);
    c.dead[0] = true;
    for (int i = 0; i < 60 && c.agents[1].state != TAKEOVER_SERVE; i++) {
        tick_all(&c, 100);
        assert_int_not_equal(c.agents[2].state, TAKEOVER_STAND);
    }
    assert_int_equal(c.agents[1].state, TAKEOVER_SERVE);
}

/* How many messages a tick of the server has for this agent. */
static int told(struct cluster *c, int64_t ms, int to)
{
    struct takeover_actions actions;
    int count = 0;
    c->now = instant_add(c->now, ms * NS_PER_MS);
    takeover_tick(&c->agents[0], c->now, &actions);
    for (int i = 0; i < actions.count; i++)
        count += actions.items[i].kind == TAKEOVER_SEND && actions.items[i].message.kind == TAKEOVER_MOVED &&
                 agent_incarnation_equal(actions.items[i].to->incarnation, c->agents[to].self.incarnation);
    carry_out(c, 0, &actions);
    return count;
}

/* Beats show that a voter lives, not that it knows the later voters. */
static void a_voter_of_other_voters_is_told_until_it_confirms(void **state)
{
    struct cluster c;
    struct takeover_actions actions;
    (void)state;
    begin(&c, 2, 1);
    const struct voter voters[] = {c.agents[0].self, c.agents[1].self, c.agents[2].self};
    assert_true(takeover_revise(&c.agents[0], voters, 3, c.now, &actions));
    carry_out(&c, 0, &actions);
    c.dead[2] = true; /* it does not receive */
    for (int i = 0; i < 8; i++) {
        takeover_heard(&c.agents[0], c.agents[1].self.incarnation, c.now);
        takeover_heard(&c.agents[0], c.agents[2].self.incarnation, c.now);
        assert_int_equal(told(&c, i ? TAKEOVER_ASK_MS : 0, 1), i == 0);
        assert_int_equal(c.agents[1].known.revision, 1);
    }
    c.dead[2] = false;
    assert_int_equal(c.agents[2].known.revision, 0);
    assert_int_equal(told(&c, TAKEOVER_ASK_MS, 2), 1);
    assert_int_equal(c.agents[2].known.revision, 1);
    takeover_heard(&c.agents[0], c.agents[2].self.incarnation, c.now);
    assert_int_equal(told(&c, TAKEOVER_ASK_MS, 2), 0);
}

/* A voter that no newer record has may be the only living agent that this agent knows, for a while. */
static void voters_of_earlier_records_are_asked_for_a_minute(void **state)
{
    static const int after_ms[] = {0, TAKEOVER_ASK_MS, TAKEOVER_PAST_MS}, asked[] = {1, 1, 0};
    struct takeover t;
    struct takeover_actions actions;
    struct instant now = {NS_PER_S};
    const struct voter self = voter_of(9), past = voter_of(1);
    struct world_record record = record_of(3, 3);
    (void)state;
    takeover_init(&t, &self, 1, now);
    assert_int_equal(takeover_learn(&t, &record, now, &actions, NULL), 0);
    record.round++;
    record.voter_count = 1; /* voter 0 alone */
    assert_int_equal(takeover_learn(&t, &record, now, &actions, NULL), 0);
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        int count = 0;
        now = instant_add(now, after_ms[i] * NS_PER_MS);
        takeover_tick(&t, now, &actions);
        for (int k = 0; k < actions.count; k++)
            count += actions.items[k].kind == TAKEOVER_ASK &&
                     agent_incarnation_equal(actions.items[k].to->incarnation, past.incarnation);
        assert_int_equal(count, asked[i]);
    }
}

/* The server proposes a world of two nodes, is elected again before the voters have answered, and proposes
 * the same record under its new ballot. The record names the office before: the round has no server. Its only
 * voter stands again, and forgets nothing. */
static void the_only_voter_of_a_round_without_a_server_serves_the_next(void **state)
{
    struct cluster c;
    struct takeover_actions actions;
    (void)state;
    begin(&c, 3, 3);
    struct world_record next = record_of(2, 1);
    next.voters[0] = c.agents[0].self;
    assert_true(takeover_propose(&c.agents[0], &next, c.now, &actions)); /* lost on its way */
    c.now = instant_add(c.now, TAKEOVER_PATIENCE_MS * NS_PER_MS);
    takeover_tick(&c.agents[0], c.now, &actions);
    assert_int_equal(c.agents[0].state, TAKEOVER_STAND);
    carry_out(&c, 0, &actions);
    assert_int_equal(c.agents[0].state, TAKEOVER_SEEK);
    assert_int_equal(c.agents[0].reason, TAKEOVER_OTHERS_PROPOSAL);
    assert_int_equal(c.agents[0].known.round, 1);
    assert_true(takeover_elects(&c.agents[0]));
    takeover_tick(&c.agents[0], c.now, &actions);
    assert_int_equal(c.agents[0].state, TAKEOVER_SERVE);
    assert_true(takeover_propose(&c.agents[0], &next, c.now, &actions));
    assert_int_equal(c.agents[0].known.round, 2);
    /* A member of that round elects nobody. */
    assert_int_equal(takeover_learn(&c.agents[1], &c.agents[0].known, c.now, &actions, NULL), 0);
    assert_false(takeover_elects(&c.agents[1]));
}

/* Otherwise it could vote twice about one round. */
static void a_forgotten_round_is_not_voted_about_again(void **state)
{
    struct takeover t;
    struct takeover_actions actions;
    const struct instant now = {NS_PER_S};
    const struct voter self = voter_of(1), other = voter_of(2);
    struct world_record before = record_of(3, 3), record = before;
    (void)state;
    takeover_init(&t, &self, 1, now);
    record.round++;
    assert_int_equal(takeover_learn(&t, &record, now, &actions, NULL), 0);
    takeover_forget(&t, now);
    takeover_forget(&t, now); /* the floor stays */
    assert_int_equal(t.known.epoch, 0);
    takeover_asked(&t, &other, &before, now, &actions); /* by a JOIN */
    assert_int_equal(t.known.epoch, 0);
    const struct takeover_message prepare = {
        .kind = TAKEOVER_PREPARE, .from = &other, .known = &before, .ballot = {9, other.incarnation}};
    takeover_receive(&t, &prepare, now, &actions);
    assert_int_equal(actions.count, 0);
    assert_int_equal(t.refused, 1);
    assert_int_equal(takeover_learn(&t, &record, now, &actions, NULL), 0);
    assert_int_equal(t.known.round, record.round);
}

static void a_new_agent_passes_on_what_a_server_has_told_it(void **state)
{
    struct takeover t;
    struct takeover_actions actions;
    const struct instant now = {NS_PER_S};
    const struct voter self = voter_of(4), other = voter_of(2), asker = voter_of(5), server = voter_of(0);
    const struct world_record record = record_of(5, 3), none = {0};
    (void)state;
    takeover_init(&t, &self, 1, now);
    takeover_asked(&t, &other, &record, now, &actions); /* by a JOIN */
    assert_int_equal(t.known.epoch, record.epoch);
    assert_int_equal(takeover_word(&t)->epoch, 0);
    takeover_asked(&t, &asker, &none, now, &actions);
    assert_int_equal(actions.count, 1);
    assert_int_equal(actions.items[0].message.known->epoch, 0);
    takeover_asked(&t, &server, &none, now,
                   &actions); /* a voter of the record, which may be the only one left */
    assert_int_equal(actions.items[0].message.known->epoch, record.epoch);
    struct takeover_message moved = {.kind = TAKEOVER_MOVED,
                                     .from = &server,
                                     .known = &record,
                                     .ballot = record.ballot,
                                     .server = &server};
    moved.from = &other; /* hearsay as well */
    takeover_receive(&t, &moved, now, &actions);
    assert_int_equal(takeover_word(&t)->epoch, 0);
    moved.from = &server;
    takeover_receive(&t, &moved, now, &actions);
    assert_int_equal(t.state, TAKEOVER_FOLLOW);
    assert_int_equal(takeover_word(&t)->epoch, record.epoch);
    takeover_asked(&t, &asker, &none, now, &actions);
    assert_int_equal(actions.items[0].message.known->epoch, record.epoch);

    const struct voter voter = voter_of(1); /* in the record: it was a member */
    takeover_init(&t, &voter, 1, now);
    takeover_asked(&t, &other, &record, now, &actions);
    assert_int_equal(takeover_word(&t)->epoch, record.epoch);
}

/* Agents that have ended do not keep a new agent from the next beginning of the job. */
static void the_job_of_hearsay_may_be_over_once_its_voters_are_silent(void **state)
{
    struct takeover t;
    struct takeover_actions actions;
    struct instant now = {NS_PER_S};
    const struct voter self = voter_of(4), other = voter_of(2), server = voter_of(0);
    const struct world_record record = record_of(5, 3), none = {0};
    (void)state;
    takeover_init(&t, &self, 1, now);
    assert_false(takeover_may_be_over(&t, now)); /* no record */
    takeover_asked(&t, &other, &record, now, &actions);
    assert_false(takeover_may_be_over(&t, now)); /* the voter itself said it */
    now = instant_add(now, TAKEOVER_DOUBT_MS * NS_PER_MS);
    assert_true(takeover_may_be_over(&t, now));
    takeover_asked(&t, &other, &none, now, &actions);
    assert_false(takeover_may_be_over(&t, now));
    const struct takeover_message moved = {.kind = TAKEOVER_MOVED,
                                           .from = &server,
                                           .known = &record,
                                           .ballot = record.ballot,
                                           .server = &server};
    takeover_receive(&t, &moved, now, &actions);
    now = instant_add(now, NS_PER_S * 60);
    assert_false(takeover_may_be_over(&t, now)); /* a server's word */

    const struct voter voter = voter_of(1);
    takeover_init(&t, &voter, 1, now);
    takeover_asked(&t, &other, &record, now, &actions);
    now = instant_add(now, NS_PER_S * 60);
    assert_false(takeover_may_be_over(&t, now)); /* its own round */
}

/* Its questions are no signs of an office. */
static void a_server_that_asks_for_the_server_is_silent(void **state)
{
    struct cluster c;
    struct takeover_actions actions;
    (void)state;
    begin(&c, 3, 3);
    const struct takeover_message who = {
        .kind = TAKEOVER_WHO, .from = &c.agents[0].self, .known = &c.agents[0].known};
    for (int ms = 0; ms < TAKEOVER_LOST_MS; ms += TAKEOVER_ASK_MS) {
        assert_int_equal(c.agents[1].state, TAKEOVER_FOLLOW);
        takeover_receive(&c.agents[1], &who, c.now, &actions);
        c.now = instant_add(c.now, TAKEOVER_ASK_MS * NS_PER_MS);
        takeover_tick(&c.agents[1], c.now, &actions);
    }
    assert_int_not_equal(c.agents[1].state, TAKEOVER_FOLLOW);
}

static const int64_t stay_ns = TAKEOVER_STAY_MS * NS_PER_MS;

static void leave(struct cluster *c, int agent)
{
    struct takeover_actions actions;
    takeover_leave(&c->agents[agent], stay_ns, c->now, &actions);
    carry_out(c, agent, &actions);
}

static bool stays(const struct cluster *c, int agent)
{
    return takeover_stays(&c->agents[agent], c->now);
}

static void an_agent_that_leaves_votes_until_the_next_round_is_decided(void **state)
{
    struct cluster c;
    struct takeover_actions actions;
    (void)state;
    begin(&c, 3, 3);
    leave(&c, 2);
    c.dead[1] = true;
    assert_true(stays(&c, 2));
    struct world_record next = record_of(1, 1);
    assert_true(takeover_propose(&c.agents[0], &next, c.now, &actions));
    carry_out(&c, 0, &actions);
    assert_int_equal(c.agents[0].known.round, 1);
    tick_all(&c, TAKEOVER_TURN_MS);
    assert_int_equal(c.agents[2].known.round, 1);
    assert_true(stays(&c, 2)); /* it spreads the record */
    tick_all(&c, TAKEOVER_SPREAD_MS);
    assert_false(stays(&c, 2));
}

/* The next round was under way when it left, and counts on its vote about the round after it. */
static void an_agent_that_leaves_votes_about_the_round_after_its_last(void **state)
{
    struct cluster c;
    struct takeover_actions actions;
    (void)state;
    begin(&c, 3, 3);
    leave(&c, 2);
    struct world_record next = record_of(3, 3), without = record_of(1, 1);
    assert_true(takeover_propose(&c.agents[0], &next, c.now, &actions));
    carry_out(&c, 0, &actions);
    tick_all(&c, TAKEOVER_TURN_MS);
    assert_int_equal(c.agents[2].known.round, 1);
    assert_int_equal(c.agents[2].known.voter_count, 3);
    tick_all(&c, TAKEOVER_SPREAD_MS);
    assert_true(stays(&c, 2));
    c.dead[1] = true;
    assert_true(takeover_propose(&c.agents[0], &without, c.now, &actions));
    carry_out(&c, 0, &actions);
    assert_int_equal(c.agents[0].known.round, 2);
    tick_all(&c, TAKEOVER_TURN_MS);
    tick_all(&c, TAKEOVER_SPREAD_MS);
    assert_false(stays(&c, 2));
}

static void an_agent_that_leaves_stands_no_more(void **state)
{
    struct cluster c;
    (void)state;
    begin(&c, 3, 3);
    leave(&c, 0); /* which serves */
    assert_int_equal(c.agents[0].state, TAKEOVER_SEEK);
    for (int i = 1; i < AGENTS; i++)
        assert_int_equal(c.agents[i].reason, i < 3 ? TAKEOVER_LEFT : TAKEOVER_FOUND); /* voters are told */
    c.dead[2] = true;
    for (int i = 0; i < 20 && c.agents[1].state != TAKEOVER_SERVE; i++) {
        tick_all(&c, 100);
        assert_int_not_equal(c.agents[0].state, TAKEOVER_STAND);
    }
    assert_int_equal(c.agents[1].state, TAKEOVER_SERVE); /* two of three have promised */
}

static void an_agent_goes_at_once_if_no_voter_is_left(void **state)
{
    struct cluster c;
    (void)state;
    begin(&c, 3, 3);
    for (int i = 0; i < 3; i++) {
        leave(&c, i);
        assert_int_equal(stays(&c, i), i < 2);
    }
    assert_false(stays(&c, 0) || stays(&c, 1));

    begin(&c, 3, 3); /* the others are lost, and do not answer */
    c.dead[0] = c.dead[1] = true;
    leave(&c, 2);
    assert_true(stays(&c, 2));
    tick_all(&c, TAKEOVER_DOUBT_MS);
    assert_false(stays(&c, 2));

    begin(&c, 3, 3); /* the others answer, and never decide */
    leave(&c, 2);
    for (int i = 0; i < TAKEOVER_STAY_MS / 100; i++) {
        assert_true(stays(&c, 2));
        tick_all(&c, 100);
    }
    assert_false(stays(&c, 2));

    begin(&c, 1, 1); /* a node without a vote */
    leave(&c, 2);
    assert_false(stays(&c, 2));
}

static void names_are_printable(void **state)
{
    (void)state;
    for (int i = 0; i < TAKEOVER_STATE_COUNT; i++)
        assert_string_not_equal(takeover_state_name((enum takeover_state)i), "?");
    for (int i = 0; i < TAKEOVER_MESSAGE_COUNT; i++)
        assert_string_not_equal(takeover_message_name((enum takeover_message_kind)i), "?");
    for (int i = 1; i < TAKEOVER_REASON_COUNT; i++)
        assert_true(*takeover_reason_text((enum takeover_reason)i));
    assert_string_equal(takeover_state_name(TAKEOVER_STATE_COUNT), "?");
    assert_string_equal(takeover_message_name(TAKEOVER_MESSAGE_COUNT), "?");
    assert_string_equal(takeover_reason_text(TAKEOVER_REASON_COUNT), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(voters_are_spread_over_the_ranks),
        cmocka_unit_test(a_majority_is_more_than_half),
        cmocka_unit_test(a_record_that_cannot_be_is_refused_with_its_value),
        cmocka_unit_test(the_next_voter_takes_over_a_second_after_the_connection_broke),
        cmocka_unit_test(an_elected_server_revises_the_voters),
        cmocka_unit_test(without_a_majority_nobody_takes_over),
        cmocka_unit_test(records_of_others_change_nothing_and_are_counted),
        cmocka_unit_test(a_voter_that_hears_its_server_elects_no_other),
        cmocka_unit_test(an_answer_from_before_the_election_is_late),
        cmocka_unit_test(a_candidate_does_not_hide_how_the_server_was_lost),
        cmocka_unit_test(a_spare_votes_and_does_not_stand),
        cmocka_unit_test(a_voter_of_other_voters_is_told_until_it_confirms),
        cmocka_unit_test(voters_of_earlier_records_are_asked_for_a_minute),
        cmocka_unit_test(the_only_voter_of_a_round_without_a_server_serves_the_next),
        cmocka_unit_test(a_forgotten_round_is_not_voted_about_again),
        cmocka_unit_test(a_new_agent_passes_on_what_a_server_has_told_it),
        cmocka_unit_test(the_job_of_hearsay_may_be_over_once_its_voters_are_silent),
        cmocka_unit_test(a_server_that_asks_for_the_server_is_silent),
        cmocka_unit_test(an_agent_that_leaves_votes_until_the_next_round_is_decided),
        cmocka_unit_test(an_agent_that_leaves_votes_about_the_round_after_its_last),
        cmocka_unit_test(an_agent_that_leaves_stands_no_more),
        cmocka_unit_test(an_agent_goes_at_once_if_no_voter_is_left),
        cmocka_unit_test(names_are_printable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
