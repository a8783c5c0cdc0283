/* Training with parameters and reductions of 16 bits: repeatability, agreement across worlds, overflow and
 * the loss scale, and which gradient is named. Against PyTorch: tests/compat/precision_torch_test.py.
 *
 * T1 in bf16: with reductions in fp32 only weights are rounded, at the same places in every world, and the
 * control is one rank with the rows of its batches in another order. With reductions in bf16 each rank's part
 * of a gradient is rounded, so that another split of the same batch is another rounding: the control is
 * two ranks whose rows are dealt out otherwise. */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/guard.h"
#include "runtime/model/param_patterns.h"
#include "tests/unit/train/train_harness.h"

enum { STEPS = 100, TWICE_STEPS = 20 };

static struct training bf16(enum dtype reduce)
{
    struct training run = training_small();
    run.param_dtype = DTYPE_BF16;
    run.reduce_dtype = reduce;
    return run;
}

static struct training on_two(struct training run, enum strategy strategy)
{
    run.strategy = strategy;
    run.mesh.side[SIDE_SHARD] = 2;
    return run;
}

/* ---- T0 ---- */

static void *train_twice(struct training run, int steps, double *losses)
{
    struct muster_error err = {0};
    GUARD(guard_model) struct model *model = gpt2_create(&run.gpt, &err);
    assert_non_null(model);
    size_t bytes = (size_t)model_parameters(model) * sizeof(float);
    void *params[2];
    double both[2][STEPS];
    for (int i = 0; i < 2; i++) {
        params[i] = calloc(1, bytes);
        assert_non_null(params[i]);
        run.steps = steps;
        run.losses = both[i];
        run.params = params[i];
        assert_int_equal(training_run(&run), 0);
    }
    assert_memory_equal(both[0], both[1], (size_t)steps * sizeof(double));
    assert_int_equal(memcmp(params[0], params[1], bytes), 0);
    assert_true(both[0][steps - 1] < both[0][0]);
    if (losses)
        memcpy(losses, both[0], (size_t)steps * sizeof *losses);
    free(params[0]);
    return params[1];
}

static void the_same_run_twice(void **state)
{
    (void)state;
    static const enum dtype dtypes[] = {DTYPE_BF16, DTYPE_F16};
    double losses[2][TWICE_STEPS], whole[TWICE_STEPS];
    struct training run = training_small();
    free(train_twice(run, TWICE_STEPS, whole));
    for (int i = 0; i < 2; i++) {
        run = training_small();
        run.param_dtype = run.reduce_dtype = dtypes[i];
        free(train_twice(run, TWICE_STEPS, NULL));
        run.micro_batches = 2;
        free(train_twice(on_two(run, STRATEGY_FULL_SHARD), TWICE_STEPS, losses[i]));
        assert_memory_not_equal(losses[i], whole, sizeof whole); /* it is another arithmetic */
        double other[TWICE_STEPS];                               /* between nodes: the same sums */
        run = on_two(run, STRATEGY_FULL_SHARD);
        run.comm = comm_tcp();
        free(train_twice(run, TWICE_STEPS, other));
        assert_memory_equal(losses[i], other, sizeof other);
    }
    assert_memory_not_equal(losses[0], losses[1], sizeof whole);
}

/* ---- T1 ---- */

static void deviation(struct training run, const double *base, double bound, const char *what)
{
    double losses[STEPS];
    run.steps = STEPS;
    run.losses = losses;
    assert_int_equal(training_run(&run), 0);
    double found = training_deviation(losses, base, STEPS);
    printf("%-36s %.2e (at most %.2e)\n", what, found, bound);
    assert_true(found <= bound);
}

