/* plan_golden_test.c - whole plans as text against tests/unit/plan/golden/plan_*.txt. MUSTER_GOLDEN_UPDATE=1
 * writes the files anew. */
#include <stdio.h>
#include <stdlib.h>

#include "proto/base/buffer.h"
#include "runtime/plan/plan.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/golden.h"
#include "tests/support/plan_models.h"
#include "tests/support/plan_world.h"

static void check_golden(const char *name, const struct buffer *text)
{
    char path[256];
    (void)snprintf(path, sizeof path, "tests/unit/plan/golden/plan_%s.txt", name);
    golden_check(path, text);
}

/* The plans of ranks first, first+step, ... of a world in one file. */
static void golden(const char *name, struct plan_model *m, const struct plan_options *options, int first,
                   int step)
{
    struct plan_world world;
    struct muster_error err = {0};
    scope_buffer text = {0};
    if (plan_world_build(&m->model, options, &world, &err) < 0)
        fail_msg("%s: %s", name, err.text);
    for (int rank = first; rank < world.count; rank += step) {
        assert_int_equal(plan_dump(&m->model, &world.plans[rank], &text), 0);
        assert_int_equal(buffer_text(&text, "\n"), 0);
        assert_int_equal(plan_summary(&m->model, &world.plans[rank], &text), 0);
    }
    check_golden(name, &text);
    plan_world_free(&world);
    plan_model_destroy(m);
}

static struct plan_model *gpt(void)
{
    return plan_model_gpt(4, 128, 256, 128, 512, 0);
}

static void gpt_no_shard(void **state)
{
    (void)state;
    struct plan_options options = plan_world_options(STRATEGY_NO_SHARD, 1, 2, 1);
    golden("gpt_no_shard", gpt(), &options, 0, 2);
}

static void gpt_full_shard(void **state)
{
    (void)state;
    struct plan_options options = plan_world_options(STRATEGY_FULL_SHARD, 1, 1, 2);
    golden("gpt_full_shard", gpt(), &options, 0, 2);
}

/* A vocabulary of which a batch looks few rows up. */
static void gpt_rows(void **state)
{
    (void)state;
    struct plan_options options = plan_world_options(STRATEGY_FULL_SHARD, 1, 1, 2);
    golden("gpt_rows", plan_model_gpt(2, 16, 4096, 128, 512, 0), &options, 1, 2);
}

static void gpt_rows_untied(void **state)
{
    (void)state;
    struct plan_options options = plan_world_options(STRATEGY_SHARD_OPTIM, 1, 1, 2);
    golden("gpt_rows_untied", plan_model_untied(2, 16, 4096, 128, 512), &options, 1, 2);
}

static void gpt_accumulation(void **state)
{
    (void)state;
    struct plan_options options = plan_world_options(STRATEGY_FULL_SHARD, 1, 1, 2);
    options.micro_batches = 3;
    options.prefetch_backward = 1;
    golden("gpt_accumulation", gpt(), &options, 1, 2);
}

static void gpt_no_shard_accumulation(void **state)
{
    (void)state;
    struct plan_options options = plan_world_options(STRATEGY_NO_SHARD, 1, 2, 1);
    options.micro_batches = 2;
    golden("gpt_no_shard_accumulation", gpt(), &options, 0, 2);
}

static void gpt_no_prefetch(void **state)
{
    (void)state;
    struct plan_options options = plan_world_options(STRATEGY_FULL_SHARD, 1, 1, 2);
    options.prefetch_forward = options.prefetch_backward = 0;
    golden("gpt_no_prefetch", gpt(), &options, 0, 2);
}

static void gpt_recompute(void **state)
{
    (void)state;
    struct plan_options options = plan_world_options(STRATEGY_FULL_SHARD, 1, 1, 2);
    struct plan_model *m = gpt();
    for (int l = 1; l <= 4; l++)
        m->layers[l].recompute = true;
    golden("gpt_recompute", m, &options, 0, 2);
}

