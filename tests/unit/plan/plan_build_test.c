/* plan_build_test.c - what plan_build promises beyond a right schedule: refusals in one clear line, groups
 * and segments that cover everything, equal hashes, memory that shrinks with sharding, no leak under any
 * failing allocation. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/clock.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/plan_cut.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/faults.h"
#include "tests/support/plan_check/plan_check.h"
#include "tests/support/plan_models.h"
#include "tests/support/plan_world.h"

static struct plan_model *small_gpt(void)
{
    return plan_model_gpt(4, 128, 256, 128, 512, 0);
}

static struct plan built(const struct plan_model *m, const struct plan_options *options)
{
    struct plan plan;
    struct muster_error err = {0};
    if (plan_build(&m->model, options, &plan, &err) < 0)
        fail_msg("%s", err.text);
    if (plan_check(&m->model, &plan, &err) < 0)
        fail_msg("%s", err.text);
    return plan;
}

static int64_t total(const struct plan *plan)
{
    int64_t bytes = 0;
    for (int m = 0; m < MEMORY_CLASS_COUNT; m++)
        bytes += plan->arena_bytes[m];
    return bytes;
}

/* ---- refusals ---- */

static void refused(const struct model *model, const struct plan_options *options, int code, const char *text)
{
    struct plan plan = {.op_count = 77};
    struct muster_error err = {0};
    assert_int_equal(plan_build(model, options, &plan, &err), -1);
    if (err.code != code || !strstr(err.text, text))
        fail_msg("wanted \"%s\" but got %d: %s", text, err.code, err.text);
    assert_int_equal(plan.op_count, 77); /* nothing is written on failure */
    assert_int_equal(plan_build(model, options, &plan, NULL), -1);
}

