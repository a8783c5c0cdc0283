/* train_values_test.c - training whose activations and weights are of 16 bits as layers read them
 * (training.values: dtype), by the reference: the buffers of the plan, that bits repeat, that worlds, stages
 * and recomputation agree as far as another split of a sum may move them, and the dynamic loss scale. */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/base/guard.h"
#include "tests/unit/train/train_harness.h"

enum { STEPS = 10, FEW = 4 };

static struct training values_of(enum dtype dtype)
{
    struct training run = training_small();
    run.kernels = dtype == DTYPE_BF16 ? kernels_ref_bf16() : kernels_ref_f16();
    run.param_dtype = run.reduce_dtype = dtype;
    run.loss_scale = loss_scale_defaults();
    run.loss_scale.initial = 1024;
    run.steps = FEW;
    return run;
}

static struct training on(struct training run, enum strategy strategy, struct mesh mesh)
{
    run.strategy = strategy;
    run.mesh = mesh;
    return run;
}

static void losses_of(struct training run, double losses[STEPS])
{
    run.losses = losses;
    assert_int_equal(training_run(&run), 0);
}

static void runs_repeat_and_learn(void **state)
{
    (void)state;
    static const enum dtype dtypes[] = {DTYPE_BF16, DTYPE_F16};
    double storage[STEPS], losses[2][STEPS], again[STEPS];
    for (int i = 0; i < 2; i++) {
        struct training run = on(values_of(dtypes[i]), STRATEGY_FULL_SHARD, (struct mesh)MESH(1, 1, 2));
        losses_of(run, losses[i]);
        losses_of(run, again);
        assert_memory_equal(losses[i], again, FEW * sizeof(double));
        run.comm = comm_tcp();
        losses_of(run, again);
        assert_memory_equal(losses[i], again, FEW * sizeof(double));
        assert_true(losses[i][FEW - 1] < losses[i][0]);
        run.kernels = NULL; /* 16 bits are storage */
        losses_of(run, storage);
        assert_memory_not_equal(losses[i], storage, FEW * sizeof(double));
        assert_true(training_deviation(losses[i], storage, FEW) < (i ? 1e-3 : 1e-2));
    }
    assert_memory_not_equal(losses[0], losses[1], FEW * sizeof(double));
}

/* The CPU's own kernels of bf16 form other bits than the reference, as near as another order of sums. */
static void fast_kernels_are_near_the_reference(void **state)
{
    (void)state;
    double losses[STEPS], again[STEPS], reference[STEPS];
    struct training run = on(values_of(DTYPE_BF16), STRATEGY_FULL_SHARD, (struct mesh)MESH(1, 1, 2));
    losses_of(run, reference);
    run.kernels = kernels_cpu_values(DTYPE_BF16);
    if (run.kernels == kernels_ref_bf16())
        skip(); /* no AVX512-BF16, or no libdnnl */
    losses_of(run, losses);
    losses_of(run, again);
    assert_memory_equal(losses, again, FEW * sizeof(double));
    assert_memory_not_equal(losses, reference, FEW * sizeof(double));
    assert_true(training_deviation(losses, reference, FEW) < 1e-3);
}

static struct model *llama(const struct training *run, struct muster_error *err)
{
    const struct llama_config config = {.layers = 2,
                                        .channels = 24,
                                        .heads = 4,
                                        .kv_heads = 2,
                                        .vocab = run->gpt.vocab,
                                        .max_positions = run->gpt.max_positions};
    return llama_create(&config, err);
}

static void a_llama_stays_near_fp32(void **state)
{
    (void)state;
    double values[STEPS], exact[STEPS];
    struct training run = values_of(DTYPE_BF16), whole = training_small();
    run.create = whole.create = llama;
    whole.steps = run.steps;
    losses_of(run, values);
    losses_of(whole, exact);
    assert_memory_not_equal(values, exact, FEW * sizeof(double));
    assert_true(training_deviation(values, exact, FEW) < 1e-2);
}

/* Recomputation forms the same bits again, and a stage gets the bits that the one before has formed. */
static void recomputation_and_stages_have_the_same_bits(void **state)
{
    (void)state;
    double whole[STEPS], other[STEPS];
    struct training run = values_of(DTYPE_BF16);
    run.micro_batches = 2;
    losses_of(run, whole);
    run.recompute = true;
    losses_of(run, other);
    assert_memory_equal(whole, other, FEW * sizeof(double));
    run.recompute = false;
    losses_of(on(run, STRATEGY_NO_SHARD, (struct mesh)MESH(2, 1, 1)), other);
    assert_true(training_deviation(other, whole, 1) <
                1e-12); /* the first loss; then norms are summed by stage */
    assert_true(training_deviation(other, whole, FEW) < 1e-3);
}