static void gpt_lora(void **state)
{
    (void)state;
    struct plan_options options = plan_world_options(STRATEGY_FULL_SHARD, 1, 1, 2);
    golden("gpt_lora", plan_model_gpt(4, 128, 256, 128, 512, 8), &options, 0, 2);
}

static void cnn(void **state)
{
    (void)state;
    struct plan_options options = plan_world_options(STRATEGY_FULL_SHARD, 1, 1, 2);
    options.group_bytes = 4096;
    golden("cnn", plan_model_cnn(4, 900), &options, 1, 2);
}

/* With running statistics, which every rank keeps whole. */
static void cnn_statistics(void **state)
{
    (void)state;
    struct plan_options options = plan_world_options(STRATEGY_HYBRID_SHARD, 1, 2, 2);
    options.micro_batches = 2;
    options.average_decay = 0.9;
    struct plan_model *m = plan_model_cnn(2, 900);
    plan_model_statistics(m, 10);
    golden("cnn_statistics", m, &options, 3, 4);
}

static void gpt_shard_optim(void **state)
{
    (void)state;
    struct plan_options options = plan_world_options(STRATEGY_SHARD_OPTIM, 1, 1, 2);
    options.micro_batches = 2;
    golden("gpt_shard_optim", gpt(), &options, 1, 2);
}

static void gpt_shard_grad_op(void **state)
{
    (void)state;
    struct plan_options options = plan_world_options(STRATEGY_SHARD_GRAD_OP, 1, 1, 2);
    options.micro_batches = 2;
    golden("gpt_shard_grad_op", gpt(), &options, 1, 2);
}

static void gpt_hybrid(void **state)
{
    (void)state;
    struct plan_options options = plan_world_options(STRATEGY_HYBRID_SHARD, 1, 2, 2);
    options.micro_batches = 2;
    golden("gpt_hybrid", gpt(), &options, 3, 4);
}

static void gpt_pipeline(void **state)
{
    (void)state;
    struct plan_options options = plan_world_options(STRATEGY_NO_SHARD, 2, 1, 1);
    options.micro_batches = 4;
    struct plan_model *m = gpt();
    plan_model_stages(m, 2);
    golden("gpt_pipeline", m, &options, 0, 1);
}

static void gpt_topk(void **state)
{
    (void)state;
    struct plan_options options = plan_world_options(STRATEGY_HYBRID_SHARD, 1, 2, 2);
    options.compression.kind = COMPRESSION_TOPK;
    options.compression.ratio = 0.01;
    golden("gpt_topk", gpt(), &options, 3, 4);
}

static void gpt_kept_whole(void **state)
{
    (void)state;
    struct plan_options options = plan_world_options(STRATEGY_FULL_SHARD, 1, 1, 2);
    options.micro_batches = 2;
    options.keep_whole_bytes = 4096;
    golden("gpt_kept_whole", gpt(), &options, 1, 2);
}

static void gpt_bf16(void **state)
{
    (void)state;
    struct plan_options options = plan_world_options(STRATEGY_FULL_SHARD, 1, 1, 2);
    options.param_dtype = options.reduce_dtype = DTYPE_BF16;
    options.micro_batches = 2;
    golden("gpt_bf16", gpt(), &options, 1, 2);
}

/* Layers read gathered parameters: no wide parameters, and values of half the bytes. */
static void gpt_bf16_values(void **state)
{
    (void)state;
    struct plan_options options = plan_world_options(STRATEGY_FULL_SHARD, 1, 1, 2);
    options.param_dtype = options.reduce_dtype = options.value_dtype = DTYPE_BF16;
    options.kernels = kernels_ref_bf16();
    options.micro_batches = 2;
    golden("gpt_bf16_values", gpt(), &options, 1, 2);
}

