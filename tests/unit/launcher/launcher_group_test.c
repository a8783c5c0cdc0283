/* launcher_group_test.c - the table of the workers' life: every cell, and the stories that matter. */
#include <signal.h>
#include <stdio.h>

#include "launcher/policy/worker_group.h"
#include "proto/base/buffer.h"
#include "tests/support/cmocka_all.h"

static const struct instant some_time = {999 * NS_PER_S};

static struct worker_group fresh(enum worker_group_state state)
{
    const bool timed = state == GROUP_DRAINING || state == GROUP_SAVING || state == GROUP_HOLDING ||
                       state == GROUP_CULLING || state == GROUP_STOPPING || state == GROUP_KILLING ||
                       state == GROUP_CLEANING;
    return (struct worker_group){.state = state,
                                 .shutdown_grace_ns = 30 * NS_PER_S,
                                 .restart_grace_ns = NS_PER_S,
                                 .kill_bound_ns = 20 * NS_PER_S,
                                 .clean_bound_ns = 5 * NS_PER_S,
                                 .deadline = timed ? some_time : INSTANT_NEVER};
}

static void format_actions(unsigned actions, struct buffer *out)
{
    for (int i = 0; i < GROUP_ACTION_COUNT; i++)
        if (actions & 1u << i)
            buffer_printf(out, " %s", worker_group_action_name(i));
}

/* What one cell does, as a line. */
static void format_cell(enum worker_group_state state, enum worker_group_event_kind kind, struct buffer *out)
{
    struct worker_group group = fresh(state);
    struct worker_group_event event = {.kind = kind, .exit_code = 9, .signal = SIGINT};
    if (state == GROUP_SAVING)
        group.kill_at = (struct instant){7 * NS_PER_S};
    struct muster_error err = {0};
    unsigned actions;
    if (worker_group_step(&group, &event, (struct instant){0}, &actions, &err) < 0) {
        assert_int_equal(err.code, MUSTER_E_STATE);
        assert_int_equal(group.state, state);
        assert_int_equal(actions, 0);
        return;
    }
    buffer_printf(out, "%s %s -> %s", worker_group_state_name(state), worker_group_event_name(kind),
                  worker_group_state_name(group.state));
    if (group.deadline.ns != INSTANT_NEVER.ns && group.deadline.ns != some_time.ns)
        buffer_printf(out, " %llds", (long long)(group.deadline.ns / NS_PER_S));
    if (group.leaving)
        buffer_printf(out, " code=%d", group.exit_code);
    if (group.stop_asked)
        buffer_text(out, " stop-asked");
    format_actions(actions, out);
    buffer_text(out, "\n");
}

