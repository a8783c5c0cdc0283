/* rendezvous_roster_join_test.c - who gets into a world and as which rank: claims of rank, refusals, and what
 * is said of who is missing; and the largest world. */
#include <stdio.h>
#include <time.h>

#include "proto/base/buffer.h"
#include "rendezvous/roster/pace.h"
#include "tests/unit/rendezvous/roster_fixture.h"

/* The only action, which is a refusal with exactly this text. */
static void expect_rejection(struct fixture *f, const char *text)
{
    assert_int_equal(f->actions.count, 1);
    assert_int_equal(f->actions.items[0].kind, ROSTER_REFUSE);
    assert_string_equal(f->actions.items[0].reason, text);
}

static void ranks_are_contiguous_by_node_rank(void **state)
{
    struct fixture *f = *state;
    static const int base[] = {0, 1, 3}, role_base[] = {0, 0, 1}, role_size[] = {4, 2, 4};
    all_join(f);
    assert_int_equal(f->actions.count, 1 + NODES); /* ACCEPT for the last, WORLD for all */
    for (int rank = 0; rank < NODES; rank++) {
        struct membership_event event;
        const struct roster_action *action = &f->actions.items[1 + rank];
        assert_int_equal(action->kind, ROSTER_SEND_WORLD);
        roster_fill_event(f->roster, action, &event);
        assert_int_equal(event.world.rank_base, base[rank]);
        assert_int_equal(event.world.world_size, 6);
        assert_int_equal(event.world.role_rank_base, role_base[rank]);
        assert_int_equal(event.world.role_world_size, role_size[rank]);
        assert_string_equal(event.world.master_addr, "a");
    }
    scope_buffer line = {0};
    assert_int_equal(roster_format(f->roster, &line), 0);
    assert_string_equal(line.data, "STARTING round 0 restarts 0/1: 0=ASSIGNED 1=ASSIGNED 2=ASSIGNED");
}

static void join_number(struct fixture *f, uint64_t session, uint64_t number, const struct roster_join *who)
{
    const struct roster_event event = {
        .kind = ROSTER_JOIN, .session = session, .join = who, .number = number};
    assert_int_equal(step(f, &event), 0);
}

/* It comes by a connection that was closed, and says nothing of its sender's present workers. */
static void a_join_that_was_overtaken_is_dropped(void **state)
{
    struct fixture *f = *state;
    struct roster_join who = join_of(2);
    all_run(f);
    who.held = (struct world_id){42, 0};
    join_number(f, 9, 7, &who); /* the newest connection */
    who.held = (struct world_id){0};
    join_number(f, 8, 6, &who);
    assert_int_equal(f->actions.count, 0);
    assert_int_equal(step(f, &(struct roster_event){.kind = ROSTER_DISCONNECT, .session = 8, .member = 2}),
                     0);
    f->now = instant_add(f->now, NS_PER_S);
    for (int rank = 0; rank < NODES; rank++)
        step(f, &(struct roster_event){
                    .kind = ROSTER_BEAT, .session = rank == 2 ? 9 : (uint64_t)rank + 1, .member = rank});
    assert_int_equal(f->actions.count, 0); /* AGAIN would be one */
    assert_int_equal(step(f, &(struct roster_event){.kind = ROSTER_TICK}), 0);
    assert_int_equal(roster_state(f->roster), JOB_RUNNING);

    /* the same when its sender has been lost: its workers may live */
    for (int seconds = 0; seconds < 6; seconds++) {
        f->now = instant_add(f->now, NS_PER_S);
        for (int rank = 0; rank < 2; rank++)
            step(f,
                 &(struct roster_event){.kind = ROSTER_BEAT, .session = (uint64_t)rank + 1, .member = rank});
        step(f, &(struct roster_event){.kind = ROSTER_TICK});
    }
    assert_int_equal(roster_state(f->roster), JOB_STOPPING);
    join_number(f, 8, 6, &who);
    assert_int_equal(f->actions.count, 0);
    who.held = (struct world_id){42, 0};
    join_number(f, 10, 8, &who);
    assert_int_equal(f->actions.items[0].kind, ROSTER_ACCEPT);
}

