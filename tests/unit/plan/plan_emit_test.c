/* plan_emit_test.c - which operations wait for which: by the memory that they touch, and no more. */
#include "proto/base/mem.h"
#include "runtime/plan/plan_internal.h"
#include "tests/support/cmocka_all.h"

enum { BUFFERS = 3 };

struct bench {
    struct plan plan;
    struct plan_options options;
    struct plan_builder b;
    int buffer[BUFFERS];
};

static int setup(void **state)
{
    static struct bench bench;
    bench = (struct bench){.options = {.dtype = DTYPE_F32}};
    bench.b = (struct plan_builder){.plan = &bench.plan, .options = &bench.options};
    for (int s = 0; s < STREAM_COUNT; s++)
        for (int other = 0; other < STREAM_COUNT; other++)
            bench.b.stream_clock[s].reached[other] = -1;
    for (int i = 0; i < BUFFERS; i++)
        bench.buffer[i] = plan_add_buffer(&bench.b, PLAN_STAGING, MEMORY_DEVICE, 256);
    *state = &bench;
    return bench.b.failed;
}

static int teardown(void **state)
{
    struct bench *bench = *state;
    mem_free(bench->b.entry_states);
    mem_free(bench->b.clocks);
    plan_free(&bench->plan);
    return 0;
}

/* A copy; -1: of no buffer of ours. */
static int emit(struct bench *bench, enum stream_id stream, int from, int to, int after)
{
    struct schedule_op op = plan_op(OP_COPY, stream);
    op.from = from < 0 ? -1 : bench->buffer[from];
    op.to = to < 0 ? -1 : bench->buffer[to];
    return plan_emit(&bench->b, &op, after);
}

/* wanted: the operations waited for, ended by -1. */
static void assert_waits(const struct bench *bench, int op, const int *wanted)
{
    const struct schedule_op *made = &bench->plan.ops[op];
    int count = 0;
    while (wanted[count] >= 0)
        count++;
    assert_int_equal(made->wait_count, count);
    for (int i = 0; i < count; i++) {
        assert_int_equal(made->wait[i], wanted[i]);
        assert_true(bench->plan.ops[wanted[i]].signal);
    }
}
#define ASSERT_WAITS(bench, op, ...) assert_waits(bench, op, (const int[]){__VA_ARGS__, -1})

static void reads_wait_for_writes_and_writes_for_both(void **state)
{
    struct bench *bench = *state;
    assert_int_equal(emit(bench, STREAM_COMPUTE, -1, 0, -1), 0);
    assert_int_equal(emit(bench, STREAM_GATHER, 0, -1, -1), 1);
    ASSERT_WAITS(bench, 1, 0);
    assert_int_equal(emit(bench, STREAM_REDUCE, 0, -1, -1), 2); /* in parallel with the other reader */
    ASSERT_WAITS(bench, 2, 0);
    assert_int_equal(emit(bench, STREAM_COMPUTE, -1, 0, -1), 3);
    ASSERT_WAITS(bench, 3, 1, 2);
    assert_int_equal(emit(bench, STREAM_COMPUTE, 1, 2, -1), 4); /* others' buffers */
    ASSERT_WAITS(bench, 4, -1);
    assert_false(bench->plan.ops[3].signal);
}

static void the_order_of_a_stream_is_no_wait(void **state)
{
    struct bench *bench = *state;
    emit(bench, STREAM_GATHER, -1, 0, -1);
    emit(bench, STREAM_GATHER, 0, 0, -1);
    ASSERT_WAITS(bench, 1, -1);
    assert_int_equal(emit(bench, STREAM_COMPUTE, 0, -1, -1), 2);
    ASSERT_WAITS(bench, 2, 1); /* the last one */
    emit(bench, STREAM_COMPUTE, 0, -1, -1);
    ASSERT_WAITS(bench, 3, -1); /* known since the operation before */
}

static void what_another_wait_implies_is_left_out(void **state)
{
    struct bench *bench = *state;
    emit(bench, STREAM_REDUCE, -1, 0, -1);
    emit(bench, STREAM_COMPUTE, 0, 1, -1);
    ASSERT_WAITS(bench, 1, 0);
    emit(bench, STREAM_GATHER, 0, 1, -1); /* needs both, and compute had waited for the reduction */
    ASSERT_WAITS(bench, 2, 1);
    emit(bench, STREAM_REDUCE, -1, 0, -1); /* a later one it had not */
    emit(bench, STREAM_COMPUTE, -1, 1, -1);
    emit(bench, STREAM_GATHER, 0, 1, -1);
    ASSERT_WAITS(bench, 5, 4, 3);
}

static void pacing_is_a_wait_like_any_other(void **state)
{
    struct bench *bench = *state;
    emit(bench, STREAM_COMPUTE, -1, 0, -1);
    emit(bench, STREAM_GATHER, -1, 1, 0);
    ASSERT_WAITS(bench, 1, 0);
    emit(bench, STREAM_GATHER, -1, 2, 0);
    ASSERT_WAITS(bench, 2, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(reads_wait_for_writes_and_writes_for_both, setup, teardown),
        cmocka_unit_test_setup_teardown(the_order_of_a_stream_is_no_wait, setup, teardown),
        cmocka_unit_test_setup_teardown(what_another_wait_implies_is_left_out, setup, teardown),
        cmocka_unit_test_setup_teardown(pacing_is_a_wait_like_any_other, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
