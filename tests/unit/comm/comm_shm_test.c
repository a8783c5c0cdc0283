/* comm_shm_test.c - collectives over shared memory with ranks as threads: every operation, small and large,
 * direct and staged, against a naive result bit for bit; mismatches, time-outs and aborts. Built again with
 * TEST_COMM=comm_tcp and comm_node: the same over TCP and over two nodes. */
#include "tests/support/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>

#include "proto/base/error.h"
#include "rendezvous/failure/failure.h"
#include "runtime/comm/comm_internal.h"
#include "runtime/comm/comm_reduce.h"
#include "runtime/comm/comm_shm_internal.h"
#include "runtime/comm/comm_tcp_internal.h"
#include "tests/support/faults.h"
#include "tests/unit/comm/comm_test_trials.h"

/* ---- random operations ---- */

static int random_operations(struct test_rank *r, struct test_job *job)
{
    uint64_t state = job->seed;
    struct buffers b = {malloc(TEST_ARENA_BYTES / 2), malloc(TEST_ARENA_BYTES / 2), NULL, NULL};
    int result = b.heap_send && b.heap_recv ? 0 : -1;
    for (int number = 0; !result && number < 120; number++) {
        struct trial t = make_trial(&state, r->rank, r->size);
        struct muster_error err = {0};
        if (t.op.kind == COMM_KIND_COUNT)
            continue; /* two other ranks are busy with each other */
        place_buffers(r, &t, &b);
        if (test_rank_do(r, r->comm, &t.op, b.send, b.recv, &err))
            result = test_rank_complain(r, "operation", err.text);
        else
            result = check_trial(r, &t, &b, number);
    }
    free(b.heap_send);
    free(b.heap_recv);
    return result;
}

static void random_operations_match_naive_results(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 4, 8};
    const char *given = getenv("COMM_TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)clock_now(NULL).ns;
    printf("seed: COMM_TEST_SEED=%llu\n", (unsigned long long)seed);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct test_job job = {.body = random_operations, .seed = seed + i};
        assert_int_equal(test_job_run(&job, sizes[i]), 0);
    }
}

/* ---- many small operations that are under way together ---- */

static int queue_of_operations(struct test_rank *r, struct test_job *job)
{
    (void)job;
    enum { COUNT = 400 };
    static const struct comm_op op = {.kind = COMM_ALL_REDUCE, .dtype = DTYPE_F32, .count = 3};
    float *values = r->arena.base;
    struct muster_error err = {0};
    for (int i = 0; i < COUNT; i++) {
        for (int k = 0; k < 3; k++)
            values[3 * i + k] = (float)(i + r->rank * k);
        if (TEST_COMM()->issue(r->comm, &op, values + 3 * i, values + 3 * i, r->stream, &err))
            return test_rank_complain(r, "issue", err.text);
    }
    if (r->ops->sync(r->stream, instant_add(clock_now(NULL), TEST_TIMEOUT_NS), &err))
        return test_rank_complain(r, "sync", err.text);
    float ranks = (float)(r->size * (r->size - 1) / 2);
    for (int i = 0; i < COUNT; i++) {
        for (int k = 0; k < 3; k++) {
            if (values[3 * i + k] != (float)(i * r->size) + ranks * (float)k)
                return test_rank_complain(r, "queue", "wrong sum");
        }
    }
    struct comm_status status;
    TEST_COMM()->status(r->comm, &status);
    if (status.issued != COUNT || status.finished != COUNT || status.missing_count)
        return test_rank_complain(r, "status", "not finished");
    return TEST_COMM()->busy_ns(r->comm) > 0 ? 0 : test_rank_complain(r, "busy", "no time");
}

static void queued_operations_keep_their_order(void **state)
{
    (void)state;
    for (int size = 1; size <= 4; size++) {
        struct test_job job = {.body = queue_of_operations};
        assert_int_equal(test_job_run(&job, size), 0);
    }
}

/* ---- on the calling thread ---- */

