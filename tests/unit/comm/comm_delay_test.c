/* comm_delay_test.c - the delay line: at least its delay, one operation after the other, no CPU, mirrors as
 * peers; and the pure sums about operations. */
#include "tests/support/cmocka_all.h"

#include <stdio.h>
#include <time.h>

#include "runtime/comm/comm_internal.h"
#include "runtime/comm/comm_reduce.h"
#include "runtime/device/device_cpu.h"

struct fixture {
    const struct device_ops *ops;
    struct device *device;
    struct device_stream *stream;
    struct comm_options options;
};

static int set_up(void **state)
{
    static struct fixture f;
    struct muster_error err = {0};
    f.ops = device_cpu();
    f.device = f.ops->open(0, 1, &err);
    assert_non_null(f.device);
    f.stream = f.ops->stream_create(f.device, "comm", false, &err);
    assert_non_null(f.stream);
    f.options = (struct comm_options){
        .rank = 1, .size = 4, .timeout_ns = NS_PER_S, .device = f.device, .device_ops = f.ops};
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    f->ops->stream_destroy(f->stream);
    f->ops->close(f->device);
    return 0;
}

static void do_op(struct fixture *f, struct comm *comm, const struct comm_op *op, const void *send,
                  void *recv)
{
    struct muster_error err = {0};
    if (comm_delay()->issue(comm, op, send, recv, f->stream, &err) ||
        f->ops->sync(f->stream, INSTANT_NEVER, &err))
        fail_msg("%s", err.text);
}

static void operations_take_their_time_one_after_the_other(void **state)
{
    struct fixture *f = *state;
    const struct comm_delay_options delay = {.latency_ns = 10 * NS_PER_MS, .ns_per_byte = 100000};
    struct comm *comm = comm_delay_create(&f->options, &delay, NULL);
    assert_non_null(comm);
    const struct comm_op op = {.kind = COMM_ALL_GATHER, .dtype = DTYPE_U8, .count = 50};
    char send[50] = {1}, recv[200];
    struct device_event *first = f->ops->event_create(f->device, NULL);
    struct instant start = clock_now(NULL);
    int64_t each = 10 * NS_PER_MS + 150 * 100000; /* three peers send 50 bytes each */
    assert_int_equal(comm_delay()->issue(comm, &op, send, recv, f->stream, NULL), 0);
    assert_int_equal(f->ops->record(f->stream, first), 0);
    assert_int_equal(comm_delay()->issue(comm, &op, send, recv, f->stream, NULL), 0);
    assert_int_equal(f->ops->sync(f->stream, INSTANT_NEVER, NULL), 0);
    assert_true(instant_diff_ns(f->ops->event_time(first), start) >= each);
    assert_true(instant_diff_ns(clock_now(NULL), start) >= 2 * each);
    assert_true(comm_delay()->busy_ns(comm) >= 2 * each);
    struct comm_status status;
    comm_delay()->status(comm, &status);
    assert_int_equal(status.issued, 2);
    assert_int_equal(status.finished, 2);
    f->ops->event_destroy(first);
    comm_delay()->destroy(comm);
}

static int64_t cpu_ns(void)
{
    return (int64_t)clock() * (NS_PER_S / CLOCKS_PER_SEC);
}

static void waiting_costs_no_processor(void **state)
{
    struct fixture *f = *state;
    const struct comm_delay_options delay = {.latency_ns = 400 * NS_PER_MS};
    struct comm *comm = comm_delay_create(&f->options, &delay, NULL);
    const struct comm_op op = {.kind = COMM_BARRIER};
    int64_t before = cpu_ns();
    do_op(f, comm, &op, NULL, NULL);
    /* CPU time of the whole process, sanitizers included; a spin would use all of it. */
    assert_true(cpu_ns() - before < 100 * NS_PER_MS);
    comm_delay()->destroy(comm);
}

