/* The moving average of the parameters: its values against the rule by hand, under every strategy and dtype,
 * and a training that does not depend on it, nor on the two changing places between any two steps. Against
 * PyTorch: tests/compat/evaluation/weights_test.py. */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/train/train_harness.h"

enum { STEPS = 6 };
static const double decay = 0.8;

/* All parameters of rank 0, concatenated. */
struct values {
    float *now, *average, *again, *expected;
    int64_t count;
    double worst;
};

static int read_all(struct trainer *trainer, int rank, float *to)
{
    const struct model *model = trainer_model(trainer);
    for (int p = 0; p < model->param_count; p++) {
        if (trainer_get_param(trainer, p, rank ? NULL : to, NULL))
            return -1;
        to += rank ? 0 : param_elements(&model->params[p]);
    }
    return 0;
}

static void expect(struct values *v, int step)
{
    for (int64_t i = 0; i < v->count; i++) {
        double e =
            step <= 1 ? (double)v->now[i] : decay * (double)v->expected[i] + (1 - decay) * (double)v->now[i];
        v->expected[i] = (float)e;
        v->worst = fmax(v->worst, fabs((double)v->average[i] - e));
    }
}

/* Evaluates with the one or the other. */
static int evaluated(struct trainer *trainer, const struct training *run, int rank, double *loss)
{
    int32_t tokens[8 * 16], targets[8 * 16];
    training_batch(run, rank, 50, tokens, targets);
    return trainer_evaluate(trainer, &(struct batch){{tokens, targets}}, loss, NULL);
}

static int visit(const struct training *run, struct trainer *trainer, int rank, int step)
{
    struct values *v = run->context;
    struct muster_error err = {0};
    double with, without, again;
    if (read_all(trainer, rank, v->now) || evaluated(trainer, run, rank, &without) ||
        trainer_exchange_averages(trainer, true, &err) || read_all(trainer, rank, v->average) ||
        evaluated(trainer, run, rank, &with))
        return fprintf(stderr, "rank %d: %s\n", rank, err.text), -1;
    if (!trainer_is_averaged(trainer) || !trainer_exchange_averages(trainer, true, &err) ||
        !trainer_set_param(trainer, 0, v->now, &err) ||
        !trainer_step(trainer, NULL, &(struct trainer_step_values){.global_tokens = 1}, NULL, &err) ||
        err.code != MUSTER_E_STATE)
        return fprintf(stderr, "rank %d: what may not be done was\n", rank), -1;
    if (trainer_exchange_averages(trainer, false, &err) || read_all(trainer, rank, v->again) ||
        evaluated(trainer, run, rank, &again))
        return fprintf(stderr, "rank %d: %s\n", rank, err.text), -1;
    if (again != without || (with == without) != (step <= 1))
        return fprintf(stderr, "step %d: %g %g %g\n", step, without, with, again), -1;
    if (rank)
        return 0;
    assert_memory_equal(v->again, v->now, (size_t)v->count * sizeof *v->now);
    expect(v, step);
    return 0;
}

static int only_trained(const struct training *run, struct trainer *trainer, int rank, int step)
{
    (void)trainer, (void)rank, (void)step, (void)run;
    return 0;
}

static void check(struct training run)
{
    struct model *model = gpt2_create(&run.gpt, NULL);
    struct values v = {.count = model_parameters(model)};
    float **const rooms[] = {&v.now, &v.average, &v.again, &v.expected};
    const size_t bytes = (size_t)v.count * sizeof(float);
    model_destroy(model);
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++)
        assert_non_null(*rooms[i] = calloc(1, bytes));
    double losses[2][STEPS];
    void *with = calloc(1, bytes), *without = calloc(1, bytes);
    run.steps = STEPS;
    run.losses = losses[0];
    run.params = without;
    run.visit = only_trained;
    assert_int_equal(training_run(&run), 0);
    run.average_decay = decay;
    run.losses = losses[1];
    run.params = with;
    run.visit = visit;
    run.context = &v;
    assert_int_equal(training_run(&run), 0);
    assert_memory_equal(losses[0], losses[1], sizeof losses[0]);
    assert_memory_equal(with, without, bytes);
    printf("%s over %d ranks, %s: averages off by %.1e\n", strategy_name(run.strategy), mesh_size(run.mesh),
           dtype_name(run.param_dtype), v.worst);
    assert_true(v.worst < 1e-6);
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++)
        free(*rooms[i]);
    free(with);
    free(without);
}

static void follow_the_rule_in_every_strategy(void **state)
{
    (void)state;
    static const struct {
        enum strategy strategy;
        struct mesh mesh;
    } rows[] = {{STRATEGY_NO_SHARD, MESH(1, 1, 1)},    {STRATEGY_NO_SHARD, MESH(1, 1, 2)},
                {STRATEGY_SHARD_OPTIM, MESH(1, 1, 2)}, {STRATEGY_SHARD_GRAD_OP, MESH(1, 1, 2)},
                {STRATEGY_FULL_SHARD, MESH(1, 1, 2)},  {STRATEGY_FULL_SHARD, MESH(1, 1, 4)},
                {STRATEGY_HYBRID_SHARD, MESH(1, 2, 2)}};
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int d = 0; d < 3; d++) {
            struct training run = training_small();
            run.strategy = rows[i].strategy;
            run.mesh = rows[i].mesh;
            run.param_dtype = run.reduce_dtype = dtypes[d];
            run.learning_rate = 0.02;
            run.loss_scale.fixed = 64;
            check(run);
            run.keep_whole_bytes = 200; /* biases and norms */
            run.optimizer_memory = MEMORY_HOST;
            run.clip_norm = 0;
            if (run.mesh.side[SIDE_SHARD] == 2)
                check(run);
        }
}

static int refused(const struct training *run, struct trainer *trainer, int rank, int step)
{
    (void)run, (void)rank, (void)step;
    struct muster_error err = {0};
    assert_int_equal(trainer_exchange_averages(trainer, true, &err), -1);
    assert_string_equal(err.text, "no average of the parameters is kept: the decay is 0");
    return 0;
}

static void none_is_kept_unless_wanted(void **state)
{
    (void)state;
    struct training run = training_small();
    run.steps = 1;
    run.visit = refused;
    assert_int_equal(training_run(&run), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(follow_the_rule_in_every_strategy),
        cmocka_unit_test(none_is_kept_unless_wanted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
