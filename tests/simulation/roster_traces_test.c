/* roster_traces_test.c - the life of a job as text: each scenario's trace, with its times, is the test and
 * the documentation. */
#include <string.h>

#include "tests/simulation/expect_trace.h"
#include "tests/support/cmocka_all.h"

static void two_nodes_form_and_finish(void **state)
{
    (void)state;
    struct cluster *c =
        cluster_create(&(struct cluster_options){.trace = true, .nodes = 2, .local_world_size = {2, 3}});
    cluster_start(c, 0, 0);
    cluster_start(c, 50, 1);
    cluster_finish(c, 1000, 0);
    cluster_finish(c, 1500, 1);
    expect_trace(c, 10000,
                 "0.000 node0 joins as node rank 0\n"
                 "0.050 node1 joins as node rank 1\n"
                 "0.051 job FORMING -> STARTING\n"
                 "0.051 node0 starts workers 0-1 of 5, round 0\n"
                 "0.052 node1 starts workers 2-4 of 5, round 0\n"
                 "0.153 job STARTING -> RUNNING\n"
                 "1.000 node0 is done\n"
                 "1.500 node1 is done\n"
                 "1.501 job RUNNING -> FINISHING\n"
                 "1.502 node1 verdict 0: all workers exited 0\n"
                 "1.503 job FINISHING -> FINISHED\n"
                 "1.503 node0 verdict 0: all workers exited 0\n"
                 "1.507 node1 exits 0\n"
                 "1.508 node0 exits 0\n");
    assert_int_equal(cluster_exit_code(c, 0), 0);
    assert_int_equal(cluster_exit_code(c, 1), 0);
    cluster_destroy(c);
}

static void a_worker_dies_and_the_world_forms_again(void **state)
{
    (void)state;
    struct cluster *c =
        cluster_create(&(struct cluster_options){.trace = true, .nodes = 2, .max_restarts = 1});
    cluster_start(c, 0, 0);
    cluster_start(c, 0, 1);
    cluster_kill(c, 1000, 1);
    cluster_kill(c, 2000, 0);
    expect_trace(c, 10000,
                 "0.000 node0 joins as node rank 0\n"
                 "0.000 node1 joins as node rank 1\n"
                 "0.001 job FORMING -> STARTING\n"
                 "0.001 node0 starts workers 0-0 of 2, round 0\n"
                 "0.002 node1 starts workers 1-1 of 2, round 0\n"
                 "0.103 job STARTING -> RUNNING\n"
                 "1.000 node1 a worker is killed\n"
                 "1.001 job RUNNING -> STOPPING\n"
                 "1.001 node0 stops round 0: rank 1 (pid 1001 on node1) was killed by signal 9 (SIGKILL): "
                 "restart 1 of 1\n"
                 "1.002 node1 stops round 0: rank 1 (pid 1001 on node1) was killed by signal 9 (SIGKILL): "
                 "restart 1 of 1\n"
                 "1.101 job STOPPING -> STARTING\n"
                 "1.101 node0 starts workers 0-0 of 2, round 1\n"
                 "1.102 node1 starts workers 1-1 of 2, round 1\n"
                 "1.203 job STARTING -> RUNNING\n"
                 "2.000 node0 a worker is killed\n"
                 "2.000 job RUNNING -> STOPPING\n"
                 "2.000 node0 stops round 1: rank 0 (pid 1000 on node0) was killed by signal 9 (SIGKILL): no "
                 "restarts left\n"
                 "2.001 node1 stops round 1: rank 0 (pid 1000 on node0) was killed by signal 9 (SIGKILL): no "
                 "restarts left\n"
                 "2.102 job STOPPING -> FINISHING\n"
                 "2.103 node1 verdict 137: rank 0 (pid 1000 on node0) was killed by signal 9 (SIGKILL); "
                 "restarts used: 1 of 1\n"
                 "2.104 job FINISHING -> FINISHED\n"
                 "2.104 node0 verdict 137: rank 0 (pid 1000 on node0) was killed by signal 9 (SIGKILL); "
                 "restarts used: 1 of 1\n"
                 "2.108 node1 exits 137\n"
                 "2.109 node0 exits 137\n");
    cluster_destroy(c);
}

