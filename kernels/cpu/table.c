/* table.c - which of the CPU's tables this processor runs. Nothing of an instruction set is called before the
 * choice: the tables are data (variant.c), and tests/lint holds the objects to it. */
#include "kernels/cpu/cpu.h"

#ifdef CPU_HAVE_X86_VARIANTS
#include <cpuid.h>
#include <stdbool.h>

/* The levels x86-64-v3 and -v4 by their features: the compiler may use every one of them. Not all have a name
 * for __builtin_cpu_supports, or one that every compiler knows, so LZCNT, MOVBE and F16C are read here; that
 * the operating system saves the wide registers is in its answer for AVX2 and AVX-512. */
static bool isa_has_v3(void)
{
    enum { LEAF_FEATURES = 1, LEAF_EXTENDED = (int)0x80000001 };
    unsigned eax, ebx, ecx, edx, extended;
    if (!__get_cpuid(LEAF_EXTENDED, &eax, &ebx, &extended, &edx) ||
        !__get_cpuid(LEAF_FEATURES, &eax, &ebx, &ecx, &edx))
        return false;
    return (extended & bit_LZCNT) && (ecx & bit_MOVBE) && (ecx & bit_F16C) &&
           __builtin_cpu_supports("popcnt") && __builtin_cpu_supports("avx2") &&
           __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

static bool isa_has_v4(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}
#endif

/* KERNELS_ISA_... bits of this processor. */
static unsigned isa_available(void)
{
    unsigned isa = KERNELS_ISA_BASE;
#ifdef CPU_HAVE_X86_VARIANTS
    __builtin_cpu_init();
    if (isa_has_v3())
        isa |= KERNELS_ISA_AVX2 | (isa_has_v4() ? (unsigned)KERNELS_ISA_AVX512 : 0);
#endif
    return isa;
}

const struct kernels *kernels_cpu(unsigned isa_mask)
{
    unsigned isa = isa_available() & isa_mask;
#ifdef CPU_HAVE_X86_VARIANTS
    if (isa & KERNELS_ISA_AVX512)
        return &cpu_table_avx512;
    if (isa & KERNELS_ISA_AVX2)
        return &cpu_table_avx2;
#endif
    (void)isa; /* a machine with one variant has nothing to choose */
    return &cpu_table_base;
}
