/* gpu_nccl_comm_test.c - comm_nccl over the fake NCCL, ranks as threads: random operations against comm_shm,
 * host memory, parts, run, queues of operations, two comms at once. */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <stdlib.h>

#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/comm/comm_internal.h"
#include "runtime/cuda/cuda_stream.h"
#include "runtime/device/device_cpu.h"
#include "tests/gpu/nccl/nccl_test_trials.h"
#include "tests/support/walk.h"

/* ---- random operations, also done by comm_shm ---- */

static int random_operations(struct nccl_rank *r, struct nccl_job *job)
{
    return nccl_trials(r, job, comm_nccl(), r->comm, 100000, 60);
}

static void random_operations_match_comm_shm(void **state)
{
    (void)state;
    const char *given = getenv("COMM_TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)clock_now(NULL).ns;
    printf("seed: COMM_TEST_SEED=%llu\n", (unsigned long long)seed);
    for (int size = 1; size <= 4; size++) {
        struct nccl_job job = {.body = random_operations, .seed = seed + (uint64_t)size};
        assert_int_equal(nccl_job_run(&job, size), 0);
    }
}

/* ---- many under way ---- */

static int queue_of_operations(struct nccl_rank *r, struct nccl_job *job)
{
    (void)job;
    enum { COUNT = 200 };
    static const struct comm_op op = {.kind = COMM_ALL_REDUCE, .dtype = DTYPE_F32, .count = 3};
    float values[3 * COUNT];
    struct muster_error err = {0};
    for (int i = 0; i < 3 * COUNT; i++)
        values[i] = (float)(i / 3 + r->rank * (i % 3));
    if (nccl_put(r->arena.base, values, sizeof values))
        return -1;
    for (int i = 0; i < COUNT; i++) {
        float *at = (float *)r->arena.base + (size_t)(3 * i);
        if (comm_nccl()->issue(r->comm, &op, at, at, r->stream, &err))
            return nccl_complain(r, "issue", err.text);
    }
    if (nccl_sync(r, r->stream, &err))
        return nccl_complain(r, "sync", err.text);
    if (nccl_get(values, r->arena.base, sizeof values))
        return -1;
    float ranks = (float)(r->size * (r->size - 1) / 2);
    for (int i = 0; i < 3 * COUNT; i++) {
        if (values[i] != (float)(i / 3 * r->size) + ranks * (float)(i % 3))
            return nccl_complain(r, "queue", "wrong sum");
    }
    struct comm_status status;
    comm_nccl()->status(r->comm, &status);
    if (status.issued != COUNT || status.finished != COUNT || status.missing_count)
        return nccl_complain(r, "status", "not finished");
    return comm_nccl()->busy_ns(r->comm) > 0 ? 0 : nccl_complain(r, "busy", "no time");
}

static void queued_operations_keep_their_order(void **state)
{
    (void)state;
    for (int size = 1; size <= 3; size++) {
        struct nccl_job job = {.body = queue_of_operations};
        assert_int_equal(nccl_job_run(&job, size), 0);
    }
}

/* For pinned memory, which a copy before it on the stream writes. */
static int copy_then_add(struct nccl_rank *r, struct nccl_job *job)
{
    (void)job;
    static const struct comm_op one = {.kind = COMM_ALL_REDUCE, .dtype = DTYPE_F32, .count = 1};
    struct muster_error err = {0};
    struct device_arena pinned = {.fd = -1};
    const float mine = 1;
    if (nccl_put(r->arena.base, &mine, sizeof mine) ||
        r->ops->arena_create(r->device, MEMORY_PINNED, 4096, &pinned, &err))
        return nccl_complain(r, "pinned memory", err.text);
    float *value = pinned.base;
    *value = 0;
    const struct cuda_stream_handle *handle = r->ops->stream_handle(r->stream);
    int failed = cudaMemcpyAsync(value, r->arena.base, sizeof *value, cudaMemcpyDeviceToHost,
                                 handle->stream) != cudaSuccess ||
                 nccl_do(r, r->comm, &one, value, value, &err);
    failed = failed ? nccl_complain(r, "pinned memory", err.text)
             : *value != (float)r->size
                 ? nccl_complain(r, "pinned memory", "it was read before what is written there")
                 : 0;
    r->ops->arena_destroy(r->device, &pinned);
    return failed;
}

static void pinned_memory_is_read_in_the_streams_order(void **state)
{
    (void)state;
    setenv("FAKE_CUDA_SCHEDULE", "late", 1);
    struct nccl_job job = {.body = copy_then_add};
    assert_int_equal(nccl_job_run(&job, 2), 0);
    unsetenv("FAKE_CUDA_SCHEDULE");
}

/* ---- parts ---- */

static int sum_in(struct nccl_rank *r, struct comm *comm, int expected)
{
    static const struct comm_op op = {.kind = COMM_ALL_REDUCE, .dtype = DTYPE_I32, .count = 1};
    int32_t value = 1 << r->rank;
    struct muster_error err = {0};
    if (comm_nccl()->run(comm, &op, &value, &value, &err))
        return nccl_complain(r, comm->name, err.text);
    return value == expected ? 0 : nccl_complain(r, comm->name, "another sum");
}

/* NCCL has the ranks in the same order as we. */
static int gather_in(struct nccl_rank *r, struct comm *comm, int first, int second)
{
    static const struct comm_op op = {.kind = COMM_ALL_GATHER, .dtype = DTYPE_I32, .count = 1};
    int32_t mine = r->rank, all[2] = {-1, -1};
    struct muster_error err = {0};
    if (comm_nccl()->run(comm, &op, &mine, all, &err))
        return nccl_complain(r, comm->name, err.text);
    return all[0] == first && all[1] == second ? 0 : nccl_complain(r, comm->name, "another order");
}

static int parts(struct nccl_rank *r, struct nccl_job *job)
{
    (void)job;
    struct muster_error err = {0};
    /* Odd and even ranks, in reverse; then each alone. */
    struct comm *half = comm_nccl()->split(r->comm, r->rank % 2, -r->rank, "half", &err);
    struct comm *alone = half ? comm_nccl()->split(half, half->rank, 0, "alone", &err) : NULL;
    if (!alone)
        return nccl_complain(r, "split", err.text);
    int result = half->size == 2 && alone->size == 1 && half->rank == (r->rank < 2) &&
                         nccl_comm_of(alone)->members[0] == r->rank /* as the first comm has it */
                     ? 0
                     : nccl_complain(r, "split", "another place");
    result = result || sum_in(r, r->comm, 15) || sum_in(r, half, r->rank % 2 ? 10 : 5) ||
             sum_in(r, alone, 1 << r->rank) || sum_in(r, half, r->rank % 2 ? 10 : 5);
    result = result || gather_in(r, half, r->rank % 2 ? 3 : 2, r->rank % 2);
    if (comm_nccl()->split(r->comm, -1, 0, "none", &err))
        result = nccl_complain(r, "split", "a color below 0 was taken");
    /* A second split by the same name has other members. */
    struct comm *again = comm_nccl()->split(r->comm, r->rank / 2, r->rank, "half", &err);
    if (!again)
        return nccl_complain(r, "split", err.text);
    result =
        result || sum_in(r, again, r->rank < 2 ? 3 : 12) || gather_in(r, again, r->rank & ~1, r->rank | 1);
    comm_nccl()->destroy(again);
    comm_nccl()->destroy(alone);
    comm_nccl()->destroy(half);
    return result ? -1 : 0;
}

static void parts_have_their_own_ranks(void **state)
{
    (void)state;
    struct nccl_job job = {.body = parts};
    assert_int_equal(nccl_job_run(&job, 4), 0);
}

static int count_of(const char *name)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
    int (*count)(void) = library ? (int (*)(void))(uintptr_t)dlsym(library, name) : NULL;
    assert_non_null(count);
    const int found = count();
    (void)dlclose(library);
    return found;
}