static void peers_are_mirrors(void **state)
{
    struct fixture *f = *state;
    struct comm *comm = comm_delay()->create(&f->options, NULL);
    float values[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out[8] = {0};
    struct comm_op op = {.kind = COMM_ALL_GATHER, .dtype = DTYPE_F32, .count = 2};
    do_op(f, comm, &op, values, out);
    for (int i = 0; i < 8; i++)
        assert_true(out[i] == values[i % 2]);
    op.kind = COMM_REDUCE_SCATTER;
    do_op(f, comm, &op, values, out);
    assert_true(out[0] == 12 && out[1] == 16); /* four times block 1 */
    op.accumulate = true;
    do_op(f, comm, &op, values, out);
    assert_true(out[0] == 24 && out[1] == 32);
    op = (struct comm_op){
        .kind = COMM_ALL_REDUCE, .dtype = DTYPE_F32, .count = 8, .reduction = REDUCE_AVERAGE};
    do_op(f, comm, &op, values, values);
    for (int i = 0; i < 8; i++)
        assert_true(values[i] == (float)(i + 1));
    op = (struct comm_op){.kind = COMM_ALL_TO_ALL, .dtype = DTYPE_F32, .count = 2};
    do_op(f, comm, &op, values, out);
    for (int i = 0; i < 8; i++)
        assert_true(out[i] == values[2 + i % 2]);
    comm_delay()->destroy(comm);
}

static void abort_ends_the_delay(void **state)
{
    struct fixture *f = *state;
    const struct comm_delay_options delay = {.latency_ns = 1000 * NS_PER_S};
    struct comm *comm = comm_delay_create(&f->options, &delay, NULL);
    const struct comm_op op = {.kind = COMM_BARRIER};
    struct muster_error err = {0};
    assert_int_equal(comm_delay()->issue(comm, &op, NULL, NULL, f->stream, &err), 0);
    comm_delay()->abort(comm);
    assert_int_equal(f->ops->sync(f->stream, instant_add(clock_now(NULL), 60 * NS_PER_S), &err), -1);
    assert_int_equal(err.code, MUSTER_E_CANCELLED);
    comm_delay()->destroy(comm);
}

static void splits_and_options(void **state)
{
    struct fixture *f = *state;
    struct muster_error err = {0};
    struct comm_delay_options delay = {.latency_ns = -1};
    assert_null(comm_delay_create(&f->options, &delay, &err));
    assert_int_equal(err.code, MUSTER_E_INVALID);
    delay.latency_ns = 1;
    struct comm_options outside = f->options;
    outside.rank = outside.size;
    assert_null(comm_delay_create(&outside, &delay, &err));
    assert_string_equal(err.text, "a delay comm of rank 4 of 4: ranks count from 0, and there are 1 to 1024");
    struct comm *comm = comm_delay_create(&f->options, &delay, &err);
    struct comm *part = comm_delay()->split(comm, 0, 0, "part", &err);
    assert_non_null(part);
    const struct comm_op op = {.kind = COMM_BARRIER};
    do_op(f, part, &op, NULL, NULL);
    comm_delay()->destroy(part);
    comm_delay()->destroy(comm);
    comm_delay()->destroy(NULL);
}

/* ---- pure ---- */

static void received_bytes(void **state)
{
    (void)state;
    struct comm_op op = {.kind = COMM_ALL_GATHER, .dtype = DTYPE_F32, .count = 10};
    assert_int_equal(comm_received_bytes(&op, 4), 120);
    op.kind = COMM_REDUCE_SCATTER;
    assert_int_equal(comm_received_bytes(&op, 4), 120);
    assert_int_equal(comm_received_bytes(&op, 1), 0);
    op.kind = COMM_ALL_REDUCE;
    assert_int_equal(comm_received_bytes(&op, 4), 60);
    op.kind = COMM_BROADCAST;
    assert_int_equal(comm_received_bytes(&op, 4), 40);
    op.kind = COMM_BARRIER;
    assert_int_equal(comm_received_bytes(&op, 4), 0);
}

static void names(void **state)
{
    (void)state;
    char text[COMM_TEXT];
    struct comm_op op = {.kind = COMM_REDUCE_SCATTER, .dtype = DTYPE_BF16, .count = 7, .accumulate = true};
    assert_string_equal(comm_op_text(text, &op), "reduce_scatter of 7 bf16 by sum, accumulating");
    op = (struct comm_op){.kind = COMM_BROADCAST, .dtype = DTYPE_I32, .count = 3, .root = 2};
    assert_string_equal(comm_op_text(text, &op), "broadcast of 3 i32 from rank 2");
    assert_string_equal(comm_kind_name(COMM_BARRIER), "barrier");
    assert_string_equal(comm_kind_name(COMM_KIND_COUNT), "unknown");
    assert_string_equal(comm_reduction_name(REDUCE_MAX), "max");
    assert_string_equal(comm_reduction_name((enum comm_reduction)7), "unknown");
}

static void ranks_in_an_error(void **state)
{
    (void)state;
    struct comm_ranks ranks = {0};
    assert_string_equal(comm_ranks_text(&ranks), "?");
    comm_ranks_add(&ranks, 3);
    comm_ranks_add(&ranks, 1023);
    assert_string_equal(comm_ranks_text(&ranks), "3, 1023");
    for (int rank = 10; rank < 30; rank++)
        comm_ranks_add(&ranks, rank);
    assert_string_equal(comm_ranks_text(&ranks), "3, 1023, 10, 11, 12, 13, 14, 15, ...");
    assert_int_equal(ranks.count, 22);
    struct comm_ranks widest = {0};
    for (int i = 0; i < 20; i++)
        comm_ranks_add(&widest, INT32_MIN);
    assert_string_equal(widest.text + strlen(widest.text) - 5, ", ...");
}

static void members_are_ordered_by_key_then_by_rank(void **state)
{
    (void)state;
    static const struct comm_vote votes[] = {{0, 5}, {1, 0}, {0, -1}, {0, 5}, {1, 0}};
    int members[5], rank;
    assert_int_equal(comm_members(votes, 5, 3, members, &rank), 3);
    assert_int_equal(rank, 2);
    assert_true(members[0] == 2 && members[1] == 0 && members[2] == 3);
    assert_int_equal(comm_members(votes, 5, 1, members, &rank), 2);
    assert_int_equal(rank, 0);
    assert_true(members[0] == 1 && members[1] == 4);
}

static void a_maximum_shows_a_nan(void **state)
{
    (void)state;
    const struct comm_op op = {.kind = COMM_ALL_REDUCE, .dtype = DTYPE_F32, .reduction = REDUCE_MAX};
    for (int where = 0; where < 3; where++) {
        float values[3] = {1, 2, 3}, out;
        values[where] = __builtin_nanf("");
        const void *sources[3] = {values, values + 1, values + 2};
        comm_reduce(&op, 3, &out, sources, 1);
        assert_true(out != out);
    }
}

#define WITH_DEVICE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_DEVICE(operations_take_their_time_one_after_the_other),
        WITH_DEVICE(waiting_costs_no_processor),
        WITH_DEVICE(peers_are_mirrors),
        WITH_DEVICE(abort_ends_the_delay),
        WITH_DEVICE(splits_and_options),
        cmocka_unit_test(received_bytes),
        cmocka_unit_test(names),
        cmocka_unit_test(ranks_in_an_error),
        cmocka_unit_test(members_are_ordered_by_key_then_by_rank),
        cmocka_unit_test(a_maximum_shows_a_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