static const char whole_table[] = "WAITING WORLD -> RUNNING START\n"
                                  "WAITING STOP -> WAITING REPORT_STOPPED\n"
                                  "WAITING VERDICT -> OVER code=9 LEAVE EXIT\n"
                                  "WAITING SIGNAL -> OVER code=130 LEAVE EXIT\n"
                                  "WAITING LOST -> OVER code=9 LEAVE EXIT\n"
                                  "WAITING CLEANED -> WAITING\n"
                                  "RUNNING FAILURE -> STOPPING 1s REPORT_FAILED TERMINATE\n"
                                  "RUNNING SUCCESS -> DONE REPORT_DONE\n"
                                  "RUNNING STOP -> STOPPING 1s stop-asked TERMINATE\n"
                                  "RUNNING VERDICT -> STOPPING 1s code=9 TERMINATE\n"
                                  "RUNNING SIGNAL -> STOPPING 30s code=130 LEAVE TERMINATE\n"
                                  "RUNNING LOST -> STOPPING 1s code=9 TERMINATE\n"
                                  "RUNNING CLEANED -> RUNNING\n"
                                  "DRAINING FAILURE -> STOPPING 1s REPORT_FAILED TERMINATE\n"
                                  "DRAINING SUCCESS -> STOPPING 30s REPORT_DONE LEAVE TERMINATE\n"
                                  "DRAINING STOP -> STOPPING 30s TERMINATE\n"
                                  "DRAINING VERDICT -> STOPPING 1s code=9 TERMINATE\n"
                                  "DRAINING SIGNAL -> DRAINING REMIND\n"
                                  "DRAINING LOST -> STOPPING 1s code=9 TERMINATE\n"
                                  "DRAINING DEADLINE -> STOPPING 30s LEAVE TERMINATE\n"
                                  "DRAINING CLEANED -> DRAINING\n"
                                  "SAVING FAILURE -> SAVING REPORT_FAILED\n"
                                  "SAVING SUCCESS -> STOPPING 7s TERMINATE\n"
                                  "SAVING STOP -> STOPPING 1s stop-asked TERMINATE\n"
                                  "SAVING VERDICT -> SAVING code=9\n"
                                  "SAVING SIGNAL -> SAVING code=130 LEAVE\n"
                                  "SAVING LOST -> SAVING code=9\n"
                                  "SAVING DEADLINE -> STOPPING 7s TERMINATE\n"
                                  "SAVING CLEANED -> SAVING\n"
                                  "HOLDING FAILURE -> HOLDING REPORT_FAILED\n"
                                  "HOLDING EMPTY -> HALTED\n"
                                  "HOLDING STOP -> HOLDING stop-asked\n"
                                  "HOLDING VERDICT -> STOPPING 1s code=9 TERMINATE\n"
                                  "HOLDING SIGNAL -> STOPPING 30s code=130 LEAVE TERMINATE\n"
                                  "HOLDING LOST -> STOPPING 1s code=9 TERMINATE\n"
                                  "HOLDING DEADLINE -> CULLING 20s CULL\n"
                                  "HOLDING CLEANED -> HOLDING\n"
                                  "CULLING EMPTY -> HALTED\n"
                                  "CULLING STOP -> CULLING stop-asked\n"
                                  "CULLING VERDICT -> STOPPING 1s code=9 TERMINATE\n"
                                  "CULLING SIGNAL -> STOPPING 30s code=130 LEAVE TERMINATE\n"
                                  "CULLING LOST -> STOPPING 1s code=9 TERMINATE\n"
                                  "CULLING DEADLINE -> OVER code=138 LEAVE NAME_STUCK EXIT\n"
                                  "CULLING CLEANED -> CULLING\n"
                                  "STOPPING FAILURE -> STOPPING REPORT_FAILED\n"
                                  "STOPPING EMPTY -> HALTED\n"
                                  "STOPPING STOP -> STOPPING stop-asked\n"
                                  "STOPPING VERDICT -> STOPPING code=9\n"
                                  "STOPPING SIGNAL -> STOPPING code=130 LEAVE\n"
                                  "STOPPING LOST -> STOPPING code=9\n"
                                  "STOPPING DEADLINE -> KILLING 20s KILL\n"
                                  "STOPPING CLEANED -> STOPPING\n"
                                  "KILLING EMPTY -> HALTED\n"
                                  "KILLING STOP -> KILLING stop-asked\n"
                                  "KILLING VERDICT -> KILLING code=9\n"
                                  "KILLING SIGNAL -> KILLING code=130 LEAVE\n"
                                  "KILLING LOST -> KILLING code=9\n"
                                  "KILLING DEADLINE -> OVER code=138 LEAVE NAME_STUCK EXIT\n"
                                  "KILLING CLEANED -> KILLING\n"
                                  "CLEANING STOP -> CLEANING\n"
                                  "CLEANING VERDICT -> OVER code=9 LEAVE EXIT\n"
                                  "CLEANING SIGNAL -> OVER code=130 LEAVE EXIT\n"
                                  "CLEANING LOST -> OVER code=9 LEAVE EXIT\n"
                                  "CLEANING DEADLINE -> WAITING REPORT_STOPPED\n"
                                  "CLEANING CLEANED -> WAITING REPORT_STOPPED\n"
                                  "HALTED STOP -> CLEANING 5s CLEAN\n"
                                  "HALTED VERDICT -> OVER code=9 LEAVE EXIT\n"
                                  "HALTED SIGNAL -> OVER code=130 LEAVE EXIT\n"
                                  "HALTED LOST -> OVER code=9 LEAVE EXIT\n"
                                  "HALTED CLEANED -> HALTED\n"
                                  "DONE STOP -> STOPPING 1s stop-asked TERMINATE\n"
                                  "DONE VERDICT -> STOPPING 1s code=9 TERMINATE\n"
                                  "DONE SIGNAL -> STOPPING 30s code=130 LEAVE TERMINATE\n"
                                  "DONE LOST -> STOPPING 1s code=0 TERMINATE\n"
                                  "DONE CLEANED -> DONE\n"
                                  "OVER WORLD -> OVER\n"
                                  "OVER FAILURE -> OVER\n"
                                  "OVER SUCCESS -> OVER\n"
                                  "OVER EMPTY -> OVER\n"
                                  "OVER STOP -> OVER\n"
                                  "OVER VERDICT -> OVER\n"
                                  "OVER SIGNAL -> OVER REMIND\n"
                                  "OVER LOST -> OVER\n"
                                  "OVER DEADLINE -> OVER\n"
                                  "OVER CLEANED -> OVER\n";

