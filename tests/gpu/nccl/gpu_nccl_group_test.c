/* gpu_nccl_group_test.c - groups of sends and receives of comm_nccl: ranks that exchange results at once, and
 * orders of transfers that would wait for ever, which the fake NCCL finds. */
#include <stdlib.h>

#include "tests/support/cmocka_all.h"

#include "tests/gpu/nccl/nccl_test_ranks.h"

enum { COUNT = 100000, ROUNDS = 20 }; /* several pieces of the fake */

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
    float *values = r->arena.base, first[2] = {(float)r->rank, (float)(r->rank + 100)}, got[2];
    for (int i = 0; i < 2; i++)
        if (nccl_put(values + i * COUNT + COUNT - 1, &first[i], sizeof *first))
            return nccl_complain(r, "put", "refused");
    for (int round = 0; round < ROUNDS; round++) {
        float *from = values + (round % 2 ? 2 : 0) * COUNT, *to = values + (round % 2 ? 0 : 2) * COUNT;
        const struct comm_transfer group[] = {send_to(next, from), send_to(next, from + COUNT),
                                              receive_from(before, to), receive_from(before, to + COUNT)};
        if (comm_nccl()->exchange(r->comm, group, 4, r->stream, &err))
            return nccl_complain(r, "exchange", err.text);
    }
    if (nccl_sync(r, r->stream, &err))
        return nccl_complain(r, "sync", err.text);
    const int origin = ((r->rank - ROUNDS) % r->size + r->size) % r->size;
    for (int i = 0; i < 2; i++)
        if (nccl_get(&got[i], values + i * COUNT + COUNT - 1, sizeof *got) ||
            got[i] != (float)(origin + 100 * i))
            return nccl_complain(r, "ring", "another value");
    struct comm_status status;
    comm_nccl()->status(r->comm, &status);
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

static void others_are_refused(void **state)
{
    (void)state;
    struct nccl_job job = {.body = in_no_group, .timeout_ns = 20 * NS_PER_S};
    assert_int_equal(nccl_job_run(&job, 2), 0);
}

/* gpu_nccl_group [TEST]: all tests, or the named test. */
int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(groups_go_round_a_ring, no_communicator_is_left),
        cmocka_unit_test_teardown(a_circle_is_found, no_communicator_is_left),
        cmocka_unit_test_teardown(a_circle_over_communicators_is_found, no_communicator_is_left),
        cmocka_unit_test_teardown(others_are_refused, no_communicator_is_left),
    };
    setenv("FAKE_CUDA_DEVICES", "4", 0); /* one for each rank */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
