/* onednn.c - see onednn.h.
 *
 * A primitive is machine code for one shape; making one takes up to a millisecond. They are kept by shape, in
 * lists by the shape's hash that only grow: a run has a few dozen shapes, and one of rows of any length has
 * thousands. A shape that the library refused is kept, too. */
#include "kernels/cpu/onednn/onednn.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "kernels/cpu/onednn/onednn_abi.h"
#include "kernels/cpu/scratch.h"
#include "proto/base/error.h"
#include "proto/base/mem.h"

static pthread_once_t open_once = PTHREAD_ONCE_INIT;
static struct muster_error open_error;
static const struct onednn_abi *abi;
static char text[64], held[64], broken[MUSTER_ERROR_TEXT];
static bool avx512, bf16;

/* The library reads both, the first one first. */
static void find_bound(void)
{
    static const char *const variables[] = {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"};
    for (size_t i = 0; i < sizeof variables / sizeof *variables && !*held; i++) {
        const char *value = getenv(variables[i]);
        if (value && *value && strcasecmp(value, "ALL") && strcasecmp(value, "DEFAULT"))
            (void)snprintf(held, sizeof held, "%s=%s", variables[i], value); /* cut where too long */
    }
}

static void name_library(void)
{
    static const struct {
        unsigned isa;
        const char *name;
    } names[] = {
#define ONEDNN_ISA_ROW(isa, name) {isa, name},
        ONEDNN_ISAS(ONEDNN_ISA_ROW)};
    const char *name = "other";
#if defined(__x86_64__)
    const unsigned isa = abi->isa();
#else
    const unsigned isa = 0; /* the same bits mean other instructions there: 0x1f on aarch64 is no AVX2 */
#endif
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if ((isa & names[i].isa) == names[i].isa)
            name = names[i].name;
    avx512 = (isa & ONEDNN_ISA_AVX512) == ONEDNN_ISA_AVX512;
    bf16 = (isa & ONEDNN_ISA_BF16) == ONEDNN_ISA_BF16;
    if (bf16 && isa & ~(unsigned)ONEDNN_ISA_BF16 & ONEDNN_ISA_TILES)
        name = "avx512_core_amx";
    int major, minor, patch;
    abi->version(&major, &minor, &patch);
    (void)snprintf(text, sizeof text, "oneDNN %d.%d.%d, %s", major, minor, patch, name); /* fits */
    find_bound();
}

/* dlopen's words for a file that is not there; those for a broken file, or for a library that it needs,
 * differ. */
static bool is_absent(const char *error)
{
    return strstr(error, "libdnnl.so.3: cannot open shared object file: No such file") ||
           strstr(error, "libdnnl.so.2: cannot open shared object file: No such file");
}

/* The newer one first. */
static void open_once_only(void)
{
    struct muster_error newer = {0}, older = {0};
    const struct onednn_abi *const all[] = {&onednn_v3, &onednn_v2};
    struct muster_error *const errors[] = {&newer, &older};
    for (int i = 0; i < 2 && !abi; i++)
        if (all[i]->open(errors[i]) == 0)
            abi = all[i];
    if (abi) {
        name_library();
        return;
    }
    const char *missing = strstr(older.text, "libdnnl.so.2: "), *lacks = strstr(older.text, "libdnnl.so.2 ");
    open_error = newer;
    if (missing || lacks) /* else this build cannot use it */
        (void)error_set(&open_error, newer.code, "%s; %s", newer.text, missing ? missing : lacks);
    if (!is_absent(newer.text) || ((missing || lacks) && !is_absent(older.text)))
        (void)snprintf(broken, sizeof broken, "%s", open_error.text); /* fits */
}

int onednn_open(struct muster_error *err)
{
    (void)pthread_once(&open_once, open_once_only); /* cannot fail: both arguments are valid */
    if (abi)
        return 0;
    if (err)
        *err = open_error;
    return -1;
}

bool onednn_has_avx512(void)
{
    return avx512;
}

bool onednn_has_bf16(void)
{
    return bf16;
}

const char *onednn_text(void)
{
    return text;
}

const char *onednn_held(void)
{
    return held;
}

const char *onednn_broken(void)
{
    return broken;
}

bool onednn_f32(bool a_transposed, bool b_transposed, int rows, int columns, int depth, const float *a,
                int a_stride, const float *b, int b_stride, float beta, float *out, int out_stride)
{
    return !(*abi->sgemm)(a_transposed ? 'T' : 'N', b_transposed ? 'T' : 'N', rows, columns, depth, 1.0f, a,
                          a_stride, b, b_stride, beta, out, out_stride);
}

/* A product with one column or row would make code for vectors alone. The library makes its primitives of
 * fp32 shape by shape, in 0.3 ms each, but they take up to 1.15 of the time where sums go down the rows of
 * both factors, as gradients of weights do. */
void onednn_ready(void)
{
#ifdef _OPENMP
    omp_set_num_threads(1); /* or the library starts threads of its own for this one */
#endif
    enum { SIDE = 16 };
    static const float zeros[SIDE * SIDE];
    float out[SIDE * SIDE];
    (void)onednn_f32(false, false, SIDE, SIDE, SIDE, zeros, SIDE, zeros, SIDE, 0, out,
                     SIDE); /* refused: the first product tries again */
}

/* ---- primitives by shape ---- */

struct kept {
    struct onednn_shape shape;
    const void *made; /* NULL: the library refused */
    const struct kept *next;
};

/* Readers take no lock: what is in a list does not change, and stays. */
enum { KEPT_LISTS = 256 };
static _Atomic(const struct kept *) kept[KEPT_LISTS];
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;

static unsigned list_of(const struct onednn_shape *s)
{
    const int32_t words[] = {s->rows,     s->columns,    s->depth, s->a_stride,
                             s->b_stride, s->out_stride, s->flags};
    uint32_t hash = 2166136261u; /* FNV-1a, by words */
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        hash = (hash ^ (uint32_t)words[i]) * 16777619u;
    return (hash ^ hash >> 16) % KEPT_LISTS;
}

static const struct kept *find_kept(unsigned list, const struct onednn_shape *s)
{
    const struct kept *k = atomic_load_explicit(&kept[list], memory_order_acquire);
    while (k && memcmp(&k->shape, s, sizeof *s))
        k = k->next;
    return k;
}

/* NULL: the library refused, or there is no memory. */
static const void *find_or_make(const struct onednn_shape *s)
{
    const unsigned list = list_of(s);
    const struct kept *found = find_kept(list, s);
    if (found)
        return found->made;
    (void)pthread_mutex_lock(&kept_lock); /* cannot fail: a static mutex, never locked twice */
    found = find_kept(list, s);
    struct kept *added = found ? NULL : mem_calloc(1, sizeof *added);
    if (added) {
        *added = (struct kept){*s, abi->make(s), atomic_load(&kept[list])};
        atomic_store_explicit(&kept[list], added, memory_order_release);
        found = added;
    }
    (void)pthread_mutex_unlock(&kept_lock);
    return found ? found->made : NULL;
}

bool onednn_bf16(const struct onednn_product *p)
{
    const int flags = (p->a_transposed ? ONEDNN_A_TRANSPOSED : 0) |
                      (p->b_transposed ? ONEDNN_B_TRANSPOSED : 0) | (p->adds ? ONEDNN_ADDS : 0) |
                      (p->bias ? ONEDNN_BIAS : 0) | (p->narrow ? ONEDNN_NARROW : 0);
    const struct onednn_shape shape = {p->rows,     p->columns,    p->depth, p->a_stride,
                                       p->b_stride, p->out_stride, flags};
    const void *made = find_or_make(&shape);
    uint16_t *scratch = cpu_scratch();
    return made && scratch && abi->run(made, p, scratch + SCRATCH_ELEMENTS);
}