/* The losses of a run, and three times what another order of the samples does to them. */
static double control_of(struct training run, double *base)
{
    double other[STEPS], most = 0;
    run.steps = STEPS;
    run.losses = base;
    assert_int_equal(training_run(&run), 0);
    assert_true(base[STEPS - 1] < 0.95 * base[0]);
    run.losses = other;
    for (int order = ORDER_REVERSED; order <= ORDER_ROTATED; order++) {
        run.order = (enum sample_order)order;
        assert_int_equal(training_run(&run), 0);
        most = fmax(most, training_deviation(other, base, STEPS));
    }
    printf("control %.2e, loss %.4f -> %.4f\n", most, base[0], base[STEPS - 1]);
    return fmax(3 * most, 1e-6);
}

static void check_worlds(struct training run, const double *base, double bound)
{
    char what[64];
    struct training one = run;
    deviation(one, base, bound, "1 rank");
    one.micro_batches = 4;
    one.recompute = true;
    deviation(one, base, bound, "1 rank, 4 micro-batches, recompute");
    for (int s = 0; s < STRATEGY_HYBRID_SHARD; s++) {
        struct training two = on_two(run, (enum strategy)s);
        two.micro_batches = 1 + s % 2;
        (void)snprintf(what, sizeof what, "2 ranks, %s, %d", strategy_name(two.strategy), two.micro_batches);
        deviation(two, base, bound, what);
    }
    struct training two = on_two(run, STRATEGY_FULL_SHARD);
    two.prefetch = 0;
    deviation(two, base, bound, "2 ranks, FULL_SHARD, no prefetch");
    for (int micro = 1; micro <= 2; micro++) {
        struct training four = run;
        four.strategy = STRATEGY_HYBRID_SHARD;
        four.mesh = (struct mesh)MESH(1, 2, 2);
        four.micro_batches = micro;
        (void)snprintf(what, sizeof what, "2x2 ranks, HYBRID_SHARD, %d", micro);
        deviation(four, base, bound, what);
    }
}

static void worlds_agree_with_reductions_in_fp32(void **state)
{
    (void)state;
    double base[STEPS], bound = control_of(bf16(DTYPE_F32), base);
    check_worlds(bf16(DTYPE_F32), base, bound);
}

static void worlds_agree_with_reductions_in_bf16(void **state)
{
    (void)state;
    double base[STEPS], bound = control_of(on_two(bf16(DTYPE_BF16), STRATEGY_FULL_SHARD), base);
    check_worlds(bf16(DTYPE_BF16), base, bound);
}

/* ---- overflow ---- */

enum { LONGEST = 24, CLEAN = 2 };
#define START 0x1.ep21

static struct training fp16(void)
{
    struct training run = training_small();
    run.param_dtype = run.reduce_dtype = DTYPE_F16;
    run.loss_scale = loss_scale_defaults();
    return run;
}

/* Steps that overflow at the beginning, and the steps after them up to the next overflow. Checks the scale,
 * as DeepSpeed's goes: hysteresis 2 bears the first overflow, each one after it halves. */
static void count_overflows(struct training run, int *skipped, int *clean, double *scale)
{
    struct trainer_stats stats[LONGEST];
    *skipped = *clean = 0;
    *scale = START;
    run.stop_on_nonfinite = true; /* a scale that can still be halved goes before it */
    run.steps = LONGEST;
    run.stats = stats;
    assert_int_equal(training_run(&run), 0);
    for (int i = 0; i < LONGEST; i++) {
        assert_true(stats[i].loss_scale == *scale);
        assert_true(stats[i].skipped == !isfinite(stats[i].grad_norm));
        assert_int_equal(stats[i].nonfinite_param >= 0, stats[i].skipped);
        if (stats[i].skipped && *clean)
            break;
        *(stats[i].skipped ? skipped : clean) += 1;
        *scale = stats[i].skipped && i > 0 ? *scale / 2 : *scale;
    }
    printf("%d steps overflow, then %d do not at 2^%g\n", *skipped, *clean, log2(*scale));
    assert_true(*skipped >= 3 && *clean >= CLEAN);
}

/* Steps that overflow leave no trace, neither in the parameters nor in the moments, Adam's count or the
 * schedule: later steps are as if the run had begun after them, with the scale that they left. */
