/* comm_train_crowd_test.c - 128 ranks as threads train ten steps over TCP, sharded over all of them, with
 * finite losses that fall. In the full run. */
#include "tests/support/cmocka_all.h"

#include <math.h>

#include "tests/unit/train/train_harness.h"

enum { CROWD = 128, STEPS = 10 };

static void many_ranks_train_over_tcp(void **state)
{
    (void)state;
    double losses[STEPS];
    struct training run = training_small();
    run.strategy = STRATEGY_FULL_SHARD;
    run.mesh.side[SIDE_SHARD] = CROWD;
    run.samples = CROWD;
    run.micro_batches = 1;
    run.steps = STEPS;
    run.threads = 1;
    run.comm = comm_tcp();
    run.losses = losses;
    assert_int_equal(training_run(&run), 0);
    for (int i = 0; i < STEPS; i++)
        assert_true(isfinite(losses[i]));
    assert_true(losses[STEPS - 1] < losses[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_ranks_train_over_tcp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
