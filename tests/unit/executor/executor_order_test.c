/* executor_order_test.c - the order of an executor's operations (order.h), over plans of all strategies, of
 * stages, with compression and statistics, and of random models. */
#include <stdio.h>

#include "proto/include/muster_error.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/plan_world.h"
#include "tests/unit/executor/order.h"

static void strategies(void **state)
{
    static const struct {
        enum strategy strategy;
        int replicate, shard;
    } rows[] = {{STRATEGY_NO_SHARD, 1, 1},      {STRATEGY_NO_SHARD, 2, 1},   {STRATEGY_SHARD_OPTIM, 1, 4},
                {STRATEGY_SHARD_GRAD_OP, 1, 4}, {STRATEGY_FULL_SHARD, 1, 4}, {STRATEGY_HYBRID_SHARD, 2, 2}};
    static const enum dtype moves[] = {DTYPE_F32, DTYPE_BF16};
    (void)state;
    struct plan_model *m = plan_model_gpt(4, 32, 64, 16, 16, 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int narrow = 0; narrow < 4; narrow++) {
            struct plan_options o = plan_world_options(rows[i].strategy, 1, rows[i].replicate, rows[i].shard);
            o.shape = (struct shape){1, 16};
            o.micro_batches = 3;
            o.param_dtype = o.reduce_dtype = moves[narrow == 1 || narrow == 2];
            o.value_dtype = moves[narrow == 2];
            o.clip = narrow < 2; /* without clip and check a step itself waits for its gradient */
            o.check = narrow == 1;
            o.keep_whole_bytes = narrow == 1 ? 4096 : 0;
            order_check(strategy_name(rows[i].strategy), m, &o);
        }
    plan_model_destroy(m);
}

static void stages(void **state)
{
    (void)state;
    for (int grouped = 0; grouped < 2; grouped++)
        for (int schedule = 0; schedule < PIPE_TABLE; schedule++) {
            struct plan_model *m = plan_model_gpt(4, 32, 64, 16, 16, 0);
            struct plan_options o = plan_world_options(STRATEGY_FULL_SHARD, 2, 1, 2);
            o.shape = (struct shape){1, 16};
            o.micro_batches = 4;
            o.grouped = grouped;
            o.schedule = (enum pipe_schedule)schedule;
            o.chunks = o.schedule == PIPE_INTERLEAVED ? 2 : 1;
            plan_model_stages(m, 2 * o.chunks);
            order_check(grouped ? "stages, grouped" : "stages", m, &o);
            plan_model_destroy(m);
        }
}

/* Two pairs among three stages share a parameter each: each pair has its own comm. */
static void parameters_that_stages_share(void **state)
{
    (void)state;
    const struct plan_model_layer sizes = {1024, 256, 256}, loss = {0, 256, 256};
    struct plan_model *m = plan_model_create("tied", 8, 6);
    const int a = plan_model_param(m, "a", 16, 16, true, 0), b = plan_model_param(m, "b", 16, 16, true, 1);
    for (int l = 0; l < 6; l++) {
        plan_model_layer(m, "layer", l < 5 ? sizes : loss, l - 1);
        plan_model_use(m, l, plan_model_param(m, "own", 16, 16, true, 2 + l));
    }
    plan_model_use(m, 0, a), plan_model_use(m, 5, a);
    plan_model_use(m, 1, b), plan_model_use(m, 3, b);
    plan_model_stages(m, 3);
    for (int shard = 1; shard < 3; shard++) {
        struct plan_options o = plan_world_options(STRATEGY_FULL_SHARD, 3, 1, shard);
        o.shape = (struct shape){1, 16};
        o.micro_batches = 3;
        order_check("shared parameters", m, &o);
    }
    plan_model_destroy(m);
}

static void compressed_steps_and_dense_ones(void **state)
{
    (void)state;
    struct plan_model *m = plan_model_gpt(3, 32, 64, 16, 16, 0);
    for (int kind = COMPRESSION_TOPK; kind < COMPRESSION_COUNT; kind++) {
        struct plan_options o = plan_world_options(STRATEGY_HYBRID_SHARD, 1, 2, 2);
        o.shape = (struct shape){1, 16};
        o.micro_batches = 2;
        o.compression = (struct compression_options){
            .kind = (enum compression)kind, .ratio = 0.1, .rank = 2, .least = 10, .start = 3};
        order_check(compression_name(o.compression.kind), m, &o);
    }
    plan_model_destroy(m);
}

static void running_statistics(void **state)
{
    (void)state;
    for (int narrow = 0; narrow < 2; narrow++) { /* with masters */
        struct plan_model *m = plan_model_cnn(2, 900);
        struct plan_options o = plan_world_options(STRATEGY_FULL_SHARD, 1, 1, 2);
        plan_model_statistics(m, 10);
        o.check = true;
        o.param_dtype = narrow ? DTYPE_BF16 : DTYPE_F32;
        order_check("statistics", m, &o);
        plan_model_destroy(m);
    }
}

static void random_plans(void **state)
{
    enum { MODELS = 60 };
    (void)state;
    int built = 0;
    for (uint64_t number = 1; number <= MODELS; number++) {
        uint64_t seed = number * UINT64_C(0x9E3779B97F4A7C15);
        struct muster_error err = {0};
        struct plan plan;
        char name[32];
        const int pipeline = plan_model_next(&seed, 3) ? 1 : 2, shard = 1 + (int)plan_model_next(&seed, 3);
        struct plan_options o = plan_world_options(STRATEGY_FULL_SHARD, pipeline, 1, shard);
        o.shape = (struct shape){1, 1 + (int)plan_model_next(&seed, 9)};
        o.micro_batches = 1 + (int)plan_model_next(&seed, 4);
        o.prefetch_forward = (int)plan_model_next(&seed, 4);
        o.prefetch_backward = (int)plan_model_next(&seed, 4);
        o.recompute.kind = plan_model_next(&seed, 2) ? RECOMPUTE_ALL : RECOMPUTE_NONE;
        o.average_decay = plan_model_next(&seed, 3) ? 0 : 0.99;
        struct plan_model *m = plan_model_random(&seed, pipeline);
        (void)snprintf(name, sizeof name, "model %d", (int)number);
        if (plan_build(&m->model, &o, &plan, &err) == 0) {
            order_check_plan(name, &m->model, &plan);
            plan_free(&plan);
            built++;
        }
        plan_model_destroy(m);
    }
    assert_true(built > MODELS / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strategies),
        cmocka_unit_test(stages),
        cmocka_unit_test(parameters_that_stages_share),
        cmocka_unit_test(compressed_steps_and_dense_ones),
        cmocka_unit_test(running_statistics),
        cmocka_unit_test(random_plans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