/* Resources are shared where operations have one order, and NCCL is asked to leave multiprocessors free. */
static void parts_share_where_there_is_one_order(void **state)
{
    (void)state;
    struct nccl_job job = {.body = parts};
    assert_int_equal(nccl_job_run(&job, 4), 0);
    const int sharing = count_of("fake_nccl_sharing");
    assert_true(sharing >= 4 * 3);
    assert_int_equal(count_of("fake_nccl_policies"), NCCL_CTA_POLICY_EFFICIENCY);
    setenv("MUSTER_NCCL_ORDER", "free", 1);
    assert_int_equal(nccl_job_run(&job, 4), 0);
    unsetenv("MUSTER_NCCL_ORDER");
    assert_int_equal(count_of("fake_nccl_sharing"), sharing);
}

/* ---- two comms at once, on a device that runs one operation at a time ---- */

static int two_comms(struct nccl_rank *r, struct nccl_job *job)
{
    static const struct comm_op op = {.kind = COMM_ALL_REDUCE, .dtype = DTYPE_F32, .count = 1000};
    struct muster_error err = {0};
    uint64_t state = job->seed + (uint64_t)r->rank; /* each rank waits elsewhere */
    struct comm *second = comm_nccl()->split(r->comm, 0, r->rank, "second", &err);
    float *values = r->arena.base;
    if (!second)
        return nccl_complain(r, "split", err.text);
    int result = 0;
    for (int i = 0; i < 40 && !result; i++) {
        result = comm_nccl()->issue(i % 2 ? second : r->comm, &op, values + (i % 2 ? 1000 : 0),
                                    values + (i % 2 ? 1000 : 0), i % 2 ? r->other : r->stream, &err);
        if (test_random(&state) % 4 == 0)
            clock_sleep_until(instant_add(clock_now(NULL), NS_PER_MS));
    }
    result = result || nccl_sync(r, r->stream, &err) || nccl_sync(r, r->other, &err);
    if (result)
        job->errors[r->rank] = err;
    comm_nccl()->destroy(second);
    return 0;
}