static void options_are_rejected_with_reasons(void **state)
{
    (void)state;
    struct plan_model *m = small_gpt();
    const struct plan_options good = plan_world_options(STRATEGY_FULL_SHARD, 1, 1, 2);
    const struct {
        const char *text;
        struct plan_options options;
    } cases[] = {
#define CASE(words, ...)                                                                                     \
    {words, ({                                                                                               \
         struct plan_options o = good;                                                                       \
         __VA_ARGS__;                                                                                        \
         o;                                                                                                  \
     })}
        CASE("every side is at least 1", o.mesh.side[SIDE_SHARD] = 0),
        CASE("has 2 ranks but the world has 4", o.world_size = 4),
        CASE("rank 2 is not in a world of 2", o.rank = 2),
        CASE("rank -1", o.rank = -1),
        CASE("2 pipeline stages but model gpt is cut into 1", o.mesh.side[SIDE_PIPELINE] = 2),
        CASE("needs HYBRID_SHARD", o.mesh.side[SIDE_REPLICATE] = 2),
        CASE("swap them", o.mesh = ((struct mesh)MESH(1, 2, 1))),
        CASE("0 x 128 tokens", o.shape.B = 0),
        CASE("4 x -1 tokens", o.shape.T = -1),
        CASE("sequence length 129 is above the 128 positions", o.shape.T = 129),
        CASE("0 micro-batches", o.micro_batches = 0),
        CASE("prefetch of -1", o.prefetch_forward = -1),
        CASE("and 65 backward", o.prefetch_backward = 65),
        CASE("group_bytes is -5", o.group_bytes = -5),
        CASE("keep_whole_bytes is -7", o.keep_whole_bytes = -7),
        CASE("decay of averaged parameters is 1;", o.average_decay = 1),
        CASE("strategy 99", o.strategy = (enum strategy)99),
        CASE("compression_ratio 0; use above 0 to 1", o.compression.kind = COMPRESSION_TOPK),
        CASE("needs replicas: FULL_SHARD",
             o.compression = ((struct compression_options){.kind = COMPRESSION_TOPK, .ratio = 1})),
#undef CASE
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refused(&m->model, &cases[i].options, MUSTER_E_INVALID, cases[i].text);
    struct plan_options bf16 = good;
    bf16.dtype = DTYPE_BF16;
    refused(&m->model, &bf16, MUSTER_E_UNSUPPORTED, "f32 and f64");
    plan_model_destroy(m);
}

static void model_refused(void (*spoil)(struct plan_model *m), int code, const char *text)
{
    struct plan_model *m = small_gpt();
    struct plan_options options = plan_world_options(STRATEGY_FULL_SHARD, 1, 1, 2);
    spoil(m);
    options.mesh.side[SIDE_PIPELINE] = m->model.parts > 0 ? m->model.parts : 1;
    options.rank = 0;
    refused(&m->model, &options, code, text);
    plan_model_destroy(m);
}

static void too_many_stages(struct plan_model *m)
{
    m->model.parts = 7;
}
static void no_stages(struct plan_model *m)
{
    m->model.parts = 0;
}
static void stage_backwards(struct plan_model *m)
{
    plan_model_stages(m, 2);
    m->layers[5].part = 0;
}
static void skips_a_stage(struct plan_model *m)
{
    plan_model_stages(m, 3);
    plan_model_source(m, 5, 0);
}
static void source_after_user(struct plan_model *m)
{
    m->layers[2].source[0] = 3;
}
static void unused_param(struct plan_model *m)
{
    m->layers[1].param_count--;
}
static void unknown_param(struct plan_model *m)
{
    m->layers[1].param[3] = 4000;
}
static void param_twice(struct plan_model *m)
{
    m->layers[1].param[3] = m->layers[1].param[2];
}
static void empty_param(struct plan_model *m)
{
    m->params[3].dim[0] = 0;
}
static void strange_class(struct plan_model *m)
{
    m->params[3].parameter_class = 8;
}
static void no_loss(struct plan_model *m)
{
    m->sizes[5].out = 64;
}
static void reads_the_loss(struct plan_model *m)
{
    m->sizes[2].out = 0;
}
static void nothing_to_train(struct plan_model *m)
{
    for (int p = 0; p < m->model.param_count; p++)
        m->params[p].trainable = false;
}
static void too_many_groups(struct plan_model *m)
{
    for (int i = 0; i < 12; i++)
        m->params[m->layers[1].param[i]].unit = 50 + i;
    for (int i = 0; i < 8; i++)
        plan_model_use(m, 4, m->layers[1].param[i]); /* used far apart: each is a group of its own */
}

static void models_are_rejected_with_reasons(void **state)
{
    (void)state;
    model_refused(too_many_stages, MUSTER_E_INVALID, "7 parts for 6 layers");
    model_refused(no_stages, MUSTER_E_INVALID, "0 parts for 6 layers");
    model_refused(stage_backwards, MUSTER_E_INVALID, "parts are runs of layers in order");
    model_refused(skips_a_stage, MUSTER_E_INVALID, "only the part before can be read");
    model_refused(source_after_user, MUSTER_E_INVALID, "does not come before it");
    model_refused(unused_param, MUSTER_E_INVALID, "is used by no layer");
    model_refused(unknown_param, MUSTER_E_INVALID, "uses parameter 4000");
    model_refused(param_twice, MUSTER_E_INVALID, "twice");
    model_refused(empty_param, MUSTER_E_INVALID, "dimension 0 is 0");
    model_refused(strange_class, MUSTER_E_INVALID, "classes are 0 to 7");
    model_refused(no_loss, MUSTER_E_INVALID, "no layer reads");
    model_refused(reads_the_loss, MUSTER_E_INVALID, "has no output");
    model_refused(nothing_to_train, MUSTER_E_INVALID, "nothing to train");
    model_refused(too_many_groups, MUSTER_E_LIMIT, "more than 5 groups");
}

/* ---- groups ---- */

/* Each array begins at a multiple of 256 bytes, after the array before. */
static void arrays_of_a_batch_follow_one_another(void **state)
{
    (void)state;
    struct model model = {0};
    const struct shape shape = {.B = 3, .T = 5};
    assert_int_equal(batch_bytes(&model, shape), 0);
    assert_int_equal(model_add_input(&model, "tokens", DTYPE_I32, true, 1), 0);     /* 60 bytes */
    assert_int_equal(model_add_input(&model, "pictures", DTYPE_F32, false, 64), 1); /* 768 */
    assert_int_equal(model_add_input(&model, "targets", DTYPE_F64, true, 3), 2);    /* 360 */
    const int64_t wanted[] = {0, 256, 1024};
    for (int i = 0; i < 3; i++)
        assert_int_equal(batch_offset(&model, shape, i), wanted[i]);
    assert_int_equal(batch_bytes(&model, shape), 1536);
}

static void a_batch_has_one_array_at_least(void **state)
{
    (void)state;
    const int counts[] = {0, 1, BATCH_INPUTS + 1};
    struct plan_model *m = small_gpt();
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct muster_error err = {0};
        m->model.input_count = counts[i];
        assert_int_equal(model_check(&m->model, &err), counts[i] == 1 ? 0 : -1);
        assert_true(counts[i] == 1 || strstr(err.text, "it may have 1 to"));
    }
    plan_model_destroy(m);
}

