/* The times of a plan's parts are measured for every layer that the plan calls, by one rank and by two;
 * layers of one kind share a measurement, a failure of one rank ends all, and the prediction is made of
 * nothing else. Times themselves are the benchmark's. */
#include <math.h>
#include <stdlib.h>

#include "proto/base/guard.h"
#include "runtime/calibrate/calibrate.h"
#include "runtime/model/architectures.h"
#include "tests/support/cmocka_all.h"

static struct plan_options small(enum strategy strategy, int ranks)
{
    return (struct plan_options){.strategy = strategy,
                                 .mesh = MESH(1, 1, ranks),
                                 .shape = {2, 16},
                                 .micro_batches = 2,
                                 .prefetch_forward = 2,
                                 .prefetch_backward = 2,
                                 .group_bytes = 1 << 16,
                                 .clip = true,
                                 .train = true,
                                 .kernels = kernels_cpu((unsigned)-1)};
}

static void measure(const struct plan_options *options, int ranks)
{
    const struct gpt2_config config = {
        .layers = 3, .channels = 32, .heads = 2, .vocab = 96, .max_positions = 16};
    static const int32_t numbers[32] = {1, 95, 7};
    const struct batch batch = {{numbers, numbers}};
    struct model *model = gpt2_create(&config, NULL);
    struct plan plan;
    struct calibration c;
    struct plan_cost cost, slower;
    struct muster_error err = {0};
    assert_non_null(model);
    assert_int_equal(plan_build(model, options, &plan, &err), 0);
    const struct calibrate_options o = {model, &plan, &batch, ranks, 1};
    if (calibrate(&o, &c, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(c.kinds, 3); /* embedding, block, head */
    double layers = 0;
    for (int l = 0; l < model->layer_count; l++) {
        assert_true(c.layers[l].backward_s > 0 && isfinite(c.layers[l].backward_s));
        layers += c.layers[l].forward_s + c.layers[l].backward_s;
    }
    for (int l = 2; l < model->layer_count - 1; l++)
        assert_true(c.layers[l].forward_s > 0 && c.layers[l].forward_s == c.layers[1].forward_s);
    assert_true(c.rates.op[OP_STEP].byte_s > 0 && c.rates.op[OP_NORM].byte_s > 0 && c.rates.launch_s > 0);
    assert_true((c.rates.comm[COMM_ALL_GATHER].begin_s > 0) == (ranks > 1));
    assert_int_equal(plan_predict(model, &plan, &c.rates, &cost, &err), 0);
    assert_true(cost.compute_s >= layers * options->micro_batches);
    for (int l = 0; l < model->layer_count; l++)
        c.layers[l].backward_s += 1;
    assert_int_equal(plan_predict(model, &plan, &c.rates, &slower, &err), 0);
    const double more = model->layer_count * options->micro_batches;
    assert_true(fabs(slower.step_s - cost.step_s - more) < 1e-2 * more);
    int again = 0; /* each adds its own time, which is measured of layers with such calls alone */
    for (int l = 0; l < model->layer_count; l++) {
        int calls = 0;
        for (int i = 0; i < plan.op_count; i++)
            calls += plan.ops[i].layer == l && plan.ops[i].kind == OP_FORWARD &&
                     plan.ops[i].mode == LAYER_RECOMPUTE;
        assert_true((c.layers[l].again_s > 0) == (calls > 0));
        c.layers[l].again_s += 1;
        again += calls;
    }
    assert_int_equal(again, options->recompute.kind == RECOMPUTE_ALL ? 3 * options->micro_batches : 0);
    assert_int_equal(plan_predict(model, &plan, &c.rates, &cost, &err), 0);
    assert_true(fabs(cost.step_s - slower.step_s - again) < 1e-2 * (again + 1));
    calibration_free(&c);
    plan_free(&plan);
    model_destroy(model);
}

static void every_layer_is_measured(void **state)
{
    (void)state;
    struct plan_options options = small(STRATEGY_NO_SHARD, 1);
    measure(&options, 1);
    options.recompute = (struct recompute_options){RECOMPUTE_ALL, 0};
    measure(&options, 1);
    options = small(STRATEGY_FULL_SHARD, 2);
    measure(&options, 2);
    options.param_dtype = options.reduce_dtype = DTYPE_BF16;
    measure(&options, 2);
}

static void a_plan_that_cannot_be_measured_is_refused(void **state)
{
    (void)state;
    const struct gpt2_config config = {
        .layers = 1, .channels = 32, .heads = 2, .vocab = 96, .max_positions = 16};
    struct plan_options options = small(STRATEGY_NO_SHARD, 1);
    options.train = false;
    struct model *model = gpt2_create(&config, NULL);
    struct plan plan;
    struct calibration c;
    struct muster_error err = {0};
    assert_int_equal(plan_build(model, &options, &plan, &err), 0);
    const struct calibrate_options o = {model, &plan, NULL, 1, 1}, none = {model, &plan, NULL, 0, 1};
    assert_int_equal(calibrate(&o, &c, &err), -1);
    assert_int_equal(err.code, MUSTER_E_INVALID);
    assert_int_equal(calibrate(&none, &c, &err), -1);
    plan_free(&plan);
    model_destroy(model);
}

/* The work of a step is the work of its operations: twice the micro-batches, twice the products. */
static void work_is_counted(void **state)
{
    (void)state;
    const struct gpt2_config config = {
        .layers = 2, .channels = 32, .heads = 2, .vocab = 96, .max_positions = 16};
    struct model *model = gpt2_create(&config, NULL);
    struct plan_work work[3];
    for (int i = 0; i < 3; i++) {
        struct plan_options options = small(STRATEGY_NO_SHARD, 1);
        options.micro_batches = i == 1 ? 4 : 2;
        options.recompute.kind = i == 2 ? RECOMPUTE_ALL : RECOMPUTE_NONE;
        struct plan plan;
        assert_int_equal(plan_build(model, &options, &plan, NULL), 0);
        assert_int_equal(plan_count_work(model, &plan, &work[i], NULL), 0);
        plan_free(&plan);
    }
    assert_true(work[0].flops > 0 && fabs(work[1].flops / work[0].flops - 2) < 1e-9);
    assert_true(work[1].bytes > work[0].bytes &&
                work[1].bytes < 2 * work[0].bytes); /* one optimizer's step */
    assert_true(work[2].flops > 1.1 * work[0].flops && work[2].flops < 4.0 / 3 * work[0].flops);
    assert_true(plan_limit_s(&work[0], work[0].flops, work[0].bytes) == 2);
    model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layer_is_measured),
        cmocka_unit_test(a_plan_that_cannot_be_measured_is_refused),
        cmocka_unit_test(work_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
