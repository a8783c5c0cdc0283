/* T1 as a matrix: the losses of 60 steps on 1, 2, 3 and 4 ranks, under every strategy, HYBRID_SHARD as 1x2,
 * 2x1, 1x4, 2x2 and 4x1, with one and two micro-batches and every policy of recomputation, against one rank
 * that keeps everything: within max(1e-6, 3 x control). The control is that rank with the rows of its batches
 * in another order.
 *
 *     train_strategies_test [--full]    one cell of each world and strategy, or all of them */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/train/train_harness.h"

enum { STEPS = 60, MICROS = 2 };

static const struct recompute_options policies[] = {
    {RECOMPUTE_NONE, 0},  {RECOMPUTE_ALL, 0},         {RECOMPUTE_EVERY, 1},
    {RECOMPUTE_EVERY, 2}, {RECOMPUTE_EXCEPT_LAST, 0},
};
enum { POLICIES = sizeof policies / sizeof *policies };

static const struct world_shape {
    enum strategy strategy;
    struct mesh mesh;
} worlds[] = {
    {STRATEGY_NO_SHARD, MESH(1, 1, 1)},      {STRATEGY_SHARD_OPTIM, MESH(1, 1, 1)},
    {STRATEGY_SHARD_GRAD_OP, MESH(1, 1, 1)}, {STRATEGY_FULL_SHARD, MESH(1, 1, 1)},
    {STRATEGY_NO_SHARD, MESH(1, 1, 2)},      {STRATEGY_SHARD_OPTIM, MESH(1, 1, 2)},
    {STRATEGY_SHARD_GRAD_OP, MESH(1, 1, 2)}, {STRATEGY_FULL_SHARD, MESH(1, 1, 2)},
    {STRATEGY_NO_SHARD, MESH(1, 3, 1)},      {STRATEGY_SHARD_OPTIM, MESH(1, 1, 3)},
    {STRATEGY_SHARD_GRAD_OP, MESH(1, 1, 3)}, {STRATEGY_FULL_SHARD, MESH(1, 1, 3)},
    {STRATEGY_NO_SHARD, MESH(1, 1, 4)},      {STRATEGY_SHARD_OPTIM, MESH(1, 1, 4)},
    {STRATEGY_SHARD_GRAD_OP, MESH(1, 1, 4)}, {STRATEGY_FULL_SHARD, MESH(1, 1, 4)},
    {STRATEGY_HYBRID_SHARD, MESH(1, 1, 2)},  {STRATEGY_HYBRID_SHARD, MESH(1, 2, 1)},
    {STRATEGY_HYBRID_SHARD, MESH(1, 1, 4)},  {STRATEGY_HYBRID_SHARD, MESH(1, 2, 2)},
    {STRATEGY_HYBRID_SHARD, MESH(1, 4, 1)},
};
enum { WORLDS = sizeof worlds / sizeof *worlds };

static bool full;
static double base[STEPS], control;

static struct training strategies_run(double *losses)
{
    struct training run = training_small();
    run.gpt.layers = 3;
    run.samples = 24; /* rows for 4 ranks and 2 micro-batches, and for 3 */
    run.positions = 8;
    run.steps = STEPS;
    run.losses = losses;
    return run;
}

static int make_control(void **state)
{
    (void)state;
    double other[STEPS];
    struct training run = strategies_run(base);
    assert_int_equal(training_run(&run), 0);
    assert_true(base[STEPS - 1] < 0.97 * base[0]); /* it learns, so that there is something to compare */
    for (enum sample_order order = ORDER_REVERSED; order <= ORDER_ROTATED; order++) {
        run = strategies_run(other);
        run.order = order;
        assert_int_equal(training_run(&run), 0);
        double deviation = training_deviation(other, base, STEPS);
        control = deviation > control ? deviation : control;
    }
    printf("control: %.2e over %d steps, loss %.4f -> %.4f\n", control, STEPS, base[0], base[STEPS - 1]);
    return 0;
}

static void check_cell(const struct world_shape *world, int micro_batches,
                       const struct recompute_options *policy)
{
    const double bound = 3 * control > 1e-6 ? 3 * control : 1e-6;
    double losses[STEPS];
    struct training run = strategies_run(losses);
    run.strategy = world->strategy;
    run.mesh = world->mesh;
    run.micro_batches = micro_batches;
    run.policy = *policy;
    assert_int_equal(training_run(&run), 0);
    double deviation = training_deviation(losses, base, STEPS);
    printf("%dx%d %-13s %d micro-batches, recompute %-11s %d: %.2e (at most %.2e)\n",
           world->mesh.side[SIDE_REPLICATE], world->mesh.side[SIDE_SHARD], strategy_name(world->strategy),
           micro_batches, recompute_name(policy->kind), policy->every, deviation, bound);
    assert_true(deviation <= bound);
}