static void groups_follow_units(void **state)
{
    (void)state;
    struct plan_model *m = small_gpt();
    struct plan_options options = plan_world_options(STRATEGY_FULL_SHARD, 1, 1, 2);
    struct plan plan = built(m, &options);
    assert_true(plan.group_count >= 4);
    assert_true(plan.gathers_in_flight >= 2);
    for (int p = 0; p < m->model.param_count; p++)
        for (int q = 0; q < m->model.param_count; q++)
            if (m->params[p].unit == m->params[q].unit)
                assert_int_equal(plan.places[p].group, plan.places[q].group);
    /* The tied embedding shares its group with nothing but its own unit. */
    assert_int_equal(plan.groups[plan.places[0].group].param_count, 2);
    plan_free(&plan);
    options.group_bytes = INT64_C(1) << 40;
    plan = built(m, &options);
    assert_int_equal(plan.group_count, 2); /* the embedding, and all the rest */
    plan_free(&plan);
    options.group_bytes = 1;
    plan = built(m, &options);
    assert_int_equal(plan.group_count, 6);
    plan_free(&plan);
    plan_model_destroy(m);
}

static void frozen_and_trainable_do_not_mix(void **state)
{
    (void)state;
    struct plan_model *m = plan_model_gpt(4, 128, 256, 128, 512, 8);
    struct plan_options options = plan_world_options(STRATEGY_FULL_SHARD, 1, 1, 2);
    struct plan plan = built(m, &options);
    for (int p = 0; p < m->model.param_count; p++)
        assert_int_equal(plan.groups[plan.places[p].group].trainable, m->params[p].trainable);
    for (int g = 0; g < plan.group_count; g++)
        if (!plan.groups[g].trainable)
            assert_true(plan.groups[g].grad < 0 && plan.groups[g].moment1 < 0 && plan.groups[g].moment2 < 0);
    for (int g = 0; g < plan.group_count; g++)
        assert_true(plan.groups[g].trainable || plan.groups[g].segment_count == 0);
    plan_free(&plan);
    plan_model_destroy(m);
}

/* An average is as long as the shard that is stepped; without one there is no buffer and no operation of it.
 */
static void averages_are_planned_on_demand(void **state)
{
    (void)state;
    struct plan_model *m = plan_model_cnn(5, 64);
    for (int narrow = 0; narrow < 2; narrow++) {
        struct plan_options options = plan_world_options(STRATEGY_FULL_SHARD, 1, 1, 2);
        options.param_dtype = narrow ? DTYPE_BF16 : options.dtype;
        struct plan without = built(m, &options);
        options.average_decay = 0.99;
        struct plan with = built(m, &options);
        int averages = 0, steps = 0;
        for (int o = 0; o < with.op_count; o++) {
            averages += with.ops[o].kind == OP_AVERAGE;
            steps += with.ops[o].kind == OP_STEP;
        }
        assert_true(averages == steps && steps > 0 && with.op_count == without.op_count + averages);
        assert_int_equal(with.kind_bytes[PLAN_AVERAGE], with.kind_bytes[PLAN_MOMENT1]);
        assert_int_equal(without.kind_bytes[PLAN_AVERAGE], 0);
        assert_int_equal(with.arena_bytes[MEMORY_DEVICE],
                         without.arena_bytes[MEMORY_DEVICE] + with.kind_bytes[PLAN_AVERAGE]);
        assert_true(with.hash != without.hash);
        plan_free(&with);
        plan_free(&without);
    }
    plan_model_destroy(m);
}

/* The state of an optimizer is planned, and no more. */
static void moments_are_the_optimizers(void **state)
{
    (void)state;
    static const struct {
        struct optimizer_options optimizer;
        int moments;
    } rows[] = {{{OPTIMIZER_ADAMW, 0, 0, false}, 2},
                {{OPTIMIZER_ADAM, 0, 0, false}, 2},
                {{OPTIMIZER_SGD, 0.9, 0, true}, 1},
                {{OPTIMIZER_SGD, 0, 0, false}, 0}};
    struct plan_model *m = plan_model_cnn(5, 64);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct plan_options options = plan_world_options(STRATEGY_FULL_SHARD, 1, 1, 2);
        options.optimizer = rows[i].optimizer;
        struct plan plan = built(m, &options);
        for (int g = 0; g < plan.group_count; g++)
            assert_int_equal((plan.groups[g].moment1 >= 0) + (plan.groups[g].moment2 >= 0), rows[i].moments);
        assert_int_equal(plan.kind_bytes[PLAN_MOMENT2] > 0, rows[i].moments == 2);
        plan_free(&plan);
    }
    plan_model_destroy(m);
}

