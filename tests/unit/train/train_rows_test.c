/* train_rows_test.c - an embedding's gradient exchanged as rows trains the same model as a gradient that is
 * reduced with its table: tied and not, under every strategy, with accumulation, clipping, 16 bits,
 * recomputation and frozen tables. The bound is that of T1: max(1e-6, 3 x control), the control being one
 * rank with its batches' rows in another order. */
#include "tests/support/cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "runtime/model/architectures.h"
#include "tests/unit/train/train_harness.h"

enum { STEPS = 16 };

static struct model *untied(const struct training *run, struct muster_error *err)
{
    const struct llama_config config = {.layers = 2,
                                        .channels = run->gpt.channels,
                                        .heads = 4,
                                        .kv_heads = 2,
                                        .vocab = run->gpt.vocab,
                                        .max_positions = run->gpt.max_positions};
    return llama_create(&config, err);
}

/* GPT-2 whose positions, or whose tied table, are frozen. */
static struct model *frozen(const struct training *run, struct muster_error *err, int param)
{
    struct model *model = gpt2_create(&run->gpt, err);
    if (model)
        model->params[param].trainable = false;
    return model;
}

static struct model *frozen_table(const struct training *run, struct muster_error *err)
{
    return frozen(run, err, 0);
}

static struct model *frozen_positions(const struct training *run, struct muster_error *err)
{
    return frozen(run, err, 1);
}

static const struct world_shape {
    enum strategy strategy;
    struct mesh mesh;
} worlds[] = {
    {STRATEGY_NO_SHARD, MESH(1, 1, 2)},     {STRATEGY_NO_SHARD, MESH(1, 3, 1)},
    {STRATEGY_SHARD_OPTIM, MESH(1, 1, 2)},  {STRATEGY_SHARD_GRAD_OP, MESH(1, 1, 3)},
    {STRATEGY_FULL_SHARD, MESH(1, 1, 2)},   {STRATEGY_FULL_SHARD, MESH(1, 1, 4)},
    {STRATEGY_HYBRID_SHARD, MESH(1, 2, 2)}, {STRATEGY_HYBRID_SHARD, MESH(1, 2, 1)},
};
enum { WORLDS = sizeof worlds / sizeof *worlds };

static struct training rows_run(double *losses, double *norms)
{
    struct training run = training_small();
    run.samples = 24;
    run.positions = 8;
    run.steps = STEPS;
    run.losses = losses;
    run.norms = norms;
    run.clip_norm = 0.5; /* it clips in most steps */
    return run;
}

static double control(struct model *(*create)(const struct training *, struct muster_error *))
{
    double losses[2][STEPS], norms[STEPS], most = 0;
    for (enum sample_order order = ORDER_PLAIN; order <= ORDER_ROTATED; order++) {
        struct training run = rows_run(losses[order > 0], norms);
        run.create = create;
        run.order = order;
        assert_int_equal(training_run(&run), 0);
        const double deviation = training_deviation(losses[order > 0], losses[0], STEPS);
        most = deviation > most ? deviation : most;
    }
    return 3 * most > 1e-6 ? 3 * most : 1e-6;
}

/* The same run twice, dense and as rows; the rows twice, to the same bits. */
static void check(const struct training *like, const char *name, double bound, double norm_bound)
{
    double losses[3][STEPS], norms[3][STEPS];
    for (int i = 0; i < 3; i++) {
        struct training run = *like;
        run.losses = losses[i];
        run.norms = norms[i];
        run.embedding_gradient = i ? EMBEDDING_ROWS : EMBEDDING_DENSE;
        assert_int_equal(training_run(&run), 0);
    }
    const double loss = training_deviation(losses[1], losses[0], STEPS),
                 norm = training_deviation(norms[1], norms[0], STEPS);
    printf("%-16s %dx%d %-13s %d micro-batches: losses %.2e, norms %.2e (at most %.2e, %.2e)\n", name,
           like->mesh.side[SIDE_REPLICATE], like->mesh.side[SIDE_SHARD], strategy_name(like->strategy),
           like->micro_batches, loss, norm, bound, norm_bound);
    assert_true(loss <= bound);
    assert_true(norm <= norm_bound);
    assert_memory_equal(losses[1], losses[2], sizeof losses[1]);
    assert_memory_equal(norms[1], norms[2], sizeof norms[1]);
    assert_true(losses[1][STEPS - 1] < losses[1][0]);
}

static void rows_learn_what_dense_gradients_do(void **state)
{
    (void)state;
    const struct {
        const char *name;
        struct model *(*create)(const struct training *, struct muster_error *);
    } models[] = {{"tied", NULL},
                  {"untied", untied},
                  {"frozen table", frozen_table},
                  {"frozen positions", frozen_positions}};
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        const double bound = control(models[m].create);
        for (int w = 0; w < WORLDS; w++) {
            struct training run = rows_run(NULL, NULL);
            run.create = models[m].create;
            run.strategy = worlds[w].strategy;
            run.mesh = worlds[w].mesh;
            run.micro_batches = 1 + (w + (int)m) % 2;
            run.prefetch = w % 3;
            run.policy.kind = w % 2 ? RECOMPUTE_EXCEPT_LAST : RECOMPUTE_NONE;
            run.keep_whole_bytes = w == 3 ? 1 << 10 : 0;
            check(&run, models[m].name, bound, bound);
        }
    }
}

/* The rounding differs: rows are not rounded. */
static void rows_in_16_bits(void **state)
{
    (void)state;
    for (int w = 0; w < WORLDS; w++) {
        struct training run = rows_run(NULL, NULL);
        run.strategy = worlds[w].strategy;
        run.mesh = worlds[w].mesh;
        run.micro_batches = 1 + w % 2;
        run.param_dtype = w % 3 ? DTYPE_BF16 : DTYPE_F16;
        run.reduce_dtype = w % 4 ? run.param_dtype : DTYPE_F32;
        run.check = true;
        check(&run, w % 3 ? "bf16" : "fp16", 1e-4, 1e-2); /* bf16 has 8 bits */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_learn_what_dense_gradients_do),
        cmocka_unit_test(rows_in_16_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
