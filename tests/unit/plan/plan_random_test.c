/* plan_random_test.c - plans of random models, meshes and options are proved right; MUSTER_SEED repeats a
 * run. */
#include <stdio.h>
#include <stdlib.h>

#include "proto/base/text.h"
#include "runtime/plan/plan.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/golden.h"
#include "tests/support/plan_models.h"
#include "tests/support/plan_world.h"

enum { MODELS = 3000, KEPT = 400 };

static struct plan_options random_options(uint64_t *seed)
{
    enum strategy strategy = (enum strategy)plan_model_next(seed, STRATEGY_COUNT);
    struct mesh mesh = {1, 1, 1};
    if (plan_model_next(seed, 3) == 0)
        mesh.pipeline = 2 + (int)plan_model_next(seed, 3);
    int ranks = 1 + (int)plan_model_next(seed, 3);
    if (strategy == STRATEGY_HYBRID_SHARD || strategy == STRATEGY_NO_SHARD)
        mesh.replicate = ranks;
    if (strategy != STRATEGY_NO_SHARD)
        mesh.shard = 1 + (int)plan_model_next(seed, 3);
    struct plan_options options = plan_world_options(strategy, mesh.pipeline, mesh.replicate, mesh.shard);
    options.shape = (struct shape){1, 1 + (int)plan_model_next(seed, 9)};
    options.micro_batches = 1 + (int)plan_model_next(seed, 6);
    options.prefetch_forward = (int)plan_model_next(seed, 4);
    options.prefetch_backward = (int)plan_model_next(seed, 4);
    options.group_bytes = (int64_t)plan_model_next(seed, 3) * 4000;
    options.clip = plan_model_next(seed, 4) > 0;
    options.train = plan_model_next(seed, 8) > 0;
    options.dtype = plan_model_next(seed, 5) ? DTYPE_F32 : DTYPE_F64;
    if (plan_model_next(seed, 4) == 0 &&
        (strategy == STRATEGY_NO_SHARD || strategy == STRATEGY_HYBRID_SHARD)) {
        options.compression = COMPRESSION_TOPK;
        options.topk_ratio = 0.001 * (double)(1 + plan_model_next(seed, 1000));
    }
    return options;
}

static void random_plans_are_right(void **state)
{
    (void)state;
    const char *given = getenv("MUSTER_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 0) : 20241121;
    int refused = 0, in_flight = 0, collectives = 0;
    print_message("MUSTER_SEED=%llu\n", (unsigned long long)seed);
    for (int i = 0; i < MODELS; i++) {
        uint64_t one = seed + (uint64_t)i * UINT64_C(0x9E3779B97F4A7C15), start = one;
        struct plan_options options = random_options(&one);
        struct plan_model *m = plan_model_random(&one, options.mesh.pipeline);
        struct plan_world world;
        struct muster_error err = {0};
        if (plan_world_build(&m->model, &options, &world, &err) < 0) {
            if (err.code != MUSTER_E_LIMIT) /* more groups in a layer than a call can name */
                fail_msg("model %d (seed %llu): %s", i, (unsigned long long)start, err.text);
            refused++;
        } else {
            in_flight += world.plans[0].gathers_in_flight > 1;
            for (int o = 0; o < world.plans[0].op_count; o++)
                collectives += world.plans[0].ops[o].kind == OP_COMM;
            plan_world_free(&world);
        }
        plan_model_destroy(m);
    }
    print_message("%d refused, %d with several gathers in flight, %d communications\n", refused, in_flight,
                  collectives);
    assert_in_range(refused, 0, MODELS / 10);
    assert_true(in_flight > MODELS / 20);
}

/* A right plan may still be another one than before: slower, or with more memory. One line a model: what its
 * ranks' plans are, in one number. */
static void random_plans_are_what_they_were(void **state)
{
    (void)state;
    scope_buffer text = {0};
    for (uint64_t i = 0; i < KEPT; i++) {
        uint64_t seed = i * UINT64_C(0x9E3779B97F4A7C15), hash = TEXT_HASH_START;
        struct plan_options options = random_options(&seed);
        struct plan_model *m = plan_model_random(&seed, options.mesh.pipeline);
        options.world_size = mesh_size(options.mesh);
        int64_t ops = 0, bytes = 0;
        for (options.rank = 0; options.rank < options.world_size; options.rank++) {
            struct plan plan = {0};
            struct muster_error err = {0};
            if (plan_build(&m->model, &options, &plan, &err) < 0) {
                hash = text_hash(hash, "refused", 7);
                continue;
            }
            hash = text_hash(hash, &plan.hash, sizeof plan.hash);
            ops += plan.op_count;
            for (int memory = 0; memory < MEMORY_CLASS_COUNT; memory++)
                bytes += plan.arena_bytes[memory];
            plan_free(&plan);
        }
        buffer_printf(&text, "%llu: %d ranks, %lld operations, %lld bytes, %016llx\n", (unsigned long long)i,
                      options.world_size, (long long)ops, (long long)bytes, (unsigned long long)hash);
        plan_model_destroy(m);
    }
    golden_check("tests/unit/plan/golden/random_plans.txt", &text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_plans_are_what_they_were),
                                       cmocka_unit_test(random_plans_are_right)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