static void every_cell(void **state)
{
    (void)state;
    struct buffer text = {0};
    for (int s = 0; s < GROUP_STATE_COUNT; s++)
        for (int e = 0; e < GROUP_EVENT_COUNT; e++)
            format_cell(s, e, &text);
    assert_false(text.failed);
    assert_string_equal(text.data, whole_table);
    buffer_free(&text);
}

static void names(void **state)
{
    (void)state;
    assert_string_equal(worker_group_state_name(GROUP_STATE_COUNT), "?");
    assert_string_equal(worker_group_event_name(GROUP_EVENT_COUNT), "?");
    assert_string_equal(worker_group_action_name(GROUP_ACTION_COUNT), "?");
    struct worker_group group = fresh(GROUP_RUNNING);
    unsigned actions;
    assert_int_equal(worker_group_step(&group, &(struct worker_group_event){.kind = GROUP_EVENT_COUNT},
                                       (struct instant){0}, &actions, NULL),
                     -1);
}

static unsigned step(struct worker_group *group, struct worker_group_event event, int64_t at_s)
{
    unsigned actions;
    assert_int_equal(worker_group_step(group, &event, (struct instant){at_s * NS_PER_S}, &actions, NULL), 0);
    return actions;
}

#define BIT(action) (1u << (action))

static void restart_goes_round(void **state)
{
    (void)state;
    struct worker_group group = fresh(GROUP_WAITING);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(step(&group, (struct worker_group_event){.kind = GROUP_WORLD}, 0), BIT(GROUP_START));
        (void)step(&group, (struct worker_group_event){.kind = GROUP_FAILURE}, 1);
        assert_true(worker_group_wants_empty(&group));
        assert_int_equal(group.signal, SIGTERM);
        assert_int_equal(step(&group, (struct worker_group_event){.kind = GROUP_STOP}, 1), 0);
        assert_int_equal(step(&group, (struct worker_group_event){.kind = GROUP_EMPTY}, 1), BIT(GROUP_CLEAN));
        assert_int_equal(group.state, GROUP_CLEANING);
        assert_int_equal(step(&group, (struct worker_group_event){.kind = GROUP_CLEANED}, 1),
                         BIT(GROUP_REPORT_STOPPED));
        assert_int_equal(group.state, GROUP_WAITING);
        assert_int_equal(group.deadline.ns, INSTANT_NEVER.ns);
        assert_false(group.stop_asked);
    }
}

/* The word of the server may come after the last worker has gone. */
static void stop_after_empty(void **state)
{
    (void)state;
    struct worker_group group = fresh(GROUP_RUNNING);
    (void)step(&group, (struct worker_group_event){.kind = GROUP_FAILURE}, 0);
    (void)step(&group, (struct worker_group_event){.kind = GROUP_EMPTY}, 0);
    assert_int_equal(group.state, GROUP_HALTED);
    assert_false(worker_group_wants_empty(&group));
    assert_int_equal(step(&group, (struct worker_group_event){.kind = GROUP_STOP}, 0), BIT(GROUP_CLEAN));
}

static void second_signal_changes_nothing(void **state)
{
    (void)state;
    struct worker_group group = fresh(GROUP_RUNNING);
    (void)step(&group, (struct worker_group_event){.kind = GROUP_SIGNAL, .signal = SIGTERM}, 10);
    struct worker_group before = group;
    unsigned actions = step(&group, (struct worker_group_event){.kind = GROUP_SIGNAL, .signal = SIGINT}, 11);
    assert_int_equal(actions, BIT(GROUP_LEAVE) | BIT(GROUP_REMIND));
    assert_memory_equal(&group, &before, sizeof group);
    assert_int_equal(group.deadline.ns, 40 * NS_PER_S);
    assert_int_equal(step(&group, (struct worker_group_event){.kind = GROUP_DEADLINE}, 40), BIT(GROUP_KILL));
    (void)step(&group, (struct worker_group_event){.kind = GROUP_SIGNAL, .signal = SIGINT}, 41);
    assert_int_equal(group.state, GROUP_KILLING);
    assert_int_equal(step(&group, (struct worker_group_event){.kind = GROUP_EMPTY}, 42),
                     BIT(GROUP_LEAVE) | BIT(GROUP_EXIT));
    assert_int_equal(group.exit_code, 143);
}

