/* device_cuda_memory.c - arenas, copies and fills of the CUDA device.
 *
 * The host's own memory (of no arena) cannot be copied asynchronously. It goes through two pieces of pinned
 * memory: the host fills or empties a piece while the other piece is on its way. */
#include <string.h>

#include "kernels/cuda/check.h"
#include "proto/base/error.h"
#include "runtime/cuda/cuda_query.h"
#include "runtime/cuda/device_cuda.h"
#include "runtime/cuda/products.h"

static bool on_host(enum memory_class memory)
{
    return memory == MEMORY_PINNED || memory == MEMORY_HOST;
}

/* The free memory of the device; 0 and 0 where it cannot be asked. */
static void find_free(struct device *device, size_t *free_bytes, size_t *all)
{
    *free_bytes = *all = 0;
    if (cuda_device_use(device, NULL) || cudaMemGetInfo(free_bytes, all) == cudaSuccess)
        return;
    (void)cudaGetLastError(); /* "not known" is an answer here */
    *free_bytes = *all = 0;
}

int64_t cuda_memory_available(struct device *device)
{
    size_t free_bytes, all;
    find_free(device, &free_bytes, &all);
    return (int64_t)free_bytes;
}

/* Workspace, kernels and graphs of products; NCCL's buffers and channels. An allowance: no GPU has shown it.
 */
int64_t cuda_memory_kept(struct device *device, bool comm)
{
    (void)device;
    return CUDA_PRODUCTS_WORKSPACE + CUDA_KEPT_FOR_PRODUCTS + (comm ? CUDA_KEPT_FOR_NCCL : 0);
}

static int cuda_no_memory(struct device *device, enum memory_class memory, int64_t bytes,
                          struct muster_error *err)
{
    size_t free_bytes, all;
    find_free(device, &free_bytes, &all);
    if (on_host(memory))
        return error_set(
            err, MUSTER_E_NOMEM,
            "cudaHostAlloc: %lld bytes of %s memory: no memory, or more than may be locked (ulimit -l)",
            (long long)bytes, memory_class_name(memory));
    return error_set(err, MUSTER_E_NOMEM,
                     "cudaMalloc: %lld bytes of %s memory: %zu of the %zu bytes of device %d are free",
                     (long long)bytes, memory_class_name(memory), free_bytes, all, device->index);
}

static void arena_release(const struct device_arena *arena)
{
    if (on_host(arena->memory))
        (void)cudaFreeHost(arena->base); /* an earlier error, which was told */
    else
        (void)cudaFree(arena->base);
}

static cudaError_t ask_own(void *of)
{
    return cuda_query(cudaStreamQuery(((struct device *)of)->own));
}

static int zero(struct device *device, const struct device_arena *arena, struct muster_error *err)
{
    cudaError_t status;
    if (on_host(arena->memory)) {
        memset(arena->base, 0, (size_t)arena->bytes);
        return 0;
    }
    if (cuda_device_status(device, cudaMemsetAsync(arena->base, 0, (size_t)arena->bytes, device->own),
                           "cudaMemsetAsync", err))
        return -1;
    if (cuda_ask(ask_own, device, device, INSTANT_NEVER, &status))
        return error_set(err, MUSTER_E_TIMEOUT, "cudaMemsetAsync of an arena has not finished in time");
    return cuda_device_status(device, status, "cudaStreamQuery after cudaMemsetAsync", err);
}

