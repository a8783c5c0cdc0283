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
    struct mesh mesh = MESH(1, 1, 1);
    if (plan_model_next(seed, 3) == 0)
        mesh.side[SIDE_PIPELINE] = 2 + (int)plan_model_next(seed, 3);
    int ranks = 1 + (int)plan_model_next(seed, 3);
    if (strategy == STRATEGY_HYBRID_SHARD || strategy == STRATEGY_NO_SHARD)
        mesh.side[SIDE_REPLICATE] = ranks;
    if (strategy != STRATEGY_NO_SHARD)
        mesh.side[SIDE_SHARD] = 1 + (int)plan_model_next(seed, 3);
    struct plan_options options = plan_world_options(strategy, mesh.side[SIDE_PIPELINE],
                                                     mesh.side[SIDE_REPLICATE], mesh.side[SIDE_SHARD]);
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
        options.compression.kind = COMPRESSION_TOPK;
        options.compression.ratio = 0.001 * (double)(1 + plan_model_next(seed, 1000));
    }
    options.recompute.kind = (enum recompute)plan_model_next(seed, RECOMPUTE_COUNT);
    options.recompute.every =
        options.recompute.kind == RECOMPUTE_EVERY ? 1 + (int)plan_model_next(seed, 4) : 0;
    options.optimizer_memory = plan_model_next(seed, 4) ? MEMORY_DEVICE : MEMORY_HOST;
    return options;
}

/* Two in three plans move 16 bits, or look for values that are not finite. Drawn separately: a seed's draws
 * in one dtype stays as it is. */
static void random_dtypes(uint64_t seed, struct plan_options *options)
{
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    uint64_t own = seed ^ UINT64_C(0xD1B54A32D192ED03);
    options->param_dtype = dtypes[plan_model_next(&own, 3)];
    if (options->compression.kind == COMPRESSION_NONE)
        options->reduce_dtype = dtypes[plan_model_next(&own, 3)];
    options->check = plan_model_next(&own, 2) > 0;
    uint64_t values = own; /* half of the plans whose parameters are of 16 bits compute in them */
    if (options->param_dtype != DTYPE_F32 && plan_model_next(&values, 2))
        options->value_dtype = options->param_dtype;
    if (plan_model_next(&own, 2)) /* none, some or all of the parameters */
        options->keep_whole_bytes = (int64_t)1 << plan_model_next(&own, 24);
    if (options->compression.kind != COMPRESSION_NONE) {
        options->compression.kind = plan_model_next(&own, 2) ? COMPRESSION_TOPK : COMPRESSION_POWERSGD;
        options->compression.rank = 1 + (int)plan_model_next(&own, 4);
        options->compression.least = (int64_t)plan_model_next(&own, 200);
        options->compression.start = (int64_t)plan_model_next(&own, 2);
        options->compression.forgets = plan_model_next(&own, 3) == 0;
        if (options->compression.kind == COMPRESSION_TOPK)
            options->reduce_dtype = dtypes[plan_model_next(&own, 3)];
    }
    options->average_decay = plan_model_next(&own, 3) ? 0 : 0.99;
    options->schedule = (enum pipe_schedule)plan_model_next(&own, PIPE_TABLE);
    if (options->schedule == PIPE_INTERLEAVED && options->mesh.side[SIDE_PIPELINE] > 1)
        options->chunks = 1 + (int)plan_model_next(&own, 3);
}