static void the_schedule_is_the_order_on_the_device(void **state)
{
    (void)state;
    setenv("FAKE_NCCL_ONE_AT_A_TIME", "1", 1);
    struct nccl_job job = {.body = two_comms, .timeout_ns = 20 * NS_PER_S};
    assert_int_equal(nccl_job_run(&job, 3), 0);
    for (int rank = 0; rank < 3; rank++)
        assert_string_equal(job.errors[rank].text, "");
    unsetenv("FAKE_NCCL_ONE_AT_A_TIME");
}

/* ---- one comm, two streams ---- */

/* On one comm the buffers of both are the same; and the order is that of the calls. */
static int two_streams(struct nccl_rank *r, struct nccl_job *job)
{
    static const struct comm_op op = {
        .kind = COMM_ALL_REDUCE, .dtype = DTYPE_F32, .count = 1000, .accumulate = true};
    struct muster_error err = {0};
    static const float ones[2000] = {[0] = 1, [999] = 1, [1000] = 3, [1999] = 3};
    float *values = r->arena.base, *sums = values + 2000, got[2000];
    (void)job;
    if (nccl_put(values, ones, sizeof ones) || cudaMemset(sums, 0, sizeof got) != cudaSuccess)
        return -1;
    for (int i = 0; i < 40; i++) {
        const int at = i % 2 ? 1000 : 0;
        if (comm_nccl()->issue(r->comm, &op, values + at, sums + at, i % 2 ? r->other : r->stream, &err))
            return nccl_complain(r, "issue", err.text);
    }
    if (nccl_sync(r, r->stream, &err) || nccl_sync(r, r->other, &err) || nccl_get(got, sums, sizeof got))
        return nccl_complain(r, "sync", err.text);
    return got[0] == (float)(20 * r->size) && got[1999] == (float)(60 * r->size)
               ? 0
               : nccl_complain(r, "two streams", "another sum");
}

static void two_streams_share_a_comm(void **state)
{
    (void)state;
    setenv("FAKE_CUDA_SCHEDULE", "late", 1);
    for (int free_order = 0; free_order < 2; free_order++) {
        struct nccl_job job = {.body = two_streams};
        if (free_order)
            setenv("MUSTER_NCCL_ORDER", "free", 1);
        assert_int_equal(nccl_job_run(&job, 2), 0);
    }
    unsetenv("MUSTER_NCCL_ORDER");
    unsetenv("FAKE_CUDA_SCHEDULE");
}

/* ---- buffers of odd sizes, times, and ends ---- */

/* Both sides lie at multiples of 256 bytes in one buffer: their sum may be a power of two although the sum of
 * their sizes is below it. */
