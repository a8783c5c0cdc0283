/* The allowed differences between two runs.
 *
 * T0: the same run twice is bit-identical: losses, gradient norms and every parameter.
 * T1: the same global batches on other worlds, strategies and accumulations: the losses of 100 steps differ
 * by at most max(1e-6, 3 x control). The control is made here and now: the same run on one rank, with the
 * rows of every batch in another order (reversed, rotated), so that only the order of the sums differs; the
 * larger deviation of the two from the plain order is taken.
 *
 *     train_equal_test [openblas|onednn]     the library of products; openblas without it */
#include "tests/support/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/train/train_harness.h"

#ifdef __SANITIZE_THREAD__
enum { STEPS = 30 }; /* races show early, and every step takes ten times as long */
#else
enum { STEPS = 100 };
#endif

static const struct kernels *kernels; /* NULL: the device's, with products by OpenBLAS */

static struct training small(void)
{
    struct training run = training_small();
    run.kernels = kernels;
    if (kernels)
        run.gpt.channels = 256; /* products so deep that each library adds up in an order of its own */
    return run;
}

/* ---- T0 ---- */

enum { TWICE_STEPS = 30 };

static void check_twice(struct training run)
{
    static double losses[2][STEPS], norms[2][STEPS];
    struct muster_error err = {0};
    GUARD(guard_model) struct model *model = gpt2_create(&run.gpt, &err);
    assert_non_null(model);
    size_t bytes = (size_t)model_parameters(model) * sizeof(float);
    void *params[2];
    run.steps = TWICE_STEPS;
    for (int i = 0; i < 2; i++) {
        params[i] = calloc(1, bytes);
        assert_non_null(params[i]);
        run.losses = losses[i];
        run.norms = norms[i];
        run.params = params[i];
        assert_int_equal(training_run(&run), 0);
    }
    assert_memory_equal(losses[0], losses[1], TWICE_STEPS * sizeof(double));
    assert_memory_equal(norms[0], norms[1], TWICE_STEPS * sizeof(double));
    assert_int_equal(memcmp(params[0], params[1], bytes), 0);
    assert_true(losses[0][TWICE_STEPS - 1] < losses[0][0]);
    free(params[0]);
    free(params[1]);
}

static void the_same_run_twice_on_one_rank(void **state)
{
    (void)state;
    struct training run = small();
    check_twice(run);
    run.threads = 2; /* and large enough that OpenMP and BLAS really use both */
    run.gpt =
        (struct gpt2_config){.layers = 2, .channels = 128, .heads = 4, .vocab = 48, .max_positions = 64};
    run.samples = 4;
    run.positions = 32;
    check_twice(run);
}

static void the_same_run_twice_on_two_ranks(void **state)
{
    (void)state;
    struct training run = small();
    run.mesh.side[SIDE_SHARD] = 2;
    run.strategy = STRATEGY_FULL_SHARD;
    check_twice(run);
    run.strategy = STRATEGY_NO_SHARD;
    run.micro_batches = 2;
    check_twice(run);
}

/* ---- T1 ---- */

static double base[STEPS], control;

static int make_base(void **state)
{
    (void)state;
    struct training run = small();
    double other[STEPS];
    run.steps = STEPS;
    run.losses = base;
    assert_int_equal(training_run(&run), 0);
    assert_true(base[STEPS - 1] < 0.95 * base[0]); /* it learns, so that there is something to compare */
    run.losses = other;
    run.order = ORDER_REVERSED;
    assert_int_equal(training_run(&run), 0);
    control = training_deviation(other, base, STEPS);
    run.order = ORDER_ROTATED;
    assert_int_equal(training_run(&run), 0);
    double rotated = training_deviation(other, base, STEPS);
    control = rotated > control ? rotated : control;
    printf("control: %.2e over %d steps, loss %.4f -> %.4f\n", control, STEPS, base[0], base[STEPS - 1]);
    return 0;
}

static void check_against_base(struct training run, const char *what)
{
    double losses[STEPS], bound = 3 * control > 1e-6 ? 3 * control : 1e-6;
    run.steps = STEPS;
    run.losses = losses;
    assert_int_equal(training_run(&run), 0);
    double deviation = training_deviation(losses, base, STEPS);
    printf("%-28s %.2e (at most %.2e)\n", what, deviation, bound);
    assert_true(deviation <= bound);
}

static void accumulation_on_one_rank(void **state)
{
    (void)state;
    struct training run = small();
    run.micro_batches = 4;
    check_against_base(run, "1 rank, 4 micro-batches");
    run.strategy = STRATEGY_FULL_SHARD;
    check_against_base(run, "1 rank, FULL_SHARD, 4");
    run.recompute = true;
    check_against_base(run, "1 rank, recompute, 4");
}

static void check_strategy(enum strategy strategy)
{
    struct training run = small();
    char what[64];
    run.strategy = strategy;
    run.mesh.side[SIDE_SHARD] = 2;
    for (int micro = 1; micro <= 2; micro++) {
        run.micro_batches = micro;
        (void)snprintf(what, sizeof what, "2 ranks, %s, %d", strategy_name(strategy), micro);
        check_against_base(run, what);
    }
    run.micro_batches = 1;
    run.prefetch = 0;
    (void)snprintf(what, sizeof what, "2 ranks, %s, no prefetch", strategy_name(strategy));
    check_against_base(run, what);
}

static void no_shard(void **state)
{
    (void)state;
    check_strategy(STRATEGY_NO_SHARD);
}

static void shard_optim(void **state)
{
    (void)state;
    check_strategy(STRATEGY_SHARD_OPTIM);
}

static void shard_grad_op(void **state)
{
    (void)state;
    check_strategy(STRATEGY_SHARD_GRAD_OP);
}

static void full_shard(void **state)
{
    (void)state;
    check_strategy(STRATEGY_FULL_SHARD);
}

static void hybrid_shard(void **state)
{
    (void)state;
    struct training run = small();
    run.strategy = STRATEGY_HYBRID_SHARD;
    run.mesh = (struct mesh)MESH(1, 2, 2);
    check_against_base(run, "2x2 ranks, HYBRID_SHARD");
    run.micro_batches = 2;
    check_against_base(run, "2x2 ranks, HYBRID_SHARD, 2");
}

int main(int argc, char **argv)
{
    struct muster_error err = {0};
    if (argc > 1)
        kernels = kernels_cpu_by(!strcmp(argv[1], "onednn") ? KERNELS_ONEDNN : KERNELS_OPENBLAS, &err);
    if (argc > 1 && !kernels) {
        fprintf(stderr, "%s\n", err.text);
        return 77; /* skipped: this machine has no oneDNN */
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_run_twice_on_one_rank),
        cmocka_unit_test(the_same_run_twice_on_two_ranks),
        cmocka_unit_test(accumulation_on_one_rank),
        cmocka_unit_test(no_shard),
        cmocka_unit_test(shard_optim),
        cmocka_unit_test(shard_grad_op),
        cmocka_unit_test(full_shard),
        cmocka_unit_test(hybrid_shard),
    };
    return cmocka_run_group_tests(tests, make_base, NULL);
}
