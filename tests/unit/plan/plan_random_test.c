/* plan_random_test.c - plans of random models, meshes and options are proved right; MUSTER_SEED repeats a
 * run. */
#include <stdio.h>
#include <stdlib.h>

#include "proto/base/text.h"
#include "runtime/plan/plan.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/faults.h"
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

struct one_plan {
    struct plan_model *m;
    struct plan_options options;
};

static int build_one(void *context)
{
    struct one_plan *one = context;
    struct plan plan = {0};
    struct muster_error err = {0};
    if (plan_build(&one->m->model, &one->options, &plan, &err) < 0)
        return -1;
    plan_free(&plan);
    return 0;
}

/* Whatever is missing, there is no plan that is not whole. */
static void random_plans_without_memory(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 60; i++) {
        uint64_t seed = i * UINT64_C(0x9E3779B97F4A7C15);
        struct one_plan one = {.options = random_options(&seed)};
        one.m = plan_model_random(&seed, one.options.mesh.pipeline);
        one.options.world_size = mesh_size(one.options.mesh);
        one.options.rank = one.options.world_size / 2;
        if (build_one(&one) == 0)
            faults_sweep(build_one, &one);
        plan_model_destroy(one.m);
    }
}

static void meshes(void **state)
{
    (void)state;
    enum { MOST = 1 << 30 };
    assert_int_equal(mesh_size((struct mesh){2, 3, 4}), 24);
    assert_int_equal(mesh_size((struct mesh){MOST, 1, 1}), MOST);
    assert_int_equal(mesh_size((struct mesh){1, 1 << 15, 1 << 15}), MOST);
    assert_int_equal(mesh_size((struct mesh){MOST, 1, 2}), 0);
    assert_int_equal(mesh_size((struct mesh){MOST, 2, 1}), 0);
    assert_int_equal(mesh_size((struct mesh){INT32_MAX, INT32_MAX, INT32_MAX}), 0); /* it would wrap around */
    for (int side = 0; side < 3; side++)
        for (int length = -1; length < 2; length++)
            assert_int_equal(mesh_size((struct mesh){side == 0 ? length : 1, side == 1 ? length : 1,
                                                     side == 2 ? length : 1}),
                             length == 1);
    const struct mesh mesh = {2, 3, 4};
    for (int rank = 0; rank < 24; rank++) {
        struct mesh_place place = mesh_place_of(mesh, rank);
        assert_int_equal((place.stage * 3 + place.replica) * 4 + place.shard, rank);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_plans_are_what_they_were),
                                       cmocka_unit_test(random_plans_without_memory),
                                       cmocka_unit_test(meshes), cmocka_unit_test(random_plans_are_right)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