static int run_beside_the_stream(struct test_rank *r, struct test_job *job)
{
    static const struct comm_op add = {.kind = COMM_ALL_REDUCE, .dtype = DTYPE_I32, .count = 1};
    struct muster_error err = {0};
    int32_t *values = r->arena.base;
    values[0] = values[1] = values[2] = r->rank + 1;
    if (TEST_COMM()->run(r->comm, &add, &values[0], &values[0], &err))
        return test_rank_complain(r, "run", err.text);
    /* Rank 1 issues only when the others have tried: till then their operation is under way. */
    if (r->rank == 1 && test_job_wait(&job->met, r->size - 1, TEST_TIMEOUT_NS / 2))
        return test_rank_complain(r, "run", "the others have not tried");
    if (TEST_COMM()->issue(r->comm, &add, &values[1], &values[1], r->stream, &err))
        return test_rank_complain(r, "issue", err.text);
    if (r->rank != 1) {
        if (!TEST_COMM()->run(r->comm, &add, &values[2], &values[2], &err) || err.code != MUSTER_E_STATE ||
            !strstr(err.text, "1 operations of comm test are still under way: sync their stream first"))
            return test_rank_complain(r, "run beside an operation", err.text);
        job->met++;
    }
    if (r->ops->sync(r->stream, INSTANT_NEVER, &err) ||
        TEST_COMM()->run(r->comm, &add, &values[2], &values[2], &err))
        return test_rank_complain(r, "the stream, then run", err.text);
    for (int i = 0; i < 3; i++)
        if (values[i] != r->size * (r->size + 1) / 2)
            return test_rank_complain(r, "sums", "are wrong");
    return 0;
}

static void an_operation_runs_on_the_calling_thread_when_no_other_is_under_way(void **state)
{
    (void)state;
    for (int size = 2; size <= 3; size++) {
        struct test_job job = {.body = run_beside_the_stream};
        assert_int_equal(test_job_run(&job, size), 0);
    }
}

/* ---- splitting ---- */

static int split_and_use(struct test_rank *r, struct test_job *job)
{
    (void)job;
    struct muster_error err = {0};
    const struct comm_op gather = {.kind = COMM_ALL_GATHER, .dtype = DTYPE_I32, .count = 1};
    /* Even and odd ranks; in each, the order is turned round. */
    struct comm *half = TEST_COMM()->split(r->comm, r->rank % 2, -r->rank, "half", &err);
    struct comm *whole = half ? TEST_COMM()->split(r->comm, 7, r->rank, "whole", &err) : NULL;
    struct comm *again = whole ? TEST_COMM()->split(half, 0, 0, "again", &err) : NULL;
    int result = again ? 0 : test_rank_complain(r, "split", err.text);
    int32_t *out = r->arena.base;
    int members = (r->size + (r->rank % 2 == 0)) / 2;
    for (int i = 0; !result && i < 3; i++) {
        struct comm *comm = i == 0 ? half : i == 1 ? whole : again;
        int count = i == 1 ? r->size : members;
        if (test_rank_do(r, comm, &gather, &r->rank, out, &err))
            result = test_rank_complain(r, "gather", err.text);
        for (int k = 0; !result && k < count; k++) {
            int last = r->rank % 2 + 2 * (members - 1), expected = i == 1 ? k : last - 2 * k;
            if (out[k] != expected)
                result = test_rank_complain(r, "split", "wrong order");
        }
    }
    TEST_COMM()->destroy(again);
    TEST_COMM()->destroy(whole);
    TEST_COMM()->destroy(half);
    return result;
}

static void splits_have_their_own_ranks(void **state)
{
    (void)state;
    for (int size = 1; size <= 5; size++) {
        struct test_job job = {.body = split_and_use};
        assert_int_equal(test_job_run(&job, size), 0);
    }
}

/* ---- failures ---- */

/* Over TCP most of many ranks have no connection to the failing rank. */
enum { FEW_RANKS = 3, MANY_RANKS = 11 };
#define EACH_SIZE(size)                                                                                      \
    for (int size = FEW_RANKS; size <= (test_over_shm() ? FEW_RANKS : MANY_RANKS);                           \
         size += MANY_RANKS - FEW_RANKS)

/* A failure ends the comm for every rank, also for a rank that has not yet finished earlier operations: where
 * that has to pass, the ranks wait here until it has. Once a job. */
static int all_meet(struct test_rank *r, struct test_job *job)
{
    job->met++;
    return test_job_wait(&job->met, r->size, TEST_TIMEOUT_NS)
               ? test_rank_complain(r, "meeting", "not all ranks have come")
               : 0;
}

