/* traffic.cpp - counts the bytes that kernels on the emulator move between the device's memory and a cache:
 * linked with kernels that are compiled with -fsanitize=thread, whose calls for each access are these
 * functions.
 *
 * Model: sectors of 32 bytes; a cache of 96 KiB, the share of a block in the L2 of a large GPU (50 MB over
 * 528 blocks that run at once), 16 ways, the oldest goes; an access to a sector that is not there moves it, a
 * sector that was written is moved again when it goes. Blocks run one after the other, so that an array which
 * all blocks read stays. Least is one move of each sector that is read before it is written, and one of each
 * that is written. Shared memory and registers are not counted.
 *
 * EMU_TRAFFIC=FILE: at exit a line a kernel: operation, kernel, launches, threads of a block, bytes of
 * dynamic shared memory, bytes moved, least, apart by tabs. */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <unordered_map>

#include "tests/gpu/cudart/fake_cudart.h"
#include "tests/gpu/emulator/watch.h"

enum { SECTOR = 32, WAYS = 16, SETS = 192, PAGE = 4096 };

struct line {
    uintptr_t sector; /* number; 0: empty */
    uint64_t used;
    bool dirty;
};
/* A page of the device: a bit a sector. Its number is that of its first access in the launch, since memory
 * lies elsewhere in the next run. */
struct page {
    bool on_device;
    uintptr_t number;
    uint64_t read[2], written[2];
};
struct row {
    unsigned threads;
    size_t shared;
    uint64_t launches, moved, least;
};

static struct line cache[SETS][WAYS];
static uint64_t now, moved;
static std::unordered_map<uintptr_t, struct page> *pages;
static std::map<std::string, struct row> *rows;
static struct row *current;
static uintptr_t last_page = ~(uintptr_t)0;
static struct page *last;

static void write_table()
{
    FILE *file = fopen(getenv("EMU_TRAFFIC"), "w");
    for (const auto &entry : *rows)
        if (file)
            (void)fprintf(file, "%s\t%llu\t%u\t%zu\t%llu\t%llu\n", entry.first.c_str(),
                          (unsigned long long)entry.second.launches, entry.second.threads,
                          entry.second.shared, (unsigned long long)entry.second.moved,
                          (unsigned long long)entry.second.least);
    if (!file || fclose(file) != 0)
        perror("EMU_TRAFFIC");
}

static void begin(const char *operation, const char *kernel, unsigned threads, size_t shared)
{
    current = &(*rows)[std::string(operation) + "\t" + kernel];
    current->threads = threads;
    current->shared = shared > current->shared ? shared : current->shared;
    memset(cache, 0, sizeof cache);
    pages->clear();
    last_page = ~(uintptr_t)0;
    moved = 0;
}

static void end()
{
    uint64_t least = 0;
    for (const auto &set : cache)
        for (const struct line &line : set)
            moved += line.sector && line.dirty ? SECTOR : 0;
    for (const auto &entry : *pages)
        for (int half = 0; half < 2; half++)
            least += SECTOR * (unsigned)(__builtin_popcountll(entry.second.read[half]) +
                                         __builtin_popcountll(entry.second.written[half]));
    current->launches++;
    current->moved += moved;
    current->least += least;
    current = nullptr;
}

__attribute__((constructor)) static void start()
{
    if (!getenv("EMU_TRAFFIC"))
        return;
    pages = new std::unordered_map<uintptr_t, struct page>();
    rows = new std::map<std::string, struct row>();
    emu_watch(begin, end);
    (void)atexit(write_table);
}

static struct page *page_of(uintptr_t address)
{
    const uintptr_t number = address / PAGE;
    if (number == last_page)
        return last;
    auto found = pages->find(number);
    if (found == pages->end()) {
        const bool on_device = fake_cudart_memory((const void *)address, 1) == FAKE_MEMORY_DEVICE;
        found = pages->insert({number, {on_device, pages->size() + 1, {0, 0}, {0, 0}}}).first;
    }
    last_page = number;
    last = &found->second;
    return last;
}

static void touch(uintptr_t sector, bool write)
{
    struct line *set = cache[sector % SETS], *oldest = set;
    now++;
    for (int way = 0; way < WAYS; way++) {
        if (set[way].sector == sector) {
            set[way].used = now;
            set[way].dirty |= write;
            return;
        }
        oldest = set[way].used < oldest->used ? &set[way] : oldest;
    }
    moved += (oldest->sector && oldest->dirty ? SECTOR : 0) + (write ? 0 : SECTOR);
    *oldest = {sector, now, write};
}

static void access(const void *pointer, size_t bytes, bool write)
{
    const uintptr_t address = (uintptr_t)pointer;
    if (!current || !page_of(address)->on_device)
        return;
    for (uintptr_t sector = address / SECTOR; sector <= (address + bytes - 1) / SECTOR; sector++) {
        struct page *page = page_of(sector * SECTOR);
        const unsigned bit = (unsigned)(sector % (PAGE / SECTOR));
        const uint64_t mask = (uint64_t)1 << bit % 64;
        if (write)
            page->written[bit / 64] |= mask;
        else if (!(page->written[bit / 64] & mask))
            page->read[bit / 64] |= mask;
        touch(page->number * (PAGE / SECTOR) + bit, write);
    }
}

/* ---- the compiler's calls ---- */

#define ACCESSES(bytes)                                                                                      \
    extern "C" void __tsan_read##bytes(void *p)                                                              \
    {                                                                                                        \
        access(p, bytes, false);                                                                             \
    }                                                                                                        \
    extern "C" void __tsan_write##bytes(void *p)                                                             \
    {                                                                                                        \
        access(p, bytes, true);                                                                              \
    }                                                                                                        \
    extern "C" void __tsan_unaligned_read##bytes(void *p)                                                    \
    {                                                                                                        \
        access(p, bytes, false);                                                                             \
    }                                                                                                        \
    extern "C" void __tsan_unaligned_write##bytes(void *p)                                                   \
    {                                                                                                        \
        access(p, bytes, true);                                                                              \
    }                                                                                                        \
    extern "C" void __tsan_volatile_read##bytes(void *p)                                                     \
    {                                                                                                        \
        access(p, bytes, false);                                                                             \
    }                                                                                                        \
    extern "C" void __tsan_volatile_write##bytes(void *p)                                                    \
    {                                                                                                        \
        access(p, bytes, true);                                                                              \
    }
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
extern "C" void __tsan_read_range(void *p, unsigned long bytes)
{
    access(p, bytes, false);
}
extern "C" void __tsan_write_range(void *p, unsigned long bytes)
{
    access(p, bytes, true);
}
/* The emulator's own note of vectors: no memory of a kernel. */
extern "C" void __tsan_atomic8_store(volatile unsigned char *to, unsigned char value, int)
{
    __atomic_store_n(to, value, __ATOMIC_RELAXED);
}
extern "C" void __tsan_init(void) {}
extern "C" void __tsan_func_entry(void *) {}
extern "C" void __tsan_func_exit(void) {}
extern "C" void __tsan_vptr_update(void **, void *) {}
extern "C" void __tsan_vptr_read(void **) {}