/* In an elastic job the others go on, and all may save first. */
static void an_agent_that_drains(void **state)
{
    (void)state;
    struct worker_group group = fresh(GROUP_RUNNING);
    group.drains = true;
    struct worker_group_event term = {.kind = GROUP_SIGNAL, .signal = SIGTERM};
    assert_int_equal(step(&group, term, 10), BIT(GROUP_DRAIN));
    assert_int_equal(group.state, GROUP_DRAINING);
    assert_int_equal(group.deadline.ns, 11 * NS_PER_S);
    struct worker_group unanswered = group;
    struct worker_group_event stop = {.kind = GROUP_STOP, .grace_ns = 25 * NS_PER_S};
    assert_int_equal(step(&group, stop, 10), BIT(GROUP_TERMINATE));
    assert_int_equal(group.deadline.ns, 35 * NS_PER_S);
    assert_int_equal(step(&group, (struct worker_group_event){.kind = GROUP_EMPTY}, 20),
                     BIT(GROUP_LEAVE) | BIT(GROUP_EXIT));
    assert_int_equal(group.exit_code, 143);
    /* nobody answers */
    assert_int_equal(step(&unanswered, (struct worker_group_event){.kind = GROUP_DEADLINE}, 11),
                     BIT(GROUP_LEAVE) | BIT(GROUP_TERMINATE));
    assert_int_equal(unanswered.deadline.ns, 41 * NS_PER_S);
    /* a planned stop is under way: it leaves when its workers have ended */
    group = fresh(GROUP_RUNNING);
    group.drains = true;
    (void)step(&group, stop, 10);
    assert_int_equal(step(&group, term, 11), BIT(GROUP_DRAIN));
    assert_int_equal(step(&group, (struct worker_group_event){.kind = GROUP_EMPTY}, 20),
                     BIT(GROUP_LEAVE) | BIT(GROUP_EXIT));
}

/* Workers that listen are told before a planned stop, and only then. */
static void who_listens_gets_time_to_save(void **state)
{
    (void)state;
    struct worker_group group = fresh(GROUP_RUNNING);
    struct worker_group_event stop = {.kind = GROUP_STOP, .planned = true, .grace_ns = 20 * NS_PER_S};
    group.listens = true;
    struct worker_group silent = group, failed = group;
    assert_int_equal(step(&group, stop, 100), BIT(GROUP_ANNOUNCE));
    assert_int_equal(group.state, GROUP_SAVING);
    assert_int_equal(group.deadline.ns, 119 * NS_PER_S); /* restart_grace_ns before the KILL */
    assert_false(worker_group_wants_empty(&group));
    struct worker_group late = group;
    /* they ended in time: their remaining processes are asked to end, with no less time than promised */
    assert_int_equal(step(&group, (struct worker_group_event){.kind = GROUP_SUCCESS}, 103),
                     BIT(GROUP_TERMINATE));
    assert_int_equal(group.deadline.ns, 120 * NS_PER_S);
    assert_int_equal(group.signal, SIGTERM);
    assert_int_equal(step(&group, (struct worker_group_event){.kind = GROUP_EMPTY}, 103), BIT(GROUP_CLEAN));
    /* they did not */
    assert_int_equal(step(&late, (struct worker_group_event){.kind = GROUP_DEADLINE}, 119),
                     BIT(GROUP_TERMINATE));
    assert_int_equal(late.deadline.ns, 120 * NS_PER_S);
    /* nobody listens: the grace of this node is the limit */
    silent.listens = false;
    stop.grace_ns = 600 * NS_PER_S;
    assert_int_equal(step(&silent, stop, 100), BIT(GROUP_TERMINATE));
    assert_int_equal(silent.deadline.ns, 130 * NS_PER_S);
    /* a failure leaves no time: the others are inside of a collective */
    stop = (struct worker_group_event){.kind = GROUP_STOP};
    assert_int_equal(step(&failed, stop, 100), BIT(GROUP_TERMINATE));
    assert_int_equal(failed.deadline.ns, 101 * NS_PER_S);
}

static const struct worker_group_event failure = {.kind = GROUP_FAILURE}, stopped = {.kind = GROUP_STOP},
                                       none_left = {.kind = GROUP_EMPTY}, tidied = {.kind = GROUP_CLEANED},
                                       formed = {.kind = GROUP_WORLD};