static int mismatch(struct test_rank *r, struct test_job *job)
{
    struct comm_op op = {.kind = COMM_ALL_GATHER, .dtype = DTYPE_F32, .count = 2};
    float *values = r->arena.base;
    if (test_rank_do(r, r->comm, &op, values, values + 100, &job->errors[r->rank]))
        return test_rank_complain(r, "first", job->errors[r->rank].text);
    if (all_meet(r, job))
        return -1;
    if (r->rank == 2)
        op = (struct comm_op){.kind = COMM_REDUCE_SCATTER, .dtype = DTYPE_F64, .count = 5};
    if (!test_rank_do(r, r->comm, &op, values, values + 100, &job->errors[r->rank]))
        return test_rank_complain(r, "mismatch", "was not seen");
    struct muster_error err;
    return TEST_COMM()->issue(r->comm, &op, values, values + 100, r->stream, &err)
               ? 0
               : test_rank_complain(r, "later operation", "was accepted");
}

static void mismatch_names_ranks_and_operations(void **state)
{
    (void)state;
    EACH_SIZE(size)
    {
        struct test_job job = {.body = mismatch};
        assert_int_equal(test_job_run(&job, size), 0);
        for (int rank = 0; rank < size; rank++) {
            const char *text = job.errors[rank].text;
            assert_int_equal(job.errors[rank].code, MUSTER_E_PEER);
            /* Over TCP each of the others may have met rank 2 by itself. */
            assert_non_null(strstr(text, !test_over_shm() ? " issued all_gather of 2 f32 as #2"
                                                          : "rank 0 issued all_gather of 2 f32 as #2"));
            assert_non_null(strstr(text, "rank 2 issued reduce_scatter of 5 f64 by sum as #2"));
        }
    }
}

static int pair_mismatch(struct test_rank *r, struct test_job *job)
{
    const struct comm_op op = {.kind = COMM_SEND, .dtype = DTYPE_F32, .count = 2, .root = !r->rank};
    return test_rank_do(r, r->comm, &op, r->arena.base, NULL, &job->errors[r->rank])
               ? 0
               : test_rank_complain(r, "two sends", "were accepted");
}

static void two_sends_do_not_meet(void **state)
{
    (void)state;
    struct test_job job = {.body = pair_mismatch};
    assert_int_equal(test_job_run(&job, 2), 0);
    assert_non_null(strstr(job.errors[0].text, "rank 0 issued send of 2 f32 to rank 1"));
    assert_non_null(strstr(job.errors[1].text, "rank 1 issued send of 2 f32 to rank 0"));
}

static int time_out(struct test_rank *r, struct test_job *job)
{
    const struct comm_op op = {.kind = COMM_BARRIER};
    if (all_meet(r, job)) /* a failure would end the making of a comm, too */
        return -1;
    if (r->rank == 1)
        return test_job_wait(&job->gave_up, r->size - 1, 2 * TEST_TIMEOUT_NS);
    struct muster_error err = {0};
    int failed = test_rank_do(r, r->comm, &op, NULL, NULL, &err);
    job->errors[r->rank] = err;
    job->gave_up++;
    return failed ? 0 : test_rank_complain(r, "barrier", "passed without rank 1");
}

/* Whether this rank waits for rank 1 itself: on another node it waits for that one's first rank. */
static bool waits_for_one(const struct test_rank *r)
{
    return r->rank == 0 || (r->rank == 2 && test_nodes < 2);
}

static int late_missing(struct test_rank *r, struct test_job *job)
{
    /* status names who is missing while we wait, and the operation ends well when it comes: once it was
     * named. */
    const struct comm_op op = {.kind = COMM_ALL_REDUCE, .dtype = DTYPE_F32, .count = 1};
    float *values = r->arena.base;
    struct muster_error err = {0};
    struct comm_status status = {0};
    if (r->rank == 1 && test_job_wait(&job->named, test_nodes < 2 ? 2 : 1, TEST_TIMEOUT_NS / 2))
        return test_rank_complain(r, "status", "was not named by the others");
    if (TEST_COMM()->issue(r->comm, &op, values, values, r->stream, &err))
        return test_rank_complain(r, "issue", err.text);
    bool seen = false;
    do {
        TEST_COMM()->status(r->comm, &status);
        if (!seen && status.missing_count >= 1 && status.missing[0] == 1) {
            seen = true;
            job->named++;
        }
    } while (status.finished < 1);
    if (r->ops->sync(r->stream, INSTANT_NEVER, &err))
        return test_rank_complain(r, "sync", err.text);
    return seen || !waits_for_one(r) ? 0 : test_rank_complain(r, "status", "did not name rank 1");
}

