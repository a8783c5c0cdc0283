/* plan_access_test.c - the reads and writes of each operation: the builder derives its waits from it, and the
 * checker too, so that neither notices a buffer that both forget. */
#include <stdio.h>

#include "runtime/plan/plan_internal.h"
#include "tests/support/cmocka_all.h"

/* "r1 w2": the accesses of an operation, in their order. */
static void assert_accesses(const struct schedule_op *op, const char *wanted)
{
    struct param_group groups[2] = {{.master = -1, .moment1 = -1, .moment2 = -1, .average = -1},
                                    {.master = 51, .moment1 = 52, .moment2 = 53, .average = 54}};
    const struct plan plan = {.groups = groups, .group_count = 2, .scalars = 50, .figures = 63};
    struct plan_access accesses[PLAN_ACCESSES];
    int count = plan_op_accesses(&plan, op, accesses);
    char text[512] = "";
    size_t at = 0;
    for (int i = 0; i < count; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%c%d", i ? " " : "",
                               accesses[i].write ? 'w' : 'r', accesses[i].entry);
    assert_string_equal(text, wanted);
}

/* An operation of a layer whose every buffer is another one. */
static struct schedule_op layer_call(enum op_kind kind)
{
    struct schedule_op op = plan_op(kind, STREAM_COMPUTE);
    op.group_count = LAYER_GROUPS;
    for (int i = 0; i < LAYER_GROUPS; i++) {
        op.weight[i] = 10 + i;
        op.grad[i] = 20 + i;
    }
    for (int i = 0; i < LAYER_SOURCES; i++) {
        op.in[i] = 30 + i;
        op.din[i] = 40 + i;
    }
    op.out = 1;
    op.dout = 2;
    op.saved = 3;
    op.work = 4;
    op.batch = 5;
    op.from = 6;
    op.to = 7;
    op.feedback = 8;
    op.dense = 60;
    op.factor = 61;
    op.right = 62;
    return op;
}

static void a_layer_reads_weights_and_inputs_and_writes_the_rest(void **state)
{
    (void)state;
    struct schedule_op op = layer_call(OP_FORWARD);
    assert_accesses(
        &op, "r10 w20 r11 w21 r12 w22 r13 w23 r14 w24 r30 w40 r31 w41 r32 w42 r33 w43 w1 w2 w3 w4 r5 r6 w7");
    op = layer_call(OP_BACKWARD);
    assert_accesses(
        &op, "r10 w20 r11 w21 r12 w22 r13 w23 r14 w24 r30 w40 r31 w41 r32 w42 r33 w43 r1 w2 w3 w4 r5 r6 w7");
    op.group_count = 1;
    assert_accesses(&op, "r10 w20 r30 w40 r31 w41 r32 w42 r33 w43 r1 w2 w3 w4 r5 r6 w7");
}

static void what_is_not_there_is_not_touched(void **state)
{
    (void)state;
    struct schedule_op op = plan_op(OP_FORWARD, STREAM_COMPUTE);
    op.group_count = LAYER_GROUPS;
    assert_accesses(&op, "");
    op.in[0] = 0; /* the first buffer of a plan is one like any other */
    assert_accesses(&op, "r0");
    op = plan_op(OP_COPY, STREAM_COMPUTE);
    assert_accesses(&op, "");
}

static void read_and_written_is_written_once(void **state)
{
    (void)state;
    struct schedule_op op = plan_op(OP_COMM, STREAM_REDUCE);
    op.from = op.to = 9;
    assert_accesses(&op, "w9");
    op = plan_op(OP_BACKWARD, STREAM_COMPUTE);
    op.in[0] = op.in[1] = 9;
    assert_accesses(&op, "r9");
    op.din[1] = 9;
    assert_accesses(&op, "w9");
    op = plan_op(OP_BACKWARD, STREAM_COMPUTE);
    op.out = 9; /* read */
    op.from = 9;
    op.saved = 9; /* written, between two reads */
    assert_accesses(&op, "w9");
}

static void a_step_writes_the_groups_state(void **state)
{
    (void)state;
    for (int kind = 0; kind < OP_KIND_COUNT; kind++) {
        struct schedule_op op = layer_call((enum op_kind)kind);
        op.group = 1;
        if (kind == OP_STEP)
            assert_accesses(&op, "r6 w7 w51 w52 w53 r50");
        else if (kind == OP_ROWS)
            assert_accesses(&op, "r6 w7 r5");
        else if (kind == OP_AVERAGE)
            assert_accesses(&op, "r6 w7 r50");
        else if (kind == OP_ENCODE)
            assert_accesses(&op, "w6 w7 w8 w60 w61 w62 w4 r50 w63");
        else if (kind == OP_DECODE)
            assert_accesses(&op, "r6 w7 w8 r60 w61 w62 w4 r50 w63");
        else if (kind != OP_FORWARD && kind != OP_BACKWARD)
            assert_accesses(&op, "r6 w7");
    }
    struct schedule_op op = plan_op(OP_STEP, STREAM_COMPUTE);
    op.group = 0; /* without optimizer state */
    assert_accesses(&op, "r50");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layer_reads_weights_and_inputs_and_writes_the_rest),
        cmocka_unit_test(what_is_not_there_is_not_touched),
        cmocka_unit_test(read_and_written_is_written_once),
        cmocka_unit_test(a_step_writes_the_groups_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