/* Before that a loss is looked for elsewhere. */
static void a_node_is_done_and_another_one_needs_it(void **state)
{
    (void)state;
    struct cluster *c =
        cluster_create(&(struct cluster_options){.trace = true, .nodes = 3, .max_restarts = 1});
    for (int i = 0; i < 3; i++)
        cluster_start(c, 0, i);
    cluster_miss(c, 1000, 2);
    cluster_finish(c, 1500, 1);
    cluster_miss(c, 2000, 2);
    for (int i = 0; i < 3; i++)
        cluster_finish(c, 3000, i);
    expect_trace(c, 10000,
                 "0.000 node0 joins as node rank 0\n"
                 "0.000 node1 joins as node rank 1\n"
                 "0.000 node2 joins as node rank 2\n"
                 "0.001 job FORMING -> STARTING\n"
                 "0.001 node0 starts workers 0-0 of 3, round 0\n"
                 "0.002 node1 starts workers 1-1 of 3, round 0\n"
                 "0.002 node2 starts workers 2-2 of 3, round 0\n"
                 "0.103 job STARTING -> RUNNING\n"
                 "1.000 node2 a worker misses its peer\n"
                 "1.500 node1 is done\n"
                 "2.000 node2 a worker misses its peer\n"
                 "2.001 job RUNNING -> STOPPING\n"
                 "2.001 node0 stops round 0: "
                 "rank 1 (on node1) exited with code 1: its own code was "
                 "0, but rank 2 still needs its node: restart 1 of 1\n"
                 "2.002 node1 stops round 0: "
                 "rank 1 (on node1) exited with code 1: its own code was "
                 "0, but rank 2 still needs its node: restart 1 of 1\n"
                 "2.002 node2 stops round 0: "
                 "rank 1 (on node1) exited with code 1: its own code was "
                 "0, but rank 2 still needs its node: restart 1 of 1\n"
                 "2.103 job STOPPING -> STARTING\n"
                 "2.103 node0 starts workers 0-0 of 3, round 1\n"
                 "2.104 node1 starts workers 1-1 of 3, round 1\n"
                 "2.104 node2 starts workers 2-2 of 3, round 1\n"
                 "2.205 job STARTING -> RUNNING\n"
                 "3.000 node0 is done\n"
                 "3.000 node1 is done\n"
                 "3.000 node2 is done\n"
                 "3.001 job RUNNING -> FINISHING\n"
                 "3.002 node1 verdict 0: all workers exited 0\n"
                 "3.002 node2 verdict 0: all workers exited 0\n"
                 "3.003 job FINISHING -> FINISHED\n"
                 "3.003 node0 verdict 0: all workers exited 0\n"
                 "3.007 node1 exits 0\n"
                 "3.007 node2 exits 0\n"
                 "3.008 node0 exits 0\n");
    cluster_destroy(c);
}