static void status_names_the_missing(void **state)
{
    (void)state;
    struct test_job job = {.body = late_missing};
    assert_int_equal(test_job_run(&job, 3), 0);
}

static int cancelled(struct test_rank *r, struct test_job *job)
{
    const struct comm_op op = {.kind = COMM_ALL_GATHER, .dtype = DTYPE_F32, .count = 2};
    float *values = r->arena.base;
    struct muster_error *err = &job->errors[r->rank];
    if (all_meet(r, job)) /* a failure would end the making of a comm, too */
        return -1;
    if (r->rank == 0) { /* waits until the others wait, then gives up */
        clock_sleep_until(instant_add(clock_now(NULL), 50 * NS_PER_MS));
        TEST_COMM()->abort(r->comm);
        return 0;
    }
    return test_rank_do(r, r->comm, &op, values, values + 10, err)
               ? 0
               : test_rank_complain(r, "all_gather", "passed without rank 0");
}

static void abort_wakes_every_rank(void **state)
{
    (void)state;
    EACH_SIZE(size)
    {
        struct test_job job = {.body = cancelled};
        assert_int_equal(test_job_run(&job, size), 0);
        for (int rank = 1; rank < size; rank++) {
            assert_int_equal(job.errors[rank].code, MUSTER_E_PEER);
            assert_non_null(strstr(job.errors[rank].text, "rank 0"));
        }
    }
}

static int cancel_own(struct test_rank *r, struct test_job *job)
{
    const struct comm_op op = {.kind = COMM_BARRIER};
    struct comm_status status;
    struct muster_error *err = &job->errors[r->rank];
    if (all_meet(r, job)) /* a failure would end the making of a comm, too */
        return -1;
    if (r->rank == 1)
        return test_job_wait(&job->gave_up, 1, 2 * TEST_TIMEOUT_NS);
    if (TEST_COMM()->issue(r->comm, &op, NULL, NULL, r->stream, err))
        return -1;
    do {
        TEST_COMM()->status(r->comm, &status);
    } while (!status.missing_count);
    TEST_COMM()->abort(r->comm);
    int failed = r->ops->sync(r->stream, INSTANT_NEVER, err);
    job->gave_up++;
    return failed ? 0 : -1;
}

static void abort_cancels_the_own_wait(void **state)
{
    (void)state;
    struct test_job job = {.body = cancel_own};
    assert_int_equal(test_job_run(&job, 2), 0);
    assert_int_equal(job.errors[0].code, MUSTER_E_CANCELLED);
}

static int leave_early(struct test_rank *r, struct test_job *job)
{
    const struct comm_op op = {.kind = COMM_BARRIER};
    struct muster_error *err = &job->errors[r->rank];
    if (test_rank_do(r, r->comm, &op, NULL, NULL, err))
        return test_rank_complain(r, "barrier", err->text);
    if (all_meet(r, job))
        return -1;
    if (r->rank == 1)
        return 0;
    const struct comm_op receive = {.kind = COMM_RECV, .dtype = DTYPE_F32, .count = 1, .root = 1};
    const struct comm_op *next = r->rank == 2 ? &receive : &op; /* an operation of a pair, and of all ranks */
    return test_rank_do(r, r->comm, next, NULL, r->arena.base, err) ? 0 : -1;
}

static void a_rank_that_left_is_named(void **state)
{
    (void)state;
    EACH_SIZE(size)
    {
        struct test_job job = {.body = leave_early};
        assert_int_equal(test_job_run(&job, size), 0);
        for (int rank = 0; rank < size; rank++) {
            if (rank == 1)
                continue;
            assert_int_equal(job.errors[rank].code, MUSTER_E_PEER);
            assert_non_null(strstr(job.errors[rank].text, "rank 1"));
            assert_non_null(strstr(job.errors[rank].text, "had left"));
        }
    }
}

/* Every other failure of a rank's device frees the peers of all its comms. */
static int device_breaks(struct test_rank *r, struct test_job *job)
{
    const struct comm_op op = {.kind = COMM_BARRIER};
    struct muster_error *err = &job->errors[r->rank];
    if (all_meet(r, job)) /* a failure would end the making of a comm, too */
        return -1;
    if (r->rank == 2)
        return test_job_wait(&job->gave_up, r->size - 1, 2 * TEST_TIMEOUT_NS);
    if (TEST_COMM()->issue(r->comm, &op, NULL, NULL, r->stream, err))
        return -1;
    if (r->rank == 0) {
        const struct muster_error broken = {MUSTER_E_IO, "the disk is full"};
        struct comm_status status;
        do { /* in the middle of the barrier */
            TEST_COMM()->status(r->comm, &status);
        } while (!status.missing_count);
        (r->ops->fail)(r->device, &broken);
    }
    int failed = r->ops->sync(r->stream, INSTANT_NEVER, err);
    job->gave_up++;
    return failed ? 0 : -1;
}

