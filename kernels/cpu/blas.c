/* blas.c - which of OpenBLAS's kernels compute. */
#include <cblas.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

/* OpenBLAS's own, exported where it is built for many processors (DYNAMIC_ARCH): it forgets its choice, and
 * chooses, which it does by OPENBLAS_CORETYPE first. */
void gotoblas_dynamic_quit(void) __attribute__((weak));
void gotoblas_dynamic_init(void) __attribute__((weak));

static char blas_text[256];
static pthread_once_t blas_text_once = PTHREAD_ONCE_INIT;

static void blas_text_fill(void)
{
    /* The configuration names the core type that was chosen at run time. */
    (void)snprintf(blas_text, sizeof blas_text, "%s", openblas_get_config()); /* cut where too long */
}

const char *kernels_cpu_blas(void)
{
    (void)pthread_once(&blas_text_once, blas_text_fill); /* cannot fail: both arguments are valid */
    return blas_text;
}

/* Kernels without AVX2, by the names that OpenBLAS gives them. */
static bool blas_core_is_old(const char *core)
{
    static const char *const old[] = {
        "Unknown",   "Katmai", "Coppermine", "Northwood", "Prescott",   "Banias",      "Atom",
        "Core2",     "Penryn", "Dunnington", "Nehalem",   "Athlon",     "Opteron",     "Opteron_SSE3",
        "Barcelona", "Nano",   "Bobcat",     "Bulldozer", "Piledriver", "Steamroller", "Sandybridge"};
    for (size_t i = 0; i < sizeof old / sizeof *old; i++)
        if (!strcasecmp(core, old[i]))
            return true;
    return false;
}

const char *kernels_cpu_blas_choose(void)
{
    static const char variable[] = "OPENBLAS_CORETYPE";
    const char *name = kernels_cpu(~0u)->name;
    const char *core = strstr(name, "avx512") ? "SkylakeX" : strstr(name, "avx2") ? "Haswell" : NULL;
    if (!core || getenv(variable) || !gotoblas_dynamic_quit || !gotoblas_dynamic_init ||
        !blas_core_is_old(openblas_get_corename()) || setenv(variable, core, 1))
        return NULL;
    gotoblas_dynamic_quit();
    gotoblas_dynamic_init();
    (void)unsetenv(variable); /* what this process starts chooses by itself */
    return openblas_get_corename();
}
