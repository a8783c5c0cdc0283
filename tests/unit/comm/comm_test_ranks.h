/* comm_test_ranks.h - ranks for comm tests: each a CPU device with one stream, an arena and a comm, and a job
 * that runs some of them as threads. */
#ifndef MUSTER_TESTS_COMM_TEST_RANKS_H
#define MUSTER_TESTS_COMM_TEST_RANKS_H

#include <stdio.h>
#include <string.h>

#include "rendezvous/store/kv_memory.h"
#include "runtime/comm/comm_internal.h"
#include "runtime/device/device_cpu.h"
#include "tests/support/rank_threads.h"

#ifndef TEST_COMM
#define TEST_COMM comm_shm /* the tested comm */
#endif

#ifndef TEST_RUN
#define TEST_RUN false /* true: every other operation runs on the calling thread */
#endif

#ifndef TEST_NODES
#define TEST_NODES 0
#endif

enum { TEST_ARENA_BYTES = 24 << 20 };
#define TEST_TIMEOUT_NS (240 * NS_PER_S) /* for comms and every wait; no test comes near it */

static inline bool test_over_tcp(void)
{
    return !strcmp(TEST_COMM()->name, "tcp");
}
/* Over shared memory alone. */
static inline bool test_over_shm(void)
{
    return !strcmp(TEST_COMM()->name, "host");
}

/* How ranks lie on nodes, for a comm over nodes: so many in a row on each of `nodes`, or in turns. 0: all on
 * this machine. */
static int test_nodes = TEST_NODES;
static bool test_nodes_in_turns;

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

static inline int test_node_of(const struct test_rank *r)
{
    return !test_nodes ? 0 : test_nodes_in_turns ? r->rank % test_nodes : r->rank * test_nodes / r->size;
}

static inline struct comm_options test_rank_options(const struct test_rank *r, const char *key,
                                                    int64_t timeout_ns, const struct kv_store *store)
{
    return (struct comm_options){.rank = r->rank,
                                 .size = r->size,
                                 .store = store,
                                 .key = key,
                                 .timeout_ns = timeout_ns,
                                 .device = r->device,
                                 .device_ops = r->ops,
                                 .arenas = &r->arena,
                                 .arena_count = 1,
                                 .node = test_node_of(r)};
}

static inline int test_rank_open(struct test_rank *r, int rank, int size, int64_t timeout_ns,
                                 const struct kv_store *store)
{
    struct muster_error err = {0};
    *r = (struct test_rank){.rank = rank, .size = size, .ops = device_cpu(), .arena = {.fd = -1}};
    r->device = r->ops->open(rank, 1, &err);
    if (r->device && !r->ops->arena_create(r->device, MEMORY_COMM, TEST_ARENA_BYTES, &r->arena, &err) &&
        (r->stream = r->ops->stream_create(r->device, "comm", false, &err))) {
        const struct comm_options options = test_rank_options(r, "test", TEST_TIMEOUT_NS, store);
        r->comm = TEST_COMM()->create(&options, &err);
    }
    if (r->comm) {
        r->comm->timeout_ns =
            timeout_ns; /* limit of operations alone: a short limit must not keep ranks from meeting */
        return 0;
    }
    (void)test_rank_complain(r, "opening", err.text);
    test_rank_close(r);
    return -1;
}

/* Does op on comm and waits for the end. */
static inline int test_rank_do(struct test_rank *r, struct comm *comm, const struct comm_op *op,
                               const void *send, void *recv, struct muster_error *err)
{
    struct comm_status status;
    TEST_COMM()->status(comm, &status);
    if (TEST_RUN && (status.issued + (uint64_t)r->rank) % 2)
        return TEST_COMM()->run(comm, op, send, recv, err);
    if (TEST_COMM()->issue(comm, op, send, recv, r->stream, err))
        return -1;
    return r->ops->sync(r->stream, instant_add(clock_now(NULL), 60 * NS_PER_S), err);
}

/* ---- ranks as threads ---- */

struct test_job {
    int (*body)(struct test_rank *r, struct test_job *job);
    struct kv_store store; /* zeroed: its own store */
    int64_t timeout_ns;    /* limit of operations; 0: TEST_TIMEOUT_NS */
    uint64_t seed;
    struct muster_error errors[16];
    _Atomic int gave_up; /* ranks that have */
    _Atomic int named;   /* ranks that have seen who is missing */
    _Atomic int met;     /* ranks that have come to a meeting */
};

static inline int test_job_rank(int rank, int size, void *context)
{
    struct test_job *job = context;
    struct test_rank r;
    if (test_rank_open(&r, rank, size, job->timeout_ns, &job->store)) {
        job->gave_up++;
        return -1;
    }
    int result = job->body(&r, job);
    test_rank_close(&r);
    return result;
}

static inline int test_job_run(struct test_job *job, int size)
{
    struct kv_memory *memory = kv_memory_create(NULL);
    if (!memory)
        return -1;
    if (!job->store.get)
        job->store = kv_memory_store(memory);
    if (!job->timeout_ns)
        job->timeout_ns = TEST_TIMEOUT_NS;
    int result = rank_threads_run(size, test_job_rank, job);
    kv_memory_destroy(memory);
    return result;
}

/* Until so many ranks have counted themselves; -1: they have not in the time. A rank that takes no part waits
 * for gave_up, longer than the others wait for it: a rank that left would be another end. */
static inline int test_job_wait(const _Atomic int *count, int wanted, int64_t limit_ns)
{
    struct instant limit = instant_add(clock_now(NULL), limit_ns);
    while (*count < wanted) {
        if (instant_reached(clock_now(NULL), limit))
            return -1;
        clock_sleep_until(instant_add(clock_now(NULL), NS_PER_MS));
    }
    return 0;
}

#endif
