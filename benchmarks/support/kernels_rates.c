/* kernels_rates.c - see kernels_rates.h. */
#include "benchmarks/support/kernels_rates.h"

#include <float.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "kernels/kernels.h"
#include "kernels/narrow.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

enum { VALUES = 4, BY_COUNT, ROUNDS = 7 }; /* VALUES: the table whose values are of bf16 */
static const enum kernels_products by_order[VALUES] = {KERNELS_OPENBLAS, KERNELS_ONEDNN, KERNELS_AUTO,
                                                       KERNELS_BF16};
static const char *const by_names[BY_COUNT] = {"openblas", "onednn", "auto", "bf16", "bf16 values"};

double kernels_rates_now(int threads)
{
    struct timespec t;
    if (clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t))
        abort(); /* both clocks are Linux's */
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- the processor's peak ---- */

#ifdef __x86_64__
/* Each round: chains of multiply-adds that do not wait for each other, enough to hide their latency, each in
 * a register of its own. */
enum { CHAINS = 10, PEAK_ROUNDS = 400000 };
#define PEAK_CHAINS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9)

#define PEAK_BEGIN(i) chain##i = start,
#define PEAK_STEP(i)                                                                                         \
    chain##i = STEP(chain##i);                                                                               \
    __asm__ volatile("" : "+x"(chain##i));
#define PEAK_LOOP(type, zero)                                                                                \
    const type start = (zero);                                                                               \
    type PEAK_CHAINS(PEAK_BEGIN) factor = start;                                                             \
    for (int round = 0; round < PEAK_ROUNDS; round++) {                                                      \
        PEAK_CHAINS(PEAK_STEP)                                                                               \
    }                                                                                                        \
    (void)factor;

__attribute__((target("avx512f"))) static void multiply_adds_512(void)
{
#define STEP(chain) _mm512_fmadd_ps(chain, factor, factor)
    PEAK_LOOP(__m512, _mm512_set1_ps(0.5f))
#undef STEP
}

__attribute__((target("avx2,fma"))) static void multiply_adds_256(void)
{
#define STEP(chain) _mm256_fmadd_ps(chain, factor, factor)
    PEAK_LOOP(__m256, _mm256_set1_ps(0.5f))
#undef STEP
}

__attribute__((target("avx512bf16,avx512f"))) static void multiply_adds_bf16(void)
{
    const __m512bh pairs = (__m512bh)_mm512_setzero_si512();
#define STEP(chain) _mm512_dpbf16_ps(chain, pairs, pairs)
    PEAK_LOOP(__m512, _mm512_setzero_ps())
#undef STEP
}

static double peak_of(void (*loop)(void), double flops)
{
    double best = DBL_MAX;
    for (int round = 0; round < ROUNDS; round++) {
        const double start = kernels_rates_now(1);
        loop();
        const double taken = kernels_rates_now(1) - start;
        best = taken < best ? taken : best;
    }
    return flops * CHAINS * PEAK_ROUNDS / best;
}

/* FLOP/s of one thread with vectors; 0: not known here. AMX is not measured. */
static double peak(bool bf16)
{
    __builtin_cpu_init();
    if (bf16)
        return __builtin_cpu_supports("avx512bf16") ? peak_of(multiply_adds_bf16, 64) : 0;
    return __builtin_cpu_supports("avx512f")                                 ? peak_of(multiply_adds_512, 32)
           : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? peak_of(multiply_adds_256, 16)
                                                                             : 0;
}
#else
static double peak(bool bf16)
{
    (void)bf16;
    return 0;
}
#endif

/* ---- products ---- */

struct arrays {
    int N, C, OC;
    void *in[2], *out[2], *weight[2]; /* of float and of bf16 */
    float *dweight;
};

enum pass { FORWARD, BACKWARD_INPUT, BACKWARD_WEIGHT, PASSES };
static const char *const pass_names[PASSES] = {"forward", "backward input", "backward weight"};

static void multiply(const struct kernels *k, const struct arrays *a, enum pass pass)
{
    const int side = k->value == DTYPE_BF16;
    void *in = a->in[side], *out = a->out[side], *weight = a->weight[side];
    if (pass == FORWARD)
        k->linear_forward(out, in, weight, NULL, a->N, a->C, a->OC, a->OC, NULL);
    else if (pass == BACKWARD_INPUT)
        k->linear_backward_input(in, out, weight, a->N, a->C, a->OC, a->OC, 0, NULL);
    else
        k->linear_backward_weight(a->dweight, NULL, out, in, a->N, a->C, a->OC, a->OC, 0, NULL);
}

static void fill(void *const sides[2], size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const float value = (float)(i % 31) * 0.01f - 0.15f;
        ((float *)sides[0])[i] = value;
        ((uint16_t *)sides[1])[i] = narrow_to_bf16(value);
    }
}

static void matrix(void *sides[2], size_t n)
{
    sides[0] = malloc(n * sizeof(float));
    sides[1] = malloc(n * sizeof(uint16_t));
    if (!sides[0] || !sides[1]) {
        (void)fprintf(stderr, "kernels_bench: no memory for %zu numbers\n", n);
        exit(1);
    }
    fill(sides, n);
}

static void row(const struct kernels *const tables[BY_COUNT], const struct arrays *a, const char *name,
                enum pass pass, int threads, const double peaks[2])
{
    const double flops = 2.0 * a->N * a->C * a->OC;
    double best[BY_COUNT] = {DBL_MAX, DBL_MAX, DBL_MAX, DBL_MAX, DBL_MAX};
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < BY_COUNT; i++) {
            if (!tables[i])
                continue;
            fill(a->in, (size_t)a->N * (size_t)a->C); /* backward's result there would grow */
            const double start = kernels_rates_now(threads);
            multiply(tables[i], a, pass);
            const double taken = kernels_rates_now(threads) - start;
            best[i] = taken < best[i] ? taken : best[i];
        }
    printf("  %-11s %-15s", name, pass_names[pass]);
    for (int i = 0; i < BY_COUNT; i++) {
        const double limit = peaks[i == VALUES || by_order[i] == KERNELS_BF16] * threads;
        if (!tables[i])
            printf("  %8s     ", "-");
        else if (limit > 0)
            printf("  %8.1f %3.0f%%", flops / best[i] / 1e9, 100 * flops / best[i] / limit);
        else
            printf("  %8.1f     ", flops / best[i] / 1e9);
    }
    printf("\n");
}

