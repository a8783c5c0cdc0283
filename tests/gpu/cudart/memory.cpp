/* memory.cpp - device and pinned memory: each allocation has pages around it that fault, is full of 0xff,
 * ends where it was asked to end (to 256 bytes, under the address sanitizer to the byte), and is never used
 * again once it is freed. Device memory is for the streams' threads alone where the processor has protection
 * keys. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "tests/gpu/cudart/fake_internal.h"

#if defined __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#define POISON(p, n)   __asan_poison_memory_region(p, n)
#define UNPOISON(p, n) __asan_unpoison_memory_region(p, n)
#endif
#if defined __SANITIZE_ADDRESS__ || defined EMU_TSAN
enum { SETS_PAGES = false }; /* sanitizers are to see who writes */
#else
enum { SETS_PAGES = true };
#endif
#ifndef __SANITIZE_ADDRESS__
#define POISON(p, n)   ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
#endif

static const size_t PAGE = 4096;

struct block {
    size_t bytes, mapped;
    char *map;
    enum fake_memory kind;
    int device;
    bool freed;
};

static std::map<char *, struct block> &blocks()
{
    static auto *const all = new std::map<char *, struct block>;
    return *all;
}

/* By kind: now, and at most so far. */
static size_t used[3], high_water[3], used_of[FAKE_DEVICES];

/* ---- protection keys ---- */

/* -1: there are none, or they are switched off. */
static int key()
{
    static const int made =
        !strcmp(fake_setting("FAKE_CUDA_KEYS"), "0") ? -1 : pkey_alloc(0, PKEY_DISABLE_ACCESS);
    return made;
}

void fake_memory_open()
{
    if (key() >= 0)
        pkey_set(key(), 0);
}

void fake_memory_close()
{
    if (key() >= 0)
        pkey_set(key(), PKEY_DISABLE_ACCESS);
}

/* ---- where an address lies ---- */

/* With the lock held; NULL: in none that is alive. */
static struct block *find(const void *p, size_t bytes, char **start)
{
    auto after = blocks().upper_bound((char *)p);
    if (after == blocks().begin())
        return nullptr;
    --after;
    if (after->second.freed || (const char *)p + bytes > after->first + after->second.bytes)
        return nullptr;
    *start = after->first;
    return &after->second;
}

extern "C" enum fake_memory fake_cudart_memory(const void *p, size_t bytes)
{
    char *start;
    fake_locked held;
    const struct block *block = find(p, bytes, &start);
    return block ? block->kind : FAKE_MEMORY_NONE;
}

/* ---- allocating ---- */

size_t fake_device_bytes()
{
    const char *value = fake_setting("FAKE_CUDA_MEMORY");
    return *value ? strtoull(value, nullptr, 10) : (size_t)8 << 30;
}

/* All bits set, to be mapped as often as it is wanted: of an arena of megabytes a small test touches little,
 * and pages that it does not touch cost nothing. Made before a program forks its ranks. -1: there is no such
 * file. */
static const size_t SET_BYTES = 1 << 20;
static const size_t SPARSE_BYTES = (size_t)1 << 32; /* blocks from here on are full of zeroes instead */
static int set_file = -1;
__attribute__((constructor)) static void make_set_file()
{
    const std::vector<char> set(SETS_PAGES ? SET_BYTES : 0, (char)0xff);
    set_file = SETS_PAGES ? memfd_create("fake CUDA", MFD_CLOEXEC) : -1;
    if (set_file >= 0 && pwrite(set_file, set.data(), set.size(), 0) != (ssize_t)set.size()) {
        close(set_file);
        set_file = -1;
    }
}