/* Its rank was the lost peer, so the node that is done is not blamed. */
static void a_node_is_done_and_another_one_is_lost(void **state)
{
    (void)state;
    struct cluster *c =
        cluster_create(&(struct cluster_options){.trace = true, .nodes = 4, .max_restarts = 1});
    for (int i = 0; i < 4; i++)
        cluster_start(c, 0, i);
    cluster_finish(c, 500, 1);
    cluster_cut(c, 1000, 3);
    for (int at = 1500; at < 3500; at += 500)
        cluster_miss(c, at, 2);
    expect_trace(c, 4000,
                 "0.000 node0 joins as node rank 0\n"
                 "0.000 node1 joins as node rank 1\n"
                 "0.000 node2 joins as node rank 2\n"
                 "0.000 node3 joins as node rank 3\n"
                 "0.001 job FORMING -> STARTING\n"
                 "0.001 node0 starts workers 0-0 of 4, round 0\n"
                 "0.002 node1 starts workers 1-1 of 4, round 0\n"
                 "0.002 node2 starts workers 2-2 of 4, round 0\n"
                 "0.002 node3 starts workers 3-3 of 4, round 0\n"
                 "0.103 job STARTING -> RUNNING\n"
                 "0.500 node1 is done\n"
                 "1.000 node3 is cut off\n"
                 "1.500 node2 a worker misses its peer\n"
                 "2.000 node2 a worker misses its peer\n"
                 "2.500 node2 a worker misses its peer\n"
                 "3.000 node2 a worker misses its peer\n"
                 "3.003 job RUNNING -> STOPPING\n"
                 "3.003 node0 stops round 0: node rank 3 (node3) is lost: restart 1 of 1\n"
                 "3.004 node1 stops round 0: node rank 3 (node3) is lost: restart 1 of 1\n"
                 "3.004 node2 stops round 0: node rank 3 (node3) is lost: restart 1 of 1\n"
                 "3.105 job STOPPING -> FORMING\n");
    cluster_destroy(c);
}

static void two_agents_claim_one_rank(void **state)
{
    (void)state;
    struct cluster *c = cluster_create(&(struct cluster_options){.trace = true, .nodes = 2});
    cluster_start(c, 0, 0);
    cluster_start(c, 0, 1);
    cluster_claim(c, 500, 2, 1);
    cluster_finish(c, 1000, 0);
    cluster_finish(c, 1000, 1);
    expect_trace(c, 10000,
                 "0.000 node0 joins as node rank 0\n"
                 "0.000 node1 joins as node rank 1\n"
                 "0.001 job FORMING -> STARTING\n"
                 "0.001 node0 starts workers 0-0 of 2, round 0\n"
                 "0.002 node1 starts workers 1-1 of 2, round 0\n"
                 "0.103 job STARTING -> RUNNING\n"
                 "0.500 node2 joins as node rank 1\n"
                 "0.502 node2 refused: node rank 1 is held by agent \"node1\", which is alive; agent "
                 "\"node2\" claims it too: give every node its own --node-rank\n"
                 "0.507 node2 exits 1\n"
                 "1.000 node0 is done\n"
                 "1.000 node1 is done\n"
                 "1.001 job RUNNING -> FINISHING\n"
                 "1.002 node1 verdict 0: all workers exited 0\n"
                 "1.003 job FINISHING -> FINISHED\n"
                 "1.003 node0 verdict 0: all workers exited 0\n"
                 "1.007 node1 exits 0\n"
                 "1.008 node0 exits 0\n");
    cluster_destroy(c);
}

static void one_never_joins(void **state)
{
    (void)state;
    struct cluster *c =
        cluster_create(&(struct cluster_options){.trace = true, .nodes = 4, .join_timeout_ns = 5 * NS_PER_S});
    cluster_start(c, 0, 0);
    cluster_start(c, 0, 2);
    cluster_start(c, 1000, 3);
    cluster_term(c, 2000, 3);
    expect_trace(c, 20000,
                 "0.000 node0 joins as node rank 0\n"
                 "0.000 node2 joins as node rank 2\n"
                 "1.000 node3 joins as node rank 3\n"
                 "2.000 node3 gets TERM\n"
                 "2.005 node3 exits 143\n"
                 "5.000 job FORMING -> FINISHING\n"
                 "5.001 node2 verdict 138: 2 of 4 nodes joined within 5 s (--join-timeout); missing ranks "
                 "1, 3 (last held by \"node3\")\n"
                 "5.002 job FINISHING -> FINISHED\n"
                 "5.002 node0 verdict 138: 2 of 4 nodes joined within 5 s (--join-timeout); missing ranks "
                 "1, 3 (last held by \"node3\")\n"
                 "5.006 node2 exits 138\n"
                 "5.007 node0 exits 138\n");
    cluster_destroy(c);
}