static void check_overflow(struct training run)
{
    struct trainer_stats with[LONGEST], without[LONGEST];
    struct muster_error err = {0};
    GUARD(guard_model) struct model *model = gpt2_create(&run.gpt, &err);
    assert_non_null(model);
    size_t bytes = (size_t)model_parameters(model) * sizeof(float);
    void *after = calloc(1, bytes), *expected = calloc(1, bytes);
    int skipped, clean;
    double scale;
    assert_true(after && expected);
    run.loss_scale.initial = START;
    count_overflows(run, &skipped, &clean, &scale);
    run.steps = skipped + clean;
    run.stats = with;
    run.params = after;
    assert_int_equal(training_run(&run), 0);
    run.first_step = skipped;
    run.loss_scale.initial = scale;
    run.steps = clean;
    run.stats = without;
    run.params = expected;
    assert_int_equal(training_run(&run), 0);
    assert_int_equal(memcmp(after, expected, bytes), 0);
    for (int i = 0; i < clean; i++) {
        assert_true(without[i].loss == with[skipped + i].loss && !without[i].skipped);
        assert_true(without[i].grad_norm == with[skipped + i].grad_norm);
        assert_true(without[i].grad_norm < 10); /* without the scale */
    }
    free(after);
    free(expected);
}

static void an_overflow_leaves_no_trace(void **state)
{
    (void)state;
    check_overflow(fp16());
    check_overflow(on_two(fp16(), STRATEGY_FULL_SHARD));
    struct training run = on_two(fp16(), STRATEGY_NO_SHARD);
    run.clip_norm = 0; /* found without clipping too */
    run.micro_batches = 2;
    check_overflow(run);
}

static void the_scale_is_doubled_after_a_window(void **state)
{
    (void)state;
    struct training run = fp16();
    struct trainer_stats stats[8];
    run.loss_scale.initial = 256;
    run.loss_scale.window = 3;
    run.steps = 8;
    run.stats = stats;
    assert_int_equal(training_run(&run), 0);
    static const double expected[] = {256, 256, 256, 256, 512, 512, 512, 1024};
    for (int i = 0; i < 8; i++)
        assert_true(stats[i].loss_scale == expected[i]);
    run.loss_scale = (struct loss_scale_options){.fixed = 1000}; /* no power of two */
    assert_int_equal(training_run(&run), 0);
    for (int i = 0; i < 8; i++)
        assert_true(stats[i].loss_scale == 1000 && !stats[i].skipped);
}

/* After a step: the norm of the gradients that a caller reads is that of the step. */
static int check_gradients(const struct training *run, struct trainer *trainer, int rank, int step)
{
    const struct model *model = trainer_model(trainer);
    double squares = 0;
    (void)rank;
    for (int p = 0; step > 0 && p < model->param_count; p++) {
        const int64_t count = param_elements(&model->params[p]);
        scope_free float *grad = calloc((size_t)count, sizeof *grad);
        if (!grad || trainer_get_grad(trainer, p, grad, NULL))
            return -1;
        for (int64_t k = 0; k < count; k++)
            squares += (double)grad[k] * (double)grad[k];
    }
    if (step == 0)
        return 0;
    const double norm = run->stats[step - 1].grad_norm;
    return fabs(sqrt(squares) - norm) <= 1e-3 * norm ? 0 : -1;
}

static void gradients_are_read_without_the_scale(void **state)
{
    (void)state;
    struct trainer_stats stats[3];
    struct training run = fp16();
    run.loss_scale = (struct loss_scale_options){.fixed = 1000};
    run.steps = 3;
    run.stats = stats;
    run.visit = check_gradients;
    assert_int_equal(training_run(&run), 0);
}

static void an_overflow_at_the_minimum_ends_the_run(void **state)
{
    (void)state;
    struct training run = on_two(fp16(), STRATEGY_FULL_SHARD);
    run.loss_scale.initial = run.loss_scale.minimum = 0x1p40;
    run.steps = 3;
    assert_int_not_equal(training_run(&run), 0); /* both ranks say so and neither waits */
}