static void optimizers_that_cannot_be_are_named(void **state)
{
    (void)state;
    static const struct {
        struct optimizer_options optimizer;
        const char *error;
    } rows[] = {
        {{OPTIMIZER_SGD, 0, 0, true}, "nesterov needs a momentum and no dampening; they are 0 and 0"},
        {{OPTIMIZER_SGD, 0.9, 0.1, true}, "nesterov needs a momentum and no dampening; they are 0.9 and 0.1"},
        {{OPTIMIZER_SGD, 1, 0, false}, "SGD's momentum is 1; use 0 to below 1"},
        {{OPTIMIZER_ADAMW, 0.9, 0, false},
         "momentum, dampening and nesterov are SGD's; Adam's are beta1 and beta2"},
    };
    struct plan_model *m = plan_model_cnn(5, 64);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct plan_options options = plan_world_options(STRATEGY_FULL_SHARD, 1, 1, 2);
        struct plan plan;
        struct muster_error err = {0};
        options.optimizer = rows[i].optimizer;
        assert_int_equal(plan_build(&m->model, &options, &plan, &err), -1);
        assert_string_equal(err.text, rows[i].error);
    }
    plan_model_destroy(m);
}

/* Over all ranks, the segments of a class hold each of its parameters' elements once. */
/* Neighbours are merged while they fit into an eighth of all parameters, and no further. */
static void groups_are_an_eighth_of_the_parameters(void **state)
{
    (void)state;
    for (int blocks = 1; blocks <= 30; blocks++) {
        struct plan_model *m = plan_model_gpt(blocks, 128, 256, 128, 512, 0);
        const struct plan_options options = plan_world_options(STRATEGY_FULL_SHARD, 1, 1, 2);
        struct plan plan = built(m, &options);
        const int64_t target = model_parameters(&m->model) * 4 / 8;
        int64_t before = 0;
        for (int g = 1; g < plan.group_count; g++) { /* group 0 is the tied embedding */
            const struct param_group *group = &plan.groups[g];
            int64_t bytes = 0, first = 0;
            for (int i = 0; i < group->param_count; i++) {
                const struct param_desc *param = &m->params[plan.group_params[group->first_param + i]];
                bytes += param_elements(param) * 4;
                first += param->unit == m->params[plan.group_params[group->first_param]].unit
                             ? param_elements(param) * 4
                             : 0;
            }
            assert_true(bytes == first || bytes <= target);
            assert_true(before == 0 || before + first > target);
            before = bytes;
        }
        plan_free(&plan);
        plan_model_destroy(m);
    }
}

static void segments_cover_every_parameter_once(void **state)
{
    (void)state;
    struct plan_model *m = plan_model_cnn(5, 64);
    struct plan_options options = plan_world_options(STRATEGY_FULL_SHARD, 1, 1, 3);
    options.group_bytes = 3000;
    struct plan_world world;
    struct muster_error err = {0};
    if (plan_world_build(&m->model, &options, &world, &err) < 0)
        fail_msg("%s", err.text);
    for (int p = 0; p < m->model.param_count; p++) {
        const struct param_place *place = &world.plans[0].places[p];
        assert_int_equal(place->offset % 16, 0);
        for (int64_t e = 0; e < param_elements(&m->params[p]); e++) {
            int found = 0;
            for (int rank = 0; rank < 3; rank++) {
                const struct plan *plan = &world.plans[rank];
                const struct param_group *group = &plan->groups[place->group];
                int64_t at = place->offset + e - group->shard_start;
                for (int s = 0; s < group->segment_count; s++) {
                    const struct optimizer_segment *segment = &plan->segments[group->first_segment + s];
                    if (at >= segment->offset && at < segment->offset + segment->count) {
                        assert_int_equal(segment->parameter_class, m->params[p].parameter_class);
                        found++;
                    }
                }
            }
            assert_int_equal(found, 1);
        }
    }
    for (int rank = 0; rank < 3; rank++) { /* each group has its own, in their order */
        const struct plan *plan = &world.plans[rank];
        int next = 0;
        for (int g = 0; g < plan->group_count; g++) {
            assert_int_equal(plan->groups[g].first_segment, next);
            for (int s = 0; s < plan->groups[g].segment_count; s++, next++) {
                const struct optimizer_segment *segment = &plan->segments[next];
                assert_true(segment->count > 0 && segment->offset + segment->count <= plan->groups[g].shard);
                assert_true(s == 0 || segment->offset >= segment[-1].offset + segment[-1].count);
            }
        }
        assert_int_equal(next, plan->segment_count);
    }
    plan_world_free(&world);
    plan_model_destroy(m);
}

/* ---- the whole ---- */

static void hash_tells_schedules_apart(void **state)
{
    (void)state;
    struct plan_model *m = small_gpt();
    struct plan_options options = plan_world_options(STRATEGY_FULL_SHARD, 1, 1, 4);
    struct plan a = built(m, &options);
    options.rank = 3;
    struct plan b = built(m, &options);
    assert_true(a.hash == b.hash);
    plan_free(&b);
    options.prefetch_backward = 1;
    b = built(m, &options);
    assert_true(a.hash != b.hash);
    plan_free(&b);
    options.prefetch_backward = 2;
    m->params[5].dim[0] += 16;
    b = built(m, &options);
    assert_true(a.hash != b.hash);
    plan_free(&b);
    plan_free(&a);
    plan_model_destroy(m);
}

