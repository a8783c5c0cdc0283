/* comm_reduce_test.c - sums over ranks of 16-bit floats: this processor's variant has the bits of the scalar
 * formula, for every pattern of bits. */
#include <string.h>

#include "kernels/narrow.h"
#include "runtime/comm/comm_reduce.h"
#include "tests/support/cmocka_all.h"

enum { PATTERNS = 1 << 16, COUNT = PATTERNS + 7, SOURCES = 5 };

static float widened(enum dtype dtype, uint16_t value)
{
    return dtype == DTYPE_BF16 ? narrow_from_bf16(value) : narrow_from_f16(value);
}

static uint16_t narrowed(enum dtype dtype, float value)
{
    return dtype == DTYPE_BF16 ? narrow_to_bf16(value) : narrow_to_f16(value);
}

static bool is_nan(enum dtype dtype, uint16_t value)
{
    float wide = widened(dtype, value);
    return wide != wide;
}

static uint16_t expected(const struct comm_op *op, int size, uint16_t before, const void *const *sources,
                         int at)
{
    volatile float sum = 0; /* each addition is rounded by itself */
    for (int i = 0; i < size; i++) {
        float value = widened(op->dtype, ((const uint16_t *)sources[i])[at]);
        if (i == 0)
            sum = value;
        else if (op->reduction != REDUCE_MAX)
            sum = sum + value;
        else if (value > sum || value != value)
            sum = value;
    }
    if (op->reduction == REDUCE_AVERAGE)
        sum = sum * (1.0F / (float)size);
    if (op->accumulate)
        sum = sum + widened(op->dtype, before);
    return narrowed(op->dtype, sum);
}

static void check(const struct comm_op *op, int size, const void *const *sources)
{
    static uint16_t out[COUNT], before[COUNT];
    for (int i = 0; i < COUNT; i++)
        out[i] = before[i] = (uint16_t)(0x3c00 + i % 97);
    comm_reduce(op, size, out, sources, COUNT);
    for (int i = 0; i < COUNT; i++) {
        uint16_t wanted = expected(op, size, before[i], sources, i);
        /* which of two NaNs is kept is the compiler's choice */
        if (out[i] != wanted && !(is_nan(op->dtype, out[i]) && is_nan(op->dtype, wanted)))
            fail_msg("%s of %d ranks by %s, element %d: %#x in place of %#x", dtype_name(op->dtype), size,
                     comm_reduction_name(op->reduction), i, out[i], wanted);
    }
}

static void sums_of_16_bits_are_the_scalar_formulas(void **state)
{
    (void)state;
    static uint16_t values[SOURCES][COUNT];
    const void *sources[SOURCES];
    for (int i = 0; i < SOURCES; i++) {
        sources[i] = values[i];
        for (int k = 0; k < COUNT; k++) /* odd factors: every source holds every pattern once */
            values[i][k] =
                (uint16_t)(i ? (uint32_t)k * (2654435761u * (uint32_t)(2 * i + 1)) + 977u : (uint32_t)k);
    }
    for (int size = 1; size <= SOURCES; size++) {
        for (int reduction = REDUCE_SUM; reduction <= REDUCE_MAX; reduction++) {
            for (int more = 0; more < 4; more++) {
                const struct comm_op op = {.kind = COMM_ALL_REDUCE,
                                           .dtype = more & 1 ? DTYPE_BF16 : DTYPE_F16,
                                           .reduction = (enum comm_reduction)reduction,
                                           .accumulate = more & 2};
                check(&op, size, sources);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_of_16_bits_are_the_scalar_formulas)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