int cuda_arena_create(struct device *device, enum memory_class memory, int64_t bytes,
                      struct device_arena *arena, struct muster_error *err)
{
    struct device_arena made = {.bytes = bytes, .memory = memory, .fd = -1};
    if (bytes < 1 || (unsigned)memory >= MEMORY_CLASS_COUNT || device->arena_count == CUDA_ARENAS)
        return error_set(err, MUSTER_E_INVALID,
                         "an arena of %lld bytes of memory class %d, the %dth of at most %d",
                         (long long)bytes, (int)memory, device->arena_count + 1, (int)CUDA_ARENAS);
    if (cuda_device_use(device, err))
        return -1;
    const cudaError_t status = on_host(memory)
                                   ? cudaHostAlloc(&made.base, (size_t)bytes, cudaHostAllocPortable)
                                   : cudaMalloc(&made.base, (size_t)bytes);
    if (status == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError(); /* the error is reported here */
        return cuda_no_memory(device, memory, bytes, err);
    }
    if (cuda_device_status(device, status, on_host(memory) ? "cudaHostAlloc" : "cudaMalloc", err))
        return -1;
    if (zero(device, &made, err)) {
        arena_release(&made);
        return -1;
    }
    device->arenas[device->arena_count++] = made;
    *arena = made;
    return 0;
}

void cuda_arena_destroy(struct device *device, struct device_arena *arena)
{
    for (int i = 0; arena->base && i < device->arena_count; i++) {
        if (device->arenas[i].base == arena->base) {
            device->arenas[i] = device->arenas[--device->arena_count];
            if (!atomic_load(&device->stuck)) /* CUDA would wait for the work that hangs */
                arena_release(arena);
            break;
        }
    }
    *arena = (struct device_arena){.fd = -1};
}

/* ---- copies ---- */

enum place { PLACE_OWN, PLACE_HOST, PLACE_DEVICE };

/* The whole range in an arena, or the host's own memory. */
static enum place place_of(const struct device *device, const void *p, int64_t bytes)
{
    for (int i = 0; i < device->arena_count; i++) {
        const struct device_arena *arena = &device->arenas[i];
        const char *base = arena->base;
        if ((const char *)p >= base && (const char *)p + bytes <= base + arena->bytes)
            return on_host(arena->memory) ? PLACE_HOST : PLACE_DEVICE;
    }
    return PLACE_OWN;
}

static int enqueue_copy(struct device_stream *stream, void *to, const void *from, int64_t bytes,
                        enum cudaMemcpyKind kind)
{
    cuda_stream_note(stream, "copy");
    return cuda_device_status(stream->device,
                              cudaMemcpyAsync(to, from, (size_t)bytes, kind, stream->handle.stream),
                              "cudaMemcpyAsync", NULL);
}

static cudaError_t ask_bounce(void *of)
{
    return cuda_query(cudaEventQuery(((struct bounce *)of)->event));
}

static int bounce_wait(struct device_stream *stream, struct bounce *bounce)
{
    cudaError_t status;
    if (!cuda_ask(ask_bounce, bounce, stream->device, INSTANT_NEVER, &status))
        return cuda_device_status(stream->device, status, "cudaEventQuery", NULL);
    return -1; /* the device has failed: there is no other deadline */
}

static int bounce_record(struct device_stream *stream, struct bounce *bounce)
{
    return cuda_device_status(stream->device, cudaEventRecord(bounce->event, stream->handle.stream),
                              "cudaEventRecord", NULL);
}

static int64_t piece(int64_t bytes, int64_t done)
{
    return bytes - done < CUDA_BOUNCE_BYTES ? bytes - done : CUDA_BOUNCE_BYTES;
}

static int copy_in(struct device_stream *stream, char *to, const char *from, int64_t bytes)
{
    for (int64_t done = 0, i = 0; done < bytes; done += CUDA_BOUNCE_BYTES, i++) {
        struct bounce *bounce = &stream->device->bounces[i % CUDA_BOUNCES];
        const int64_t now = piece(bytes, done);
        if (bounce_wait(stream, bounce))
            return -1;
        memcpy(bounce->memory, from + done, (size_t)now);
        if (enqueue_copy(stream, to + done, bounce->memory, now, cudaMemcpyDefault) ||
            bounce_record(stream, bounce))
            return -1;
    }
    return 0;
}

static int take_out(struct device_stream *stream, char *to, int64_t bytes, int64_t number)
{
    struct bounce *bounce = &stream->device->bounces[number % CUDA_BOUNCES];
    const int64_t done = number * CUDA_BOUNCE_BYTES;
    if (bounce_wait(stream, bounce))
        return -1;
    memcpy(to + done, bounce->memory, (size_t)piece(bytes, done));
    return 0;
}

