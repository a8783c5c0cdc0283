/* gpu_nccl_group_test.c - groups of sends and receives of comm_nccl: ranks that exchange results at once, and
 * orders of transfers that would wait for ever, which the fake NCCL finds. */
#include <stdlib.h>

#include "tests/support/cmocka_all.h"

#include "tests/gpu/cudart/fake_cudart.h"
#include "tests/gpu/nccl/nccl_test_ranks.h"

enum { COUNT = 100000, ROUNDS = 20 }; /* several pieces of the fake */

/* In another type, and fewer bytes: each transfer of a group has its own type and count. */
static struct comm_transfer as_doubles(struct comm_transfer transfer)
{
    transfer.op.dtype = DTYPE_F64;
    transfer.op.count = COUNT / 2 - 1;
    return transfer;
}

static struct comm_transfer send_to(int peer, const float *from)
{
    const struct comm_op op = {.kind = COMM_SEND, .dtype = DTYPE_F32, .root = peer, .count = COUNT};
    return (struct comm_transfer){.op = op, .send = from};
}

static struct comm_transfer receive_from(int peer, float *to)
{
    const struct comm_op op = {.kind = COMM_RECV, .dtype = DTYPE_F32, .root = peer, .count = COUNT};
    return (struct comm_transfer){.op = op, .recv = to};
}

/* Each rank sends to the next one and receives from the one before, round after round; next to that two
 * transfers between the same ranks keep their order. */
static int round_the_ring(struct nccl_rank *r, struct nccl_job *job)
{
    (void)job;
    const int next = (r->rank + 1) % r->size, before = (r->rank + r->size - 1) % r->size;
    struct muster_error err = {0};
    enum { LAST = COUNT - 1, LAST_OF_DOUBLES = COUNT - 3 };
    static const int last[] = {LAST, LAST_OF_DOUBLES};
    const float own = (float)(1000 + r->rank);
    float *values = r->arena.base, first[2] = {(float)r->rank, (float)(r->rank + 100)}, got[2];
    for (int i = 0; i < 2; i++)
        if (nccl_put(values + i * COUNT + last[i], &first[i], sizeof *first) ||
            nccl_put(values + (1 + 2 * i) * COUNT + LAST, &own, sizeof own)) /* is not sent */
            return nccl_complain(r, "put", "refused");
    for (int round = 0; round < ROUNDS; round++) {
        float *from = values + (round % 2 ? 2 : 0) * COUNT, *to = values + (round % 2 ? 0 : 2) * COUNT;
        const struct comm_transfer group[] = {send_to(next, from), as_doubles(send_to(next, from + COUNT)),
                                              receive_from(before, to),
                                              as_doubles(receive_from(before, to + COUNT))};
        if (comm_nccl()->exchange(r->comm, group, 4, r->stream, &err))
            return nccl_complain(r, "exchange", err.text);
    }
    if (nccl_sync(r, r->stream, &err))
        return nccl_complain(r, "sync", err.text);
    const int origin = ((r->rank - ROUNDS) % r->size + r->size) % r->size;
    for (int i = 0; i < 2; i++)
        if (nccl_get(&got[i], values + i * COUNT + last[i], sizeof *got) ||
            got[i] != (float)(origin + 100 * i) ||
            nccl_get(&got[i], values + (1 + 2 * i) * COUNT + LAST, sizeof *got) || got[i] != own)
            return nccl_complain(r, "ring", "another value");
    struct comm_status status;
    comm_nccl()->status(r->comm, &status);
    if (nccl_comm_of(r->comm)->collectives) /* the other ranks know nothing of transfers */
        return nccl_complain(r, "ring", "transfers count as collectives");
    return status.issued == 4 * ROUNDS && status.finished == 4 * ROUNDS
               ? 0
               : nccl_complain(r, "ring", "operations are missing");
}

static void groups_go_round_a_ring(void **state)
{
    (void)state;
    for (int ranks = 2; ranks < 4; ranks++) {
        struct nccl_job job = {.body = round_the_ring, .timeout_ns = 20 * NS_PER_S};
        assert_int_equal(nccl_job_run(&job, ranks), 0);
    }
}