static void gpt_bf16_hybrid(void **state)
{
    (void)state;
    struct plan_options options = plan_world_options(STRATEGY_HYBRID_SHARD, 1, 2, 2);
    options.param_dtype = options.reduce_dtype = DTYPE_BF16;
    options.micro_batches = 2;
    golden("gpt_bf16_hybrid", gpt(), &options, 3, 4);
}

static void gpt_f16_no_shard(void **state)
{
    (void)state;
    struct plan_options options = plan_world_options(STRATEGY_NO_SHARD, 1, 2, 1);
    options.param_dtype = DTYPE_F16;
    options.clip = false;
    options.check = true;
    golden("gpt_f16_no_shard", gpt(), &options, 0, 2);
}

static int64_t kind(const struct plan *plan, enum plan_kind kind)
{
    return plan->kind_bytes[kind];
}

/* GPT-2 124M on 8 ranks: the figures that follow from arithmetic, then the summary. */
static void gpt2_124m_summary(void **state)
{
    (void)state;
    struct plan_options options = plan_world_options(STRATEGY_FULL_SHARD, 1, 1, 8);
    options.shape = (struct shape){4, 1024};
    options.micro_batches = 2;
    struct plan_model *m = plan_model_gpt(12, 768, 50257, 1024, 4096, 0);
    const int64_t parameters = 124439808;
    assert_int_equal(model_parameters(&m->model), parameters);
    struct plan_world world;
    struct muster_error err = {0};
    if (plan_world_build(&m->model, &options, &world, &err) < 0)
        fail_msg("%s", err.text);
    const struct plan *plan = &world.plans[5];
    /* Four numbers of 4 bytes a parameter and rank, and at most one 64-byte piece a group, rank and kind,
     * rounded to 256 bytes. */
    int64_t state_bytes = kind(plan, PLAN_PARAM_SHARD) + kind(plan, PLAN_MOMENT1) + kind(plan, PLAN_MOMENT2) +
                          kind(plan, PLAN_GRAD_SHARD);
    assert_in_range(state_bytes - 16 * parameters / 8, 0, 4 * plan->group_count * (64 + 255));
    /* The tied embedding once, blocks in prefetch + 1 slots; the same for gradients, with two of the blocks.
     */
    int64_t embedding = (50257 + 1024) * INT64_C(768) * 4, block = 7087872 * 4;
    assert_in_range(kind(plan, PLAN_GATHER_SLOT), embedding + 3 * block, embedding + 3 * block + (1 << 20));
    assert_in_range(kind(plan, PLAN_GRAD_FULL), embedding + 2 * block, embedding + 2 * block + (1 << 20));
    scope_buffer text = {0};
    assert_int_equal(plan_summary(&m->model, plan, &text), 0);
    check_golden("gpt2_124m_summary", &text);
    plan_world_free(&world);
    plan_model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gpt_no_shard),      cmocka_unit_test(gpt_no_shard_accumulation),
        cmocka_unit_test(gpt_full_shard),    cmocka_unit_test(gpt_accumulation),
        cmocka_unit_test(gpt_rows),          cmocka_unit_test(gpt_rows_untied),
        cmocka_unit_test(gpt_no_prefetch),   cmocka_unit_test(gpt_recompute),
        cmocka_unit_test(gpt_lora),          cmocka_unit_test(cnn),
        cmocka_unit_test(cnn_statistics),    cmocka_unit_test(gpt_shard_optim),
        cmocka_unit_test(gpt_shard_grad_op), cmocka_unit_test(gpt_hybrid),
        cmocka_unit_test(gpt_pipeline),      cmocka_unit_test(gpt_kept_whole),
        cmocka_unit_test(gpt_bf16),          cmocka_unit_test(gpt_bf16_values),
        cmocka_unit_test(gpt_bf16_hybrid),   cmocka_unit_test(gpt_f16_no_shard),
        cmocka_unit_test(gpt_topk),          cmocka_unit_test(gpt2_124m_summary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
