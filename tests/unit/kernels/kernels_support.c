/* kernels_support.c - seeded inputs and comparisons of the kernel tests. */
#include "tests/unit/kernels/kernels_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/base/mem.h"
#include "proto/base/text.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/walk.h"

static uint64_t seed = 20240229, state;
static char computing_text[256];

void kernels_test_begin(int threads)
{
    struct muster_error err = {0};
    int64_t given;
    const char *text = getenv("MUSTER_TEST_SEED");
    if (text && text_int64(text, &given))
        seed = (uint64_t)given;
    state = seed;
    if (kernels_cpu_threads(threads, &err) < 0)
        fail_msg("kernels_cpu_threads: %s", err.text);
}

uint64_t kernels_test_seed(void)
{
    return seed;
}

const struct kernels *const *kernels_variants(void)
{
    static const unsigned masks[] = {KERNELS_ISA_BASE, KERNELS_ISA_BASE | KERNELS_ISA_AVX2, (unsigned)-1};
    static const struct kernels *variants[sizeof masks / sizeof masks[0] + 1];
    size_t count = 0;
    for (size_t i = 0; i < sizeof masks / sizeof masks[0]; i++) {
        const struct kernels *table = kernels_cpu(masks[i]);
        if (count == 0 || variants[count - 1] != table)
            variants[count++] = table;
    }
    variants[count] = NULL;
    return variants;
}

struct attention packed_attention(int B, int T, int C, int NH)
{
    return (struct attention){.B = B,
                              .T = T,
                              .heads = NH,
                              .kv_heads = NH,
                              .head_size = C / NH,
                              .causal = 1,
                              .q_row = 3 * (int64_t)C,
                              .k_row = 3 * (int64_t)C,
                              .v_row = 3 * (int64_t)C};
}

double random_unit(void)
{
    return (double)(test_random(&state) >> 11) * 0x1p-52 - 1.0;
}

uint32_t random_below(uint32_t n)
{
    return (uint32_t)(test_random(&state) % n);
}

const char *kernels_fill_name(enum kernels_fill fill)
{
    static const char *const names[FILL_COUNT] = {
#define KERNELS_FILL_NAME(symbol, name, meaning) [symbol] = name,
        KERNELS_FILLS(KERNELS_FILL_NAME)
#undef KERNELS_FILL_NAME
    };
    return names[fill];
}

static float fill_value(enum kernels_fill fill)
{
    double unit = random_unit();
    switch (fill) {
    case FILL_TINY:
        return (float)(unit * 1e-20);
    case FILL_LARGE:
        return (float)(random_below(8) == 0 ? copysign(30.0, unit) : 30.0 * unit);
    case FILL_OFFSET:
        return (float)(100.0 + unit);
    case FILL_CONSTANT:
        return 0.7f;
    case FILL_UNIT:
    case FILL_COUNT:
        break;
    }
    return (float)unit;
}

float *floats_new(size_t n, enum kernels_fill fill)
{
    float *values = mem_calloc(n, sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < n; i++)
        values[i] = fill_value(fill);
    return values;
}

float *floats_copy(const float *from, size_t n)
{
    float *values = mem_calloc(n, sizeof *values);
    assert_non_null(values);
    memcpy(values, from, n * sizeof *values);
    return values;
}

size_t floats_apart_count(int rows, int width, int row)
{
    return rows > 0 ? ((size_t)rows - 1) * (size_t)row + (size_t)width : 0;
}

float *floats_apart(const float *dense, int rows, int width, int row)
{
    const size_t n = floats_apart_count(rows, width, row);
    float *values = mem_calloc(n, sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < n; i++) {
        const size_t column = i % (size_t)row;
        values[i] = column < (size_t)width ? dense[i / (size_t)row * (size_t)width + column] : NAN;
    }
    return values;
}

double *doubles_of(const float *from, size_t n)
{
    double *values = mem_calloc(n, sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < n; i++)
        values[i] = (double)from[i];
    return values;
}

int32_t *tokens_new(size_t n, int vocabulary, bool some_ignored)
{
    int32_t *tokens = mem_calloc(n, sizeof *tokens);
    assert_non_null(tokens);
    for (size_t i = 0; i < n; i++)
        tokens[i] = some_ignored && random_below(4) == 0 ? -1 : (int32_t)random_below((uint32_t)vocabulary);
    return tokens;
}

int32_t *positions_new(int B, int T)
{
    int32_t *positions = mem_calloc((size_t)B * (size_t)T, sizeof *positions);
    assert_non_null(positions);
    const uint32_t longest = 1 + random_below(90); /* within a tile, and over several */
    for (int row = 0, left = 0; row < B * T; row++) {
        const bool begins = row % T == 0 || left == 0;
        positions[row] = begins ? 0 : positions[row - 1] + 1;
        left = begins ? (int)random_below(longest) : left - 1;
    }
    return positions;
}

double floats_largest(const float *values, size_t n)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)values[i]));
    return largest;
}

void computing(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(computing_text, sizeof computing_text, format, arguments); /* cut where too long */
    va_end(arguments);
}

static bool value_close(const char *what, size_t i, size_t n, double got, double expected, double absolute,
                        double relative)
{
    double allowed = absolute + relative * fabs(expected);
    if (isnan(expected) ? isnan(got) : got == expected || fabs(got - expected) <= allowed)
        return true;
    print_error("%s: %s[%zu] of %zu is %.9g, expected %.9g, off by %.3g, allowed %.3g (seed %llu)\n",
                computing_text, what, i, n, got, expected, fabs(got - expected), allowed,
                (unsigned long long)seed);
    return false;
}

bool floats_close(const char *what, const float *got, const float *expected, size_t n, double absolute,
                  double relative)
{
    for (size_t i = 0; i < n; i++)
        if (!value_close(what, i, n, (double)got[i], (double)expected[i], absolute, relative))
            return false;
    return true;
}

bool doubles_close(const char *what, const float *got, const double *expected, size_t n, double absolute,
                   double relative)
{
    for (size_t i = 0; i < n; i++)
        if (!value_close(what, i, n, (double)got[i], expected[i], absolute, relative))
            return false;
    return true;
}

void kernels_scope_free(void *pointer)
{
    mem_free(*(void **)pointer);
}