static void memory_falls_with_sharding(void **state)
{
    (void)state;
    struct plan_model *m = plan_model_gpt(12, 768, 50257, 1024, 1024, 0);
    const enum strategy order[] = {STRATEGY_NO_SHARD, STRATEGY_SHARD_OPTIM, STRATEGY_SHARD_GRAD_OP,
                                   STRATEGY_FULL_SHARD};
    int64_t before = INT64_MAX;
    for (int i = 0; i < 4; i++) {
        struct plan_options options = plan_world_options(order[i], 1, 1, 8);
        struct plan plan = built(m, &options);
        assert_true(total(&plan) < before);
        before = total(&plan);
        plan_free(&plan);
    }
    /* Forming activations again costs less than half of keeping them. */
    struct plan_options options = plan_world_options(STRATEGY_FULL_SHARD, 1, 1, 8);
    struct plan kept = built(m, &options);
    for (int l = 1; l <= 12; l++)
        m->layers[l].recompute = true;
    struct plan formed = built(m, &options);
    assert_true(formed.arena_bytes[MEMORY_DEVICE] * 2 < kept.arena_bytes[MEMORY_DEVICE]);
    plan_free(&formed);
    for (int l = 1; l <= 12; l++)
        m->layers[l].recompute = false;
    /* The same by policy; every second layer is between; the last micro-batch alone keeps the same as all
     * would. */
    options.recompute.kind = RECOMPUTE_ALL;
    struct plan all = built(m, &options);
    assert_true(all.arena_bytes[MEMORY_DEVICE] * 2 < kept.arena_bytes[MEMORY_DEVICE]);
    options.recompute = (struct recompute_options){RECOMPUTE_EVERY, 2};
    struct plan second = built(m, &options);
    assert_true(all.arena_bytes[MEMORY_DEVICE] < second.arena_bytes[MEMORY_DEVICE] &&
                second.arena_bytes[MEMORY_DEVICE] < kept.arena_bytes[MEMORY_DEVICE]);
    options.recompute = (struct recompute_options){RECOMPUTE_EXCEPT_LAST, 0};
    struct plan last = built(m, &options);
    assert_int_equal(last.op_count, kept.op_count); /* with one micro-batch nothing is left to recompute */
    options.micro_batches = 2;
    plan_free(&last);
    last = built(m, &options);
    assert_int_equal(last.arena_bytes[MEMORY_DEVICE], kept.arena_bytes[MEMORY_DEVICE]);
    plan_free(&last);
    plan_free(&second);
    plan_free(&all);
    plan_free(&kept);
    plan_model_destroy(m);
}

/* Moments in host memory leave the device's by as much as they take there. */
static void moments_move_to_host_memory(void **state)
{
    (void)state;
    struct plan_model *m = small_gpt();
    struct plan_options options = plan_world_options(STRATEGY_FULL_SHARD, 1, 1, 2);
    struct plan device = built(m, &options);
    options.optimizer_memory = MEMORY_HOST;
    struct plan host = built(m, &options);
    assert_int_equal(host.arena_bytes[MEMORY_HOST],
                     host.kind_bytes[PLAN_MOMENT1] + host.kind_bytes[PLAN_MOMENT2]);
    assert_int_equal(host.arena_bytes[MEMORY_HOST],
                     device.arena_bytes[MEMORY_DEVICE] - host.arena_bytes[MEMORY_DEVICE]);
    plan_free(&device);
    plan_free(&host);
    plan_model_destroy(m);
}

static int count_gathers(const struct plan *plan)
{
    int count = 0;
    for (int o = 0; o < plan->op_count; o++)
        count += plan->ops[o].kind == OP_COMM && plan->ops[o].comm.kind == COMM_ALL_GATHER &&
                 plan->ops[o].group >= 0; /* not of looked-up rows */
    return count;
}

static void gathers_are_not_repeated(void **state)
{
    (void)state;
    struct plan_model *m = plan_model_gpt(12, 64, 256, 64, 64, 0);
    struct plan_options options = plan_world_options(STRATEGY_FULL_SHARD, 1, 1, 2);
    options.shape = (struct shape){1, 64};
    options.group_bytes = 1;
    struct plan plan = built(m, &options);
    /* Embedding and final norm once; 12 blocks forward, and backward all but the 3 that are still there. */
    assert_int_equal(count_gathers(&plan), 2 + 12 + 9);
    plan_free(&plan);
    options.prefetch_forward = options.prefetch_backward = 0;
    plan = built(m, &options);
    assert_int_equal(count_gathers(&plan), 2 + 12 + 11); /* one slot: only the last stays at the turn */
    assert_int_equal(plan.gathers_in_flight, 0);
    plan_free(&plan);
    options.strategy = STRATEGY_SHARD_GRAD_OP;
    options.micro_batches = 3;
    plan = built(m, &options);
    assert_int_equal(count_gathers(&plan), plan.group_count);
    plan_free(&plan);
    plan_model_destroy(m);
}