/* ---- naming ---- */

struct naming {
    const struct trainer_stats *stats;
    int checked;
};

/* The name by brute force: every gradient is gathered and looked through. */
static int check_name(const struct training *run, struct trainer *trainer, int rank, int step)
{
    struct naming *naming = run->context;
    int param, holder, first = -1;
    if (step == 0)
        return 0;
    if (trainer_nonfinite(trainer, &param, &holder, NULL))
        return -1;
    struct muster_error err = {0};
    GUARD(guard_model) struct model *model = gpt2_create(&run->gpt, &err);
    for (int l = model->layer_count - 1; l >= 0; l--) {
        for (int i = 0; i < model->layers[l].param_count; i++) {
            int p = model->layers[l].param[i];
            int64_t count = param_elements(&model->params[p]);
            float *grad = calloc((size_t)count, sizeof *grad);
            if (!grad || trainer_get_grad(trainer, p, grad, NULL))
                return -1;
            for (int64_t k = 0; k < count && first < 0; k++)
                first = isfinite(grad[k]) ? -1 : p;
            free(grad);
        }
    }
    if (rank == 0 && naming->stats[step - 1].skipped) {
        printf("step %d at scale 2^%g: %s, rank %d\n", step, log2(naming->stats[step - 1].loss_scale),
               param < 0 ? "-" : model->params[param].name, holder);
        naming->checked++;
    }
    const bool whole =
        run->strategy == STRATEGY_NO_SHARD; /* every rank has it then: the first one is named */
    const bool same = param == first && (whole && param >= 0 ? holder == 0 : (param >= 0) == (holder >= 0));
    return same && (rank || naming->stats[step - 1].nonfinite_param == param) ? 0 : -1;
}

static void the_first_in_the_backward_pass_is_named(void **state)
{
    (void)state;
    static const enum strategy strategies[] = {STRATEGY_FULL_SHARD, STRATEGY_NO_SHARD};
    for (int i = 0; i < 2; i++) {
        struct trainer_stats stats[12];
        struct naming naming = {stats, 0};
        struct training run = on_two(fp16(), strategies[i]);
        run.loss_scale.initial = 0x1p26; /* fewer and fewer gradients overflow */
        run.steps = 12;
        run.stats = stats;
        run.visit = check_name;
        run.context = &naming;
        assert_int_equal(training_run(&run), 0);
        assert_true(naming.checked >= 3);
    }
}

/* A parameter that is NaN, in bf16 and fp32: the step is skipped, or ends the run. */
static int spoil(const struct training *run, struct trainer *trainer, int rank, int step)
{
    (void)rank;
    float values[64];
    struct muster_error err = {0};
    if (step != 2)
        return 0;
    for (int i = 0; i < run->gpt.channels; i++)
        values[i] = i == 3 ? NAN : 1.0F;
    GUARD(guard_model) struct model *model = gpt2_create(&run->gpt, &err);
    for (int p = 0; p < model->param_count; p++)
        if (!strcmp(model->params[p].name, "h.1.ln_2.weight"))
            return trainer_set_param(trainer, p, values, NULL);
    return -1;
}

static void what_is_not_finite_is_skipped_or_ends_the_run(void **state)
{
    (void)state;
    for (int narrow = 0; narrow < 2; narrow++)
        for (int clip = 0; clip < 2; clip++) {
            struct trainer_stats stats[4];
            struct training run = on_two(narrow ? bf16(DTYPE_BF16) : training_small(), STRATEGY_FULL_SHARD);
            run.clip_norm = clip;
            run.check = !clip;
            run.visit = spoil;
            run.steps = 4;
            run.stats = stats;
            assert_int_equal(training_run(&run), 0);
            for (int i = 0; i < 4; i++) {
                assert_int_equal(stats[i].skipped, i >= 2);
                assert_true((stats[i].nonfinite_param >= 0) == (i >= 2));
            }
            run.stop_on_nonfinite = true;
            assert_int_not_equal(training_run(&run), 0);
        }
}