static int gather_of_odd_size(struct nccl_rank *r, struct nccl_job *job)
{
    enum { MOST = 12000 };
    struct muster_error err = {0};
    scope_free int32_t *mine = mem_calloc(MOST, sizeof *mine), *all = mem_calloc(2 * MOST, sizeof *all);
    (void)job;
    for (int64_t count = 5450; count < 5464; count++) { /* 3 * count words: about 64 KiB */
        const struct comm_op op = {.kind = COMM_ALL_GATHER, .dtype = DTYPE_I32, .count = count};
        for (int i = 0; i < count; i++)
            mine[i] = (int32_t)(i + count);
        if (comm_nccl()->run(r->comm, &op, mine, all, &err))
            return nccl_complain(r, "gather", err.text);
        if (memcmp(all + (r->size - 1) * count, mine, (size_t)count * sizeof *mine) != 0)
            return nccl_complain(r, "gather", "other values");
    }
    return 0;
}

static void sizes_just_below_a_power_of_two(void **state)
{
    (void)state;
    struct nccl_job job = {.body = gather_of_odd_size};
    assert_int_equal(nccl_job_run(&job, 2), 0);
}

/* The time of an operation does not begin while it waits for the one before it. */
static int time_of_two(struct nccl_rank *r, struct nccl_job *job)
{
    static const struct comm_op op = {.kind = COMM_ALL_REDUCE, .dtype = DTYPE_F32, .count = 8};
    struct muster_error err = {0};
    struct comm *second = comm_nccl()->split(r->comm, 0, r->rank, "second", &err);
    float *values = r->arena.base;
    (void)job;
    if (!second || comm_nccl()->issue(r->comm, &op, values, values, r->stream, &err) ||
        comm_nccl()->issue(second, &op, values + 8, values + 8, r->other, &err) ||
        nccl_sync(r, r->stream, &err) || nccl_sync(r, r->other, &err))
        return nccl_complain(r, "two", err.text);
    const int64_t first_ns = comm_nccl()->busy_ns(r->comm), second_ns = comm_nccl()->busy_ns(second);
    comm_nccl()->destroy(second);
    if (first_ns >= 95 * NS_PER_MS && second_ns >= 95 * NS_PER_MS && second_ns < 170 * NS_PER_MS)
        return 0;
    fprintf(stderr, "%lld and %lld ms of 100 each\n", (long long)(first_ns / NS_PER_MS),
            (long long)(second_ns / NS_PER_MS));
    return -1;
}

static void time_at_work_is_that_of_the_operation(void **state)
{
    (void)state;
    setenv("FAKE_CUDA_COST", "AllReduce:100000", 1);
    int failed = -1;
    for (int tries = 0; failed && tries < 3; tries++) { /* a busy machine takes longer */
        struct nccl_job job = {.body = time_of_two};
        failed = nccl_job_run(&job, 2);
    }
    assert_int_equal(failed, 0);
    unsetenv("FAKE_CUDA_COST");
}

/* Operations that differ in one property are told apart by the hash that ranks compare. */
static int hashes(struct nccl_rank *r, struct nccl_job *job)
{
    static const struct comm_op ops[] = {
        {.kind = COMM_ALL_REDUCE, .dtype = DTYPE_F32, .reduction = REDUCE_SUM, .count = 4},
        {.kind = COMM_ALL_REDUCE, .dtype = DTYPE_F32, .reduction = REDUCE_AVERAGE, .count = 4},
        {.kind = COMM_ALL_REDUCE, .dtype = DTYPE_F32, .reduction = REDUCE_SUM, .count = 3},
        {.kind = COMM_ALL_REDUCE, .dtype = DTYPE_I32, .reduction = REDUCE_SUM, .count = 4},
        {.kind = COMM_ALL_REDUCE, .dtype = DTYPE_F32, .reduction = REDUCE_SUM, .count = 4, .tag = 1},
        {.kind = COMM_ALL_TO_ALL, .dtype = DTYPE_F32, .count = 4},
        {.kind = COMM_BROADCAST, .dtype = DTYPE_F32, .root = 0, .count = 4},
        {.kind = COMM_BROADCAST, .dtype = DTYPE_F32, .root = 1, .count = 4}};
    enum { OPS = sizeof ops / sizeof *ops };
    uint64_t seen[OPS] = {0};
    struct muster_error err = {0};
    (void)job;
    for (int i = 0; i < OPS; i++) {
        struct comm *comm = comm_nccl()->split(r->comm, 0, r->rank, "hash", &err);
        float *values = r->arena.base;
        if (!comm || nccl_do(r, comm, &ops[i], values, values + 64, &err))
            return nccl_complain(r, "hash", err.text);
        seen[i] = nccl_comm_of(comm)->chain;
        comm_nccl()->destroy(comm);
        for (int other = 0; other < i; other++)
            if (seen[i] == seen[other])
                return nccl_complain(r, "hash", comm_kind_name(ops[i].kind));
    }
    return 0;
}