static void one_rank_communicates_nothing(void **state)
{
    (void)state;
    struct plan_model *m = small_gpt();
    for (int s = 0; s < STRATEGY_COUNT; s++) {
        struct plan_options options = plan_world_options((enum strategy)s, 1, 1, 1);
        options.micro_batches = 2;
        struct plan plan = built(m, &options);
        for (int o = 0; o < plan.op_count; o++)
            assert_int_not_equal(plan.ops[o].kind, OP_COMM);
        plan_free(&plan);
    }
    plan_model_destroy(m);
}

static void evaluation_only_goes_forward(void **state)
{
    (void)state;
    struct plan_model *m = small_gpt();
    struct plan_options options = plan_world_options(STRATEGY_FULL_SHARD, 1, 1, 2);
    options.train = false;
    struct plan plan = built(m, &options);
    assert_int_equal(plan.first_backward, plan.op_count);
    assert_int_equal(plan.kind_bytes[PLAN_MOMENT1] + plan.kind_bytes[PLAN_GRAD_FULL], 0);
    for (int o = 0; o < plan.op_count; o++)
        if (plan.ops[o].kind == OP_FORWARD)
            assert_int_equal(plan.ops[o].mode, LAYER_EVAL);
    plan_free(&plan);
    plan_model_destroy(m);
}

/* Any stages, and not only the first and the last: their copies are summed in one order. */
static void parameters_lie_on_any_stages(void **state)
{
    (void)state;
    struct plan_model *m = small_gpt();
    struct plan_world world;
    struct muster_error err = {0};
    struct plan_options options = plan_world_options(STRATEGY_FULL_SHARD, 3, 1, 2);
    options.micro_batches = 4;
    plan_model_stages(m, 3);
    plan_model_use(m, 2, m->layers[0].param[0]); /* the head on the last stage uses it too */
    plan_model_use(m, 3, m->layers[4].param[0]);
    if (plan_world_build(&m->model, &options, &world, &err) < 0)
        fail_msg("%s", err.text);
    const struct plan *middle = &world.plans[2];
    int tied = 0;
    for (int o = 0; o < middle->op_count; o++)
        tied += middle->ops[o].kind == OP_COMM && middle->ops[o].axis == AXIS_TIED;
    assert_int_equal(middle->tie_count, 2);
    assert_int_equal(middle->ties[0], 7);
    assert_true(tied > 0);
    plan_world_free(&world);
    plan_model_destroy(m);
}

static void mesh_places_are_unique(void **state)
{
    (void)state;
    struct mesh mesh = MESH(3, 2, 4);
    assert_int_equal(mesh_size(mesh), 24);
    for (int rank = 0; rank < 24; rank++)
        assert_int_equal(mesh_rank_of(mesh, mesh_place_of(mesh, rank)), rank);
    assert_int_equal(mesh_place_of(mesh, 23).at[SIDE_PIPELINE], 2);
    assert_int_equal(mesh_place_of(mesh, 5).at[SIDE_SHARD], 1);
    assert_int_equal(mesh_size((struct mesh)MESH(1, 0, 4)), 0);
    assert_int_equal(mesh_size((struct mesh)MESH(1 << 20, 1 << 20, 1 << 20)), 0);
}

struct sweep {
    struct plan_model *m;
    struct plan_options options;
};

static int build_once(void *context)
{
    struct sweep *sweep = context;
    struct plan plan;
    struct muster_error err = {0};
    int result = plan_build(&sweep->m->model, &sweep->options, &plan, &err);
    if (result < 0) {
        assert_int_equal(err.code, MUSTER_E_NOMEM);
        return result;
    }
    result = plan_check(&sweep->m->model, &plan, &err);
    if (result == 0) {
        const struct plan *const list[] = {&plan};
        result = mesh_size(plan.options.mesh) == 1 ? plan_check_world(list, 1, &err) : 0;
    }
    plan_free(&plan);
    return result;
}