static void random_plans_are_right(void **state)
{
    (void)state;
    const char *given = getenv("MUSTER_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 0) : 20241121;
    int rejected = 0, in_flight = 0, collectives = 0, rows = 0;
    print_message("MUSTER_SEED=%llu\n", (unsigned long long)seed);
    for (int i = 0; i < MODELS; i++) {
        uint64_t one = seed + (uint64_t)i * UINT64_C(0x9E3779B97F4A7C15), start = one;
        struct plan_options options = random_options(&one);
        if (i % 2)
            random_dtypes(start, &options);
        struct plan_model *m = plan_model_random(&one, options.mesh.side[SIDE_PIPELINE] *
                                                           (options.chunks > 1 ? options.chunks : 1));
        if (i % 3 == 0)
            plan_model_look_up(m);
        if (i % 4 && options.mesh.side[SIDE_PIPELINE] == 1 && options.compression.kind == COMPRESSION_NONE)
            options.embedding_gradient = EMBEDDING_ROWS;
        if (i % 5 == 0)
            plan_model_statistics(m, 1 + i % 90);
        options.grouped = i % 7 > 2; /* of plans with several stages alone */
        if (i % 6 == 1)
            plan_model_store(m, i % 12 == 1 ? STORED_PLAIN : STORED_INT8);
        if (i % 6 == 1)
            options.value_dtype = DTYPE_F32; /* units of few bits open to it */
        struct plan_world world;
        struct muster_error err = {0};
        if (plan_world_build(&m->model, &options, &world, &err) < 0) {
            if (err.code != MUSTER_E_LIMIT) /* more groups in a layer than a call can name */
                fail_msg("model %d (seed %llu): %s", i, (unsigned long long)start, err.text);
            rejected++;
        } else {
            in_flight += world.plans[0].gathers_in_flight > 1;
            for (int o = 0; o < world.plans[0].op_count; o++)
                collectives += world.plans[0].ops[o].kind == OP_COMM;
            for (int o = 0; o < world.plans[0].op_count; o++)
                rows += world.plans[0].ops[o].kind == OP_ROWS;
            plan_world_free(&world);
        }
        plan_model_destroy(m);
    }
    print_message("%d rejected, %d with several gathers in flight, %d communications, %d exchanges of rows\n",
                  rejected, in_flight, collectives, rows);
    assert_true(rows > MODELS / 20);
    assert_in_range(rejected, 0, MODELS / 10);
    assert_true(in_flight > MODELS / 20);
}

/* A right plan may still differ from the plan before: slower, or with more memory. One line a model: its
 * ranks' plans are, in one number. */
static void random_plans_are_what_they_were(void **state)
{
    (void)state;
    scope_buffer text = {0};
    for (uint64_t i = 0; i < KEPT; i++) {
        uint64_t seed = i * UINT64_C(0x9E3779B97F4A7C15), hash = TEXT_HASH_START;
        struct plan_options options = random_options(&seed);
        struct plan_model *m = plan_model_random(&seed, options.mesh.side[SIDE_PIPELINE]);
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

/* One property of a model or its options that may be rejected; a value at a limit is accepted. */
static void spoil(uint64_t *seed, struct plan_model *m, struct plan_options *options)
{
    static const int64_t numbers[] = {-2,
                                      -1,
                                      0,
                                      1,
                                      2,
                                      3,
                                      4,
                                      5,
                                      7,
                                      8,
                                      9,
                                      16,
                                      17,
                                      24,
                                      25,
                                      64,
                                      65,
                                      256,
                                      257,
                                      1023,
                                      1024,
                                      1025,
                                      4095,
                                      4096,
                                      4097,
                                      16384,
                                      16385,
                                      65536,
                                      65537,
                                      1 << 20,
                                      (1 << 20) + 1,
                                      1 << 22,
                                      (1 << 22) + 1,
                                      1 << 24,
                                      (1 << 24) + 1,
                                      INT32_MAX};
    static const int64_t sizes[] = {
        -1, 0, 1, INT64_C(1) << 46, INT64_C(1) << 47, INT64_C(1) << 48, (INT64_C(1) << 48) + 1, INT64_MAX};
    struct model *model = &m->model;
    struct layer_desc *layer = &model->layers[plan_model_next(seed, (uint64_t)model->layer_count)];
    struct param_desc *param = &model->params[plan_model_next(seed, (uint64_t)model->param_count)];
    int value = (int)numbers[plan_model_next(seed, sizeof numbers / sizeof *numbers)];
    int near = (int)plan_model_next(seed, 3) - 1;
    switch (plan_model_next(seed, 24)) {
    case 0:
        options->strategy = (enum strategy)value;
        break;
    case 1:
        options->mesh.side[SIDE_SHARD] = value;
        break;
    case 2:
        options->mesh.side[SIDE_REPLICATE] = value;
        break;
    case 3:
        options->mesh.side[SIDE_PIPELINE] = value;
        break;
    case 4:
        options->rank = value;
        break;
    case 5:
        options->world_size += near;
        break;
    case 6:
        options->shape.B = value;
        break;
    case 7:
        options->shape.T = value;
        break;
    case 8:
        model->max_positions = options->shape.T + near;
        break;
    case 9:
        options->micro_batches = value > 4096 ? 0 : value;
        break;
    case 10:
        options->dtype = (enum dtype)(value & 7);
        break;
    case 11:
        options->prefetch_forward = value;
        break;
    case 12:
        options->prefetch_backward = value;
        break;
    case 13:
        options->group_bytes = value;
        options->keep_whole_bytes = near;
        break;
    case 14:
        options->compression = (struct compression_options){.kind = (enum compression)(value & 3),
                                                            .ratio = near,
                                                            .rank = near,
                                                            .least = value % 3,
                                                            .start = near - 1};
        break;
    case 15:
        param->ndim = value > MODEL_DIMS + 1 ? MODEL_DIMS + 1 : value;
        break;
    case 16:
        param->dim[param->ndim - 1] = sizes[plan_model_next(seed, 8)];
        break;
    case 17:
        param->parameter_class = (uint8_t)value;
        break;
    case 18:
        layer->param_count = value > LAYER_PARAMS + 1 ? -1 : layer->param_count + near;
        break;
    case 19:
        layer->param[0] = near < 0 ? -1 : model->param_count - (near == 0);
        break;
    case 20:
        layer->source[0] = near < 0 ? value : (int)(layer - model->layers) + near - 1;
        break;
    case 21:
        layer->source_count = layer->source_count + near;
        break;
    case 22:
        layer->part += near;
        break;
    default:
        model->parts += near;
        break;
    }
}

/* Rejected options, and with which text; accepted options, to the last line. */
static void spoilt_plans_are_rejected_as_they_were(void **state)
{
    (void)state;
    scope_buffer text = {0};
    int rejected = 0;
    for (uint64_t i = 0; i < 8 * KEPT; i++) {
        uint64_t seed = (i + 7000) * UINT64_C(0x9E3779B97F4A7C15);
        struct plan_options options = random_options(&seed);
        struct plan_model *m = plan_model_random(&seed, options.mesh.side[SIDE_PIPELINE]);
        struct plan plan = {0};
        struct muster_error err = {0};
        scope_buffer dump = {0};
        options.world_size = mesh_size(options.mesh);
        options.rank = (int)plan_model_next(&seed, (uint64_t)options.world_size);
        if (i % 4)
            spoil(&seed, m, &options);
        if (plan_build(&m->model, &options, &plan, &err) < 0) {
            rejected++;
            buffer_text(&dump, err.text);
        } else {
            assert_int_equal(plan_dump(&m->model, &plan, &dump), 0);
            assert_int_equal(plan_summary(&m->model, &plan, &dump), 0);
            plan_free(&plan);
        }
        buffer_printf(&text, "%016llx\n",
                      (unsigned long long)text_hash(TEXT_HASH_START, dump.data, dump.length));
        plan_model_destroy(m);
    }
    assert_in_range(rejected, KEPT, 6 * KEPT);
    golden_check("tests/unit/plan/golden/spoilt_plans.txt", &text);
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

/* With any part missing, there is no incomplete plan. */
static void random_plans_without_memory(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 60; i++) {
        uint64_t seed = i * UINT64_C(0x9E3779B97F4A7C15);
        struct one_plan one = {.options = random_options(&seed)};
        one.m = plan_model_random(&seed, one.options.mesh.side[SIDE_PIPELINE]);
        one.options.world_size = mesh_size(one.options.mesh);
        one.options.rank = one.options.world_size / 2;
        if (i % 2)
            random_dtypes(seed, &one.options);
        if (build_one(&one) == 0)
            faults_sweep(build_one, &one);
        plan_model_destroy(one.m);
    }
}

static void meshes(void **state)
{
    (void)state;
    enum { MOST = 1 << 30 };
    assert_int_equal(mesh_size((struct mesh)MESH(2, 3, 4)), 24);
    assert_int_equal(mesh_size((struct mesh)MESH(MOST, 1, 1)), MOST);
    assert_int_equal(mesh_size((struct mesh)MESH(1, 1 << 15, 1 << 15)), MOST);
    assert_int_equal(mesh_size((struct mesh)MESH(MOST, 1, 2)), 0);
    assert_int_equal(mesh_size((struct mesh)MESH(MOST, 2, 1)), 0);
    assert_int_equal(mesh_size((struct mesh)MESH(INT32_MAX, INT32_MAX, INT32_MAX)),
                     0); /* it would wrap around */
    for (int side = 0; side < SIDE_COUNT; side++)
        for (int length = -1; length < 2; length++) {
            struct mesh one = MESH(1, 1, 1);
            one.side[side] = length;
            assert_int_equal(mesh_size(one), length == 1);
        }
    const struct mesh mesh = MESH(2, 3, 4);
    for (int rank = 0; rank < 24; rank++) {
        struct mesh_place place = mesh_place_of(mesh, rank);
        assert_int_equal((place.at[0] * 3 + place.at[1]) * 4 + place.at[2], rank);
        assert_int_equal(mesh_rank_of(mesh, place), rank);
        for (int axis = 0; axis < AXIS_COUNT; axis++) {
            const struct mesh_line line = mesh_line(mesh, (enum mesh_axis)axis, rank);
            assert_int_equal(mesh_line_rank(mesh, (enum mesh_axis)axis, rank, line.place), rank);
        }
        const struct mesh_line data = mesh_line(mesh, AXIS_DATA, rank);
        assert_int_equal(data.color, rank / 12);
        assert_int_equal(data.place, rank % 12);
        assert_int_equal(data.size, 12);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_plans_are_what_they_were), cmocka_unit_test(random_plans_without_memory),
        cmocka_unit_test(meshes), cmocka_unit_test(spoilt_plans_are_rejected_as_they_were),
        cmocka_unit_test(random_plans_are_right)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