static void worlds_agree(void **state)
{
    (void)state;
    static const struct mesh two = MESH(1, 1, 2), four = MESH(1, 2, 2);
    double base[STEPS], other[STEPS], most = 0;
    struct training one = values_of(DTYPE_BF16);
    one.steps = STEPS; /* until rounding has spread */
    struct training run = on(one, STRATEGY_FULL_SHARD, two);
    losses_of(run, base);
    for (int order = ORDER_REVERSED; order <= ORDER_ROTATED; order++) {
        run.order = (enum sample_order)order;
        losses_of(run, other);
        most = fmax(most, training_deviation(other, base, STEPS));
    }
    run.order = ORDER_PLAIN;
    struct training runs[] = {one, on(run, STRATEGY_NO_SHARD, two), on(run, STRATEGY_SHARD_OPTIM, two),
                              on(run, STRATEGY_SHARD_GRAD_OP, two), on(run, STRATEGY_HYBRID_SHARD, four)};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        runs[i].micro_batches = 1 + (i == 1);
        losses_of(runs[i], other);
        const double found = training_deviation(other, base, STEPS);
        printf("%s, %d ranks: %.2e (control %.2e)\n", strategy_name(runs[i].strategy),
               mesh_size(runs[i].mesh), found, most);
        assert_true(found <= fmax(3 * most, 1e-6));
    }
}

static void rows_are_exchanged_as_values(void **state)
{
    (void)state;
    double dense[STEPS], rows[STEPS];
    struct training run = on(values_of(DTYPE_BF16), STRATEGY_FULL_SHARD, (struct mesh)MESH(1, 1, 2));
    run.embedding_gradient = EMBEDDING_DENSE;
    losses_of(run, dense);
    run.embedding_gradient = EMBEDDING_ROWS;
    losses_of(run, rows);
    assert_true(training_deviation(rows, dense, FEW) < 1e-3);
}

static void an_overflow_lowers_the_scale(void **state)
{
    (void)state;
    struct trainer_stats stats[STEPS];
    struct training run = values_of(DTYPE_F16);
    int skipped = 0;
    run.loss_scale.initial = 0x1p30; /* gradients of values beyond 65504 */
    run.stats = stats;
    assert_int_equal(training_run(&run), 0);
    for (int i = 0; i < FEW; i++)
        skipped += stats[i].skipped;
    assert_true(skipped >= 2 && !isfinite(stats[0].grad_norm) && stats[FEW - 1].loss_scale < 0x1p30);
}

/* ---- the plan ---- */

static void plan_of(enum dtype value, const struct kernels *kernels, struct plan *plan)
{
    const struct training run = training_small();
    struct muster_error err = {0};
    GUARD(guard_model) struct model *model = gpt2_create(&run.gpt, &err);
    const struct plan_options options = {.strategy = STRATEGY_FULL_SHARD,
                                         .mesh = MESH(1, 1, 2),
                                         .shape = {2, 16},
                                         .micro_batches = 2,
                                         .prefetch_forward = 1,
                                         .prefetch_backward = 1,
                                         .train = true,
                                         .param_dtype = DTYPE_BF16,
                                         .reduce_dtype = DTYPE_BF16,
                                         .value_dtype = value,
                                         .kernels = kernels};
    assert_non_null(model);
    if (plan_build(model, &options, plan, &err))
        fail_msg("%s", err.text);
}

static void the_plan_has_half_the_activations_and_no_wide_parameters(void **state)
{
    (void)state;
    struct plan values = {0}, storage = {0};
    plan_of(DTYPE_BF16, kernels_ref_bf16(), &values);
    plan_of(DTYPE_F32, kernels_ref_f32(), &storage);
    assert_true(storage.kind_bytes[PLAN_WIDE] > 0);
    assert_int_equal(values.kind_bytes[PLAN_WIDE], 0);
    assert_int_equal(2 * values.kind_bytes[PLAN_OUT], storage.kind_bytes[PLAN_OUT]);
    assert_int_equal(2 * values.kind_bytes[PLAN_DOUT], storage.kind_bytes[PLAN_DOUT]);
    /* Saved statistics stay as they are. */
    assert_true(2 * values.kind_bytes[PLAN_SAVED] > storage.kind_bytes[PLAN_SAVED] &&
                3 * values.kind_bytes[PLAN_SAVED] < 2 * storage.kind_bytes[PLAN_SAVED]);
    static const enum plan_kind same[] = {PLAN_PARAM_SHARD, PLAN_MASTER,     PLAN_MOMENT1,
                                          PLAN_GATHER_SLOT, PLAN_GRAD_SHARD, PLAN_GRAD_FULL};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        assert_int_equal(values.kind_bytes[same[i]], storage.kind_bytes[same[i]]);
    assert_true(values.hash != storage.hash && values.asked != storage.asked);
    plan_free(&values);
    plan_free(&storage);
}

static void other_types_are_refused(void **state)
{
    (void)state;
    struct training run = values_of(DTYPE_BF16);
    run.param_dtype = DTYPE_F32; /* layers read gathered parameters as they are */
    assert_int_not_equal(training_run(&run), 0);
    run.param_dtype = DTYPE_F16;
    assert_int_not_equal(training_run(&run), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_repeat_and_learn),
        cmocka_unit_test(fast_kernels_are_near_the_reference),
        cmocka_unit_test(a_llama_stays_near_fp32),
        cmocka_unit_test(recomputation_and_stages_have_the_same_bits),
        cmocka_unit_test(worlds_agree),
        cmocka_unit_test(rows_are_exchanged_as_values),
        cmocka_unit_test(an_overflow_lowers_the_scale),
        cmocka_unit_test(the_plan_has_half_the_activations_and_no_wide_parameters),
        cmocka_unit_test(other_types_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