void kernels_rates(int N, int C, int V, int threads)
{
    const struct kernels *tables[BY_COUNT];
    struct muster_error err = {0};
    const double peaks[2] = {peak(false), peak(true)};
    printf("  products by library, GFLOP/s and the part of the processor's peak");
    printf(peaks[0] > 0 ? " (fp32 %.1f" : " (fp32 not known", peaks[0] * threads / 1e9);
    printf(peaks[1] > 0 ? ", bf16 %.1f):\n" : ", bf16 not known):\n", peaks[1] * threads / 1e9);
    printf("  %-27s", "");
    for (int i = 0; i < BY_COUNT; i++) {
        tables[i] = i == VALUES ? kernels_cpu_values(DTYPE_BF16) : kernels_cpu_by(by_order[i], &err);
        if (tables[i] == kernels_ref_bf16())
            tables[i] = NULL; /* no rate of this processor's */
        printf("  %-13s", by_names[i]);
    }
    printf("\n");
    const struct {
        const char *name;
        int OC, C;
    } layers[] = {{"qkv", 3 * C, C},
                  {"projection", C, C},
                  {"mlp up", 4 * C, C},
                  {"mlp down", C, 4 * C},
                  {"head", V, C}};
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        const size_t rows = (size_t)N, wide = (size_t)layers[i].OC, deep = (size_t)layers[i].C;
        struct arrays a = {.N = N, .C = layers[i].C, .OC = layers[i].OC};
        void *dweight[2];
        matrix(a.in, rows * deep);
        matrix(a.out, rows * wide);
        matrix(a.weight, wide * deep);
        matrix(dweight, wide * deep);
        a.dweight = dweight[0];
        for (enum pass pass = FORWARD; pass < PASSES; pass++)
            row(tables, &a, layers[i].name, pass, threads, peaks);
        for (int side = 0; side < 2; side++) {
            free(a.in[side]);
            free(a.out[side]);
            free(a.weight[side]);
            free(dweight[side]);
        }
    }
    for (int i = 0; i < BY_COUNT; i++)
        if (tables[i])
            printf("  %s: %s, %s\n", by_names[i], tables[i]->name, kernels_cpu_library(tables[i]));
}