static void every_property_is_in_the_hash(void **state)
{
    (void)state;
    struct nccl_job job = {.body = hashes};
    assert_int_equal(nccl_job_run(&job, 2), 0);
}

/* The next operation of the family waits for none of a comm that has gone. */
static int goes_on_without_a_part(struct nccl_rank *r, struct nccl_job *job)
{
    static const struct comm_op op = {.kind = COMM_ALL_REDUCE, .dtype = DTYPE_F32, .count = 8};
    struct muster_error err = {0};
    (void)job;
    struct comm *part = comm_nccl()->split(r->comm, 0, r->rank, "part", &err);
    float *values = r->arena.base;
    if (!part || comm_nccl()->issue(part, &op, values, values, r->other, &err) ||
        nccl_sync(r, r->other, &err))
        return nccl_complain(r, "part", err.text);
    comm_nccl()->destroy(part);
    return nccl_do(r, r->comm, &op, values, values, &err) ? nccl_complain(r, "after the part", err.text) : 0;
}

static void operations_go_on_after_a_part_has_gone(void **state)
{
    (void)state;
    struct nccl_job job = {.body = goes_on_without_a_part};
    assert_int_equal(nccl_job_run(&job, 2), 0);
}

static void *abort_soon(void *argument)
{
    clock_sleep_until(instant_add(clock_now(NULL), 15 * NS_PER_MS));
    comm_nccl()->abort(argument);
    return NULL;
}

/* The thread that watches never takes a communicator away from a call that is inside of it. */
static int is_aborted_while_it_issues(struct nccl_rank *r, struct nccl_job *job)
{
    static const struct comm_op op = {.kind = COMM_ALL_REDUCE, .dtype = DTYPE_F32, .count = 8};
    struct muster_error err = {0};
    pthread_t thread;
    float *values = r->arena.base;
    (void)job;
    if (pthread_create(&thread, NULL, abort_soon, r->comm))
        return -1;
    int failed = 0;
    for (int i = 0; i < 50 && !failed; i++)
        failed = comm_nccl()->issue(r->comm, &op, values, values, r->stream, &err);
    (void)pthread_join(thread, NULL);
    return failed ? 0 : nccl_complain(r, "aborted", "it goes on");
}

static void an_abort_waits_for_the_call_that_is_inside(void **state)
{
    (void)state;
    setenv("FAKE_NCCL_LINGER", "10", 1);
    struct nccl_job job = {.body = is_aborted_while_it_issues};
    assert_int_equal(nccl_job_run(&job, 1), 0);
    unsetenv("FAKE_NCCL_LINGER");
}

/* gpu_nccl_comm [TEST]: all tests, or the named test. */
int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(random_operations_match_comm_shm, no_communicator_is_left),
        cmocka_unit_test_teardown(queued_operations_keep_their_order, no_communicator_is_left),
        cmocka_unit_test_teardown(pinned_memory_is_read_in_the_streams_order, no_communicator_is_left),
        cmocka_unit_test_teardown(parts_have_their_own_ranks, no_communicator_is_left),
        cmocka_unit_test_teardown(parts_share_where_there_is_one_order, no_communicator_is_left),
        cmocka_unit_test_teardown(the_schedule_is_the_order_on_the_device, no_communicator_is_left),
        cmocka_unit_test_teardown(two_streams_share_a_comm, no_communicator_is_left),
        cmocka_unit_test_teardown(sizes_just_below_a_power_of_two, no_communicator_is_left),
        cmocka_unit_test_teardown(time_at_work_is_that_of_the_operation, no_communicator_is_left),
        cmocka_unit_test_teardown(every_property_is_in_the_hash, no_communicator_is_left),
        cmocka_unit_test_teardown(operations_go_on_after_a_part_has_gone, no_communicator_is_left),
        cmocka_unit_test_teardown(an_abort_waits_for_the_call_that_is_inside, no_communicator_is_left),
    };
    setenv("FAKE_CUDA_DEVICES", "4", 0); /* one for each rank */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
