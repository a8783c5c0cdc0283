/* table.c - the CPU's tables: the reference first, then what each instruction set improves, in that order. */
#include "kernels/cpu/cpu.h"

#include <pthread.h>
#include <stdbool.h>

enum { TABLE_BASE, TABLE_AVX2, TABLE_AVX512, TABLE_COUNT };

static struct kernels tables[TABLE_COUNT];
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static void tables_fill(void)
{
    tables[TABLE_BASE] = *kernels_ref_f32();
    tables[TABLE_BASE].name = "cpu-base";
    cpu_fill_base(&tables[TABLE_BASE]);
    tables[TABLE_AVX2] = tables[TABLE_AVX512] = tables[TABLE_BASE];
#ifdef CPU_HAVE_X86_VARIANTS
    tables[TABLE_AVX2].name = "cpu-avx2";
    cpu_fill_avx2(&tables[TABLE_AVX2]);
    tables[TABLE_AVX512].name = "cpu-avx512";
    cpu_fill_avx512(&tables[TABLE_AVX512]);
#endif
}

/* KERNELS_ISA_... bits of this processor (and of the operating system, which saves the wide registers). */
static unsigned isa_available(void)
{
    unsigned isa = KERNELS_ISA_BASE;
#ifdef CPU_HAVE_X86_VARIANTS
    __builtin_cpu_init();
    /* the levels x86-64-v3 and -v4 by the features that compilers use of them: older clangs do not know the
     * levels */
    bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
              __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
              __builtin_cpu_supports("avx512vl");
    isa |= v3 ? KERNELS_ISA_AVX2 : 0;
    isa |= v4 ? KERNELS_ISA_AVX512 : 0;
#endif
    return isa;
}

const struct kernels *kernels_cpu(unsigned isa_mask)
{
    unsigned isa = isa_available() & isa_mask;
    (void)pthread_once(&tables_once, tables_fill); /* cannot fail: both arguments are valid */
    if (isa & KERNELS_ISA_AVX512)
        return &tables[TABLE_AVX512];
    if (isa & KERNELS_ISA_AVX2)
        return &tables[TABLE_AVX2];
    return &tables[TABLE_BASE];
}
