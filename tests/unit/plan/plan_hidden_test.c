/* plan_hidden_test.c - how much of its communication a plan of GPT-2 124M hides under FULL_SHARD, by its
 * schedule alone: the times of its operations are given, and plan_predict follows their waits. So the
 * schedule is held to its bars on every machine, however busy; benchmarks/fsdp.py measures the same. */
#include <stdio.h>

#include "runtime/model/architectures.h"
#include "runtime/plan/plan_cost.h"
#include "tests/support/cmocka_all.h"

/* Two cores with AVX-512: products, passes over memory, AdamW. Communication takes the given time. */
static struct plan_rates rates(double seconds_per_byte)
{
    struct plan_rates r = {.flops = 195e9, .memory = 20e9};
    for (int k = 0; k < OP_KIND_COUNT; k++)
        r.op[k].byte_s = 1 / 20e9;
    r.op[OP_STEP].byte_s = 7 / 20e9;
    r.op[OP_ROWS].byte_s = 3 / 20e9;
    for (int k = 0; k < COMM_KIND_COUNT; k++)
        r.comm[k].byte_s = seconds_per_byte;
    return r;
}

static struct plan_cost cost(const struct model *model, const struct plan *plan, double seconds_per_byte)
{
    const struct plan_rates r = rates(seconds_per_byte);
    struct plan_cost found;
    struct muster_error err = {0};
    if (plan_predict(model, plan, &r, &found, &err))
        fail_msg("%s", err.text);
    return found;
}

/* Where communication takes 58% of the time that a step takes without any. */
static double hidden(const struct model *model, int ranks, int micro_batches,
                     enum embedding_gradient gradient)
{
    const struct plan_options options = {
        .strategy = STRATEGY_FULL_SHARD,
        .mesh = MESH(1, 1, ranks),
        .shape = {1, 256},
        .micro_batches = micro_batches,
        .dtype = DTYPE_F32,
        .prefetch_forward = 2,
        .prefetch_backward = 2,
        .clip = true,
        .train = true,
        .embedding_gradient = gradient,
        .kernels = kernels_cpu((unsigned)-1),
    };
    struct plan plan;
    struct muster_error err = {0};
    if (plan_build(model, &options, &plan, &err))
        fail_msg("%s", err.text);
    const double bare = cost(model, &plan, 0).step_s, bytes = cost(model, &plan, 1).comm_s;
    const struct plan_cost with = cost(model, &plan, 0.58 * bare / bytes);
    printf(
        "%2d ranks, %d micro-batches, %-5s: %5.0f MB received, step %.0f to %.0f ms, communication %.0f ms, "
        "%.1f%% hidden\n",
        ranks, micro_batches, embedding_gradient_name(gradient), bytes / 1e6, bare * 1e3, with.step_s * 1e3,
        with.comm_s * 1e3, 100 * (1 - with.exposed_s / with.comm_s));
    plan_free(&plan);
    return 1 - with.exposed_s / with.comm_s;
}

static void communication_is_hidden(void **state)
{
    (void)state;
    static const int ranks[] = {2, 4, 8, 64};
    const struct gpt2_config config = {
        .layers = 12, .channels = 768, .heads = 12, .vocab = 50257, .max_positions = 1024};
    struct model *model = gpt2_create(&config, NULL);
    assert_non_null(model);
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
        for (int micro = 1; micro <= 8; micro += 7) {
            const double rows = hidden(model, ranks[i], micro, EMBEDDING_AUTO),
                         dense = hidden(model, ranks[i], micro, EMBEDDING_DENSE);
            assert_true(rows >= (micro == 1 ? 0.80 : 0.95));
            assert_true(rows > dense + (micro == 1 ? 0.08 : 0.005));
            assert_true(ranks[i] > 2 || rows >= (micro == 1 ? 0.88 : 0.97));
        }
    model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(communication_is_hidden)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
