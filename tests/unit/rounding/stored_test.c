/* stored_test.c - frozen parameters in 4 and 8 bits: decoded values are near, the same from any unit on, and
 * zeros stay; numbers by hand. The formulas are compared with PyTorch's in
 * tests/compat/quantized/qlora_test.py. */
#include <math.h>
#include <string.h>

#include "kernels/narrow.h"
#include "proto/base/guard.h"
#include "runtime/rounding/stored.h"
#include "tests/support/cmocka_all.h"
#include "tests/unit/rounding/random_values.h"

static const enum stored kinds[] = {STORED_NF4, STORED_INT8};
enum { KINDS = 2 };

static void sizes(void **state)
{
    (void)state;
    assert_int_equal(stored_unit(STORED_NF4), 16384);
    assert_int_equal(stored_bytes(STORED_NF4, 3 * 16384), 3 * (8192 + 256 + 8));
    assert_int_equal(stored_bytes(STORED_INT8, 512), 2 * (256 + 4));
    assert_string_equal(stored_name(STORED_NF4), "nf4");
    for (int i = 0; i < KINDS; i++) /* all kinds of bf16 */
        assert_true((double)stored_bytes(kinds[i], 16384) / (2.0 * 16384) < (i ? 0.51 : 0.27));
}

static void levels(void **state)
{
    (void)state;
    scope_free float *values = mem_calloc(16384, sizeof *values);
    scope_free float *opened = mem_calloc(16384, sizeof *opened);
    scope_free uint8_t *units = mem_calloc(8456, 1);
    for (int i = 0; i < 16384; i++) /* every block has all levels, and the same size: no rounding is left */
        values[i] = 0.5f * stored_nf4[i % 16];
    stored_round(STORED_NF4, values, 16384, units);
    stored_open(STORED_NF4, units, 16384, opened, DTYPE_F32);
    assert_memory_equal(values, opened, 16384 * sizeof *values);
    for (int i = 0; i < 8; i++)
        assert_int_equal(units[i], (2 * i + 1) << 4 | 2 * i);
    for (int i = 1; i < 16; i++)
        assert_true(stored_nf4[i] > stored_nf4[i - 1]);
}

/* The largest gap of the levels is 0.304 of a block's size, which is known to 1/16 of its difference from
 * the mean. */
static double most_away(enum stored stored, const float *values, int64_t at)
{
    const int64_t block = stored == STORED_NF4 ? 64 : 256, unit = stored_unit(stored);
    double size = 0, mean = 0, own = 0;
    for (int64_t b = at / unit * unit; b < (at / unit + 1) * unit; b += block) {
        size = 0;
        for (int64_t i = b; i < b + block; i++)
            size = fabs((double)values[i]) > size ? fabs((double)values[i]) : size;
        mean += size / (double)(unit / block);
        own = at >= b && at < b + block ? size : own;
    }
    if (stored == STORED_INT8)
        return own / 254 * 1.001;
    const double error = fabs(own - mean) / 16 + 1e-6;
    return 0.153 * (own + error) + error + 1e-6;
}

static void what_is_opened_is_near(void **state)
{
    (void)state;
    uint64_t seed = 4;
    for (int round = 0; round < 6; round++) {
        const enum stored stored = kinds[round % 2];
        const int64_t units = 1 + random_bits(&seed) % 3, count = 16384 * units;
        scope_free float *values = mem_calloc((size_t)count, sizeof *values);
        scope_free float *opened = mem_calloc((size_t)count, sizeof *opened);
        scope_free double *wide = mem_calloc((size_t)count, sizeof *wide);
        scope_free uint8_t *bytes = mem_calloc((size_t)stored_bytes(stored, count), 1);
        scope_free uint16_t *bf16 = mem_calloc((size_t)count, sizeof *bf16);
        scope_free uint16_t *f16 = mem_calloc((size_t)count, sizeof *f16);
        for (int64_t i = 0; i < count; i++) /* blocks of all sizes, some of them 0 */
            values[i] = (i / 64 % 7) * 0.1f * random_value(&seed) * (i % 5 ? 1 : 0);
        stored_round(stored, values, count, bytes);
        stored_open(stored, bytes, count, opened, DTYPE_F32);
        stored_open(stored, bytes, count, wide, DTYPE_F64);
        stored_open(stored, bytes, count, bf16, DTYPE_BF16);
        stored_open(stored, bytes, count, f16, DTYPE_F16);
        for (int64_t i = 0; i < count; i++) {
            if (i % 37 == 0 && fabs((double)values[i] - (double)opened[i]) > most_away(stored, values, i))
                fail_msg("%s, %d: %g became %g", stored_name(stored), (int)i, (double)values[i],
                         (double)opened[i]);
            assert_true(wide[i] == (double)opened[i]);
            assert_int_equal(bf16[i], narrow_to_bf16(opened[i]));
            assert_int_equal(f16[i], narrow_to_f16(opened[i]));
            if (values[i] == 0)
                assert_true(opened[i] == 0);
        }
        /* A unit is decoded by itself: a rank gathers the bytes that another holds. */
        const int64_t unit = stored_unit(stored), last = count / unit - 1;
        stored_open(stored, bytes + stored_bytes(stored, last * unit), unit, wide, DTYPE_F64);
        for (int64_t i = 0; i < unit; i++)
            assert_true(wide[i] == (double)opened[last * unit + i]);
    }
}

static void what_is_not_finite_is_zero(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        scope_free float *values = mem_calloc(16384, sizeof *values);
        scope_free uint8_t *bytes = mem_calloc((size_t)stored_bytes(kinds[k], 16384), 1);
        values[0] = NAN;
        values[1] = INFINITY;
        values[2] = 1;
        values[3] = -1;
        stored_round(kinds[k], values, 16384, bytes);
        stored_open(kinds[k], bytes, 16384, values, DTYPE_F32);
        assert_true(values[0] == 0 && values[1] == 0);
        assert_float_equal(values[2], 1, 0.01);
        assert_float_equal(values[3], -1, 0.01);
        assert_true(values[4] == 0 && values[16383] == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes),
        cmocka_unit_test(levels),
        cmocka_unit_test(what_is_opened_is_near),
        cmocka_unit_test(what_is_not_finite_is_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