static void failing_allocations_leak_nothing(void **state)
{
    (void)state;
    struct sweep sweep = {small_gpt(), plan_world_options(STRATEGY_HYBRID_SHARD, 1, 2, 2)};
    sweep.options.compression = (struct compression_options){.kind = COMPRESSION_TOPK, .ratio = 0.1};
    faults_sweep(build_once, &sweep);
    sweep.options = plan_world_options(STRATEGY_NO_SHARD, 1, 1, 1);
    faults_sweep(build_once, &sweep);
    plan_free(NULL);
    plan_model_destroy(sweep.m);
}

/* A figure for people; no test of time. */
static void planning_is_quick(void **state)
{
    (void)state;
    struct plan_model *m = plan_model_gpt(12, 768, 50257, 1024, 1024, 0);
    struct plan_options options = plan_world_options(STRATEGY_FULL_SHARD, 1, 1, 8);
    options.micro_batches = 8;
    struct plan plan;
    struct muster_error err = {0};
    struct instant begin = clock_now(NULL);
    assert_int_equal(plan_build(&m->model, &options, &plan, &err), 0);
    struct instant end = clock_now(NULL);
    print_message("GPT-2 124M, 8 micro-batches: %d operations, %d buffers in %.2f ms\n", plan.op_count,
                  plan.entry_count, (double)instant_diff_ns(end, begin) / 1e6);
    plan_free(&plan);
    plan_model_destroy(m);
}