/* [p, p + bytes) is there, all bits set. */
static bool map_set(char *p, size_t bytes, enum fake_memory kind)
{
    if (SETS_PAGES && bytes >= SPARSE_BYTES && kind == FAKE_MEMORY_DEVICE)
        return mprotect(p, bytes, PROT_READ | PROT_WRITE) == 0;
    const bool large = SETS_PAGES && bytes >= SET_BYTES;
    const int file = large && kind == FAKE_MEMORY_DEVICE ? set_file : -1;
    if (file < 0) {
        if (mprotect(p, bytes, PROT_READ | PROT_WRITE) != 0)
            return false;
        if (large)
            (void)madvise(p, bytes, MADV_HUGEPAGE); /* the host zeroes what is pinned, by itself */
        memset(p, 0xff, bytes);
        return true;
    }
    for (size_t at = 0; at < bytes; at += SET_BYTES) {
        const size_t piece = bytes - at < SET_BYTES ? bytes - at : SET_BYTES;
        if (mmap(p + at, piece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, file, 0) ==
            MAP_FAILED)
            return false;
    }
    return true;
}

/* New pages in the place of these, which are full of zeroes and cost nothing until they are touched. */
static bool map_zeroes(char *p, size_t bytes, enum fake_memory kind)
{
    const int rights = PROT_READ | PROT_WRITE,
              flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
    if (mmap(p, bytes, rights, flags, -1, 0) == MAP_FAILED)
        return false;
    if (kind == FAKE_MEMORY_DEVICE && key() >= 0)
        pkey_mprotect(p, bytes, rights, key());
    return true;
}

/* As near to the end of its pages as cudaMalloc's alignment lets it: what is read or written behind it faults
 * from the next multiple of 256 bytes on. */
static char *start_of(char *map, size_t bytes, size_t mapped)
{
    const size_t alignment = 256;
    return map + mapped - PAGE - (bytes + alignment - 1) / alignment * alignment;
}

static char *map_block(size_t bytes, size_t mapped, enum fake_memory kind)
{
    char *map = (char *)mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return nullptr;
    const size_t inner = mapped - 2 * PAGE;
    if (!map_set(map + PAGE, inner, kind))
        return nullptr;
    char *start = start_of(map, bytes, mapped);
    POISON(map + PAGE, (size_t)(start - map) - PAGE);
    POISON(start + bytes, (size_t)(map + mapped - start) - PAGE - bytes);
    if (kind == FAKE_MEMORY_DEVICE && key() >= 0)
        pkey_mprotect(map + PAGE, inner, PROT_READ | PROT_WRITE, key());
    return map;
}

static cudaError_t allocate(void **p, size_t bytes, enum fake_memory kind)
{
    *p = nullptr;
    if (bytes == 0)
        return cudaSuccess;
    const size_t mapped = (bytes + PAGE - 1) / PAGE * PAGE + 2 * PAGE;
    fake_locked held;
    if (kind == FAKE_MEMORY_DEVICE && used_of[fake_device()] + bytes > fake_device_bytes())
        return fake_cudart_fail(cudaErrorMemoryAllocation);
    char *map = map_block(bytes, mapped, kind);
    if (!map)
        return fake_cudart_fail(cudaErrorMemoryAllocation);
    char *start = start_of(map, bytes, mapped);
    blocks()[start] = {bytes, mapped, map, kind, fake_device(), false};
    used[kind] += bytes;
    high_water[kind] = used[kind] > high_water[kind] ? used[kind] : high_water[kind];
    used_of[fake_device()] += kind == FAKE_MEMORY_DEVICE ? bytes : 0;
    *p = start;
    return cudaSuccess;
}

/* Waits for the device, as CUDA does. The range is never used again: who uses it after this faults. */
static cudaError_t deallocate(void *p, enum fake_memory kind)
{
    char *start = nullptr;
    if (!p)
        return cudaSuccess;
    fake_locked held;
    struct block *block = find(p, 1, &start);
    if (!block || start != p || block->kind != kind) {
        fake_complain("%p is freed, and is not the start of live memory of that kind", p);
        return fake_cudart_fail(cudaErrorInvalidValue);
    }
    fake_drain_device(held, block->device);
    UNPOISON(block->map + PAGE, block->mapped - 2 * PAGE);
    mmap(block->map, block->mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1,
         0);
    block->freed = true;
    used[kind] -= block->bytes;
    used_of[block->device] -= kind == FAKE_MEMORY_DEVICE ? block->bytes : 0;
    return cudaSuccess;
}

