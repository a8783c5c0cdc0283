/* cpu.h - inside kernels/cpu: one source, several instruction sets. Every file is compiled once for each
 * variant with CPU_VARIANT defined (base, avx2, avx512), and CPU(name) is cpu_name_<variant>. The variant
 * avx512bf16 is the files whose values may be of bf16 (value.h), with CPU_BF16 defined.
 *
 * Rules of these files: nothing runs but through the variant's table (no constructors, no external names but
 * CPU(...), and only table.c names the table); arithmetic is float; loops that the compiler vectorises, with
 * `omp simd reduction` where a sum may be split over lanes; no -ffast-math, so a NaN or infinity in the input
 * shows in the output; OpenMP by CPU_PARALLEL_FOR; and results do not depend on the number of threads: what
 * is summed across threads is summed in blocks whose number depends on the shape alone. (The linear_*
 * functions are the exception: a matrix product is cut into a part for each thread.) */
#ifndef MUSTER_KERNELS_CPU_H
#define MUSTER_KERNELS_CPU_H

#include "kernels/kernels.h"

#define CPU_PASTE2(operation, variant) cpu_##operation##_##variant
#define CPU_PASTE(operation, variant)  CPU_PASTE2(operation, variant)

#ifdef CPU_VARIANT
#define CPU(operation)                         CPU_PASTE(operation, CPU_VARIANT)
#define CPU_DECLARE(symbol, parameters)        void CPU(symbol)(KERNELS_EACH parameters, void *stream);
#define OPERATION(name, parameters, arguments) CPU_DECLARE(name, parameters)
#define PRODUCT(name, parameters, arguments)                                                                 \
    CPU_DECLARE(name, parameters)                                                                            \
    CPU_DECLARE(name##_onednn, parameters)                                                                   \
    CPU_DECLARE(name##_bf16, parameters)                                                                     \
    CPU_DECLARE(name##_auto, parameters)
#define WORK(name, parameters, arguments) size_t CPU(name) parameters;
#include "kernels/operations.inc"
#undef CPU_DECLARE
#define CPU_TEXT2(text) #text
#define CPU_TEXT(text)  CPU_TEXT2(text)
#define CPU_TABLE_NAME  "cpu-" CPU_TEXT(CPU_VARIANT)
#endif

/* Widest vector of the instruction set that is compiled for, in floats. */
#if defined(__AVX512F__)
enum { CPU_LANES = 16 };
#elif defined(__AVX__)
enum { CPU_LANES = 8 };
#else
enum { CPU_LANES = 4 };
#endif

/* The table of each variant: the only thing of it that is named outside of it, and by table.c alone. */
extern const struct kernels cpu_table_base, cpu_table_avx2, cpu_table_avx512, cpu_table_avx512bf16;

#define CPU_PRAGMA(text) _Pragma(#text)
/* A loop over independent pieces on the threads of kernels_cpu_threads (team.c); `condition` is whether it is
 * worth waking them. */
#ifdef _OPENMP
#define CPU_PARALLEL_FOR(condition) CPU_PRAGMA(omp parallel for schedule(static) if (condition))
#else
#define CPU_PARALLEL_FOR(condition)
#endif

/* Below this many elements one thread is done before others are awake (about 5 us at 10 GB/s). */
enum { CPU_PARALLEL_MIN = 16384 };

/* Pieces of an elementwise loop: whole cache lines, small enough to balance. */
enum { CPU_CHUNK = 4096 };
static inline int64_t cpu_chunks(int64_t n)
{
    return (n + CPU_CHUNK - 1) / CPU_CHUNK;
}
static inline int64_t cpu_chunk_size(int64_t n, int64_t chunk)
{
    int64_t left = n - chunk * CPU_CHUNK;
    return left < (int64_t)CPU_CHUNK ? left : (int64_t)CPU_CHUNK;
}

#endif