static int copy_out(struct device_stream *stream, char *to, const char *from, int64_t bytes)
{
    const int64_t pieces = (bytes + CUDA_BOUNCE_BYTES - 1) / CUDA_BOUNCE_BYTES;
    for (int64_t i = 0; i < pieces; i++) {
        struct bounce *bounce = &stream->device->bounces[i % CUDA_BOUNCES];
        const int64_t done = i * CUDA_BOUNCE_BYTES;
        if ((i >= CUDA_BOUNCES && take_out(stream, to, bytes, i - CUDA_BOUNCES)) ||
            bounce_wait(stream, bounce) ||
            enqueue_copy(stream, bounce->memory, from + done, piece(bytes, done), cudaMemcpyDefault) ||
            bounce_record(stream, bounce))
            return -1;
    }
    for (int64_t i = pieces > CUDA_BOUNCES ? pieces - CUDA_BOUNCES : 0; i < pieces; i++)
        if (take_out(stream, to, bytes, i))
            return -1;
    return 0;
}

/* Both are the host's own: when the stream is there. */
static int copy_own(struct device_stream *stream, void *to, const void *from, int64_t bytes)
{
    if (cuda_stream_sync(stream, INSTANT_NEVER, NULL))
        return -1;
    memmove(to, from, (size_t)bytes);
    return 0;
}

int cuda_stream_copy(struct device_stream *stream, void *to, const void *from, int64_t bytes)
{
    struct device *device = stream->device;
    const enum place there = place_of(device, to, bytes), here = place_of(device, from, bytes);
    if (cuda_device_failed(device) || cuda_device_use(device, NULL))
        return -1;
    if (bytes <= 0)
        return 0;
    if (there != PLACE_OWN && here != PLACE_OWN)
        return enqueue_copy(stream, to, from, bytes, cudaMemcpyDefault);
    if (there == PLACE_OWN && here == PLACE_OWN)
        return copy_own(stream, to, from, bytes);
    (void)pthread_mutex_lock(&device->staging); /* cannot fail: our own, never locked twice */
    const int result =
        there == PLACE_OWN ? copy_out(stream, to, from, bytes) : copy_in(stream, to, from, bytes);
    (void)pthread_mutex_unlock(&device->staging);
    return result;
}

int cuda_stream_fill(struct device_stream *stream, void *to, int byte, int64_t bytes)
{
    if (cuda_device_failed(stream->device) || cuda_device_use(stream->device, NULL))
        return -1;
    cuda_stream_note(stream, "fill");
    return cuda_device_status(stream->device, cudaMemsetAsync(to, byte, (size_t)bytes, stream->handle.stream),
                              "cudaMemsetAsync", NULL);
}

/* ---- the pieces of pinned memory ---- */

int cuda_bounces_open(struct device *device, struct muster_error *err)
{
    for (int i = 0; i < CUDA_BOUNCES; i++) {
        struct bounce *bounce = &device->bounces[i];
        void *memory = NULL;
        const cudaError_t status = cudaHostAlloc(&memory, CUDA_BOUNCE_BYTES, cudaHostAllocPortable);
        bounce->memory = memory;
        if (cuda_device_status(device, status, "cudaHostAlloc", err) ||
            cuda_device_status(device, cudaEventCreateWithFlags(&bounce->event, cudaEventDisableTiming),
                               "cudaEventCreateWithFlags", err))
            return -1;
    }
    return 0;
}

void cuda_bounces_close(struct device *device)
{
    for (int i = 0; i < CUDA_BOUNCES; i++) { /* statuses: an earlier error, which was told */
        if (device->bounces[i].event)
            (void)cudaEventDestroy(device->bounces[i].event);
        if (device->bounces[i].memory)
            (void)cudaFreeHost(device->bounces[i].memory);
    }
}