static void a_node_is_lost_and_comes_back(void **state)
{
    (void)state;
    struct cluster *c =
        cluster_create(&(struct cluster_options){.trace = true, .nodes = 2, .max_restarts = 1});
    cluster_start(c, 0, 0);
    cluster_start(c, 0, 1);
    cluster_crash(c, 1000, 1);
    cluster_start(c, 6000, 1);
    cluster_finish(c, 8000, 0);
    cluster_finish(c, 8000, 1);
    expect_trace(c, 20000,
                 "0.000 node0 joins as node rank 0\n"
                 "0.000 node1 joins as node rank 1\n"
                 "0.001 job FORMING -> STARTING\n"
                 "0.001 node0 starts workers 0-0 of 2, round 0\n"
                 "0.002 node1 starts workers 1-1 of 2, round 0\n"
                 "0.103 job STARTING -> RUNNING\n"
                 "1.000 node1 crashes\n"
                 "2.001 job RUNNING -> STOPPING\n"
                 "2.001 node0 stops round 0: node rank 1 (node1) is lost: restart 1 of 1\n"
                 "2.101 job STOPPING -> FORMING\n"
                 "6.000 node1 joins as node rank 1\n"
                 "6.003 job FORMING -> STARTING\n"
                 "6.003 node0 starts workers 0-0 of 2, round 1\n"
                 "6.004 node1 starts workers 1-1 of 2, round 1\n"
                 "6.105 job STARTING -> RUNNING\n"
                 "8.000 node0 is done\n"
                 "8.000 node1 is done\n"
                 "8.001 job RUNNING -> FINISHING\n"
                 "8.002 node1 verdict 0: all workers exited 0\n"
                 "8.003 job FINISHING -> FINISHED\n"
                 "8.003 node0 verdict 0: all workers exited 0\n"
                 "8.007 node1 exits 0\n"
                 "8.008 node0 exits 0\n");
    cluster_destroy(c);
}

/* A power cut: the peers' connections fail at once, the node's silence is known later. The verdict waits. */
static void a_lost_node_wins_over_those_that_follow(void **state)
{
    (void)state;
    struct cluster *c = cluster_create(&(struct cluster_options){.trace = true, .nodes = 3});
    for (int i = 0; i < 3; i++)
        cluster_start(c, 0, i);
    cluster_crash(c, 1000, 2);
    cluster_follow(c, 1001, 0);
    cluster_follow(c, 1002, 1);
    expect_trace(
        c, 20000,
        "0.000 node0 joins as node rank 0\n"
        "0.000 node1 joins as node rank 1\n"
        "0.000 node2 joins as node rank 2\n"
        "0.001 job FORMING -> STARTING\n"
        "0.001 node0 starts workers 0-0 of 3, round 0\n"
        "0.002 node1 starts workers 1-1 of 3, round 0\n"
        "0.002 node2 starts workers 2-2 of 3, round 0\n"
        "0.103 job STARTING -> RUNNING\n"
        "1.000 node2 crashes\n"
        "1.001 node0 a worker loses its peer\n"
        "1.001 job RUNNING -> STOPPING\n"
        "1.001 node0 stops round 0: rank 0 (pid 1000 on node0) exited with code 1: no restarts left\n"
        "1.002 node1 a worker loses its peer\n"
        "1.002 node1 stops round 0: rank 0 (pid 1000 on node0) exited with code 1: no restarts left\n"
        "2.001 job STOPPING -> FINISHING\n"
        "2.002 node1 verdict 138: node rank 2 (node2) is lost; restarts used: 0 of 0\n"
        "2.003 job FINISHING -> FINISHED\n"
        "2.003 node0 verdict 138: node rank 2 (node2) is lost; restarts used: 0 of 0\n"
        "2.007 node1 exits 138\n"
        "2.008 node0 exits 138\n");
    cluster_destroy(c);
}