static void every_world_and_policy_learns_the_same(void **state)
{
    (void)state;
    for (int w = 0; w < WORLDS; w++)
        for (int cell = 0; cell < MICROS * POLICIES; cell++)
            if (full ||
                cell == (w * 3 + 1) % (MICROS * POLICIES)) /* 3 and 10 have no common divisor: all of them */
                check_cell(&worlds[w], 1 + cell % MICROS, &policies[cell / MICROS]);
}

/* Recomputation forms the same values again: not only close, but the same bits. */
static void recomputation_changes_nothing(void **state)
{
    (void)state;
    double kept[STEPS], formed[STEPS];
    for (int p = 1; p < POLICIES; p++) {
        struct training run = strategies_run(kept);
        run.strategy = STRATEGY_FULL_SHARD;
        run.mesh.side[SIDE_SHARD] = 2;
        run.micro_batches = 2;
        assert_int_equal(training_run(&run), 0);
        run.losses = formed;
        run.policy = policies[p];
        assert_int_equal(training_run(&run), 0);
        assert_memory_equal(kept, formed, sizeof kept);
    }
}

/* Parameters that every rank keeps whole (biases and norms, or all of them) are gathered by none, and trained
 * alike: in all worlds, with several micro-batches and replicas, and to the same bits each time. */
static void parameters_kept_whole_learn_the_same(void **state)
{
    (void)state;
    static const struct world_shape sharding[] = {
        {STRATEGY_SHARD_OPTIM, MESH(1, 1, 2)}, {STRATEGY_SHARD_GRAD_OP, MESH(1, 1, 2)},
        {STRATEGY_FULL_SHARD, MESH(1, 1, 2)},  {STRATEGY_FULL_SHARD, MESH(1, 1, 3)},
        {STRATEGY_FULL_SHARD, MESH(1, 1, 4)},  {STRATEGY_HYBRID_SHARD, MESH(1, 2, 2)},
    };
    const double bound = 3 * control > 1e-6 ? 3 * control : 1e-6;
    for (size_t w = 0; w < sizeof sharding / sizeof *sharding; w++)
        for (int all = 0; all < 2; all++) {
            double losses[STEPS], again[STEPS];
            struct training run = strategies_run(losses);
            run.strategy = sharding[w].strategy;
            run.mesh = sharding[w].mesh;
            run.micro_batches = 1 + (int)(w + (size_t)all) % 2;
            run.policy = policies[w % POLICIES];
            run.keep_whole_bytes = all ? 1 << 30 : 1 << 10;
            assert_int_equal(training_run(&run), 0);
            run.losses = again;
            assert_int_equal(training_run(&run), 0);
            assert_memory_equal(losses, again, sizeof losses);
            double deviation = training_deviation(losses, base, STEPS);
            printf("%dx%d %-13s %s whole: %.2e\n", run.mesh.side[SIDE_REPLICATE], run.mesh.side[SIDE_SHARD],
                   strategy_name(run.strategy), all ? "all" : "small ones", deviation);
            assert_true(deviation <= bound);
        }
}

/* In 16 bits too; and the values read at the end, of whole and gathered groups, are the same model. */
static void kept_whole_in_16_bits(void **state)
{
    (void)state;
    static float params[2][1 << 17];
    double losses[2][STEPS];
    for (int whole = 0; whole < 2; whole++) {
        struct training run = strategies_run(losses[whole]);
        run.strategy = whole ? STRATEGY_HYBRID_SHARD : STRATEGY_FULL_SHARD;
        run.mesh = (struct mesh)MESH(1, 1 + whole, 2);
        run.micro_batches = 2;
        run.param_dtype = run.reduce_dtype = DTYPE_BF16;
        run.keep_whole_bytes = whole << 10;
        run.params = params[whole];
        assert_int_equal(training_run(&run), 0);
    }
    assert_true(training_deviation(losses[1], losses[0], STEPS) <
                2e-3); /* bf16 has 8 bits, sums other orders */
    double difference = 0, size = 0;
    for (int i = 0; i < 1 << 17; i++) {
        difference += pow((double)params[0][i] - (double)params[1][i], 2);
        size += pow((double)params[0][i], 2);
    }
    assert_true(size > 0 && difference < 1e-3 * size);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recomputation_changes_nothing),
        cmocka_unit_test(parameters_kept_whole_learn_the_same),
        cmocka_unit_test(kept_whole_in_16_bits),
        cmocka_unit_test(every_world_and_policy_learns_the_same),
    };
    full = argc > 1 && !strcmp(argv[1], "--full");
    return cmocka_run_group_tests(tests, make_control, NULL);
}