/* Transfers of a group run at once, and their time is that of one of them. */
static int time_of_a_group(struct nccl_rank *r, struct nccl_job *job)
{
    struct muster_error err = {0};
    const int peer = 1 - r->rank;
    float *values = r->arena.base;
    struct comm_transfer group[8];
    (void)job;
    for (int i = 0; i < 8; i += 2) {
        group[i] = send_to(peer, values);
        group[i + 1] = receive_from(peer, values + (1 + i / 2) * COUNT);
    }
    const struct instant begun = clock_now(NULL);
    if (comm_nccl()->exchange(r->comm, group, 8, r->stream, &err) || nccl_sync(r, r->stream, &err))
        return nccl_complain(r, "exchange", err.text);
    const int64_t busy = comm_nccl()->busy_ns(r->comm), passed = instant_diff_ns(clock_now(NULL), begun);
    return busy > 0 && busy <= passed ? 0 : nccl_complain(r, "time", "more than has passed, or none");
}

static void the_time_of_a_group_counts_once(void **state)
{
    (void)state;
    setenv("FAKE_CUDA_COST", "Send:20000", 1);
    struct nccl_job job = {.body = time_of_a_group};
    assert_int_equal(nccl_job_run(&job, 2), 0);
    unsetenv("FAKE_CUDA_COST");
}

/* Everybody sends first: one by one, or in groups of one. */
static int wait_in_a_circle(struct nccl_rank *r, struct nccl_job *job)
{
    const int next = (r->rank + 1) % r->size, before = (r->rank + r->size - 1) % r->size;
    struct muster_error *err = &job->errors[r->rank];
    float *values = r->arena.base;
    const struct comm_transfer first = send_to(next, values), second = receive_from(before, values + COUNT);
    if (job->seed == 1) {
        if (!comm_nccl()->exchange(r->comm, &first, 1, r->stream, err) &&
            !comm_nccl()->exchange(r->comm, &second, 1, r->stream, err))
            (void)nccl_sync(r, r->stream, err);
        return 0;
    }
    if (!comm_nccl()->issue(r->comm, &first.op, first.send, NULL, r->stream, err) &&
        !comm_nccl()->issue(r->comm, &second.op, NULL, second.recv, r->stream, err))
        (void)nccl_sync(r, r->stream, err);
    return 0;
}

static void a_circle_is_found(void **state)
{
    (void)state;
    for (int ranks = 2; ranks < 4; ranks++)
        for (uint64_t kind = 0; kind < 2; kind++) {
            struct nccl_job job = {.body = wait_in_a_circle, .timeout_ns = 20 * NS_PER_S, .seed = kind};
            assert_int_equal(nccl_job_run(&job, ranks), 0);
            for (int rank = 0; rank < ranks; rank++)
                if (!strstr(job.errors[rank].text, "they never meet"))
                    fail_msg("rank %d of %d: '%s'", rank, ranks, job.errors[rank].text);
        }
}

/* Two communicators on one stream of each rank: two ranks take the first of them, the others the second. */
static int wait_over_two(struct nccl_rank *r, struct nccl_job *job)
{
    static const struct comm_op op = {.kind = COMM_ALL_REDUCE, .dtype = DTYPE_F32, .count = 1000};
    struct muster_error *err = &job->errors[r->rank];
    struct comm *second = comm_nccl()->split(r->comm, 0, r->rank, "second", err);
    float *values = r->arena.base;
    if (!second)
        return nccl_complain(r, "split", err->text);
    const bool swaps = job->seed && r->rank == 1;
    struct comm *const order[] = {swaps ? second : r->comm, swaps ? r->comm : second};
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < 2 && !err->code; i++)
            if (comm_nccl()->issue(order[i], &op, values, values, r->stream, err))
                break;
    if (!err->code)
        (void)nccl_sync(r, r->stream, err);
    comm_nccl()->destroy(second);
    return 0;
}

static void a_circle_over_communicators_is_found(void **state)
{
    (void)state;
    for (int ranks = 2; ranks < 4; ranks++)
        for (uint64_t swaps = 0; swaps < 2; swaps++) {
            struct nccl_job job = {.body = wait_over_two, .timeout_ns = 20 * NS_PER_S, .seed = swaps};
            assert_int_equal(nccl_job_run(&job, ranks), 0);
            for (int rank = 0; rank < ranks; rank++)
                if (swaps ? !strstr(job.errors[rank].text, "they never meet") : job.errors[rank].code)
                    fail_msg("rank %d of %d: '%s'", rank, ranks, job.errors[rank].text);
        }
}