static void a_rejected_agent_is_reported_until_it_joins(void **state)
{
    struct fixture *f = *state;
    struct roster_join who = join_of(0), other = join_of(1);
    char text[MUSTER_ERROR_TEXT];
    join(f, 1, &who);
    other.max_nodes = other.min_nodes = 7;
    other.incarnation.low = 77;
    other.agent_name = "pod";
    join(f, 5, &other);
    roster_describe_refused(f->roster, text, sizeof text);
    assert_string_equal(
        text, "agent \"pod\" (nnodes: this agent has 7, the server 3: give all nodes one --nnodes)");
    roster_describe_progress(f->roster, text, sizeof text);
    assert_string_equal(text, "1 of 3 nodes, missing ranks 1-2; agent \"pod\" was refused");
    other.min_nodes = other.max_nodes = 3;
    other.incarnation.low = 78; /* another start */
    join(f, 6, &other);
    roster_describe_progress(f->roster, text, sizeof text);
    assert_string_equal(text, "2 of 3 nodes, missing rank 2");
    who.local_world_size = 0;
    for (int i = 0; i < 2; i++)
        join(f, 7, &who);
    f->now = roster_deadline(f->roster);
    while (roster_state(f->roster) == JOB_FORMING) {
        f->now = roster_deadline(f->roster);
        assert_int_equal(step(f, &(struct roster_event){.kind = ROSTER_TICK}), 0);
    }
    struct membership_event event;
    struct roster_action verdict = {.kind = ROSTER_SEND_VERDICT};
    roster_fill_event(f->roster, &verdict, &event);
    assert_non_null(strstr(event.reason, "(--join-timeout); missing rank"));
    assert_non_null(
        strstr(event.reason, "; refused 2 times, the last agent \"a\" (nproc_per_node: 0 is not in"));
}

static void what_does_not_fit_is_rejected_by_name(void **state)
{
    struct fixture *f = *state;
    struct roster_join who = join_of(1);
    who.job_id = "other";
    join(f, 2, &who);
    expect_rejection(f,
                     "job id: this agent has \"other\", the server \"job\": one job has one --rdzv-id, two "
                     "jobs need two ports");
    who = join_of(1);
    who.protocol_version = 9;
    join(f, 2, &who);
    expect_rejection(f, "protocol version: this agent has 9, the server 6; run the same muster on all nodes");
    who = join_of(1);
    who.min_nodes = 2; /* either alone is enough */
    join(f, 2, &who);
    expect_rejection(f, "nnodes: this agent has 2:3, the server 3: give all nodes one --nnodes");
    who = join_of(1);
    who.max_nodes = 5;
    join(f, 2, &who);
    expect_rejection(f, "nnodes: this agent has 3:5, the server 3: give all nodes one --nnodes");
    who = join_of(1);
    who.min_nodes = who.max_nodes = 4;
    join(f, 2, &who);
    expect_rejection(f, "nnodes: this agent has 4, the server 3: give all nodes one --nnodes");
    who = join_of(1);
    who.elastic = true;
    join(f, 2, &who);
    expect_rejection(f, "mode: this agent has elastic, the server static: give all nodes one --rdzv-backend");
    who = join_of(1);
    who.node_rank = 3;
    join(f, 2, &who);
    expect_rejection(f, "node rank: 3 is not in 0..2 (nnodes is 3)");
    who = join_of(1);
    who.agent_name = "node1\nmuster: error: all is lost";
    join(f, 2, &who);
    expect_rejection(f, "agent name: it holds a control character");
    who = join_of(1);
    who.store_addr = "10.0.0.1\x1b[2J";
    join(f, 2, &who);
    expect_rejection(f, "store address: it holds a control character");
    who = join_of(1);
    who.local_world_size = 0;
    join(f, 2, &who);
    expect_rejection(f, "nproc_per_node: 0 is not in 1..65536");
    assert_int_equal(roster_member_state(f->roster, 1), MEMBER_EMPTY);
}

static void an_old_incarnation_cannot_come_back(void **state)
{
    struct fixture *f = *state;
    struct roster_join old = join_of(1), fresh = join_of(1);
    fresh.incarnation.low = 77;
    join(f, 2, &old);
    join(f, 5, &fresh);
    assert_int_equal(f->actions.count, 2);
    assert_int_equal(f->actions.items[0].kind, ROSTER_REFUSE);
    assert_int_equal(f->actions.items[0].session, 2);
    assert_int_equal(f->actions.items[1].kind, ROSTER_ACCEPT);
    /* It missed the refusal and registers again. */
    join(f, 6, &old);
    expect_rejection(f, "superseded: node rank 1 is held by a newer start of agent \"b\"");
    /* The same one again, on a new connection, is welcome. */
    join(f, 7, &fresh);
    assert_int_equal(f->actions.items[0].kind, ROSTER_ACCEPT);
}

