/* comm_test_ranks.h - a rank for comm tests: a CPU device with one stream, an arena and a comm. */
#ifndef MUSTER_TESTS_COMM_TEST_RANKS_H
#define MUSTER_TESTS_COMM_TEST_RANKS_H

#include <stdio.h>
#include <string.h>

#include "runtime/comm.h"
#include "runtime/device_cpu.h"

#ifndef TEST_COMM
#define TEST_COMM comm_host /* what is tested */
#endif

struct test_rank {
    int rank, size;
    const struct device_ops *ops;
    struct device *device;
    struct device_stream *stream;
    struct device_arena arena; /* COMM memory */
    struct comm *comm;
};

static inline int test_rank_complain(const struct test_rank *r, const char *what, const char *text)
{
    fprintf(stderr, "rank %d of %d: %s: %s\n", r->rank, r->size, what, text);
    return -1;
}

static inline void test_rank_close(struct test_rank *r)
{
    const struct device_ops *ops = device_cpu();
    if (r->stream)
        (void)ops->sync(r->stream, INSTANT_NEVER, NULL); /* tests that care have looked at the error */
    TEST_COMM()->destroy(r->comm);
    ops->stream_destroy(r->stream);
    if (r->device)
        ops->arena_destroy(r->device, &r->arena);
    ops->close(r->device);
    *r = (struct test_rank){0};
}

static inline int test_rank_open(struct test_rank *r, int rank, int size, int64_t arena_bytes,
                                 int64_t timeout_ns, const struct kv_store *store)
{
    struct muster_error err = {0};
    *r = (struct test_rank){.rank = rank, .size = size, .ops = device_cpu(), .arena = {.fd = -1}};
    r->device = r->ops->open(rank, 1, &err);
    if (r->device && !r->ops->arena_create(r->device, MEMORY_COMM, arena_bytes, &r->arena, &err) &&
        (r->stream = r->ops->stream_create(r->device, "comm", false, &err))) {
        const struct comm_options options = {.rank = rank,
                                             .size = size,
                                             .store = store,
                                             .key = "test",
                                             .timeout_ns = timeout_ns,
                                             .device = r->device,
                                             .device_ops = r->ops,
                                             .arenas = &r->arena,
                                             .arena_count = 1};
        r->comm = TEST_COMM()->create(&options, &err);
    }
    if (r->comm)
        return 0;
    (void)test_rank_complain(r, "opening", err.text);
    test_rank_close(r);
    return -1;
}

/* Issues on comm and waits for the end. */
static inline int test_rank_do(struct test_rank *r, struct comm *comm, const struct comm_op *op,
                               const void *send, void *recv, struct muster_error *err)
{
    if (TEST_COMM()->issue(comm, op, send, recv, r->stream, err))
        return -1;
    return r->ops->sync(r->stream, instant_add(clock_now(NULL), 60 * NS_PER_S), err);
}

#endif
