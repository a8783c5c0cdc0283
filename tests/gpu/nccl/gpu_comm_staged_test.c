/* gpu_comm_staged_test.c - comm_staged over devices whose memory the host does not reach, ranks as threads.
 * Most operations are small; some have more elements than a stage holds, and go in pieces. */
#include "tests/support/cmocka_all.h"

#include <stdlib.h>

#include "runtime/comm/comm_staged.h"
#include "runtime/cuda/device_cuda.h"
#include "tests/gpu/nccl/nccl_test_trials.h"

/* The rank over a device that all of them share, in place of that of the test of NCCL. */
static int trials_over(struct nccl_rank *r, struct nccl_job *job, struct muster_error *err)
{
    const struct comm_ops *ops = comm_staged(comm_shm());
    const struct comm_options options = {.rank = r->rank,
                                         .size = r->size,
                                         .store = &job->store,
                                         .key = "staged",
                                         .timeout_ns = 60 * NS_PER_S,
                                         .device = r->device,
                                         .device_ops = r->ops};
    struct comm *comm = ops->create(&options, err), *part = NULL;
    if (!comm)
        return -1;
    int result = nccl_trials(r, job, ops, comm, NCCL_TEST_BYTES / 2 / (int)sizeof(double) / r->size, 40);
    if (!result && !(part = ops->split(comm, 0, -r->rank, "reversed", err)))
        result = -1;
    if (!result && (part->size != r->size || part->rank != r->size - 1 - r->rank))
        result = nccl_complain(r, "split", "another place");
    ops->destroy(part);
    ops->destroy(comm);
    return result;
}

static int staged_operations(int rank, int size, void *context)
{
    struct muster_error err = {0};
    struct nccl_rank r = {.rank = rank, .size = size, .ops = device_cuda(), .arena = {.fd = -1}};
    int result = -1;
    if ((r.device = r.ops->open(0, 1, &err)) &&
        !r.ops->arena_create(r.device, MEMORY_DEVICE, NCCL_TEST_BYTES, &r.arena, &err) &&
        (r.stream = r.ops->stream_create(r.device, "one", false, &err)))
        result = trials_over(&r, context, &err);
    if (err.code)
        (void)nccl_complain(&r, "staged", err.text);
    r.ops->stream_destroy(r.stream);
    if (r.arena.base)
        r.ops->arena_destroy(r.device, &r.arena);
    r.ops->close(r.device);
    return result;
}

/* Work runs as late as it may: data that nobody waited for are not there. */
static void random_operations_match_comm_shm(void **state)
{
    (void)state;
    const char *given = getenv("COMM_TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)clock_now(NULL).ns;
    printf("seed: COMM_TEST_SEED=%llu\n", (unsigned long long)seed);
    for (int size = 1; size <= 3; size++) {
        struct kv_memory *memory = kv_memory_create(NULL);
        assert_non_null(memory);
        struct nccl_job job = {.store = kv_memory_store(memory), .seed = seed + (uint64_t)size};
        setenv("FAKE_CUDA_SCHEDULE", size == 2 ? "late" : "shuffled", 1);
        const int result = rank_threads_run(size, staged_operations, &job);
        kv_memory_destroy(memory);
        assert_int_equal(result, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(random_operations_match_comm_shm, no_communicator_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