/* A JOIN may be on its way while its agent ends, and the next start of it takes the rank. */
static void a_late_first_join_displaces_nobody(void **state)
{
    struct fixture *f = *state;
    struct roster_join ended = join_of(1), fresh = join_of(1);
    const struct roster_event late = {.kind = ROSTER_JOIN, .session = 6, .join = &ended};
    ended.incarnation.low = 66;
    fresh.incarnation.low = 77;
    join(f, 2, &fresh);
    assert_int_equal(step(f, &late), 0);
    assert_int_equal(f->actions.count, 1);
    assert_int_equal(f->actions.items[0].kind, ROSTER_AGAIN);
    assert_int_equal(f->actions.items[0].session, 6);
    const uint64_t proof = f->actions.items[0].proof;
    assert_true(proof != 0);
    ended.proof = proof + 1;
    assert_int_equal(step(f, &late), 0);
    assert_int_equal(f->actions.items[0].kind, ROSTER_AGAIN);
    assert_true(roster_incarnation(f->roster, 1).low == 77);
    /* The right one was under way for three seconds: a live agent repeats it with the new answer. */
    f->now = instant_add(f->now, 3 * NS_PER_S);
    ended.proof = proof;
    assert_int_equal(step(f, &late), 0);
    assert_int_equal(f->actions.items[0].kind, ROSTER_AGAIN);
    assert_true(f->actions.items[0].proof != proof);
    assert_true(roster_incarnation(f->roster, 1).low == 77);
    /* The proof is about one holder: it does not displace a later one. */
    struct roster_join latest = join_of(1);
    latest.incarnation.low = 88;
    join(f, 7, &latest);
    assert_true(roster_incarnation(f->roster, 1).low == 88);
    ended.proof = proof;
    assert_int_equal(step(f, &late), 0);
    assert_int_equal(f->actions.items[0].kind, ROSTER_AGAIN);
    assert_true(f->actions.items[0].proof != proof);
    assert_true(roster_incarnation(f->roster, 1).low == 88);
    /* Neither while that one is taken for lost: it may come back. */
    f->now = instant_add(f->now, 5 * NS_PER_S);
    assert_int_equal(step(f, &(struct roster_event){.kind = ROSTER_TICK}), 0);
    assert_int_equal(roster_member_state(f->roster, 1), MEMBER_EMPTY);
    assert_int_equal(step(f, &late), 0);
    assert_int_equal(f->actions.items[0].kind, ROSTER_AGAIN);
    assert_int_equal(roster_member_state(f->roster, 1), MEMBER_EMPTY);
}

static void nobody_evicts_the_hosting_agent(void **state)
{
    struct fixture *f = *state;
    struct roster_join host = join_of(0), twin = join_of(0);
    host.local = true;
    twin.incarnation.low = 99;
    join(f, 1, &host);
    join(f, 2, &twin);
    assert_int_equal(f->actions.items[0].kind, ROSTER_REFUSE);
    assert_int_equal(roster_member_state(f->roster, 0), MEMBER_JOINED);
}

static void an_agent_without_a_rank_gets_one(void **state)
{
    struct fixture *f = *state;
    for (int rank = 0; rank < NODES; rank++) {
        struct roster_join who = join_of(rank);
        who.node_rank = -1;
        join(f, (uint64_t)rank + 1, &who);
        assert_int_equal(f->actions.items[0].member, rank);
    }
    struct roster_join who = join_of(0);
    who.node_rank = -1;
    who.incarnation.low = 50;
    join(f, 9, &who);
    expect_rejection(f, "the world is full: all 3 node ranks are held");
}