/* Only the table is trained; its rows are normalised by running statistics, whose change is formed before
 * the table's gradient. */
static struct model *normed_page(const struct training *run, struct muster_error *err)
{
    enum { C = 16 };
    struct writer w = writer_begin("page");
    const int tokens = writer_input(&w, "tokens", DTYPE_I32, true, 1);
    const int targets = writer_input(&w, "targets", DTYPE_I32, true, 1);
    const struct planes planes = {C, 1, 1};
    const int embedding = program_layer(&w, "embedding");
    const int table = program_parameter(&w, "table", run->gpt.vocab, C, PARAM_INIT_NORMAL, 0.3);
    program_result(&w, program_embedding(&w, tokens, table, -1));
    const int norm = program_layer(&w, "norm");
    program_result(&w, program_batch_norm2d(&w, program_input(&w, embedding), &planes, "bn", 1e-5, 0.1));
    (void)program_layer(&w, "head");
    const int classes = program_parameter(&w, "classes", run->gpt.vocab, C, PARAM_INIT_NORMAL, 0.3);
    program_cross_entropy(&w, program_input(&w, norm), classes, targets);
    struct model *model = writer_finish(&w, err);
    for (int i = 0; model && i < model->param_count; i++)
        model->params[i].trainable = model->params[i].statistic || strstr(model->params[i].name, "table");
    return model;
}

/* Spoils the table after the second step. Later steps are skipped and leave the statistics finite. */
static int spoil_table(const struct training *run, struct trainer *trainer, int rank, int step)
{
    const struct model *model = trainer_model(trainer);
    (void)run, (void)rank;
    for (int p = 0; p < model->param_count; p++) {
        const int64_t count = param_elements(&model->params[p]);
        scope_free float *values = calloc((size_t)count, sizeof *values);
        const bool is_table = strstr(model->params[p].name, "table");
        if (!values || trainer_get_param(trainer, p, values, NULL))
            return -1;
        for (int64_t i = 0; model->params[p].statistic && i < count; i++)
            if (!isfinite(values[i]))
                return -1;
        for (int64_t i = 0; i < count; i++)
            values[i] = NAN;
        if (is_table && step == 2 && trainer_set_param(trainer, p, values, NULL))
            return -1;
    }
    return 0;
}

static void running_statistics_are_no_cause(void **state)
{
    (void)state;
    for (int sharded = 0; sharded < 2; sharded++) {
        struct trainer_stats stats[4];
        struct training run = training_small();
        struct muster_error err = {0};
        run = on_two(run, sharded ? STRATEGY_FULL_SHARD : STRATEGY_NO_SHARD);
        run.create = normed_page;
        run.check = true;
        run.visit = spoil_table;
        run.steps = 4;
        run.stats = stats;
        assert_int_equal(training_run(&run), 0);
        GUARD(guard_model) struct model *model = normed_page(&run, &err);
        for (int i = 0; i < 4; i++) {
            assert_int_equal(stats[i].skipped, i >= 2);
            assert_int_equal(stats[i].nonfinite_param >= 0, i >= 2);
            if (i >= 2)
                assert_non_null(strstr(model->params[stats[i].nonfinite_param].name, "table"));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_run_twice),
        cmocka_unit_test(worlds_agree_with_reductions_in_fp32),
        cmocka_unit_test(worlds_agree_with_reductions_in_bf16),
        cmocka_unit_test(an_overflow_leaves_no_trace),
        cmocka_unit_test(the_scale_is_doubled_after_a_window),
        cmocka_unit_test(gradients_are_read_without_the_scale),
        cmocka_unit_test(an_overflow_at_the_minimum_ends_the_run),
        cmocka_unit_test(the_first_in_the_backward_pass_is_named),
        cmocka_unit_test(what_is_not_finite_is_skipped_or_ends_the_run),
        cmocka_unit_test(running_statistics_are_no_cause),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
