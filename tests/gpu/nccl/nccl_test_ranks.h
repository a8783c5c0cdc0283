/* nccl_test_ranks.h - ranks for tests of comm_nccl, as threads or as processes: each a device, a stream, an
 * arena of device memory and a comm over the fake NCCL. */
#ifndef MUSTER_TESTS_NCCL_TEST_RANKS_H
#define MUSTER_TESTS_NCCL_TEST_RANKS_H

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "rendezvous/store/kv_memory.h"
#include "runtime/comm/comm_internal.h"
#include "runtime/cuda/comm_nccl_internal.h"
#include "tests/gpu/nccl/nccl_test_device.h"
#include "tests/support/rank_threads.h"

enum { NCCL_TEST_BYTES = 8 << 20 };

struct nccl_rank {
    int rank, size;
    const struct device_ops *ops;
    struct device *device;
    struct device_stream *stream, *other; /* two, for overlap */
    struct device_arena arena;
    struct comm *comm;
};

static inline int nccl_complain(const struct nccl_rank *r, const char *what, const char *text)
{
    fprintf(stderr, "rank %d of %d: %s: %s\n", r->rank, r->size, what, text);
    return -1;
}

static inline void nccl_rank_close(struct nccl_rank *r)
{
    if (r->stream)
        (void)r->ops->sync(r->stream, instant_add(clock_now(NULL), 60 * NS_PER_S), NULL);
    if (r->other)
        (void)r->ops->sync(r->other, instant_add(clock_now(NULL), 60 * NS_PER_S), NULL);
    comm_nccl()->destroy(r->comm);
    r->ops->stream_destroy(r->stream);
    r->ops->stream_destroy(r->other);
    if (r->device)
        r->ops->arena_destroy(r->device, &r->arena);
    r->ops->close(r->device);
    *r = (struct nccl_rank){.ops = r->ops};
}

/* timeout_ns: of operations; 0: long. */
static inline int nccl_rank_open(struct nccl_rank *r, int rank, int size, int64_t timeout_ns,
                                 const struct kv_store *store, struct muster_error *err)
{
    *r = (struct nccl_rank){.rank = rank, .size = size, .ops = nccl_test_device(), .arena = {.fd = -1}};
    r->device = r->ops->open(rank, 1, err);
    if (r->device && !r->ops->arena_create(r->device, MEMORY_COMM, NCCL_TEST_BYTES, &r->arena, err) &&
        (r->stream = r->ops->stream_create(r->device, "one", false, err)) &&
        (r->other = r->ops->stream_create(r->device, "other", false, err))) {
        const struct comm_options options = {.rank = rank,
                                             .size = size,
                                             .store = store,
                                             .key = "test",
                                             .timeout_ns = 60 * NS_PER_S,
                                             .device = r->device,
                                             .device_ops = r->ops,
                                             .arenas = &r->arena,
                                             .arena_count = 1};
        r->comm = comm_nccl()->create(&options, err);
    }
    if (r->comm) {
        struct nccl_family *family = nccl_comm_of(r->comm)->family; /* its thread reads it already */
        (void)pthread_mutex_lock(&family->lock);
        r->comm->timeout_ns = timeout_ns ? timeout_ns : 60 * NS_PER_S;
        (void)pthread_mutex_unlock(&family->lock);
        return 0;
    }
    nccl_rank_close(r);
    return -1;
}

static inline int nccl_sync(struct nccl_rank *r, struct device_stream *stream, struct muster_error *err)
{
    return r->ops->sync(stream, instant_add(clock_now(NULL), 60 * NS_PER_S), err);
}

/* Does op and waits for the end. */
static inline int nccl_do(struct nccl_rank *r, struct comm *comm, const struct comm_op *op, const void *send,
                          void *recv, struct muster_error *err)
{
    return comm_nccl()->issue(comm, op, send, recv, r->stream, err) || nccl_sync(r, r->stream, err) ? -1 : 0;
}

/* Bytes of the arena and back, around the work of streams that are empty. */
static inline int nccl_put(void *to, const void *from, size_t bytes)
{
    return bytes && cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice) != cudaSuccess ? -1 : 0;
}
static inline int nccl_get(void *to, const void *from, size_t bytes)
{
    return bytes && cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost) != cudaSuccess ? -1 : 0;
}

/* How many communicators were neither destroyed nor aborted, were used after that or before they were ready;
 * printed where there are any.
 */
static inline int nccl_test_left(void)
{
    static const char *const counts[] = {"fake_nccl_living", "fake_nccl_dead_uses", "fake_nccl_early_uses"};
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
    int left = 0;
    for (int i = 0; library && i < 3; i++) {
        int (*count)(void) = (int (*)(void))(uintptr_t)dlsym(library, counts[i]);
        const int found = count ? count() : 0;
        if (found)
            fprintf(stderr, "%s: %d\n", counts[i], found);
        left += found;
    }
    if (library)
        dlclose(library);
    return left;
}

/* The teardown of a test. */
static inline int no_communicator_is_left(void **state)
{
    (void)state;
    return nccl_test_left();
}

/* ---- ranks as threads ---- */

struct nccl_job {
    int (*body)(struct nccl_rank *r, struct nccl_job *job);
    struct kv_store store;
    int64_t timeout_ns;
    uint64_t seed;
    struct muster_error errors[16];
    char reports[16][4096];
    _Atomic int met;
};

static inline int nccl_job_rank(int rank, int size, void *context)
{
    struct nccl_job *job = context;
    struct nccl_rank r;
    struct muster_error err = {0};
    if (nccl_rank_open(&r, rank, size, job->timeout_ns, &job->store, &err)) {
        fprintf(stderr, "rank %d of %d: opening: %s\n", rank, size, err.text);
        return -1;
    }
    int result = job->body(&r, job);
    nccl_rank_close(&r);
    return result;
}

static inline int nccl_job_run(struct nccl_job *job, int size)
{
    struct kv_memory *memory = kv_memory_create(NULL);
    if (!memory)
        return -1;
    job->store = kv_memory_store(memory);
    int result = rank_threads_run(size, nccl_job_rank, job);
    kv_memory_destroy(memory);
    return result;
}

/* All ranks are here. */
static inline int nccl_job_meet(struct nccl_job *job, int size)
{
    struct instant limit = instant_add(clock_now(NULL), 60 * NS_PER_S);
    int all = (job->met++ / size + 1) * size;
    while (job->met < all) {
        if (instant_reached(clock_now(NULL), limit))
            return -1;
        clock_sleep_until(instant_add(clock_now(NULL), NS_PER_MS));
    }
    return 0;
}

#endif
