/* Models other than GPT-2, trained: the same losses in every world, strategy, accumulation and with
 * recomputation, in double, where only the order of sums differs. A Llama, and a page of the test's own with
 * dropout, whose masks depend on the sample alone, and with frozen parameters, which stay as they are. */
#include "tests/support/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>

#include "runtime/model/architectures.h"
#include "tests/unit/train/train_harness.h"

enum { STEPS = 12 };

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

/* A small transformer with dropout in three places of each block, the second of which reads both layers
 * before it; its table is tied and its first product frozen. */
static struct model *own(const struct training *run, struct muster_error *err)
{
    enum { C = 16 };
    struct writer w = writer_begin("own");
    int tokens = writer_input(&w, "tokens", DTYPE_I32, true, 1);
    int targets = writer_input(&w, "targets", DTYPE_I32, true, 1);
    int before = -1, last = program_layer(&w, "embedding");
    int table = program_parameter(&w, "table", run->gpt.vocab, C, PARAM_INIT_NORMAL, 0.3);
    program_result(&w, program_dropout(&w, program_embedding(&w, tokens, table, -1), 0.1));
    for (int i = 0; i < 2; i++) {
        int layer = program_layer(&w, "block%d", i);
        int x = program_input(&w, last);
        int h = program_rms_norm(&w, x, "norm", 1e-5);
        h = program_linear(&w, h, 3 * C, "qkv", true, 0.2);
        h = program_dropout(&w, program_attention_packed(&w, h, 2, 2, true), 0.2);
        h = program_activation(&w, program_linear(&w, h, C, "fc", true, 0.2), ACTIVATION_SILU);
        x = program_add(&w, x, program_dropout(&w, h, 0.3));
        program_result(&w, before >= 0 ? program_add(&w, x, program_input(&w, before)) : x);
        before = last;
        last = layer;
    }
    (void)program_layer(&w, "head");
    program_cross_entropy(&w, program_input(&w, last), table, targets);
    struct model *model = writer_finish(&w, err);
    for (int i = 0; model && i < model->param_count; i++) {
        if (!strncmp(model->params[i].name, "block0.qkv", 10))
            model->params[i].trainable = false;
    }
    return model;
}

static struct training training_of(struct model *(*create)(const struct training *, struct muster_error *))
{
    struct training run = training_small();
    run.create = create;
    run.steps = STEPS;
    run.kernels = kernels_ref_f64();
    run.learning_rate = 1e-2;
    return run;
}

static void check_worlds(struct model *(*create)(const struct training *, struct muster_error *),
                         double learns)
{
    static const struct {
        enum strategy strategy;
        struct mesh mesh;
        int micro_batches;
        bool recompute;
    } runs[] = {
        {STRATEGY_NO_SHARD, MESH(1, 1, 1), 4, false},     {STRATEGY_NO_SHARD, MESH(1, 1, 1), 1, true},
        {STRATEGY_NO_SHARD, MESH(1, 1, 2), 1, false},     {STRATEGY_SHARD_OPTIM, MESH(1, 1, 2), 2, false},
        {STRATEGY_SHARD_GRAD_OP, MESH(1, 1, 2), 1, true}, {STRATEGY_FULL_SHARD, MESH(1, 1, 4), 2, false},
        {STRATEGY_FULL_SHARD, MESH(1, 1, 2), 2, true},    {STRATEGY_HYBRID_SHARD, MESH(1, 2, 2), 1, false},
    };
    double base[STEPS], losses[STEPS];
    struct training run = training_of(create);
    run.losses = base;
    assert_int_equal(training_run(&run), 0);
    assert_true(base[STEPS - 1] < base[0] - learns);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        run.losses = losses;
        run.strategy = runs[i].strategy;
        run.mesh = runs[i].mesh;
        run.micro_batches = runs[i].micro_batches;
        run.recompute = runs[i].recompute;
        assert_int_equal(training_run(&run), 0);
        double deviation = training_deviation(losses, base, STEPS);
        printf("%s, %d ranks, %d micro-batches%s: %.1e\n", strategy_name(run.strategy), mesh_size(run.mesh),
               run.micro_batches, run.recompute ? ", recomputed" : "", deviation);
        assert_true(deviation <= 1e-11);
    }
}

static void a_llama_is_the_same_in_every_world(void **state)
{
    (void)state;
    check_worlds(llama, 0.1);
}

static void dropout_is_the_same_in_every_world(void **state)
{
    (void)state;
    check_worlds(own, 0.05);
}

/* Parameters at the start and after the steps: frozen parameters are unchanged, the others are not. */
static void what_is_frozen_stays(void **state)
{
    (void)state;
    struct training run = training_of(own);
    GUARD(guard_model) struct model *model = own(&run, NULL);
    assert_non_null(model);
    size_t count = (size_t)model_parameters(model);
    double *before = calloc(count, sizeof *before), *after = calloc(count, sizeof *after);
    assert_true(before && after);
    run.mesh.side[SIDE_SHARD] = 2;
    run.strategy = STRATEGY_FULL_SHARD;
    run.steps = 0;
    run.params = before;
    assert_int_equal(training_run(&run), 0);
    run.steps = 3;
    run.params = after;
    assert_int_equal(training_run(&run), 0);
    size_t at = 0;
    int frozen = 0;
    for (int i = 0; i < model->param_count; i++) {
        size_t elements = (size_t)param_elements(&model->params[i]);
        bool same = !memcmp(before + at, after + at, elements * sizeof *before);
        assert_int_equal(same, !model->params[i].trainable);
        frozen += same;
        at += elements;
    }
    assert_int_equal(frozen, 2);
    free(before);
    free(after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_llama_is_the_same_in_every_world),
        cmocka_unit_test(dropout_is_the_same_in_every_world),
        cmocka_unit_test(what_is_frozen_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