/* The server's own node is heard of first, and the cause last. */
static void a_signal_wins_over_what_was_heard_before(void **state)
{
    (void)state;
    struct cluster *c = cluster_create(&(struct cluster_options){.trace = true, .nodes = 3});
    for (int i = 0; i < 3; i++)
        cluster_start(c, 0, i);
    cluster_follow(c, 1000, 0);
    cluster_follow(c, 1000, 1);
    cluster_kill(c, 1000, 2);
    expect_trace(
        c, 20000,
        "0.000 node0 joins as node rank 0\n"
        "0.000 node1 joins as node rank 1\n"
        "0.000 node2 joins as node rank 2\n"
        "0.001 job FORMING -> STARTING\n"
        "0.001 node0 starts workers 0-0 of 3, round 0\n"
        "0.002 node1 starts workers 1-1 of 3, round 0\n"
        "0.002 node2 starts workers 2-2 of 3, round 0\n"
        "0.103 job STARTING -> RUNNING\n"
        "1.000 node0 a worker loses its peer\n"
        "1.000 job RUNNING -> STOPPING\n"
        "1.000 node1 a worker loses its peer\n"
        "1.000 node2 a worker is killed\n"
        "1.000 node0 stops round 0: rank 0 (pid 1000 on node0) exited with code 1: no restarts left\n"
        "1.001 node1 stops round 0: rank 0 (pid 1000 on node0) exited with code 1: no restarts left\n"
        "1.001 node2 stops round 0: rank 0 (pid 1000 on node0) exited with code 1: no restarts left\n"
        "1.101 job STOPPING -> FINISHING\n"
        "1.102 node1 verdict 137: rank 2 (pid 1002 on node2) was killed by signal 9 (SIGKILL); "
        "restarts used: 0 of 0\n"
        "1.102 node2 verdict 137: rank 2 (pid 1002 on node2) was killed by signal 9 (SIGKILL); "
        "restarts used: 0 of 0\n"
        "1.103 job FINISHING -> FINISHED\n"
        "1.103 node0 verdict 137: rank 2 (pid 1002 on node2) was killed by signal 9 (SIGKILL); "
        "restarts used: 0 of 0\n"
        "1.107 node1 exits 137\n"
        "1.107 node2 exits 137\n"
        "1.108 node0 exits 137\n");
    cluster_destroy(c);
}

/* A late report keeps its own time: the first death is the first cause. */
static void a_report_that_waits_keeps_its_age(void **state)
{
    (void)state;
    struct cluster *c = cluster_create(&(struct cluster_options){.trace = true, .nodes = 3});
    for (int i = 0; i < 3; i++)
        cluster_start(c, 0, i);
    cluster_cut(c, 900, 1);
    cluster_kill(c, 1000, 1);
    cluster_kill(c, 1500, 2);
    cluster_heal(c, 2000, 1);
    cluster_run(c, 20000);
    assert_int_equal(cluster_broken(c, NULL), INVARIANT_NONE);
    assert_non_null(
        strstr(cluster_trace(c), "node0 verdict 137: rank 1 (pid 1001 on node1) was killed by signal 9"));
    cluster_destroy(c);
}

static void a_broken_connection_costs_nothing(void **state)
{
    (void)state;
    struct cluster *c =
        cluster_create(&(struct cluster_options){.trace = true, .nodes = 2, .max_restarts = 1});
    cluster_start(c, 0, 0);
    cluster_start(c, 0, 1);
    cluster_reset(c, 1000, 1);
    cluster_finish(c, 3000, 0);
    cluster_finish(c, 3000, 1);
    expect_trace(c, 20000,
                 "0.000 node0 joins as node rank 0\n"
                 "0.000 node1 joins as node rank 1\n"
                 "0.001 job FORMING -> STARTING\n"
                 "0.001 node0 starts workers 0-0 of 2, round 0\n"
                 "0.002 node1 starts workers 1-1 of 2, round 0\n"
                 "0.103 job STARTING -> RUNNING\n"
                 "1.000 node1 has its connection broken\n"
                 "3.000 node0 is done\n"
                 "3.000 node1 is done\n"
                 "3.001 job RUNNING -> FINISHING\n"
                 "3.002 node1 verdict 0: all workers exited 0\n"
                 "3.003 job FINISHING -> FINISHED\n"
                 "3.003 node0 verdict 0: all workers exited 0\n"
                 "3.007 node1 exits 0\n"
                 "3.008 node0 exits 0\n");
    cluster_destroy(c);
}