/* At once alone: an operation that is under way has the comm's own buffers. */
static int run_under_way(struct nccl_rank *r, struct nccl_job *job)
{
    static const struct comm_op op = {.kind = COMM_ALL_REDUCE, .dtype = DTYPE_F32, .count = 8};
    struct muster_error err = {0};
    float *values = r->arena.base;
    if (r->rank == 0) { /* the other rank has not issued it: it cannot end */
        if (comm_nccl()->issue(r->comm, &op, values, values, r->stream, &err))
            return nccl_complain(r, "issue", err.text);
        if (!comm_nccl()->run(r->comm, &op, values, values, &err) || err.code != MUSTER_E_STATE)
            return nccl_complain(r, "run", "was taken while an operation was under way");
    }
    if (nccl_job_meet(job, 2))
        return -1;
    if (r->rank == 1 && comm_nccl()->issue(r->comm, &op, values, values, r->stream, &err))
        return nccl_complain(r, "issue", err.text);
    return nccl_sync(r, r->stream, &err);
}

static void nothing_runs_at_once_while_work_is_under_way(void **state)
{
    (void)state;
    struct nccl_job job = {.body = run_under_way, .timeout_ns = 20 * NS_PER_S};
    assert_int_equal(nccl_job_run(&job, 2), 0);
}

static int in_no_group(struct nccl_rank *r, struct nccl_job *job)
{
    static float own[COUNT];
    struct muster_error err = {0};
    struct comm_transfer group[] = {send_to(1 - r->rank, own)};
    if (nccl_job_meet(job, 2)) /* a refusal ends both ranks, which may not be there yet */
        return -1;
    if (!comm_nccl()->exchange(r->comm, group, 0, r->stream, &err) || err.code != MUSTER_E_LIMIT)
        return nccl_complain(r, "an empty group", "was taken");
    group[0].op.kind = COMM_BARRIER;
    if (!comm_nccl()->exchange(r->comm, group, 1, r->stream, &err) || err.code != MUSTER_E_INVALID)
        return nccl_complain(r, "a barrier in a group", "was taken");
    group[0] = send_to(1 - r->rank, own);
    if (!comm_nccl()->exchange(r->comm, group, 1, r->stream, &err) ||
        !strstr(err.text, "a group with host memory by NCCL"))
        return nccl_complain(r, "host memory in a group", err.text);
    return 0;
}

static void without_a_limit(const struct nccl_rank *r)
{
    struct muster_error err = {0};
    const struct comm_options options = {
        .size = 1, .key = "alone", .device = r->device, .device_ops = r->ops};
    assert_null(comm_nccl()->create(&options, &err));
    assert_non_null(strstr(err.text, "a time-out of 0 ns: must be above 0"));
}

static int64_t made_and_not_given_back(void)
{
    static const char *const pairs[][2] = {{"cudaMalloc", "cudaFree"},
                                           {"cudaHostAlloc", "cudaFreeHost"},
                                           {"cudaStreamCreateWithFlags", "cudaStreamDestroy"},
                                           {"cudaEventCreateWithFlags", "cudaEventDestroy"}};
    int64_t left = 0;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        left += (int64_t)fake_calls(pairs[i][0]) - (int64_t)fake_calls(pairs[i][1]);
    return left;
}

/* Also where another library has chosen another device for the thread since. */
static int part_and_back(struct nccl_rank *r, struct nccl_job *job)
{
    static const struct comm_op op = {.kind = COMM_ALL_REDUCE, .dtype = DTYPE_F32, .count = 8};
    struct muster_error err = {0};
    float *values = r->arena.base;
    (void)job;
    without_a_limit(r);
    const int64_t before = made_and_not_given_back();
    struct comm *part = comm_nccl()->split(r->comm, 0, 0, "part", &err);
    if (!part || cudaSetDevice(3) != cudaSuccess || comm_nccl()->run(part, &op, values, values, &err))
        return nccl_complain(r, "part", err.text);
    comm_nccl()->destroy(part);
    return made_and_not_given_back() == before ? 0 : nccl_complain(r, "part", "something is left");
}

static void a_part_gives_back_what_it_has_made(void **state)
{
    (void)state;
    struct nccl_job job = {.body = part_and_back, .timeout_ns = 20 * NS_PER_S};
    assert_int_equal(nccl_job_run(&job, 1), 0);
}

static void others_are_refused(void **state)
{
    (void)state;
    struct nccl_job job = {.body = in_no_group, .timeout_ns = 20 * NS_PER_S};
    assert_int_equal(nccl_job_run(&job, 2), 0);
}

