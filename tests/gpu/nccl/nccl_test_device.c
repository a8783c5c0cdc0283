/* nccl_test_device.c - see nccl_test_device.h. */
#include "tests/gpu/nccl/nccl_test_device.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "runtime/cuda/cuda_query.h"
#include "runtime/cuda/cuda_stream.h"

struct device {
    pthread_mutex_t lock;
    struct muster_error error;
    int rank;
    pthread_t opener;
};

_Atomic(int) nccl_test_device_refuses = -1;
_Atomic(int) nccl_test_device_watched_late_ms;

struct device_stream {
    struct cuda_stream_handle handle;
    struct device *device;
};

static struct device *test_open(int rank, int threads, struct muster_error *err)
{
    int devices = 1;
    (void)threads, (void)err;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || cudaSetDevice(rank % devices) != cudaSuccess)
        return NULL;
    struct device *device = calloc(1, sizeof *device);
    if (!device)
        return NULL;
    (void)pthread_mutex_init(&device->lock, NULL);
    device->rank = rank;
    device->opener = pthread_self();
    return device;
}

static void test_close(struct device *device)
{
    free(device);
}

static int test_arena_create(struct device *device, enum memory_class memory, int64_t bytes,
                             struct device_arena *arena, struct muster_error *err)
{
    *arena = (struct device_arena){.bytes = bytes, .memory = memory, .fd = -1};
    if (device->rank == nccl_test_device_refuses)
        return error_set(err, MUSTER_E_NOMEM, "the test's device refuses an arena");
    cudaError_t status = memory == MEMORY_PINNED ? cudaMallocHost(&arena->base, (size_t)bytes)
                                                 : cudaMalloc(&arena->base, (size_t)bytes);
    return status == cudaSuccess ? 0 : error_set(err, MUSTER_E_NOMEM, "cudaMalloc: %d", (int)status);
}

static void test_arena_destroy(struct device *device, struct device_arena *arena)
{
    (void)device;
    if (arena->base)
        (void)(arena->memory == MEMORY_PINNED ? cudaFreeHost(arena->base) : cudaFree(arena->base));
    *arena = (struct device_arena){.fd = -1};
}

static struct device_stream *test_stream_create(struct device *device, const char *name, bool compute,
                                                struct muster_error *err)
{
    (void)name, (void)compute, (void)err;
    struct device_stream *stream = calloc(1, sizeof *stream);
    if (stream && cudaStreamCreateWithFlags(&stream->handle.stream, cudaStreamNonBlocking) == cudaSuccess) {
        stream->device = device;
        return stream;
    }
    free(stream);
    return NULL;
}

static void test_stream_destroy(struct device_stream *stream)
{
    if (stream)
        (void)cudaStreamDestroy(stream->handle.stream);
    free(stream);
}

static void *test_stream_handle(struct device_stream *stream)
{
    return &stream->handle;
}

static int test_poll_error(struct device *device, struct muster_error *err)
{
    int late_ms = nccl_test_device_watched_late_ms;
    if (late_ms && !pthread_equal(pthread_self(), device->opener))
        clock_sleep_until(instant_add(clock_now(NULL), late_ms * NS_PER_MS));
    (void)pthread_mutex_lock(&device->lock);
    int failed = device->error.code != 0;
    if (failed && err)
        *err = device->error;
    (void)pthread_mutex_unlock(&device->lock);
    return failed ? -1 : 0;
}

static void test_fail(struct device *device, const struct muster_error *error)
{
    (void)pthread_mutex_lock(&device->lock);
    if (!device->error.code)
        device->error = *error;
    (void)pthread_mutex_unlock(&device->lock);
}

static int test_launch(struct device_stream *stream, void (*fn)(void *argument), void *argument)
{
    if (test_poll_error(stream->device, NULL))
        return -1;
    fn(argument);
    return 0;
}

static int test_sync(struct device_stream *stream, struct instant deadline, struct muster_error *err)
{
    while (cuda_query(cudaStreamQuery(stream->handle.stream)) == cudaErrorNotReady) {
        if (instant_reached(clock_now(NULL), deadline))
            return error_set(err, MUSTER_E_TIMEOUT, "the stream is not empty in time");
        clock_sleep_until(instant_add(clock_now(NULL), 50 * NS_PER_US));
    }
    return test_poll_error(stream->device, err);
}

const struct device_ops *nccl_test_device(void)
{
    static const struct device_ops ops = {
        .abi = DEVICE_ABI,
        .size = sizeof ops,
        .name = "cuda",
        .open = test_open,
        .close = test_close,
        .arena_create = test_arena_create,
        .arena_destroy = test_arena_destroy,
        .stream_create = test_stream_create,
        .stream_destroy = test_stream_destroy,
        .stream_handle = test_stream_handle,
        .launch = test_launch,
        .sync = test_sync,
        .fail = test_fail,
        .poll_error = test_poll_error,
    };
    return &ops;
}