void fake_memory_report(FILE *file)
{
    int leaked = 0;
    for (const auto &row : blocks())
        leaked += !row.second.freed;
    fprintf(file, "device_high_water %zu\npinned_high_water %zu\nleaked_allocations %d\n",
            high_water[FAKE_MEMORY_DEVICE], high_water[FAKE_MEMORY_PINNED], leaked);
}

/* ---- copies and fills ---- */

struct transfer {
    void *to;
    const void *from;
    size_t bytes;
    int value;
    enum fake_memory kind; /* for `to`, where it is filled */
};

static void run_copy(void *argument)
{
    const struct transfer *t = (const struct transfer *)argument;
    memcpy(t->to, t->from, t->bytes);
}

static void run_fill(void *argument)
{
    const struct transfer *t = (const struct transfer *)argument;
    char *p = (char *)t->to, *end = p + t->bytes;
    char *pages = p + (PAGE - (uintptr_t)p % PAGE) % PAGE, *pages_end = end - (uintptr_t)end % PAGE;
    if (SETS_PAGES && t->value == 0 && t->bytes >= SET_BYTES &&
        map_zeroes(pages, (size_t)(pages_end - pages), t->kind)) {
        memset(p, 0, (size_t)(pages - p));
        memset(pages_end, 0, (size_t)(end - pages_end));
        return;
    }
    memset(p, t->value, t->bytes);
}

static void dispose(void *argument)
{
    delete (struct transfer *)argument;
}

static bool fits(enum fake_memory kind, bool device, bool pageable)
{
    return device ? kind == FAKE_MEMORY_DEVICE
                  : kind == FAKE_MEMORY_PINNED || (pageable && kind == FAKE_MEMORY_NONE);
}

/* Whether the ranges are what the kind of copy tells. pageable: the host's own memory is taken. */
static bool is_right(const void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, bool pageable)
{
    const enum fake_memory t = fake_cudart_memory(to, bytes), f = fake_cudart_memory(from, bytes);
    const bool overlap =
        (const char *)to < (const char *)from + bytes && (const char *)from < (const char *)to + bytes;
    bool right = false;
    switch (kind) {
    case cudaMemcpyHostToHost:
        right = fits(t, false, pageable) && fits(f, false, pageable);
        break;
    case cudaMemcpyHostToDevice:
        right = fits(t, true, false) && fits(f, false, pageable);
        break;
    case cudaMemcpyDeviceToHost:
        right = fits(t, false, pageable) && fits(f, true, false);
        break;
    case cudaMemcpyDeviceToDevice:
        right = fits(t, true, false) && fits(f, true, false);
        break;
    default:
        right = pageable || (t != FAKE_MEMORY_NONE && f != FAKE_MEMORY_NONE);
        break;
    }
    if (right && !overlap)
        return true;
    fake_complain("a copy of %zu bytes from %p (kind %d) to %p (kind %d)%s", bytes, from, (int)f, to, (int)t,
                  overlap ? ": they overlap" : "; 0 is the host's own memory or out of bounds");
    return false;
}

static cudaError_t copy(const char *what, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                        cudaStream_t stream, bool pageable)
{
    if (bytes == 0)
        return cudaSuccess;
    if (!is_right(to, from, bytes, kind, pageable))
        return fake_cudart_fail(cudaErrorInvalidValue);
    fake_locked held;
    struct CUstream_st *s = fake_stream(stream);
    if (!s)
        return fake_cudart_fail(cudaErrorInvalidResourceHandle);
    fake_push(s, {what,
                  run_copy,
                  dispose,
                  new transfer{to, from, bytes, 0, FAKE_MEMORY_NONE},
                  false,
                  {},
                  {},
                  nullptr});
    return cudaSuccess;
}

