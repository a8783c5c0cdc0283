/* shared.cpp - shared memory: static variables, which lie in a section of their library, and the dynamic
 * part. Before each block all bits are set: an integer that nobody wrote is -1, a number is not one. */
#include "tests/gpu/emulator/shared.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "tests/gpu/emulator/cuda_emulated.h"

#if defined __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n)   ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

#ifdef EMU_TSAN
/* To the thread sanitizer memory is new when a heap has just given it out, and this is the one way to say so
 * of memory that lies where it lies. */
extern "C" void __tsan_java_alloc(unsigned long p, unsigned long bytes);
#define TSAN_NEW(p, n) __tsan_java_alloc((unsigned long)(p), n)
#else
#define TSAN_NEW(p, n) ((void)(p), (void)(n))
#endif

enum { LIBRARIES = 16 };
static struct {
    char *start, *stop;
} libraries[LIBRARIES];
static int library_count;
static std::mutex lock;

alignas(256) static char dynamic[EMU_SHARED_ALLOWED + 256];

/* Each file of a library calls it, and all but the first say nothing new. */
void emu_shared_register(void *start, void *stop)
{
    std::lock_guard<std::mutex> guard(lock);
    for (int i = 0; i < library_count; i++)
        if (libraries[i].start == start)
            return;
    if (library_count == LIBRARIES) {
        fprintf(stderr, "emulator: more than %d libraries have shared memory\n", LIBRARIES);
        abort();
    }
    libraries[library_count++] = {(char *)start, (char *)stop};
}

void *emu_dynamic_shared(void)
{
    return dynamic;
}

/* Not memset: between the variables lie the address sanitizer's zones. */
__attribute__((no_sanitize("address", "undefined"))) static void fill(char *p, char *end)
{
    for (volatile char *at = p; at < end; at++)
        *at = (char)0xff;
}

void emu_shared_fresh(size_t bytes)
{
    for (int i = 0; i < library_count; i++) {
        size_t size = (size_t)(libraries[i].stop - libraries[i].start);
        TSAN_NEW(libraries[i].start, size & ~(size_t)7);
        fill(libraries[i].start, libraries[i].stop);
    }
    ASAN_UNPOISON_MEMORY_REGION(dynamic, sizeof dynamic);
    TSAN_NEW(dynamic, sizeof dynamic);
    fill(dynamic, dynamic + bytes);
    ASAN_POISON_MEMORY_REGION(dynamic + bytes, sizeof dynamic - bytes);
}