/* After a failure, up to the wait for the next world, with workers that have answered. */
static struct worker_group held(void)
{
    struct worker_group group = fresh(GROUP_RUNNING);
    group.keeps = group.holds = true;
    group.hold_ns = 2 * NS_PER_S;
    assert_int_equal(step(&group, failure, 100), BIT(GROUP_REPORT_FAILED) | BIT(GROUP_HOLD));
    assert_true(worker_group_is_holding(&group) && worker_group_wants_empty(&group));
    assert_int_equal(group.deadline.ns, 102 * NS_PER_S);
    (void)step(&group, stopped, 100);
    assert_int_equal(step(&group, none_left, 101), BIT(GROUP_CLEAN));
    assert_int_equal(step(&group, tidied, 101), BIT(GROUP_REPORT_STOPPED));
    assert_int_equal(group.state, GROUP_WAITING);
    return group;
}

static void who_can_stay_is_not_stopped(void **state)
{
    (void)state;
    struct worker_group group = held(), elsewhere = held(), ends = held();
    assert_int_equal(step(&group, formed, 103), BIT(GROUP_START));
    assert_int_equal(group.state, GROUP_RUNNING);
    /* the other nodes' STOP holds them too, and one that does not answer is killed alone */
    assert_int_equal(step(&group, stopped, 110), BIT(GROUP_HOLD));
    assert_int_equal(step(&group, (struct worker_group_event){.kind = GROUP_DEADLINE}, 112), BIT(GROUP_CULL));
    assert_int_equal(step(&group, none_left, 112), BIT(GROUP_CLEAN));
    /* a place that is not theirs: they end before the workers of the new round are started */
    struct worker_group_event world = formed;
    world.elsewhere = true;
    assert_int_equal(step(&elsewhere, world, 103), BIT(GROUP_TERMINATE));
    assert_true(elsewhere.planned); /* their end is no failure */
    struct worker_group over_again = elsewhere;
    assert_int_equal(step(&elsewhere, none_left, 104), BIT(GROUP_START));
    assert_int_equal(elsewhere.state, GROUP_RUNNING);
    assert_false(elsewhere.planned);
    (void)step(&over_again, stopped, 104); /* and that round is over before it began */
    assert_int_equal(step(&over_again, none_left, 104), BIT(GROUP_CLEAN));
    /* the agent leaves after them */
    struct worker_group_event term = {.kind = GROUP_SIGNAL, .signal = SIGTERM};
    assert_int_equal(step(&ends, term, 103), BIT(GROUP_TERMINATE));
    assert_int_equal(step(&ends, none_left, 104), BIT(GROUP_LEAVE) | BIT(GROUP_EXIT));
    assert_int_equal(ends.exit_code, 143);
}

/* A node that leaves is replaced by a spare: the workers of the others stay, its own end at once. */
static void who_moves_is_not_asked_to_save(void **state)
{
    (void)state;
    struct worker_group group = fresh(GROUP_RUNNING), leaves = group;
    const struct worker_group_event stop = {
        .kind = GROUP_STOP, .planned = true, .moves = true, .grace_ns = 20 * NS_PER_S};
    group.keeps = group.holds = group.listens = true;
    group.hold_ns = 2 * NS_PER_S;
    struct worker_group others = group;
    assert_int_equal(step(&group, stop, 100), BIT(GROUP_HOLD));
    others.keeps = false; /* none of them can stay */
    assert_int_equal(step(&others, stop, 100), BIT(GROUP_ANNOUNCE));
    leaves.drains = leaves.keeps = leaves.listens = true;
    (void)step(&leaves, (struct worker_group_event){.kind = GROUP_SIGNAL, .signal = SIGTERM}, 100);
    assert_int_equal(step(&leaves, stop, 100), BIT(GROUP_TERMINATE));
    assert_int_equal(leaves.deadline.ns, 101 * NS_PER_S);
}

