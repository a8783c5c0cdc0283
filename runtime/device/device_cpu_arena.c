/* device_cpu_arena.c - memory of the CPU device: anonymous pages, and memfds for what other ranks may read.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "proto/base/text.h"
#include "runtime/device/device_cpu_internal.h"
#include "runtime/device/host_memory.h"

int device_cpu_memory_fits(int64_t wanted, int64_t available, int64_t promised, enum memory_class memory,
                           struct muster_error *err)
{
    int64_t left = available > promised ? available - promised : 0;
    if (available <= 0 || wanted <= left)
        return 0;
    char want[32], have[32];
    return error_set(err, MUSTER_E_NOMEM,
                     "an arena of %s memory wants %s (%lld bytes), but %s (%lld bytes) are free; use more "
                     "ranks, a smaller batch or a smaller model",
                     memory_class_name(memory), text_format_bytes(want, sizeof want, wanted),
                     (long long)wanted, text_format_bytes(have, sizeof have, left), (long long)left);
}

/* Bytes of an arena that have no pages yet: the system counts them as free. */
static int64_t untouched(const struct cpu_arena *arena, int64_t page)
{
    unsigned char there[1024];
    int64_t pages = (arena->bytes + page - 1) / page, touched = 0;
    for (int64_t first = 0; first < pages; first += (int64_t)sizeof there) {
        int64_t count = pages - first < (int64_t)sizeof there ? pages - first : (int64_t)sizeof there;
        if (mincore((char *)arena->base + first * page, (size_t)(count * page), there))
            return 0; /* unknown; the sum is then slightly too high */
        for (int64_t i = 0; i < count; i++)
            touched += there[i] & 1;
    }
    return (pages - touched) * page;
}

static int check_memory(struct device *device, enum memory_class memory, int64_t bytes,
                        struct muster_error *err)
{
    int64_t promised = 0, page = sysconf(_SC_PAGESIZE);
    bool limited = device->memory_limit >= 0;
    for (const struct cpu_arena *arena = device->arenas; arena; arena = arena->next)
        promised += limited ? arena->bytes : untouched(arena, page);
    return device_cpu_memory_fits(bytes, limited ? device->memory_limit : host_memory_available(), promised,
                                  memory, err);
}

/* A memfd that can neither shrink under its readers (which would be SIGBUS) nor grow. */
static int make_memfd(int64_t bytes, struct muster_error *err)
{
    scope_close int fd = memfd_create("muster-comm", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return error_errno(err, "memfd_create for comm memory");
    if (ftruncate(fd, bytes))
        return error_errno(err, "comm memory of %lld bytes", (long long)bytes);
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
        return error_errno(err, "sealing comm memory");
    return take_fd(&fd);
}

static int map(struct device_arena *arena, int64_t bytes, struct muster_error *err)
{
    int flags = arena->fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
    void *base = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, flags, arena->fd, 0);
    if (base == MAP_FAILED)
        return error_errno(err, "mapping %lld bytes of %s memory", (long long)bytes,
                           memory_class_name(arena->memory));
    /* Fewer page faults and TLB misses; if the kernel refuses, small pages do as well. */
    (void)madvise(base, (size_t)bytes, MADV_HUGEPAGE);
    arena->base = base;
    return 0;
}

int cpu_arena_create(struct device *device, enum memory_class memory, int64_t bytes,
                     struct device_arena *arena, struct muster_error *err)
{
    if (bytes < 1 || bytes > INT64_MAX / 2 || (unsigned)memory >= MEMORY_CLASS_COUNT)
        return error_set(err, MUSTER_E_INVALID, "an arena of %lld bytes of memory class %d", (long long)bytes,
                         (int)memory);
    if (check_memory(device, memory, bytes, err))
        return -1;
    scope_free struct cpu_arena *kept = mem_calloc(1, sizeof *kept);
    if (!kept)
        return error_set(err, MUSTER_E_NOMEM, "no memory for an arena");
    scope_close int fd = -1;
    if (memory == MEMORY_COMM && (fd = make_memfd(bytes, err)) < 0)
        return -1;
    struct device_arena made = {.bytes = bytes, .memory = memory, .fd = fd};
    if (map(&made, bytes, err))
        return -1;
    if (device->poison >= 0)
        memset(made.base, device->poison, (size_t)bytes);
    *kept = (struct cpu_arena){.next = device->arenas, .base = made.base, .bytes = bytes};
    device->arenas = take_pointer(&kept);
    (void)take_fd(&fd); /* the arena owns it from here */
    *arena = made;
    return 0;
}

void cpu_arena_destroy(struct device *device, struct device_arena *arena)
{
    if (!arena->base)
        return;
    for (struct cpu_arena **at = &device->arenas; *at; at = &(*at)->next) {
        if ((*at)->base == arena->base) {
            struct cpu_arena *gone = *at;
            *at = gone->next;
            mem_free(gone);
            break;
        }
    }
    (void)munmap(arena->base, (size_t)arena->bytes); /* cannot fail: our own mapping, whole */
    if (arena->fd >= 0)
        (void)close(arena->fd); /* nothing can be done about it */
    *arena = (struct device_arena){.fd = -1};
}