static void a_short_cut_costs_nothing(void **state)
{
    (void)state;
    struct cluster *c =
        cluster_create(&(struct cluster_options){.trace = true, .nodes = 2, .max_restarts = 1});
    cluster_start(c, 0, 0);
    cluster_start(c, 0, 1);
    cluster_cut(c, 1000, 1);
    cluster_finish(c, 1100, 1); /* cannot be told now, and is not forgotten */
    cluster_heal(c, 2000, 1);
    cluster_finish(c, 3000, 0);
    expect_trace(c, 20000,
                 "0.000 node0 joins as node rank 0\n"
                 "0.000 node1 joins as node rank 1\n"
                 "0.001 job FORMING -> STARTING\n"
                 "0.001 node0 starts workers 0-0 of 2, round 0\n"
                 "0.002 node1 starts workers 1-1 of 2, round 0\n"
                 "0.103 job STARTING -> RUNNING\n"
                 "1.000 node1 is cut off\n"
                 "1.100 node1 is done\n"
                 "2.000 node1 is connected again\n"
                 "3.000 node0 is done\n"
                 "3.000 job RUNNING -> FINISHING\n"
                 "3.001 node1 verdict 0: all workers exited 0\n"
                 "3.002 job FINISHING -> FINISHED\n"
                 "3.002 node0 verdict 0: all workers exited 0\n"
                 "3.006 node1 exits 0\n"
                 "3.007 node0 exits 0\n");
    cluster_destroy(c);
}

static void term_ends_the_job_with_143(void **state)
{
    (void)state;
    struct cluster *c =
        cluster_create(&(struct cluster_options){.trace = true, .nodes = 3, .max_restarts = 3});
    for (int i = 0; i < 3; i++)
        cluster_start(c, 0, i);
    cluster_term(c, 1000, 2);
    expect_trace(c, 20000,
                 "0.000 node0 joins as node rank 0\n"
                 "0.000 node1 joins as node rank 1\n"
                 "0.000 node2 joins as node rank 2\n"
                 "0.001 job FORMING -> STARTING\n"
                 "0.001 node0 starts workers 0-0 of 3, round 0\n"
                 "0.002 node1 starts workers 1-1 of 3, round 0\n"
                 "0.002 node2 starts workers 2-2 of 3, round 0\n"
                 "0.103 job STARTING -> RUNNING\n"
                 "1.000 node2 gets TERM\n"
                 "1.001 job RUNNING -> FINISHING\n"
                 "1.001 node0 stops round 0: agent \"node2\" (node rank 2) left with exit code 143\n"
                 "1.002 node1 verdict 143: agent \"node2\" (node rank 2) left with exit code 143\n"
                 "1.103 job FINISHING -> FINISHED\n"
                 "1.103 node0 verdict 143: agent \"node2\" (node rank 2) left with exit code 143\n"
                 "1.105 node2 exits 143\n"
                 "1.107 node1 exits 143\n"
                 "1.108 node0 exits 143\n");
    cluster_destroy(c);
}