static void an_unknown_session_is_told_to_register(void **state)
{
    struct fixture *f = *state;
    all_run(f);
    struct roster_event beat = {.kind = ROSTER_BEAT, .session = 9, .member = -1};
    assert_int_equal(step(f, &beat), 0);
    assert_int_equal(f->actions.count, 1);
    assert_int_equal(f->actions.items[0].kind, ROSTER_AGAIN);
    beat.member = 1; /* somebody else's slot */
    assert_int_equal(step(f, &beat), 0);
    assert_int_equal(f->actions.items[0].kind, ROSTER_AGAIN);
    beat.session = 2;
    assert_int_equal(step(f, &beat), 0);
    assert_int_equal(f->actions.count, 0);
    struct roster_event leave = {.kind = ROSTER_LEAVE, .session = 9, .member = 1, .exit_code = 143};
    assert_int_equal(step(f, &leave), 0);
    assert_int_equal(roster_state(f->roster), JOB_RUNNING);
}

static void worlds_of_impossible_sizes_are_rejected(void **state)
{
    struct fixture *f = *state;
    struct roster_options options = options_of(4);
    options.min_nodes = 2;
    assert_null(roster_create(&options, f->now, &f->err));
    assert_int_equal(f->err.code, MUSTER_E_INVALID);
    options.elastic = true;
    options.min_nodes = 5;
    assert_null(roster_create(&options, f->now, &f->err));
    options = options_of(ROSTER_MEMBER_LIMIT + 1);
    assert_null(roster_create(&options, f->now, &f->err));
    assert_int_equal(f->err.code, MUSTER_E_INVALID);
}

/* 16,384 nodes, and one is lost: every step fits its actions, and no agent is forgotten. */
static void the_largest_world(void **state)
{
    (void)state;
    enum { MANY = ROSTER_MEMBER_LIMIT };
    struct roster_options options = options_of(MANY);
    struct instant now = {0};
    struct roster *roster = roster_create(&options, now, NULL);
    struct roster_actions actions;
    assert_non_null(roster);
    assert_int_equal(roster_actions_init(&actions, MANY, NULL), 0);
    for (int i = 0; i < MANY; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "node%d", i);
        struct roster_join who = join_of(0);
        who.min_nodes = who.max_nodes = MANY;
        who.agent_name = who.store_addr = name;
        who.node_rank = i;
        who.incarnation.low = (uint64_t)i + 1;
        struct roster_event event = {.kind = ROSTER_JOIN, .session = (uint64_t)i + 1, .join = &who};
        assert_int_equal(roster_step(roster, &event, now, &actions, NULL), 0);
    }
    assert_int_equal(actions.count, MANY + 1);
    assert_int_equal(roster_state(roster), JOB_STARTING);
    now.ns = pace_lost_ns(MANY) - NS_PER_S;
    for (int i = 1; i < MANY; i++) {
        struct roster_event event = {.kind = ROSTER_BEAT, .session = (uint64_t)i + 1, .member = i};
        assert_int_equal(roster_step(roster, &event, now, &actions, NULL), 0);
    }
    now = roster_deadline(roster);
    assert_int_equal(now.ns, pace_lost_ns(MANY));
    assert_int_equal(roster_step(roster, &(struct roster_event){.kind = ROSTER_TICK}, now, &actions, NULL),
                     0);
    assert_int_equal(roster_state(roster), JOB_STOPPING);
    assert_int_equal(actions.count, MANY - 1);
    assert_int_equal(roster_member_state(roster, 0), MEMBER_EMPTY);
    roster_actions_free(&actions);
    roster_destroy(roster);
}

/* Jobs without an id, on one machine and one port. */
static void another_command_is_another_job(void **state)
{
    (void)state;
    struct instant now = {0};
    for (int named = 0; named < 2; named++) {
        struct roster_options options = options_of(2);
        options.job_id = named ? "job" : "none";
        struct roster *roster = roster_create(&options, now, NULL);
        struct roster_actions actions;
        assert_int_equal(roster_actions_init(&actions, 2, NULL), 0);
        for (int i = 0; i < 3; i++) {
            struct roster_join who = join_of(i > 0);
            who.job_id = options.job_id;
            who.min_nodes = who.max_nodes = 2;
            who.local = i == 0;
            who.incarnation.low = 10 + (uint64_t)i;
            who.command = 1 + (uint64_t)(i == 2); /* the third claims the second's rank */
            who.program = "train.py";
            struct roster_event event = {.kind = ROSTER_JOIN, .session = 1 + (uint64_t)i, .join = &who};
            assert_int_equal(roster_step(roster, &event, now, &actions, NULL), 0);
            if (actions.items[0].kind != ROSTER_AGAIN)
                continue;
            who.proof = actions.items[0].proof;
            assert_int_equal(roster_step(roster, &event, now, &actions, NULL), 0);
        }
        assert_int_equal(actions.items[0].kind, ROSTER_REFUSE);
        assert_non_null(strstr(actions.items[0].reason, named ? "superseded" : "two jobs meet at this port"));
        roster_actions_free(&actions);
        roster_destroy(roster);
    }
}

