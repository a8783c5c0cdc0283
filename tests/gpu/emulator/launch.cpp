/* launch.cpp - a launch: what CUDA would refuse is refused, and the rest is a piece of work of its stream. */
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "tests/gpu/cudart/fake_cudart.h"
#include "tests/gpu/emulator/block.h"
#include "tests/gpu/emulator/shared.h"
#include "tests/gpu/emulator/watch.h"

#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

/* For the thread sanitizer, where it is. */
extern "C" void AnnotateIgnoreSyncBegin(const char *file, int line) __attribute__((weak));
extern "C" void AnnotateIgnoreSyncEnd(const char *file, int line) __attribute__((weak));

/* EMU_ORDER=up|down|shuffled, EMU_SEED=number; read at each launch, so that a test may change them. */
static void order_of_environment(struct emu_launch_call *call)
{
    static const char *const names[] = {"up", "down", "shuffled"};
    const char *order = getenv("EMU_ORDER"), *seed = getenv("EMU_SEED");
    call->order = EMU_UP;
    call->seed = seed ? strtoull(seed, nullptr, 10) * 2654435761u + 88172645463325252u : 88172645463325252u;
    for (int i = 0; order && i <= EMU_SHUFFLED; i++)
        if (strcmp(order, names[i]) == 0) {
            call->order = (enum emu_order)i;
            return;
        }
    if (order) {
        fprintf(stderr, "emulator: EMU_ORDER is \"%s\"; it must be up, down or shuffled\n", order);
        abort();
    }
}

int64_t emu_grid_limit(int64_t limit)
{
    const char *lower = getenv("EMU_GRID_LIMIT");
    return lower && limit < INT32_MAX && atoll(lower) < limit ? atoll(lower) : limit;
}

static thread_local size_t allowed_shared;

cudaError_t emu_allow_shared(size_t bytes)
{
    if (bytes > EMU_SHARED_ALLOWED)
        return fake_cudart_fail(cudaErrorInvalidValue);
    allowed_shared = bytes;
    return cudaSuccess;
}

/* Limits that all of compute capabilities 7.5 to 9.0 share. */
static bool refused(dim3 grid, dim3 block, size_t shared)
{
    uint64_t threads = (uint64_t)block.x * block.y * block.z;
    const size_t most = allowed_shared > EMU_SHARED_LARGEST ? allowed_shared : (size_t)EMU_SHARED_LARGEST;
    allowed_shared = 0;
    return !grid.x || !grid.y || !grid.z || grid.x > 2147483647u || grid.y > 65535 || grid.z > 65535 ||
           threads == 0 || threads > 1024 || block.z > 64 || shared > most;
}

static void (*watch_begin)(const char *operation, const char *kernel, unsigned threads, size_t shared);
static void (*watch_end)();

void emu_watch(void (*begin)(const char *operation, const char *kernel, unsigned threads, size_t shared),
               void (*end)())
{
    watch_begin = begin;
    watch_end = end;
}

static void run_watched(struct emu_launch_call *call)
{
    if (watch_begin)
        watch_begin(call->operation, call->kernel, call->block.x * call->block.y * call->block.z,
                    call->shared);
    emu_run(call);
    if (watch_end)
        watch_end();
}

/* Kernels of two streams take turns, which is no order between them. */
static void run(void *argument)
{
    static std::mutex lock;
    if (AnnotateIgnoreSyncBegin)
        AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
    lock.lock();
    if (AnnotateIgnoreSyncEnd)
        AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
    run_watched((struct emu_launch_call *)argument);
    if (AnnotateIgnoreSyncBegin)
        AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
    lock.unlock();
    if (AnnotateIgnoreSyncEnd)
        AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
}

static void dispose(void *argument)
{
    delete (struct emu_launch_call *)argument;
}

void emu_enqueue(const char *operation, const char *kernel, dim3 grid, dim3 block, size_t shared,
                 cudaStream_t stream, struct emu_body *body)
{
    std::unique_ptr<struct emu_body> owned(body);
    if (refused(grid, block, shared)) {
        (void)fake_cudart_fail(cudaErrorInvalidConfiguration);
        return;
    }
    struct emu_launch_call *call = new emu_launch_call();
    call->operation = operation;
    call->kernel = kernel;
    call->grid = grid;
    call->block = block;
    call->shared = shared;
    call->body = std::move(owned);
    order_of_environment(call);
    const cudaError_t error = fake_cudart_enqueue(stream, operation, run, call, dispose);
    if (error != cudaSuccess)
        (void)fake_cudart_fail(error); /* a launch returns nothing: the last error has it */
}