static void a_broken_device_frees_its_peers(void **state)
{
    (void)state;
    EACH_SIZE(size)
    {
        struct test_job job = {.body = device_breaks};
        assert_int_equal(test_job_run(&job, size), 0);
        assert_string_equal(job.errors[0].text, "the disk is full");
        for (int rank = 1; rank < size; rank++) {
            if (rank != 2)
                assert_string_equal(job.errors[rank].text, "rank 0 stopped: the disk is full");
            assert_int_equal(failure_says_peer_gone(job.errors[rank].text, rank), rank != 2);
        }
    }
}

/* A failure is being written, by a rank that gets no processor for some slices or that died meanwhile. */
enum writer { WRITER_STAYS, WRITER_AFTER_ANOTHER_LEFT, WRITER_DIED };

static int write_slowly(struct test_rank *r, struct test_job *job)
{
    const struct comm_op op = {.kind = COMM_BARRIER};
    struct muster_error *err = &job->errors[r->rank];
    if (r->rank == 0) {
        const int failed = test_rank_do(r, r->comm, &op, NULL, NULL, err);
        job->gave_up++;
        return failed ? 0 : -1;
    }
    struct host_page *page = host_comm_of(r->comm)->page;
    const struct host_channel all = host_channel_of(page, r->size, r->rank, -1);
    atomic_store(&page->failed, HOST_FAILURE_WRITING);
    if (job->seed != WRITER_STAYS)
        atomic_store(&all.members[1].left, 1);
    clock_sleep_until(instant_add(clock_now(NULL), 3 * COMM_SLICE_NS));
    if (job->seed != WRITER_DIED) {
        (void)error_set(&page->failure, MUSTER_E_IO, "the disk is full");
        atomic_store(&page->failed, HOST_FAILURE_SET);
    }
    return test_job_wait(&job->gave_up, 1, TEST_TIMEOUT_NS);
}

static void a_reason_that_is_being_written_is_waited_for(void **state)
{
    (void)state;
    if (!test_over_shm())
        skip_because("over TCP a reason comes as one message");
    for (enum writer writer = WRITER_STAYS; writer <= WRITER_DIED; writer++) {
        struct test_job job = {.body = write_slowly, .seed = writer};
        assert_int_equal(test_job_run(&job, 2), 0);
        if (writer == WRITER_DIED)
            assert_non_null(strstr(job.errors[0].text, "had left the comm before barrier"));
        else
            assert_string_equal(job.errors[0].text, "the disk is full");
    }
}

static void time_out_names_the_missing(void **state)
{
    (void)state;
    EACH_SIZE(size)
    {
        struct test_job job = {.body = time_out, .timeout_ns = 400 * NS_PER_MS};
        assert_int_equal(test_job_run(&job, size), 0);
        for (int rank = 0; rank < size; rank += rank ? 1 : 2) {
            assert_int_equal(job.errors[rank].code, MUSTER_E_TIMEOUT);
            assert_non_null(strstr(job.errors[rank].text, "barrier #1"));
            assert_non_null(strstr(job.errors[rank].text, "for rank 1"));
        }
    }
}