/* A claim of a rank is held against that rank alone: under rank 1 the same name may run another command.
 */
static void a_claim_meets_the_holder_of_its_rank(void **state)
{
    (void)state;
    struct instant now = {0};
    for (int claimed = 0; claimed < 2; claimed++) {
        struct roster_options options = options_of(2);
        options.job_id = "none";
        struct roster *roster = roster_create(&options, now, NULL);
        struct roster_actions actions;
        assert_int_equal(roster_actions_init(&actions, 2, NULL), 0);
        for (int i = 0; i < 2; i++) {
            struct roster_join who = join_of(i ? claimed : !claimed);
            who.job_id = options.job_id;
            who.min_nodes = who.max_nodes = 2;
            who.local = who.node_rank == 0;
            who.agent_name = "one host";
            who.incarnation.low = 10 + (uint64_t)i;
            who.command = 1 + (uint64_t)i;
            who.program = "train.py";
            struct roster_event event = {.kind = ROSTER_JOIN, .session = 1 + (uint64_t)i, .join = &who};
            assert_int_equal(roster_step(roster, &event, now, &actions, NULL), 0);
        }
        assert_int_equal(roster_state(roster), JOB_STARTING);
        roster_actions_free(&actions);
        roster_destroy(roster);
    }
}

/* A spare with another build: one path, two files. An agent that gives no hash is not compared. */
static void another_file_of_the_same_path_is_pointed_out(void **state)
{
    (void)state;
    struct instant now = {0};
    char text[MUSTER_ERROR_TEXT];
    const uint64_t contents[] = {7, 7, 8, 0};
    struct roster_options options = options_of(4);
    struct roster *roster = roster_create(&options, now, NULL);
    struct roster_actions actions;
    assert_int_equal(roster_actions_init(&actions, 4, NULL), 0);
    for (int i = 0; i < 4; i++) {
        struct roster_join who = join_of(i);
        who.min_nodes = who.max_nodes = 4;
        who.local = i == 0;
        who.command = 1;
        who.contents = contents[i];
        who.program = "train";
        struct roster_event event = {.kind = ROSTER_JOIN, .session = 1 + (uint64_t)i, .join = &who};
        assert_int_equal(roster_step(roster, &event, now, &actions, NULL), 0);
    }
    assert_false(roster_describe_other_program(roster, 1, text, sizeof text));
    assert_true(roster_describe_other_program(roster, 2, text, sizeof text));
    assert_non_null(strstr(text, "train of agent \"c\" has other contents than this node's"));
    assert_false(roster_describe_other_program(roster, 3, text, sizeof text));
    roster_actions_free(&actions);
    roster_destroy(roster);
}

/* Under another name it may be of the job, and is pointed out. */
static void nodes_may_run_different_commands(void **state)
{
    (void)state;
    struct instant now = {0};
    char text[MUSTER_ERROR_TEXT];
    struct roster_options options = options_of(2);
    options.job_id = "none";
    struct roster *roster = roster_create(&options, now, NULL);
    struct roster_actions actions;
    assert_int_equal(roster_actions_init(&actions, 2, NULL), 0);
    for (int i = 0; i < 2; i++) {
        struct roster_join who = join_of(i);
        who.job_id = options.job_id;
        who.min_nodes = who.max_nodes = 2;
        who.local = i == 0;
        who.command = 1 + (uint64_t)i;
        who.program = i ? "eval.py" : "train.py";
        who.endpoints = 7 + (uint64_t)i;
        struct roster_event event = {.kind = ROSTER_JOIN, .session = 1 + (uint64_t)i, .join = &who};
        assert_int_equal(roster_step(roster, &event, now, &actions, NULL), 0);
    }
    assert_int_equal(roster_state(roster), JOB_STARTING);
    assert_true(roster_describe_other_program(roster, 1, text, sizeof text));
    assert_non_null(strstr(text, "\"b\" runs eval.py and this node train.py"));
    assert_false(roster_describe_other_program(roster, 0, text, sizeof text));
    assert_true(roster_describe_other_endpoints(roster, 1, text, sizeof text));
    assert_non_null(strstr(text, "\"b\" has another list of endpoints than this node"));
    assert_false(roster_describe_other_endpoints(roster, 0, text, sizeof text));
    assert_false(roster_describe_other_size(roster, 1, text, sizeof text)); /* a static world */
    roster_actions_free(&actions);
    roster_destroy(roster);
}

