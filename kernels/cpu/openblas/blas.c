/* blas.c - which of OpenBLAS's kernels compute, chosen once a process.
 *
 * OpenBLAS takes kernels by the processor's model. For some models that are newer than itself it takes its
 * oldest (0.3.21 on a Xeon of the fifth generation: an eighth of the speed). */
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cpu/openblas/environment.h"
#include "kernels/cpu/openblas/openblas.h"
#include "kernels/kernels.h"

static const char variable[] = "OPENBLAS_CORETYPE";
static char blas_text[256], blas_note[512];
static pthread_once_t blas_once = PTHREAD_ONCE_INIT;
static const struct openblas *blas; /* NULL: it could not be loaded */

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

/* ---- other users of the same OpenBLAS ---- */

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool needs_blas(const struct dl_phdr_info *info)
{
    const ElfW(Dyn) *dynamic = NULL;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            dynamic = (const ElfW(Dyn) *)(info->dlpi_addr +
                                          info->dlpi_phdr[i].p_vaddr); /* NOLINT: the loader's address */
    uintptr_t texts = 0;
    for (const ElfW(Dyn) *entry = dynamic; entry && entry->d_tag != DT_NULL; entry++)
        if (entry->d_tag == DT_STRTAB)
            texts = entry->d_un.d_ptr;
    if (texts < info->dlpi_addr) /* not relocated: the kernel's own object, some processors */
        return false;
    for (const ElfW(Dyn) *entry = dynamic; entry && entry->d_tag != DT_NULL; entry++) {
        const char *needed = (const char *)(texts + entry->d_un.d_val);
        if (entry->d_tag == DT_NEEDED &&
            (!strncmp(needed, "libopenblas", 11) || !strncmp(needed, "libblas.", 8) ||
             !strncmp(needed, "libcblas.", 9)))
            return true;
    }
    return false;
}

static int blas_find_user(struct dl_phdr_info *info, size_t size, void *context)
{
    const char **user = context;
    (void)size; /* the members that are read are as old as the function */
    if (!needs_blas(info))
        return 0;
    *user = *info->dlpi_name ? file_name(info->dlpi_name) : "the program";
    return 1;
}

/* ---- the choice ---- */

/* Kernels of OpenBLAS for the instruction set of the processor; NULL: any are right. */
static const char *blas_core_wanted(void)
{
    const char *name = kernels_cpu(~0u)->name;
    return strstr(name, "avx512") ? "SkylakeX" : strstr(name, "avx2") ? "Haswell" : NULL;
}

static void blas_choose_again(void)
{
    blas->forget();
    blas->choose();
}

static bool blas_take(const char *core)
{
    char assigned[64];
    (void)snprintf(assigned, sizeof assigned, "%s=%s", variable, core); /* fits */
    /* the variable is gone afterwards: processes that this one starts choose for themselves */
    return blas->forget && blas->choose && environment_with(assigned, blas_choose_again);
}

static void blas_choose(void)
{
    blas = openblas_open(NULL);
    if (!blas) {
        (void)snprintf(blas_text, sizeof blas_text, "no OpenBLAS"); /* fits */
        return;
    }
    const char *wanted = blas_core_wanted(), *found = blas->corename(), *given = getenv(variable);
    const char *user = NULL;
    if (wanted && blas_core_is_old(found)) {
        if (!given && !dl_iterate_phdr(blas_find_user, &user) && blas_take(wanted))
            user = NULL;
        else if (given)
            (void)snprintf(blas_note, sizeof blas_note,
                           "OpenBLAS computes with its kernels for %s, since %s=%s is set: this processor is "
                           "several times as fast with those for %s; unset the variable",
                           found, variable, given, wanted); /* cut where too long */
        else if (user)
            (void)snprintf(
                blas_note, sizeof blas_note,
                "OpenBLAS computes with its kernels for %s, older than this processor, and %s uses "
                "the same library, so its choice was left alone: set %s=%s",
                found, user, variable, wanted); /* cut where too long */
        else
            (void)snprintf(
                blas_note, sizeof blas_note,
                "OpenBLAS computes with its kernels for %s, older than this processor, and is built "
                "for no others: install libopenblas0-openmp",
                found);
    }
    /* The configuration names the core type. */
    (void)snprintf(blas_text, sizeof blas_text, "%s", blas->config()); /* cut where too long */
}

int kernels_cpu_open(struct muster_error *err)
{
    (void)kernels_cpu_blas(); /* chooses */
    return openblas_open(err) ? 0 : -1;
}

const char *kernels_cpu_blas(void)
{
    (void)pthread_once(&blas_once, blas_choose); /* cannot fail: both arguments are valid */
    return blas_text;
}

const char *kernels_cpu_blas_note(void)
{
    (void)kernels_cpu_blas(); /* chooses */
    return blas_note;
}