static int bad_operations(struct test_rank *r, struct test_job *job)
{
    (void)job;
    float x[4];
    struct {
        struct comm_op op;
        const void *send;
        void *recv;
        int code;
    } bad[] = {
        {{.kind = COMM_KIND_COUNT}, x, x, MUSTER_E_INVALID},
        {{.kind = COMM_ALL_GATHER, .count = -1}, x, x, MUSTER_E_INVALID},
        {{.kind = COMM_ALL_GATHER, .count = INT64_MAX / 4}, x, x, MUSTER_E_INVALID},
        {{.kind = COMM_ALL_GATHER, .count = 1}, NULL, x, MUSTER_E_INVALID},
        {{.kind = COMM_ALL_GATHER, .count = 1}, x, NULL, MUSTER_E_INVALID},
        {{.kind = COMM_ALL_GATHER, .count = 1, .accumulate = true}, x, x, MUSTER_E_INVALID},
        {{.kind = COMM_ALL_GATHER, .count = 1, .dtype = DTYPE_COUNT}, x, x, MUSTER_E_INVALID},
        {{.kind = COMM_ALL_TO_ALL, .count = 1}, x, x, MUSTER_E_INVALID},
        {{.kind = COMM_BROADCAST, .count = 1, .root = 2}, x, x, MUSTER_E_INVALID},
        {{.kind = COMM_SEND, .count = 1, .root = r->rank}, x, x, MUSTER_E_INVALID},
        {{.kind = COMM_ALL_REDUCE, .count = 1, .dtype = DTYPE_U8}, x, x, MUSTER_E_UNSUPPORTED},
        {{.kind = COMM_ALL_REDUCE, .count = 1, .dtype = DTYPE_I32, .reduction = REDUCE_AVERAGE},
         x,
         x,
         MUSTER_E_UNSUPPORTED},
        {{.kind = COMM_ALL_REDUCE, .count = 1, .reduction = (enum comm_reduction)9}, x, x, MUSTER_E_INVALID},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct muster_error err = {0};
        if (!TEST_COMM()->issue(r->comm, &bad[i].op, bad[i].send, bad[i].recv, r->stream, &err) ||
            err.code != bad[i].code) {
            fprintf(stderr, "bad operation %zu gave %d: %s\n", i, err.code, err.text);
            return -1;
        }
    }
    return r->ops->poll_error(r->device, NULL);
}

static void bad_operations_are_rejected_at_issue(void **state)
{
    (void)state;
    struct test_job job = {.body = bad_operations};
    assert_int_equal(test_job_run(&job, 2), 0);
}

static void bad_options_are_rejected(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct device *device = device_cpu()->open(0, 1, &err);
    struct comm_options options = {
        .rank = 0, .size = 2, .timeout_ns = NS_PER_S, .device = device, .device_ops = device_cpu()};
    assert_null(TEST_COMM()->create(&options, &err)); /* no store */
    assert_int_equal(err.code, MUSTER_E_INVALID);
    options.size = 0;
    assert_null(TEST_COMM()->create(&options, &err));
    assert_int_equal(err.code, MUSTER_E_INVALID);
    options.size = 1;
    struct device_arena heap = {.memory = MEMORY_HOST, .fd = -1};
    options.arenas = &heap;
    options.arena_count = 1;
    if (!test_over_tcp()) {
        assert_null(TEST_COMM()->create(&options, &err));
        assert_int_equal(err.code, MUSTER_E_INVALID);
    }
    options.arena_count = 0;
    struct comm *alone = TEST_COMM()->create(&options, &err);
    assert_non_null(alone);
    TEST_COMM()->destroy(alone);
    /* A rank that never comes. */
    struct kv_memory *memory = kv_memory_create(NULL);
    struct kv_store store = kv_memory_store(memory);
    options.size = 3;
    options.store = &store;
    options.key = "lonely";
    options.timeout_ns = 100 * NS_PER_MS;
    assert_null(TEST_COMM()->create(&options, &err));
    assert_int_equal(err.code, MUSTER_E_TIMEOUT);
    assert_non_null(strstr(err.text, !test_over_shm() ? "rank 1 has not published its address"
                                                      : "rank 1, 2 has not connected"));
    options.rank = 2;
    options.key = "lonelier";
    assert_null(TEST_COMM()->create(&options, &err));
    assert_int_equal(err.code, MUSTER_E_TIMEOUT);
    assert_non_null(strstr(err.text, "rank 0 has not published its address"));
    char long_key[300];
    memset(long_key, 'k', sizeof long_key - 1);
    long_key[sizeof long_key - 1] = '\0';
    options.key = long_key;
    assert_null(TEST_COMM()->create(&options, &err));
    assert_int_equal(err.code, MUSTER_E_LIMIT);
    kv_memory_destroy(memory);
    device_cpu()->close(device);
}

/* ---- a round that ends while its ranks meet ---- */

/* A store in which a rank 1 has been, but not for long; the wrapped store is its first member. */
struct closing_store {
    struct kv_store real;
    _Atomic(bool) gone;
};