static void worlds_become_meshes(void **state)
{
    (void)state;
    const struct {
        enum strategy strategy;
        int64_t pipeline, replicas;
        int world, local, replicate;
        const char *error;
    } cases[] = {
        {STRATEGY_FULL_SHARD, 1, 0, 8, 4, 1, NULL},
        {STRATEGY_NO_SHARD, 1, 1, 8, 4, 1, NULL},
        {STRATEGY_HYBRID_SHARD, 1, 0, 8, 4, 2, NULL},
        {STRATEGY_HYBRID_SHARD, 1, 0, 4, 1, 4, NULL},
        {STRATEGY_HYBRID_SHARD, 1, 1, 4, 4, 1, NULL},
        {STRATEGY_HYBRID_SHARD, 1, 4, 4, 4, 4, NULL},
        {STRATEGY_HYBRID_SHARD, 1, 4, 8, 2, 4, NULL},
        {STRATEGY_HYBRID_SHARD, 1, 0, 4, 4, 0, "all 4 ranks run on one node; set replicas to a divisor of 4"},
        {STRATEGY_HYBRID_SHARD, 1, 0, 7, 2, 0, "a world of 7 does not consist of nodes with 2 ranks"},
        {STRATEGY_HYBRID_SHARD, 1, 5, 12, 4, 0,
         "does not divide a world of 12; the nearest that do are 4 and 6"},
        {STRATEGY_HYBRID_SHARD, 1, 9, 4, 4, 0, "replicas is 9, which does not divide a world of 4"},
        {STRATEGY_HYBRID_SHARD, 1, -1, 4, 4, 0, "replicas is -1"},
        {STRATEGY_FULL_SHARD, 1, 2, 8, 4, 0, "only HYBRID_SHARD has replicas, not FULL_SHARD"},
        {STRATEGY_FULL_SHARD, 2, 0, 8, 4, 1, NULL},
        {STRATEGY_HYBRID_SHARD, 2, 0, 8, 2, 2, NULL},
        {STRATEGY_HYBRID_SHARD, 2, 0, 8, 8, 0, "all 4 ranks run on one node; set replicas to a divisor of 4"},
        {STRATEGY_HYBRID_SHARD, 2, 3, 8, 8, 0,
         "does not divide a stage of 4; the nearest that do are 2 and 4"},
        {STRATEGY_FULL_SHARD, 2, 0, 7, 4, 0,
         "mesh: pipeline 2 needs a multiple of 2 ranks, and the world has 7: use 6 or 8, or mesh.spare: true "
         "(1 rank would wait)"},
        {STRATEGY_NO_SHARD, 4, 0, 3, 3, 0,
         "mesh: pipeline 4 needs a multiple of 4 ranks, and the world has 3: use 4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mesh mesh = {0};
        struct muster_error err = {0};
        const struct mesh_wish wish = {cases[i].strategy, cases[i].pipeline, cases[i].replicas,
                                       cases[i].world, cases[i].local};
        int result = mesh_choose(&wish, &mesh, &err);
        if (result != (cases[i].error ? -1 : 0) || mesh.side[SIDE_REPLICATE] != cases[i].replicate ||
            !strstr(err.text, cases[i].error ? cases[i].error : ""))
            fail_msg("case %zu: %d, %d replicas, '%s'", i, result, mesh.side[SIDE_REPLICATE], err.text);
        assert_int_equal(mesh_size(mesh), result ? 0 : cases[i].world);
    }
}

/* h.0 to h.4 between an embedding and a head: which layer begins which stage. */
static void layers_become_stages(void **state)
{
    (void)state;
    const char *const by_name[] = {"h.1", "head", NULL}, *const unknown[] = {"h.9", NULL},
                      *const order[] = {"h.3", "h.1", NULL}, *const first[] = {"embedding", NULL};
    const double ends[] = {9, 1, 1, 1, 1, 1, 6}, flat[] = {1, 1, 1, 1, 1, 1, 1},
                 late[] = {0, 0, 0, 0, 0, 0, 1};
    const struct {
        struct plan_cut cut;
        const char *stages, *error;
    } cases[] = {
        {{.stages = 1}, "0000000", NULL},
        {{.stages = 2, .even = true}, "0001111", NULL},
        {{.stages = 3, .even = true}, "0011222", NULL},
        {{.stages = 7, .even = true}, "0123456", NULL},
        {{.stages = 3, .names = by_name}, "0011112", NULL},
        {{.stages = 2, .seconds = ends}, "0011111", NULL},
        {{.stages = 3, .seconds = ends}, "0111112", NULL},
        {{.stages = 2, .seconds = flat}, "0001111", NULL},
        {{.stages = 4, .seconds = late}, "0123333", NULL},
        {{.stages = 3, .chunks = 2, .even = true}, "0123455", NULL},
        {{.stages = 2, .chunks = 2, .seconds = flat}, "0112233", NULL},
        {{.stages = 4, .chunks = 3},
         NULL,
         "mesh.chunks 3 x mesh.pipeline 4 are 12 parts of a model of 7 layers"},
        {{.stages = 2, .chunks = 1 << 30},
         NULL,
         "are 2147483648 parts of a model of 7 layers; use at most 7"},
        {{.stages = 2, .chunks = 2, .names = by_name},
         NULL,
         "mesh.cut makes 3 parts, mesh.pipeline 2 x mesh.chunks 2 are 4"},
        {{.stages = 8}, NULL, "mesh.pipeline 8 for a model of 7 layers; use 1 to 7"},
        {{.stages = 2, .names = unknown},
         NULL,
         "mesh.cut names h.9, and the model's layers are embedding, h.0 to h.4, head"},
        {{.stages = 3, .names = order}, NULL, "mesh.cut is not in the order of layers: h.3 before h.1"},
        {{.stages = 2, .names = by_name}, NULL, "mesh.cut makes 3 stages, mesh.pipeline is 2"},
        {{.stages = 2, .names = first},
         NULL,
         "mesh.cut names embedding, which begins the first stage anyway"},
    };
    struct plan_model *m = plan_model_gpt(5, 128, 256, 128, 512, 0);
    const struct plan_options options = plan_world_options(STRATEGY_NO_SHARD, 1, 1, 1);
    assert_int_equal(m->model.layer_count, 7);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct muster_error err = {0};
        const int result = plan_cut_model(&m->model, &options, &cases[i].cut, &err);
        if (result != (cases[i].error ? -1 : 0) || !strstr(err.text, cases[i].error ? cases[i].error : ""))
            fail_msg("case %zu: %d, '%s'", i, result, err.text);
        for (int l = 0; !result && l < 7; l++)
            if (m->layers[l].part != cases[i].stages[l] - '0')
                fail_msg("case %zu: layer %d is on stage %d", i, l, m->layers[l].part);
    }
    plan_model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_are_rejected_with_reasons),
        cmocka_unit_test(models_are_rejected_with_reasons),
        cmocka_unit_test(arrays_of_a_batch_follow_one_another),
        cmocka_unit_test(a_batch_has_one_array_at_least),
        cmocka_unit_test(groups_follow_units),
        cmocka_unit_test(frozen_and_trainable_do_not_mix),
        cmocka_unit_test(moments_are_the_optimizers),
        cmocka_unit_test(averages_are_planned_on_demand),
        cmocka_unit_test(optimizers_that_cannot_be_are_named),
        cmocka_unit_test(groups_are_an_eighth_of_the_parameters),
        cmocka_unit_test(segments_cover_every_parameter_once),
        cmocka_unit_test(hash_tells_schedules_apart),
        cmocka_unit_test(memory_falls_with_sharding),
        cmocka_unit_test(moments_move_to_host_memory),
        cmocka_unit_test(gathers_are_not_repeated),
        cmocka_unit_test(one_rank_communicates_nothing),
        cmocka_unit_test(evaluation_only_goes_forward),
        cmocka_unit_test(parameters_lie_on_any_stages),
        cmocka_unit_test(mesh_places_are_unique),
        cmocka_unit_test(worlds_become_meshes),
        cmocka_unit_test(layers_become_stages),
        cmocka_unit_test(failing_allocations_leak_nothing),
        cmocka_unit_test(planning_is_quick),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