static void a_spare_of_another_size_is_told(void **state)
{
    const struct instant now = {0};
    struct roster_options options = options_of(2);
    struct roster_actions actions;
    char text[MUSTER_ERROR_TEXT];
    (void)state;
    options.elastic = true;
    struct roster *roster = roster_create(&options, now, NULL);
    assert_int_equal(roster_actions_init(&actions, roster_slot_count(roster), NULL), 0);
    for (int i = 0; i < 3; i++) {
        struct roster_join who = join_of(i);
        who.min_nodes = who.max_nodes = 2;
        who.elastic = true;
        who.node_rank = -1;
        who.local = i == 0;
        who.local_world_size = i == 2 ? 1 : 4;
        const struct roster_event event = {.kind = ROSTER_JOIN, .session = 1 + (uint64_t)i, .join = &who};
        assert_int_equal(roster_step(roster, &event, now, &actions, NULL), 0);
        assert_int_equal(roster_describe_other_size(roster, i, text, sizeof text), i == 2);
    }
    assert_non_null(strstr(text, "\"c\" has 1 worker (--nproc-per-node), and this node 4: the world's size"));
    roster_actions_free(&actions);
    roster_destroy(roster);
}

static void who_is_missing_is_told(void **state)
{
    (void)state;
    struct instant now = {0};
    struct roster_options options = options_of(40);
    struct roster *roster = roster_create(&options, now, NULL);
    struct roster_actions actions;
    assert_int_equal(roster_actions_init(&actions, 40, NULL), 0);
    static const struct {
        int joins, leaves;
        const char *text;
    } rows[] = {
        {0, -1, "1 of 40 nodes, missing ranks 1-39"},
        {4, -1, "2 of 40 nodes, missing ranks 1-3, 5-39"},
        {39, 4, "2 of 40 nodes, missing ranks 1-3, 4 (last held by \"b\"), 5-38"},
        {4, -1, "3 of 40 nodes, missing ranks 1-3, 5-38"},
        {6, -1, "4 of 40 nodes, missing ranks 1-3, 5, 7-38"},
        {8, -1, NULL},
        {10, -1, NULL},
        {12, -1, NULL},
        {14, -1, "8 of 40 nodes, missing ranks 1-3, 5, 7, 9, 11, 13, 15-38"},
        {16, -1, NULL},
        {18, -1, "10 of 40 nodes, missing ranks 1-3, 5, 7, 9, 11, 13, 15, 17 and 20 more"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct roster_join who = join_of(1);
        who.min_nodes = who.max_nodes = 40;
        who.node_rank = rows[i].joins;
        who.incarnation.low = 100 + i;
        struct roster_event event = {
            .kind = ROSTER_JOIN, .session = 1 + (uint64_t)who.node_rank, .join = &who};
        assert_int_equal(roster_step(roster, &event, now, &actions, NULL), 0);
        if (actions.items[0].kind == ROSTER_AGAIN) {
            who.proof = actions.items[0].proof;
            assert_int_equal(roster_step(roster, &event, now, &actions, NULL), 0);
        }
        if (rows[i].leaves >= 0) {
            event = (struct roster_event){
                .kind = ROSTER_LEAVE, .session = 1 + (uint64_t)rows[i].leaves, .member = rows[i].leaves};
            assert_int_equal(roster_step(roster, &event, now, &actions, NULL), 0);
        }
        char text[256];
        roster_describe_progress(roster, text, sizeof text);
        if (rows[i].text)
            assert_string_equal(text, rows[i].text);
    }
    roster_actions_free(&actions);
    roster_destroy(roster);
}

static struct instant thread_time(void)
{
    struct timespec used;
    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used), 0);
    return (struct instant){used.tv_sec * NS_PER_S + used.tv_nsec};
}