static void an_elastic_world_grows_and_shrinks(void **state)
{
    (void)state;
    struct cluster *c = cluster_create(&(struct cluster_options){.trace = true,
                                                                 .elastic = true,
                                                                 .nodes = 3,
                                                                 .min_nodes = 2,
                                                                 .max_nodes = 3,
                                                                 .last_call_ns = 5 * NS_PER_S,
                                                                 .regroup_ns = 2 * NS_PER_S});
    cluster_start(c, 0, 0);
    cluster_start(c, 100, 1);
    cluster_start(c, 6000, 2);
    cluster_term(c, 9000, 1);
    cluster_finish(c, 10000, 0);
    cluster_finish(c, 10000, 2);
    expect_trace(
        c, 20000,
        "0.000 node0 joins\n"
        "0.100 node1 joins\n"
        "5.101 job FORMING -> STARTING\n"
        "5.101 node0 starts workers 0-0 of 2, round 0\n"
        "5.102 node1 starts workers 1-1 of 2, round 0\n"
        "5.203 job STARTING -> RUNNING\n"
        "6.000 node2 joins\n"
        "7.101 job RUNNING -> STOPPING\n"
        "7.101 node0 stops round 0: 1 more node joined: the world grows from 2 to 3\n"
        "7.102 node1 stops round 0: 1 more node joined: the world grows from 2 to 3\n"
        "7.203 job STOPPING -> STARTING\n"
        "7.203 node0 starts workers 0-0 of 3, round 1\n"
        "7.204 node1 starts workers 1-1 of 3, round 1\n"
        "7.204 node2 starts workers 2-2 of 3, round 1\n"
        "7.305 job STARTING -> RUNNING\n"
        "9.000 node1 gets TERM\n"
        "9.001 job RUNNING -> STOPPING\n"
        "9.001 node0 stops round 1: agent \"node1\" (node rank 1) leaves: the others continue without it\n"
        "9.002 node1 stops round 1: agent \"node1\" (node rank 1) leaves: the others continue without it\n"
        "9.002 node2 stops round 1: agent \"node1\" (node rank 1) leaves: the others continue without it\n"
        "9.103 job STOPPING -> STARTING\n"
        "9.103 node0 starts workers 0-0 of 2, round 2\n"
        "9.104 node2 starts workers 1-1 of 2, round 2\n"
        "9.107 node1 exits 143\n"
        "9.205 job STARTING -> RUNNING\n"
        "10.000 node0 is done\n"
        "10.000 node2 is done\n"
        "10.001 job RUNNING -> FINISHING\n"
        "10.002 node2 verdict 0: all workers exited 0\n"
        "10.003 job FINISHING -> FINISHED\n"
        "10.003 node0 verdict 0: all workers exited 0\n"
        "10.007 node2 exits 0\n"
        "10.008 node0 exits 0\n");
    cluster_destroy(c);
}

static void an_agent_without_an_answer_stops_when_its_lease_ends(void **state)
{
    (void)state;
    struct cluster *c = cluster_create(&(struct cluster_options){.trace = true,
                                                                 .elastic = true,
                                                                 .nodes = 2,
                                                                 .min_nodes = 1,
                                                                 .max_nodes = 2,
                                                                 .max_restarts = 1,
                                                                 .last_call_ns = 7 * NS_PER_S,
                                                                 .regroup_ns = 2 * NS_PER_S});
    cluster_start(c, 0, 0);
    cluster_start(c, 0, 1);
    cluster_cut(c, 1000, 1);
    cluster_heal(c, 8000, 1);
    cluster_finish(c, 13000, 0);
    cluster_finish(c, 13000, 1);
    expect_trace(c, 20000,
                 "0.000 node0 joins\n"
                 "0.000 node1 joins\n"
                 "0.001 job FORMING -> STARTING\n"
                 "0.001 node0 starts workers 0-0 of 2, round 0\n"
                 "0.002 node1 starts workers 1-1 of 2, round 0\n"
                 "0.103 job STARTING -> RUNNING\n"
                 "1.000 node1 is cut off\n"
                 "3.003 job RUNNING -> STOPPING\n"
                 "3.003 node0 stops round 0: node rank 1 (node1) is lost: restart 1 of 1\n"
                 "3.103 job STOPPING -> STARTING\n"
                 "3.103 node0 starts workers 0-0 of 1, round 1\n"
                 "3.203 job STARTING -> RUNNING\n"
                 "5.502 node1 stops round 0: the server node0 has not answered for 4.998 s: the others may "
                 "continue without this node\n"
                 "8.000 node1 is connected again\n"
                 "9.005 job RUNNING -> STOPPING\n"
                 "9.005 node0 stops round 1: 1 more node joined: the world grows from 1 to 2\n"
                 "9.105 job STOPPING -> STARTING\n"
                 "9.105 node0 starts workers 0-0 of 2, round 2\n"
                 "9.106 node1 starts workers 1-1 of 2, round 2\n"
                 "9.207 job STARTING -> RUNNING\n"
                 "13.000 node0 is done\n"
                 "13.000 node1 is done\n"
                 "13.001 job RUNNING -> FINISHING\n"
                 "13.002 node1 verdict 0: all workers exited 0\n"
                 "13.003 job FINISHING -> FINISHED\n"
                 "13.003 node0 verdict 0: all workers exited 0\n"
                 "13.007 node1 exits 0\n"
                 "13.008 node0 exits 0\n");
    cluster_destroy(c);
}