static void the_agents_own_time_is_the_limit(void **state)
{
    (void)state;
    struct worker_group group = fresh(GROUP_RUNNING);
    struct worker_group_event stop = {.kind = GROUP_STOP, .planned = true, .grace_ns = 600 * NS_PER_S};
    struct worker_group_event term = {.kind = GROUP_SIGNAL, .signal = SIGTERM};
    group.listens = group.drains = true;
    (void)step(&group, stop, 0);
    assert_int_equal(group.deadline.ns, 599 * NS_PER_S);
    assert_int_equal(step(&group, term, 10), BIT(GROUP_DRAIN) | BIT(GROUP_ANNOUNCE));
    assert_int_equal(group.deadline.ns, 39 * NS_PER_S);
    assert_int_equal(step(&group, term, 20), BIT(GROUP_DRAIN) | BIT(GROUP_REMIND)); /* and no further */
    assert_int_equal(group.deadline.ns, 39 * NS_PER_S);
    (void)step(&group, (struct worker_group_event){.kind = GROUP_DEADLINE}, 39);
    assert_int_equal(group.deadline.ns, 40 * NS_PER_S);
    /* a worker asked alone: at most half of a short grace is kept for processes that do not end */
    group = fresh(GROUP_RUNNING);
    group.listens = true;
    group.shutdown_grace_ns = NS_PER_S;
    assert_int_equal(step(&group, term, 0), BIT(GROUP_LEAVE) | BIT(GROUP_ANNOUNCE));
    assert_int_equal(group.deadline.ns, NS_PER_S / 2);
    /* and with no grace there is none */
    group = fresh(GROUP_RUNNING);
    group.listens = true;
    group.shutdown_grace_ns = 0;
    assert_int_equal(step(&group, term, 0), BIT(GROUP_LEAVE) | BIT(GROUP_TERMINATE));
    /* a drain with an answer, and a drain without */
    group = fresh(GROUP_RUNNING);
    group.listens = group.drains = true;
    (void)step(&group, term, 0);
    struct worker_group alone = group;
    stop.grace_ns = 30 * NS_PER_S;
    assert_int_equal(step(&group, stop, 0), BIT(GROUP_ANNOUNCE));
    assert_int_equal(step(&alone, (struct worker_group_event){.kind = GROUP_DEADLINE}, 1),
                     BIT(GROUP_LEAVE) | BIT(GROUP_ANNOUNCE));
}

/* Nodes of a static job end together, each with the time that it was given. */
static void a_static_job_saves_on_all_nodes(void **state)
{
    (void)state;
    struct worker_group group = fresh(GROUP_RUNNING), deaf;
    struct worker_group_event stop = {.kind = GROUP_STOP, .planned = true, .grace_ns = 30 * NS_PER_S};
    struct worker_group_event term = {.kind = GROUP_SIGNAL, .signal = SIGTERM};
    group.ends_together = true;
    deaf = group;
    group.listens = true;
    struct worker_group other = group;
    assert_int_equal(step(&deaf, term, 0), BIT(GROUP_LEAVE) | BIT(GROUP_TERMINATE));
    assert_int_equal(step(&group, term, 0), BIT(GROUP_DRAIN));
    assert_int_equal(step(&group, stop, 0), BIT(GROUP_ANNOUNCE));
    assert_int_equal(step(&group, term, 1), BIT(GROUP_DRAIN) | BIT(GROUP_REMIND)); /* not LEAVE yet */
    /* the other node is asked to end a moment later: the two words cross */
    assert_int_equal(step(&other, stop, 0), BIT(GROUP_ANNOUNCE));
    assert_int_equal(step(&other, term, 1), BIT(GROUP_DRAIN));
    /* the verdict does not shorten the promised time */
    assert_int_equal(step(&other, (struct worker_group_event){.kind = GROUP_VERDICT, .exit_code = 143}, 5),
                     0);
    assert_int_equal(other.deadline.ns, 29 * NS_PER_S);
    (void)step(&other, (struct worker_group_event){.kind = GROUP_SUCCESS}, 6);
    assert_int_equal(step(&other, (struct worker_group_event){.kind = GROUP_EMPTY}, 6),
                     BIT(GROUP_LEAVE) | BIT(GROUP_EXIT));
    assert_int_equal(other.exit_code, 143);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_listens_gets_time_to_save),
        cmocka_unit_test(who_can_stay_is_not_stopped),
        cmocka_unit_test(who_moves_is_not_asked_to_save),
        cmocka_unit_test(the_agents_own_time_is_the_limit),
        cmocka_unit_test(a_static_job_saves_on_all_nodes),
        cmocka_unit_test(every_cell),
        cmocka_unit_test(names),
        cmocka_unit_test(restart_goes_round),
        cmocka_unit_test(stop_after_empty),
        cmocka_unit_test(second_signal_changes_nothing),
        cmocka_unit_test(an_agent_that_drains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
