/* scratch.h - memory of a thread that multiplies, for the blocks of a product. */
#ifndef MUSTER_KERNELS_CPU_SCRATCH_H
#define MUSTER_KERNELS_CPU_SCRATCH_H

#include <stdint.h>

enum { SCRATCH_ELEMENTS = 5 << 18 }; /* elements of 16 bits: 2.5 MiB */
enum { SCRATCH_LIBRARY = 4 << 20 };  /* bytes after them, for the library that multiplies */
enum { SCRATCH_BYTES = SCRATCH_ELEMENTS * 2 + SCRATCH_LIBRARY };

/* The calling thread's: as kernels_cpu_scratch has lent it, or made by the first call and freed at the
 * thread's end; NULL: no memory. 64-aligned. */
uint16_t *cpu_scratch(void);

#endif