/* Thread time of a JOIN into a roster of so many slots: the first crowd, and its successors under other names
 * after all of it was lost. */
static double join_cost(int nodes, bool elastic, int crowds)
{
    struct instant now = {NS_PER_S}, begun, ended;
    struct roster_options options = options_of(nodes);
    options.elastic = elastic;
    options.min_nodes = elastic ? 2 : nodes;
    options.join_timeout_ns = options.last_call_ns = 600 * NS_PER_S;
    struct roster *roster = roster_create(&options, now, NULL);
    struct roster_actions actions;
    assert_non_null(roster);
    const int slots = roster_slot_count(roster), joined = nodes - 1; /* one is missing: no world forms */
    assert_int_equal(roster_actions_init(&actions, slots, NULL), 0);
    int64_t used_ns = 0;
    for (int crowd = 0; crowd < crowds; crowd++) {
        begun = thread_time();
        for (int i = 0; i < joined; i++) {
            char name[32];
            (void)snprintf(name, sizeof name, "node%d-%d", crowd, i);
            struct roster_join who = join_of(0);
            who.min_nodes = options.min_nodes, who.max_nodes = nodes, who.elastic = elastic;
            who.agent_name = name, who.node_rank = -1;
            who.incarnation = (struct agent_incarnation){1 + (uint64_t)crowd, (uint64_t)i};
            const struct roster_event event = {
                .kind = ROSTER_JOIN, .session = 1 + (uint64_t)(crowd * nodes + i), .join = &who};
            assert_int_equal(roster_step(roster, &event, now, &actions, NULL), 0);
            assert_int_equal(actions.items[0].kind, ROSTER_ACCEPT);
        }
        ended = thread_time();
        used_ns += instant_diff_ns(ended, begun);
        now = instant_add(now, 2 * pace_waiting_lost_ns(nodes)); /* all are silent for too long */
        assert_int_equal(
            roster_step(roster, &(struct roster_event){.kind = ROSTER_TICK}, now, &actions, NULL), 0);
        assert_int_equal(roster_remote_count(roster), 0);
    }
    roster_actions_free(&actions);
    roster_destroy(roster);
    return (double)used_ns / joined / crowds;
}

/* A scan of all slots makes it 16 times as much, and more. */
static void a_join_costs_the_same_in_a_large_world(void **state)
{
    (void)state;
    static const struct {
        bool elastic;
        int crowds;
    } rows[] = {{false, 1}, {true, 1}, {false, 3}, {true, 6}};
    enum { FEW = 256, MANY = 4096 };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double few = 1e9, many = 1e9;
        for (int attempt = 0; attempt < 3; attempt++) { /* the least of three: the machine has other work */
            double cost = join_cost(FEW, rows[i].elastic, rows[i].crowds);
            few = cost < few ? cost : few;
            cost = join_cost(MANY, rows[i].elastic, rows[i].crowds);
            many = cost < many ? cost : many;
        }
        if (many > 5 * few)
            fail_msg("row %zu: a JOIN costs %.0f ns in a world of %d, and %.0f ns in a world of %d", i, few,
                     FEW, many, MANY);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_WORLD(ranks_are_contiguous_by_node_rank),
        WITH_WORLD(a_join_that_was_overtaken_is_dropped),
        WITH_WORLD(a_rejected_agent_is_reported_until_it_joins),
        WITH_WORLD(what_does_not_fit_is_rejected_by_name),
        WITH_WORLD(an_old_incarnation_cannot_come_back),
        WITH_WORLD(a_late_first_join_displaces_nobody),
        WITH_WORLD(nobody_evicts_the_hosting_agent),
        WITH_WORLD(an_agent_without_a_rank_gets_one),
        WITH_WORLD(an_unknown_session_is_told_to_register),
        WITH_WORLD(worlds_of_impossible_sizes_are_rejected),
        cmocka_unit_test(the_largest_world),
        cmocka_unit_test(a_join_costs_the_same_in_a_large_world),
        cmocka_unit_test(another_command_is_another_job),
        cmocka_unit_test(a_claim_meets_the_holder_of_its_rank),
        cmocka_unit_test(another_file_of_the_same_path_is_pointed_out),
        cmocka_unit_test(nodes_may_run_different_commands),
        cmocka_unit_test(a_spare_of_another_size_is_told),
        cmocka_unit_test(who_is_missing_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
