/* server_return_test.c - a job whose serving agent dies, or is asked to end, and is started again, as text.
 */
#include "tests/simulation/expect_trace.h"
#include "tests/support/cmocka_all.h"

static struct cluster *make(int nodes, int64_t max_restarts)
{
    struct cluster *c = cluster_create(
        &(struct cluster_options){.trace = true, .nodes = nodes, .max_restarts = max_restarts});
    for (int i = 0; i < nodes; i++)
        cluster_start(c, 0, i);
    return c;
}

static void while_it_runs(void **state)
{
    (void)state;
    struct cluster *c = make(2, 1);
    cluster_crash(c, 1000, 0);
    cluster_start(c, 20000, 0);
    for (int i = 0; i < 2; i++)
        cluster_finish(c, 30000, i);
    expect_trace(c, 60000,
                 "0.000 node0 joins as node rank 0\n"
                 "0.000 node1 joins as node rank 1\n"
                 "0.001 job FORMING -> STARTING\n"
                 "0.001 node0 starts workers 0-0 of 2, round 0\n"
                 "0.002 node1 starts workers 1-1 of 2, round 0\n"
                 "0.103 job STARTING -> RUNNING\n"
                 "1.000 node0 crashes\n"
                 "2.000 node1 stops round 0: the server node0 has not answered for 1.496 s: it was lost "
                 "together with its workers; waiting until it comes back\n"
                 "20.000 node0 joins as node rank 0\n"
                 "20.005 job FORMING -> STARTING\n"
                 "20.005 node0 starts workers 0-0 of 2, round 1\n"
                 "20.006 node1 starts workers 1-1 of 2, round 1\n"
                 "20.107 job STARTING -> RUNNING\n"
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

static void while_it_forms(void **state)
{
    (void)state;
    struct cluster *c = cluster_create(&(struct cluster_options){.trace = true, .nodes = 3});
    cluster_start(c, 0, 0);
    cluster_start(c, 0, 1);
    cluster_crash(c, 1000, 0);
    cluster_start(c, 5000, 0);
    cluster_start(c, 6000, 2);
    for (int i = 0; i < 3; i++)
        cluster_finish(c, 10000, i);
    expect_trace(c, 60000,
                 "0.000 node0 joins as node rank 0\n"
                 "0.000 node1 joins as node rank 1\n"
                 "1.000 node0 crashes\n"
                 "5.000 node0 joins as node rank 0\n"
                 "6.000 node2 joins as node rank 2\n"
                 "6.001 job FORMING -> STARTING\n"
                 "6.001 node0 starts workers 0-0 of 3, round 0\n"
                 "6.002 node1 starts workers 1-1 of 3, round 0\n"
                 "6.002 node2 starts workers 2-2 of 3, round 0\n"
                 "6.103 job STARTING -> RUNNING\n"
                 "10.000 node0 is done\n"
                 "10.000 node1 is done\n"
                 "10.000 node2 is done\n"
                 "10.001 job RUNNING -> FINISHING\n"
                 "10.002 node1 verdict 0: all workers exited 0\n"
                 "10.002 node2 verdict 0: all workers exited 0\n"
                 "10.003 job FINISHING -> FINISHED\n"
                 "10.003 node0 verdict 0: all workers exited 0\n"
                 "10.007 node1 exits 0\n"
                 "10.007 node2 exits 0\n"
                 "10.008 node0 exits 0\n");
    cluster_destroy(c);
}

/* At the exit barrier: nobody's work is lost, and no restart is needed. */
static void when_its_own_part_is_done(void **state)
{
    (void)state;
    struct cluster *c = make(3, 0);
    cluster_finish(c, 1000, 0);
    cluster_finish(c, 1500, 1);
    cluster_crash(c, 3000, 0);
    cluster_start(c, 9000, 0);
    cluster_finish(c, 20000, 2);
    expect_trace(c, 60000,
                 "0.000 node0 joins as node rank 0\n"
                 "0.000 node1 joins as node rank 1\n"
                 "0.000 node2 joins as node rank 2\n"
                 "0.001 job FORMING -> STARTING\n"
                 "0.001 node0 starts workers 0-0 of 3, round 0\n"
                 "0.002 node1 starts workers 1-1 of 3, round 0\n"
                 "0.002 node2 starts workers 2-2 of 3, round 0\n"
                 "0.103 job STARTING -> RUNNING\n"
                 "1.000 node0 is done\n"
                 "1.500 node1 is done\n"
                 "3.000 node0 crashes\n"
                 "9.000 node0 joins as node rank 0\n"
                 "9.005 job FORMING -> RUNNING\n"
                 "20.000 node2 is done\n"
                 "20.001 job RUNNING -> FINISHING\n"
                 "20.002 node1 verdict 0: all workers exited 0\n"
                 "20.002 node2 verdict 0: all workers exited 0\n"
                 "20.003 job FINISHING -> FINISHED\n"
                 "20.003 node0 verdict 0: all workers exited 0\n"
                 "20.007 node1 exits 0\n"
                 "20.007 node2 exits 0\n"
                 "20.008 node0 exits 0\n");
    cluster_destroy(c);
}

/* The same in an elastic job, which waits for its members no longer than for their leases. */
static void when_its_own_part_of_an_elastic_world_is_done(void **state)
{
    (void)state;
    struct cluster *c = cluster_create(&(struct cluster_options){
        .trace = true, .elastic = true, .nodes = 3, .min_nodes = 2, .max_nodes = 3});
    for (int i = 0; i < 3; i++)
        cluster_start(c, 0, i);
    cluster_finish(c, 1000, 0);
    cluster_finish(c, 1500, 1);
    cluster_crash(c, 3000, 0);
    cluster_start(c, 9000, 0);
    cluster_finish(c, 20000, 2);
    expect_trace(c, 60000,
                 "0.000 node0 joins\n"
                 "0.000 node1 joins\n"
                 "0.000 node2 joins\n"
                 "0.001 job FORMING -> STARTING\n"
                 "0.001 node0 starts workers 0-0 of 3, round 0\n"
                 "0.002 node1 starts workers 1-1 of 3, round 0\n"
                 "0.002 node2 starts workers 2-2 of 3, round 0\n"
                 "0.103 job STARTING -> RUNNING\n"
                 "1.000 node0 is done\n"
                 "1.500 node1 is done\n"
                 "3.000 node0 crashes\n"
                 "9.000 node0 joins\n"
                 "9.005 job FORMING -> RUNNING\n"
                 "20.000 node2 is done\n"
                 "20.001 job RUNNING -> FINISHING\n"
                 "20.002 node1 verdict 0: all workers exited 0\n"
                 "20.002 node2 verdict 0: all workers exited 0\n"
                 "20.003 job FINISHING -> FINISHED\n"
                 "20.003 node0 verdict 0: all workers exited 0\n"
                 "20.007 node1 exits 0\n"
                 "20.007 node2 exits 0\n"
                 "20.008 node0 exits 0\n");
    cluster_destroy(c);
}

static void when_it_was_done_and_one_more_is_lost(void **state)
{
    (void)state;
    struct cluster *c = cluster_create(&(struct cluster_options){
        .trace = true, .elastic = true, .nodes = 3, .min_nodes = 2, .max_nodes = 3, .max_restarts = 1});
    for (int i = 0; i < 3; i++)
        cluster_start(c, 0, i);
    cluster_finish(c, 1000, 0);
    cluster_crash(c, 3000, 0);
    cluster_crash(c, 3000, 1);
    cluster_start(c, 4000, 0);
    for (int i = 0; i < 3; i++)
        cluster_finish(c, 40000, i);
    expect_trace(
        c, 60000,
        "0.000 node0 joins\n"
        "0.000 node1 joins\n"
        "0.000 node2 joins\n"
        "0.001 job FORMING -> STARTING\n"
        "0.001 node0 starts workers 0-0 of 3, round 0\n"
        "0.002 node1 starts workers 1-1 of 3, round 0\n"
        "0.002 node2 starts workers 2-2 of 3, round 0\n"
        "0.103 job STARTING -> RUNNING\n"
        "1.000 node0 is done\n"
        "3.000 node0 crashes\n"
        "3.000 node1 crashes\n"
        "4.000 node0 joins\n"
        "26.001 node2 stops round 0: the server was restarted, and the job goes on in another round\n"
        "48.000 job FORMING -> STARTING\n"
        "48.000 node0 starts workers 0-0 of 2, round 1\n"
        "48.001 node2 starts workers 1-1 of 2, round 1\n"
        "48.102 job STARTING -> RUNNING\n");
    cluster_destroy(c);
}

static void with_no_restart_left(void **state)
{
    (void)state;
    struct cluster *c = make(2, 0);
    cluster_crash(c, 1000, 0);
    expect_trace(c, 60000,
                 "0.000 node0 joins as node rank 0\n"
                 "0.000 node1 joins as node rank 1\n"
                 "0.001 job FORMING -> STARTING\n"
                 "0.001 node0 starts workers 0-0 of 2, round 0\n"
                 "0.002 node1 starts workers 1-1 of 2, round 0\n"
                 "0.103 job STARTING -> RUNNING\n"
                 "1.000 node0 crashes\n"
                 "2.000 node1 lost its membership: no message from node0 for 1.496 s, and no restart is left "
                 "(0 of 0 used)\n"
                 "2.105 node1 exits 138\n");
    cluster_destroy(c);
}

/* Its silence alone does not stop anybody. */
static void it_freezes_and_thaws(void **state)
{
    (void)state;
    struct cluster *c = make(2, 0);
    cluster_freeze(c, 1000, 0, 20000);
    for (int i = 0; i < 2; i++)
        cluster_finish(c, 30000, i);
    expect_trace(c, 60000,
                 "0.000 node0 joins as node rank 0\n"
                 "0.000 node1 joins as node rank 1\n"
                 "0.001 job FORMING -> STARTING\n"
                 "0.001 node0 starts workers 0-0 of 2, round 0\n"
                 "0.002 node1 starts workers 1-1 of 2, round 0\n"
                 "0.103 job STARTING -> RUNNING\n"
                 "1.000 node0 freezes for 20.000 s\n"
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

static void it_never_comes_back(void **state)
{
    (void)state;
    struct cluster *c = make(2, 1);
    cluster_crash(c, 1000, 0);
    expect_trace(c, 100000,
                 "0.000 node0 joins as node rank 0\n"
                 "0.000 node1 joins as node rank 1\n"
                 "0.001 job FORMING -> STARTING\n"
                 "0.001 node0 starts workers 0-0 of 2, round 0\n"
                 "0.002 node1 starts workers 1-1 of 2, round 0\n"
                 "0.103 job STARTING -> RUNNING\n"
                 "1.000 node0 crashes\n"
                 "2.000 node1 stops round 0: the server node0 has not answered for 1.496 s: it was lost "
                 "together with its workers; waiting until it comes back\n"
                 "62.100 node1 lost its membership: node0 did not come back within 60 s (--join-timeout)\n"
                 "62.105 node1 exits 138\n");
    cluster_destroy(c);
}

/* -- an elastic one is asked to end
 * ------------------------------------------------------------------------------------------ */

static struct cluster *make_elastic(void)
{
    struct cluster *c = cluster_create(&(struct cluster_options){.trace = true,
                                                                 .elastic = true,
                                                                 .nodes = 3,
                                                                 .min_nodes = 2,
                                                                 .max_nodes = 3,
                                                                 .max_restarts = 0,
                                                                 .last_call_ns = 7 * NS_PER_S});
    for (int i = 0; i < 3; i++)
        cluster_start(c, 0, i);
    cluster_term(c, 1000, 0);
    return c;
}

#define ELASTIC_BEGINS                                                                                       \
    "0.000 node0 joins\n"                                                                                    \
    "0.000 node1 joins\n"                                                                                    \
    "0.000 node2 joins\n"                                                                                    \
    "0.001 job FORMING -> STARTING\n"                                                                        \
    "0.001 node0 starts workers 0-0 of 3, round 0\n"                                                         \
    "0.002 node1 starts workers 1-1 of 3, round 0\n"                                                         \
    "0.002 node2 starts workers 2-2 of 3, round 0\n"                                                         \
    "0.103 job STARTING -> RUNNING\n"                                                                        \
    "1.000 node0 gets TERM\n"                                                                                \
    "1.000 job RUNNING -> STOPPING\n"
#define LEAVES                                                                                               \
    " stops round 0: agent \"node0\" (node rank 0) leaves, and the server with it: the others wait for it "  \
    "to come back\n"
#define DEPARTS                                                                                              \
    "1.000 node0" LEAVES "1.001 node1" LEAVES "1.001 node2" LEAVES "1.102 job STOPPING -> DEPARTED\n"

/* With no restart left: none is used. */
static void it_is_asked_to_end_and_comes_back(void **state)
{
    (void)state;
    struct cluster *c = make_elastic();
    cluster_start(c, 30000, 0);
    for (int i = 0; i < 3; i++)
        cluster_finish(c, 40000, i);
    expect_trace(c, 60000,
                 ELASTIC_BEGINS DEPARTS "1.105 node0 exits 143\n"
                                        "30.000 node0 joins\n"
                                        "30.231 job FORMING -> STARTING\n"
                                        "30.231 node0 starts workers 0-0 of 3, round 1\n"
                                        "30.234 node1 starts workers 1-1 of 3, round 1\n"
                                        "30.234 node2 starts workers 2-2 of 3, round 1\n"
                                        "30.335 job STARTING -> RUNNING\n"
                                        "40.000 node0 is done\n"
                                        "40.000 node1 is done\n"
                                        "40.000 node2 is done\n"
                                        "40.001 job RUNNING -> FINISHING\n"
                                        "40.002 node1 verdict 0: all workers exited 0\n"
                                        "40.002 node2 verdict 0: all workers exited 0\n"
                                        "40.003 job FINISHING -> FINISHED\n"
                                        "40.003 node0 verdict 0: all workers exited 0\n"
                                        "40.007 node1 exits 0\n"
                                        "40.007 node2 exits 0\n"
                                        "40.008 node0 exits 0\n");
    cluster_destroy(c);
}

static void it_is_asked_to_end_and_stays_away(void **state)
{
    (void)state;
    struct cluster *c = make_elastic();
    expect_trace(c, 100000,
                 ELASTIC_BEGINS DEPARTS "1.105 node0 exits 143\n"
                                        "61.103 node1 lost its membership: node0 left on SIGTERM and did not "
                                        "come back within 60 s (--join-timeout)\n"
                                        "61.103 node2 lost its membership: node0 left on SIGTERM and did not "
                                        "come back within 60 s (--join-timeout)\n"
                                        "61.108 node1 exits 138\n"
                                        "61.108 node2 exits 138\n");
    cluster_destroy(c);
}

static void all_are_asked_to_end(void **state)
{
    (void)state;
    struct cluster *c = make_elastic();
    cluster_term(c, 1000, 1);
    cluster_term(c, 1050, 2);
    expect_trace(c, 60000,
                 ELASTIC_BEGINS "1.000 node1 gets TERM\n"
                                "1.000 node0" LEAVES "1.001 node1" LEAVES "1.001 node2" LEAVES
                                "1.050 node2 gets TERM\n"
                                "1.102 job STOPPING -> DEPARTED\n"
                                "1.105 node0 exits 143\n"
                                "1.106 node1 exits 143\n"
                                "1.106 node2 exits 143\n");
    cluster_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(while_it_runs),
        cmocka_unit_test(while_it_forms),
        cmocka_unit_test(when_its_own_part_is_done),
        cmocka_unit_test(when_its_own_part_of_an_elastic_world_is_done),
        cmocka_unit_test(when_it_was_done_and_one_more_is_lost),
        cmocka_unit_test(with_no_restart_left),
        cmocka_unit_test(it_freezes_and_thaws),
        cmocka_unit_test(it_never_comes_back),
        cmocka_unit_test(it_is_asked_to_end_and_comes_back),
        cmocka_unit_test(it_is_asked_to_end_and_stays_away),
        cmocka_unit_test(all_are_asked_to_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
