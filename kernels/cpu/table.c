/* table.c - which of the CPU's tables this processor runs. Nothing of an instruction set is called before the
 * choice: the tables are data (variant.c), and tests/lint holds the objects to it. */
#include "kernels/cpu/cpu.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

#include "kernels/cpu/onednn/onednn.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/team.h"
#include "kernels/ready.h"
#include "proto/base/error.h"

#ifdef CPU_HAVE_X86_VARIANTS
#include <cpuid.h>

/* The levels x86-64-v3 and -v4 by their features: the compiler may use every feature of a level. LZCNT, MOVBE
 * and F16C are read here, because __builtin_cpu_supports has no name for them in every compiler. Whether the
 * operating system saves the wide registers is in the answer for AVX2 and AVX-512. */
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

/* The fast table of bf16; NULL: the processor has no AVX512-BF16, or oneDNN is absent or does not use it. */
static const struct kernels *narrow_table(void)
{
#ifdef CPU_HAVE_X86_VARIANTS
    if ((isa_available() & KERNELS_ISA_AVX512) && __builtin_cpu_supports("avx512bf16") &&
        !onednn_open(NULL) && onednn_has_bf16())
        return &cpu_table_avx512bf16;
#endif
    return NULL;
}

const struct kernels *kernels_cpu_values(enum dtype value)
{
    const struct kernels *narrow = value == DTYPE_BF16 ? narrow_table() : NULL;
    return narrow                ? narrow
           : value == DTYPE_BF16 ? kernels_ref_bf16()
           : value == DTYPE_F16  ? kernels_ref_f16()
                                 : kernels_cpu(~0u);
}

static bool is_narrow_table(const struct kernels *kernels)
{
    return kernels->value == DTYPE_BF16 && kernels != kernels_ref_bf16();
}

/* ---- tables by library ---- */

/* Of the two libraries neither is ahead on AVX2: product.c. */
static bool has_avx512(void)
{
    return isa_available() & KERNELS_ISA_AVX512;
}

static const char *const products_names[KERNELS_PRODUCTS] = {"", "-onednn", "-bf16", "-auto"};
static struct kernels tables_by[KERNELS_PRODUCTS];
static char names_by[KERNELS_PRODUCTS][32], libraries_text[320];
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static void fill_tables_by(void)
{
    const struct kernels *table = kernels_cpu(~0u);
    (void)snprintf(libraries_text, sizeof libraries_text, "%s; %s", kernels_cpu_blas(),
                   onednn_text()); /* fits */
    for (int by = KERNELS_OPENBLAS + 1; by < KERNELS_PRODUCTS; by++) {
        const struct kernels_by *slots = &table->by[by];
        tables_by[by] = *table;
        (void)snprintf(names_by[by], sizeof names_by[by], "%s%s", table->name, products_names[by]); /* fits */
        tables_by[by].name = names_by[by];
#define OPERATION(name, parameters, arguments)
#define PRODUCT(name, parameters, arguments) tables_by[by].name = slots->name;
#include "kernels/operations.inc"
    }
}

const struct kernels *kernels_cpu_by(enum kernels_products by, struct muster_error *err)
{
    if (by == KERNELS_OPENBLAS ||
        (by == KERNELS_AUTO && (!has_avx512() || onednn_open(NULL) || !onednn_has_avx512())))
        return kernels_cpu(~0u);
    if (onednn_open(err))
        return NULL;
    if (by == KERNELS_BF16 && !onednn_has_bf16() && *onednn_held()) {
        (void)error_set(err, MUSTER_E_STATE,
                        "products of bf16 need AVX512-BF16 or AMX, and %s keeps oneDNN from them: unset the "
                        "variable, or use training.matmul_precision: fp32",
                        onednn_held());
        return NULL;
    }
    if (by == KERNELS_BF16 && !onednn_has_bf16()) {
        (void)error_set(err, MUSTER_E_UNSUPPORTED,
                        "products of bf16 need a processor with AVX512-BF16 or AMX; %s finds neither: use "
                        "training.matmul_precision: fp32",
                        onednn_text());
        return NULL;
    }
    (void)pthread_once(&tables_once, fill_tables_by); /* cannot fail: both arguments are valid */
    return &tables_by[by];
}

bool kernels_cpu_ready_pays(enum kernels_products by, double multiplications)
{
    return by == KERNELS_ONEDNN || (by == KERNELS_AUTO && multiplications > ONEDNN_WORTH);
}

void kernels_cpu_ready(enum kernels_products by)
{
    const struct kernels *kernels = kernels_cpu_by(by, NULL);
    if (kernels && kernels != kernels_cpu(~0u))
        onednn_ready();
}

static char bound[MUSTER_ERROR_TEXT + 160];
static pthread_once_t bound_once = PTHREAD_ONCE_INIT;

static void fill_bound(void)
{
    if (has_avx512() && !onednn_has_avx512() && *onednn_held())
        (void)snprintf(bound, sizeof bound,
                       "oneDNN is held below AVX-512 by %s, and is slow or unused: unset the variable",
                       onednn_held()); /* fits */
    else if (has_avx512() && *onednn_broken())
        (void)snprintf(bound, sizeof bound,
                       "libdnnl is there and cannot be used, so OpenBLAS multiplies: %s: mend it, or take it "
                       "out of LD_LIBRARY_PATH",
                       onednn_broken()); /* fits */
}

const char *kernels_cpu_bound(void)
{
    if (*onednn_text() || *onednn_broken())
        (void)pthread_once(&bound_once, fill_bound); /* cannot fail: both arguments are valid */
    return bound;
}

const char *kernels_cpu_library(const struct kernels *kernels)
{
    if (is_narrow_table(kernels)) {
        (void)pthread_once(&tables_once, fill_tables_by); /* cannot fail: both arguments are valid */
        return libraries_text;
    }
    if (kernels->value != DTYPE_F32)
        return "loops of the reference";
    if (kernels == &tables_by[KERNELS_ONEDNN])
        return onednn_text();
    return kernels > tables_by && kernels < tables_by + KERNELS_PRODUCTS ? libraries_text
                                                                         : kernels_cpu_blas();
}

int64_t kernels_cpu_scratch_bytes(const struct kernels *kernels)
{
    return kernels == &tables_by[KERNELS_BF16] || is_narrow_table(kernels) ? SCRATCH_BYTES : 0;
}

void kernels_cpu_scratch(void *memory)
{
    team_lend(memory, SCRATCH_BYTES);
}