static cudaError_t fill(const char *what, void *p, int value, size_t bytes, cudaStream_t stream)
{
    if (bytes == 0)
        return cudaSuccess;
    const enum fake_memory kind = fake_cudart_memory(p, bytes);
    if (kind == FAKE_MEMORY_NONE) {
        fake_complain("%s of %zu bytes at %p, which is the host's own memory or out of bounds", what, bytes,
                      p);
        return fake_cudart_fail(cudaErrorInvalidValue);
    }
    fake_locked held;
    struct CUstream_st *s = fake_stream(stream);
    if (!s)
        return fake_cudart_fail(cudaErrorInvalidResourceHandle);
    fake_push(
        s, {what, run_fill, dispose, new transfer{p, nullptr, bytes, value, kind}, false, {}, {}, nullptr});
    return cudaSuccess;
}

extern "C" {

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    FAKE_ENTER_DEVICE("cudaMalloc", cudaErrorMemoryAllocation);
    return allocate(p, bytes, FAKE_MEMORY_DEVICE);
}

cudaError_t cudaFree(void *p)
{
    FAKE_ENTER("cudaFree", cudaErrorInvalidValue);
    return deallocate(p, FAKE_MEMORY_DEVICE);
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned)
{
    FAKE_ENTER_DEVICE("cudaHostAlloc", cudaErrorMemoryAllocation);
    return allocate(p, bytes, FAKE_MEMORY_PINNED);
}

cudaError_t cudaMallocHost(void **p, size_t bytes)
{
    FAKE_ENTER_DEVICE("cudaMallocHost", cudaErrorMemoryAllocation);
    return allocate(p, bytes, FAKE_MEMORY_PINNED);
}

cudaError_t cudaFreeHost(void *p)
{
    FAKE_ENTER("cudaFreeHost", cudaErrorInvalidValue);
    return deallocate(p, FAKE_MEMORY_PINNED);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *all)
{
    FAKE_ENTER_DEVICE("cudaMemGetInfo", cudaErrorInvalidValue);
    fake_locked held;
    *all = fake_device_bytes();
    *free_bytes = *all - used_of[fake_device()];
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *p)
{
    FAKE_ENTER("cudaPointerGetAttributes", cudaErrorInvalidValue);
    char *start;
    fake_locked held;
    const struct block *block = find(p, 1, &start);
    memset(attributes, 0, sizeof *attributes);
    attributes->type = !block                              ? cudaMemoryTypeUnregistered
                       : block->kind == FAKE_MEMORY_DEVICE ? cudaMemoryTypeDevice
                                                           : cudaMemoryTypeHost;
    attributes->device = block ? block->device : -1;
    attributes->devicePointer = block ? (void *)p : nullptr;
    attributes->hostPointer = block && block->kind == FAKE_MEMORY_PINNED ? (void *)p : nullptr;
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    FAKE_ENTER_DEVICE("cudaMemcpyAsync", cudaErrorInvalidValue);
    return copy("cudaMemcpyAsync", to, from, bytes, kind, stream, false);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    FAKE_ENTER_DEVICE("cudaMemcpy", cudaErrorInvalidValue);
    const cudaError_t error = copy("cudaMemcpy", to, from, bytes, kind, nullptr, true);
    fake_locked held;
    fake_drain(held, fake_stream(nullptr));
    return error != cudaSuccess ? error : fake_meet_sticky();
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream)
{
    FAKE_ENTER_DEVICE("cudaMemsetAsync", cudaErrorInvalidValue);
    return fill("cudaMemsetAsync", p, value, bytes, stream);
}

cudaError_t cudaMemset(void *p, int value, size_t bytes)
{
    FAKE_ENTER_DEVICE("cudaMemset", cudaErrorInvalidValue);
    const cudaError_t error = fill("cudaMemset", p, value, bytes, nullptr);
    fake_locked held;
    fake_drain(held, fake_stream(nullptr));
    return error != cudaSuccess ? error : fake_meet_sticky();
}
}