/* Results that are added: of floats alone, in device memory, and as many as there is room for. */
static int adds_what_it_cannot(struct nccl_rank *r, struct nccl_job *job)
{
    static const char *const texts[] = {"only f32 can be added", "into host memory by NCCL",
                                        "a result of 400 bytes to be added, and room for 64"};
    static float own[100];
    struct comm_op op = {.kind = COMM_ALL_REDUCE,
                         .dtype = job->seed ? DTYPE_F32 : DTYPE_F16,
                         .count = 100,
                         .accumulate = true};
    struct nccl_family *family = nccl_comm_of(r->comm)->family;
    struct muster_error err = {0};
    float *values = r->arena.base;
    if (job->seed == 2) { /* as a plan gives it */
        family->sums = values + COUNT;
        family->sums_bytes = 64;
    }
    if (nccl_job_meet(job, 2)) /* a refusal ends both ranks */
        return -1;
    const int failed =
        comm_nccl()->issue(r->comm, &op, values, job->seed == 1 ? own : values, r->stream, &err);
    return failed && strstr(err.text, texts[job->seed]) ? 0 : nccl_complain(r, texts[job->seed], err.text);
}

static void what_cannot_be_added_is_refused(void **state)
{
    (void)state;
    for (uint64_t which = 0; which < 3; which++) {
        struct nccl_job job = {.body = adds_what_it_cannot, .timeout_ns = 20 * NS_PER_S, .seed = which};
        assert_int_equal(nccl_job_run(&job, 2), 0);
    }
}

/* What the thread that watches sees 20.5 s after an operation began, when the next one is under way. */
static int looks_at_the_second(struct nccl_rank *r, struct nccl_job *job)
{
    static const struct comm_op op = {.kind = COMM_ALL_REDUCE, .dtype = DTYPE_F32, .count = 8};
    struct nccl_comm *comm = nccl_comm_of(r->comm);
    struct nccl_look look = {0};
    struct muster_error err = {0};
    struct instant begun = {0};
    float *values = r->arena.base;
    for (int number = 0; number < 2; number++) {
        if (r->rank == 0 && comm_nccl()->issue(r->comm, &op, values, values, r->stream, &err))
            return nccl_complain(r, "issue", err.text);
        (void)pthread_mutex_lock(&comm->family->lock);
        if (r->rank == 0) /* it cannot end: the other rank has not issued it */
            nccl_look_at(comm, clock_now(NULL), &look);
        if (r->rank == 0 && number == 1)
            nccl_look_at(comm, instant_add(begun, 20500 * NS_PER_MS), &look);
        begun = number ? begun : clock_now(NULL);
        (void)pthread_mutex_unlock(&comm->family->lock);
        if (number == 0)
            clock_sleep_until(instant_add(begun, NS_PER_S));
        if (nccl_job_meet(job, 2))
            return -1;
        if (r->rank == 1 && comm_nccl()->issue(r->comm, &op, values, values, r->stream, &err))
            return nccl_complain(r, "issue", err.text);
        if (nccl_sync(r, r->stream, &err))
            return nccl_complain(r, "sync", err.text);
    }
    return look.late ? nccl_complain(r, "late", look.error.text) : 0;
}

static void each_operation_has_its_own_time(void **state)
{
    (void)state;
    struct nccl_job job = {.body = looks_at_the_second, .timeout_ns = 20 * NS_PER_S};
    assert_int_equal(nccl_job_run(&job, 2), 0);
}

/* gpu_nccl_group [TEST]: all tests, or the named test. */
int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(groups_go_round_a_ring, no_communicator_is_left),
        cmocka_unit_test_teardown(the_time_of_a_group_counts_once, no_communicator_is_left),
        cmocka_unit_test_teardown(a_circle_is_found, no_communicator_is_left),
        cmocka_unit_test_teardown(a_circle_over_communicators_is_found, no_communicator_is_left),
        cmocka_unit_test_teardown(nothing_runs_at_once_while_work_is_under_way, no_communicator_is_left),
        cmocka_unit_test_teardown(what_cannot_be_added_is_refused, no_communicator_is_left),
        cmocka_unit_test_teardown(each_operation_has_its_own_time, no_communicator_is_left),
        cmocka_unit_test_teardown(a_part_gives_back_what_it_has_made, no_communicator_is_left),
        cmocka_unit_test_teardown(others_are_refused, no_communicator_is_left),
    };
    setenv("FAKE_CUDA_DEVICES", "4", 0); /* one for each rank */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