static int closing_set(void *ctx, const char *key, const void *data, size_t n, struct muster_error *err)
{
    struct closing_store *closing = ctx;
    if (strstr(key, "/at/")) /* this rank has published its record: from then on it waits for rank 1's call */
        closing->gone = true;
    return closing->real.set(closing->real.ctx, key, data, n, err);
}

static int closing_get(void *ctx, const char *key, struct buffer *out, int64_t timeout_ns,
                       struct muster_error *err)
{
    const struct closing_store *closing = ctx;
    const struct tcp_listing seen = {.address = "127.0.0.1"};
    buffer_clear(out);
    return strstr(key, "/seen/1") ? buffer_append(out, &seen, sizeof seen)
                                  : closing->real.get(closing->real.ctx, key, out, timeout_ns, err);
}

static int closing_add(void *ctx, const char *key, int64_t delta, int64_t *value, struct muster_error *err)
{
    const struct closing_store *closing = ctx;
    return closing->real.add(closing->real.ctx, key, delta, value, err);
}

static bool closing_is_gone(void *ctx)
{
    const struct closing_store *closing = ctx;
    return closing->gone;
}

/* Without that the wait would last until the test's time-out. */
static void a_round_that_ends_ends_the_meeting(void **state)
{
    (void)state;
    if (!strcmp(TEST_COMM()->name, "node"))
        skip(); /* it is made of the two others */
    struct device *device = device_cpu()->open(0, 1, NULL);
    struct kv_memory *memory = kv_memory_create(NULL);
    struct closing_store closing = {.real = kv_memory_store(memory)};
    const struct kv_store store = {.set = closing_set,
                                   .get = closing_get,
                                   .add = closing_add,
                                   .is_gone = closing_is_gone,
                                   .ctx = &closing};
    const struct comm_options options = {.rank = 0,
                                         .size = 2,
                                         .store = &store,
                                         .key = "closing",
                                         .timeout_ns = TEST_TIMEOUT_NS,
                                         .device = device,
                                         .device_ops = device_cpu()};
    struct muster_error err = {0};
    assert_null(TEST_COMM()->create(&options, &err));
    assert_int_equal(err.code, MUSTER_E_PEER);
    assert_non_null(strstr(err.text, "waiting for higher ranks: the store is gone"));
    kv_memory_destroy(memory);
    device_cpu()->close(device);
}

/* ---- allocation failures ---- */

static int make_alone(void *context)
{
    struct comm_options options = {
        .rank = 0, .size = 1, .timeout_ns = NS_PER_S, .device = context, .device_ops = device_cpu()};
    struct muster_error err = {0};
    struct comm *alone = TEST_COMM()->create(&options, &err);
    struct comm *part = alone ? TEST_COMM()->split(alone, 0, 0, "part", &err) : NULL;
    int result = part ? 0 : -1;
    TEST_COMM()->destroy(part);
    TEST_COMM()->destroy(alone);
    if (result)
        assert_int_equal(err.code, MUSTER_E_NOMEM);
    return result;
}

static void failed_allocations_leak_nothing(void **state)
{
    (void)state;
    struct device *device = device_cpu()->open(0, 1, NULL);
    if (!strcmp(TEST_COMM()->name, "node"))
        faults_sweep_absorbed(make_alone,
                              device); /* without memory a rank does not learn which machine it is on */
    else
        faults_sweep(make_alone, device);
    device_cpu()->close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_operations_match_naive_results),
        cmocka_unit_test(queued_operations_keep_their_order),
        cmocka_unit_test(an_operation_runs_on_the_calling_thread_when_no_other_is_under_way),
        cmocka_unit_test(splits_have_their_own_ranks),
        cmocka_unit_test(mismatch_names_ranks_and_operations),
        cmocka_unit_test(two_sends_do_not_meet),
        cmocka_unit_test(status_names_the_missing),
        cmocka_unit_test(time_out_names_the_missing),
        cmocka_unit_test(abort_wakes_every_rank),
        cmocka_unit_test(abort_cancels_the_own_wait),
        cmocka_unit_test(a_rank_that_left_is_named),
        cmocka_unit_test(a_broken_device_frees_its_peers),
        cmocka_unit_test(a_reason_that_is_being_written_is_waited_for),
        cmocka_unit_test(bad_operations_are_rejected_at_issue),
        cmocka_unit_test(bad_options_are_rejected),
        cmocka_unit_test(a_round_that_ends_ends_the_meeting),
        cmocka_unit_test(failed_allocations_leak_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