/* Its workers die with it. The others stop, and wait for it; the newcomer knows nothing, and goes on
 * counting. */
static void the_server_dies_and_comes_back(void **state)
{
    (void)state;
    struct cluster *c = cluster_create(&(struct cluster_options){
        .trace = true, .elastic = true, .nodes = 2, .min_nodes = 2, .max_nodes = 2, .max_restarts = 1});
    cluster_start(c, 0, 0);
    cluster_start(c, 0, 1);
    cluster_crash(c, 1000, 0);
    cluster_start(c, 4000, 0);
    cluster_finish(c, 30000, 0);
    cluster_finish(c, 30000, 1);
    expect_trace(c, 40000,
                 "0.000 node0 joins\n"
                 "0.000 node1 joins\n"
                 "0.001 job FORMING -> STARTING\n"
                 "0.001 node0 starts workers 0-0 of 2, round 0\n"
                 "0.002 node1 starts workers 1-1 of 2, round 0\n"
                 "0.103 job STARTING -> RUNNING\n"
                 "1.000 node0 crashes\n"
                 "2.000 node1 stops round 0: the server node0 has not answered for 1.496 s: the others may "
                 "continue without this node\n"
                 "4.000 node0 joins\n"
                 "4.005 job FORMING -> STARTING\n"
                 "4.005 node0 starts workers 0-0 of 2, round 1\n"
                 "4.006 node1 starts workers 1-1 of 2, round 1\n"
                 "4.107 job STARTING -> RUNNING\n"
                 "30.000 node0 is done\n"
                 "30.000 node1 is done\n"
                 "30.001 job RUNNING -> FINISHING\n"
                 "30.002 node1 verdict 0: all workers exited 0\n"
                 "30.003 job FINISHING -> FINISHED\n"
                 "30.003 node0 verdict 0: all workers exited 0\n"
                 "30.007 node1 exits 0\n"
                 "30.008 node0 exits 0\n");
    cluster_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_nodes_form_and_finish),
        cmocka_unit_test(a_worker_dies_and_the_world_forms_again),
        cmocka_unit_test(a_node_is_done_and_another_one_needs_it),
        cmocka_unit_test(a_node_is_done_and_another_one_is_lost),
        cmocka_unit_test(two_agents_claim_one_rank),
        cmocka_unit_test(one_never_joins),
        cmocka_unit_test(a_node_is_lost_and_comes_back),
        cmocka_unit_test(a_lost_node_wins_over_those_that_follow),
        cmocka_unit_test(a_signal_wins_over_what_was_heard_before),
        cmocka_unit_test(a_report_that_waits_keeps_its_age),
        cmocka_unit_test(a_broken_connection_costs_nothing),
        cmocka_unit_test(a_short_cut_costs_nothing),
        cmocka_unit_test(term_ends_the_job_with_143),
        cmocka_unit_test(an_elastic_world_grows_and_shrinks),
        cmocka_unit_test(an_agent_without_an_answer_stops_when_its_lease_ends),
        cmocka_unit_test(the_server_dies_and_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
