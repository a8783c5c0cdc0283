/* plan_stages_test.c - the plans of all stages run together: real ones end, planted errors are found and
 * named, the idle share is that of the formula, and the size of a world costs nothing. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/clock.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/plan/plan_cut.h"
#include "runtime/plan/plan_stages.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/plan_models.h"
#include "tests/support/plan_world.h"

/* Blocks of equal time in each part; embedding and head lie with the first and the last. */
static struct plan_model *blocks_in_parts(int stages)
{
    enum { BLOCKS = 16 };
    struct plan_model *m = plan_model_gpt(BLOCKS, 64, 128, 64, 64, 0);
    m->model.parts = stages;
    for (int l = 0; l < BLOCKS + 2; l++) {
        const int block = l == 0 ? 0 : l > BLOCKS ? BLOCKS - 1 : l - 1;
        m->layers[l].part = block * stages / BLOCKS;
    }
    return m;
}

static struct plan_stages build_stages(const struct plan_model *m, const struct plan_options *options)
{
    struct plan_stages stages;
    struct muster_error err = {0};
    if (plan_stages_build(&m->model, options, &stages, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(stages.count, options->mesh.side[SIDE_PIPELINE]);
    return stages;
}

static struct plan_stages_cost run_stages(const struct plan_model *m, const struct plan_options *options,
                                          const struct plan_rates *rates)
{
    struct plan_stages stages = build_stages(m, options);
    struct plan_stages_cost cost;
    struct muster_error err = {0};
    if (plan_stages_run(&m->model, &stages, rates, &cost, &err) < 0)
        fail_msg("%s", err.text);
    plan_stages_free(&stages);
    return cost;
}

/* The best cut of times against the present one, and a cut as text. */
static void cuts_are_compared(void **state)
{
    (void)state;
    struct plan_model *m = plan_model_gpt(5, 128, 256, 128, 512, 0);
    const struct plan_options options = plan_world_options(STRATEGY_NO_SHARD, 1, 1, 1);
    const struct plan_cut even = {.stages = 3, .even = true};
    const double seconds[] = {9, 1, 1, 1, 1, 1, 6};
    struct plan_slowest slowest;
    struct muster_error err = {0};
    scope_buffer text = {0};
    assert_int_equal(plan_cut_model(&m->model, &options, &even, &err), 0);
    assert_int_equal(plan_cut_text(&m->model, &text), 0);
    assert_string_equal(text.data, "h.1, h.3");
    assert_int_equal(plan_cut_compare(&m->model, seconds, &slowest, &err), 0);
    assert_true(slowest.now == 10 && slowest.least == 9);
    plan_model_destroy(m);
}

/* Of a plan that has all layers: each call of a step counts. */
static void layers_have_the_times_of_their_calls(void **state)
{
    (void)state;
    struct plan_model *m = plan_model_gpt(2, 64, 128, 64, 64, 0);
    struct plan_options options = plan_world_options(STRATEGY_NO_SHARD, 1, 1, 1);
    struct plan_layer_times times[4] = {{1, 2, 8}, {3, 4, 8}, {3, 4, 8}, {5, 6, 8}};
    const struct plan_rates rates = {.layers = times};
    double seconds[4];
    struct muster_error err = {0};
    struct plan plan;
    options.shape = (struct shape){1, 64};
    options.micro_batches = 3;
    assert_int_equal(plan_build(&m->model, &options, &plan, &err), 0);
    assert_int_equal(plan_layer_sums(&m->model, &plan, &rates, seconds, &err), 0);
    for (int l = 0; l < 4; l++)
        assert_true(fabs(seconds[l] - 3 * (times[l].forward_s + times[l].backward_s)) < 1e-9);
    plan_free(&plan);
    plan_model_destroy(m);
}

static void real_plans_end(void **state)
{
    (void)state;
    static const struct {
        enum strategy strategy;
        int replicate, shard;
    } sides[] = {{STRATEGY_NO_SHARD, 1, 1},      {STRATEGY_NO_SHARD, 4, 1},   {STRATEGY_SHARD_OPTIM, 1, 4},
                 {STRATEGY_SHARD_GRAD_OP, 1, 2}, {STRATEGY_FULL_SHARD, 1, 8}, {STRATEGY_HYBRID_SHARD, 2, 2}};
    for (int round = 0; round < 5; round++) {
        const int stages = round < 3 ? 2 << round : round, chunks = round < 3 ? 1 : 2;
        struct plan_model *m = blocks_in_parts(stages * chunks);
        for (size_t i = 0; i < sizeof sides / sizeof *sides; i++)
            for (int micros = 1; micros <= 9; micros += 4) {
                struct plan_options options =
                    plan_world_options(sides[i].strategy, stages, sides[i].replicate, sides[i].shard);
                options.schedule = chunks > 1 ? PIPE_INTERLEAVED : PIPE_1F1B;
                options.chunks = chunks;
                options.shape = (struct shape){1, 64};
                options.micro_batches = micros;
                options.prefetch_forward = micros == 1 ? 0 : 2;
                for (int grouped = 0; grouped < 2; grouped++) {
                    options.grouped = grouped;
                    const struct plan_stages_cost cost = run_stages(m, &options, NULL);
                    assert_true(cost.step_s > 0 && cost.idle > 0 && cost.idle < 1);
                    assert_true(cost.stage[stages - 1].bytes > 0);
                }
            }
        plan_model_destroy(m);
    }
}

static void check_idle(enum pipe_schedule schedule, int chunks)
{
    for (int stages = 2; stages <= 8; stages *= 2)
        for (int micros = 4; micros <= 16; micros *= 2) {
            struct plan_model *m = blocks_in_parts(stages * chunks);
            struct plan_options options = plan_world_options(STRATEGY_NO_SHARD, stages, 1, 1);
            struct plan_rates rates = {.flops = 1, .memory = 1};
            scope_free struct plan_layer_times *times =
                mem_calloc((size_t)m->model.layer_count, sizeof *times);
            assert_non_null(times);
            for (int l = 1; l + 1 < m->model.layer_count; l++)
                times[l] = (struct plan_layer_times){1e-3, 2e-3, 1e-3};
            rates.layers = times;
            options.shape = (struct shape){1, 64};
            options.micro_batches = micros;
            options.schedule = schedule;
            options.chunks = chunks;
            const double formula = (stages - 1.0) / (chunks * micros + stages - 1.0),
                         idle = run_stages(m, &options, &rates).idle;
            printf("%s, %d stages, %d micro-batches: idle %.2f%%, formula %.2f%%\n",
                   pipe_schedule_name(schedule), stages, micros, idle * 100, formula * 100);
            /* Less micro-batches than stages come round before the rank has called them all. */
            assert_true(fabs(idle - formula) < 0.005 || (chunks > 1 && micros < stages && idle > formula));
            plan_model_destroy(m);
        }
}

static void idle_is_that_of_the_formula(void **state)
{
    (void)state;
    for (int schedule = 0; schedule < PIPE_TABLE; schedule++)
        check_idle((enum pipe_schedule)schedule, schedule == PIPE_INTERLEAVED ? 2 : 1);
}

/* ---- planted errors ---- */

static bool is_transfer(const struct schedule_op *op)
{
    return op->kind == OP_COMM && (op->comm.kind == COMM_SEND || op->comm.kind == COMM_RECV);
}

/* The n-th transfer of a plan; NULL: it has less. */
static struct schedule_op *transfer(const struct plan *plan, int n)
{
    for (int o = 0; o < plan->op_count; o++)
        if (is_transfer(&plan->ops[o]) && n-- == 0)
            return &plan->ops[o];
    return NULL;
}

static struct schedule_op *next_transfer(const struct plan *plan, const struct schedule_op *after)
{
    for (int o = (int)(after - plan->ops) + 1; o < plan->op_count; o++)
        if (is_transfer(&plan->ops[o]) && plan->ops[o].stream == after->stream)
            return &plan->ops[o];
    return NULL;
}

enum plant {
    EXCHANGED,
    WRONG_PEER,
    OWN_PEER,
    WRONG_COUNT,
    WRONG_MICRO,
    WRONG_LAYER,
    SWAPPED,
    LEFT_OUT,
    CIRCLE,
    PLANTS
};

/* false: it cannot be planted there. */
static bool plant(struct plan *plan, int n, enum plant kind)
{
    struct schedule_op *op = transfer(plan, n), *other = op ? next_transfer(plan, op) : NULL;
    if (!op)
        return false;
    switch (kind) {
    case EXCHANGED:
        op->comm.kind = op->comm.kind == COMM_SEND ? COMM_RECV : COMM_SEND;
        return true;
    case WRONG_PEER:
        op->comm.root += op->comm.root > 1 ? -2 : 2;
        return true;
    case OWN_PEER:
        op->comm.root = mesh_place_of(plan->options.mesh, plan->options.rank).at[SIDE_PIPELINE];
        return true;
    case WRONG_COUNT:
        op->comm.count++;
        return true;
    case WRONG_MICRO:
        op->micro++;
        return true;
    case WRONG_LAYER:
        op->layer++;
        return true;
    case SWAPPED: {
        const struct comm_op kept = op->comm;
        const int micro = op->micro;
        if (!other ||
            (other->comm.kind == kept.kind && other->comm.root == kept.root && other->micro == micro))
            return false;
        op->comm = other->comm;
        op->micro = other->micro;
        other->comm = kept;
        other->micro = micro;
        return true;
    }
    case LEFT_OUT:
        op->kind = OP_FILL;
        return true;
    default: /* waits for a later one of another stream: itself, in the end */
        op->wait[0] = (int)(op - plan->ops);
        op->wait_count = 1;
        return true;
    }
}

static void plant_errors(bool grouped, int least)
{
    struct plan_model *m = blocks_in_parts(4);
    struct plan_options options = plan_world_options(STRATEGY_FULL_SHARD, 4, 1, 2);
    options.shape = (struct shape){1, 64};
    options.micro_batches = 6;
    options.grouped = grouped;
    int planted = 0;
    for (int kind = 0; kind < PLANTS; kind++)
        for (int stage = 0; stage < 4; stage++)
            for (int n = 0; n < 24; n += 3) {
                struct plan_stages stages = build_stages(m, &options);
                struct muster_error err = {0};
                if (plant(&stages.plans[stage], n, (enum plant)kind)) {
                    planted++;
                    if (plan_stages_run(&m->model, &stages, NULL, NULL, &err) == 0)
                        fail_msg("kind %d in transfer %d of stage %d is not found", kind, n, stage);
                    assert_int_equal(err.code, MUSTER_E_STATE);
                    assert_non_null(strstr(err.text, "stage "));
                }
                plan_stages_free(&stages);
            }
    print_message("%d planted\n", planted);
    assert_true(planted >= least);
    plan_model_destroy(m);
}

static void planted_errors_are_found(void **state)
{
    (void)state;
    plant_errors(false, 200);
    plant_errors(true, 200);
}

/* The comm of grouped plans does one operation at a time. Transfers in the order of plans with a stream for
 * each direction would wait for ever there. */
static void an_order_without_groups_waits_for_ever(void **state)
{
    (void)state;
    struct plan_model *m = blocks_in_parts(2);
    struct plan_options options = plan_world_options(STRATEGY_NO_SHARD, 2, 1, 1);
    options.shape = (struct shape){1, 64};
    options.micro_batches = 4;
    struct plan_stages stages = build_stages(m, &options);
    struct muster_error err = {0};
    assert_int_equal(plan_stages_run(&m->model, &stages, NULL, NULL, &err), 0);
    for (int s = 0; s < stages.count; s++) {
        stages.plans[s].options.grouped = true;
        for (int o = 0; o < stages.plans[s].op_count; o++)
            if (is_transfer(&stages.plans[s].ops[o]))
                stages.plans[s].ops[o].stream = STREAM_TRANSFERS;
    }
    assert_int_equal(plan_stages_run(&m->model, &stages, NULL, NULL, &err), -1);
    assert_non_null(strstr(err.text, "deadlock: stage "));
    plan_stages_free(&stages);
    plan_model_destroy(m);
}

static void errors_name_stage_operation_and_cause(void **state)
{
    (void)state;
    struct plan_model *m = blocks_in_parts(2);
    struct plan_options options = plan_world_options(STRATEGY_NO_SHARD, 2, 1, 1);
    options.shape = (struct shape){1, 64};
    options.micro_batches = 3;
    static const struct {
        int stage, transfer;
        enum plant kind;
        const char *text;
    } cases[] = {
        {0, 3, LEFT_OUT,
         "(recv h.7 of micro-batch 2) for stage 0, which has no operation left on that stream"},
        {0, 3, LEFT_OUT, "deadlock: stage 1 would wait for ever in operation"},
        {1, 0, WRONG_COUNT, "(4097 elements)"},
        {1, 0, WRONG_PEER, "a transfer with stage 2 of 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct plan_stages stages = build_stages(m, &options);
        struct muster_error err = {0};
        assert_true(plant(&stages.plans[cases[i].stage], cases[i].transfer, cases[i].kind));
        assert_int_equal(plan_stages_run(&m->model, &stages, NULL, NULL, &err), -1);
        if (!strstr(err.text, cases[i].text))
            fail_msg("'%s' lacks '%s'", err.text, cases[i].text);
        plan_stages_free(&stages);
    }
    plan_model_destroy(m);
}

static void a_world_of_any_size_is_proved_at_once(void **state)
{
    (void)state;
    struct plan_model *m = blocks_in_parts(8);
    struct plan_options options = plan_world_options(STRATEGY_FULL_SHARD, 8, 1, 131072);
    options.shape = (struct shape){1, 64};
    options.micro_batches = 16;
    int64_t best = INT64_MAX;
    for (int i = 0; i < 3; i++) { /* the machine may be busy */
        const struct instant begun = clock_now(NULL);
        (void)run_stages(m, &options, NULL);
        const int64_t took = instant_diff_ns(clock_now(NULL), begun);
        best = took < best ? took : best;
    }
    print_message("8 x 131072 ranks in %.2f ms\n", (double)best / 1e6);
    assert_true(best < 50 * NS_PER_MS);
    plan_model_destroy(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_are_compared),
        cmocka_unit_test(layers_have_the_times_of_their_calls),
        cmocka_unit_test(real_plans_end),
        cmocka_unit_test(idle_is_that_of_the_formula),
        cmocka_unit_test(planted_errors_are_found),
        cmocka_unit_test(an_order_without_groups_waits_for_ever),
        cmocka_unit_test(errors_name_stage_operation_and_cause),
        cmocka_unit_test(a_world_of_any_size_is_proved_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
