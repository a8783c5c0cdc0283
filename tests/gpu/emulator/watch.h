/* watch.h - what runs on the emulator, for a program that counts: begin and end of each kernel, on its
 * stream's thread, one kernel at a time; and for a program that moves memory. */
#ifndef MUSTER_TESTS_GPU_WATCH_H
#define MUSTER_TESTS_GPU_WATCH_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif
/* Whether a kernel since the last call has read or written several values at once, for which memory has to be
 * aligned. */
int emu_took_vectors(void);
#ifdef __cplusplus
}

/* threads of a block, bytes of its dynamic shared memory; before the first launch */
void emu_watch(void (*begin)(const char *operation, const char *kernel, unsigned threads, size_t shared),
               void (*end)());
#endif

#endif
