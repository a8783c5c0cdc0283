/* kernels_table_test.c - properties of the tables, conversions between element types, the
 * exponential's error, and the checks of kernels_cpu_threads. The first tests run with denormals as the
 * processor starts: only the last one flushes them. */
#include "tests/support/cmocka_all.h"

#include <math.h>

#include "kernels/cpu/exp.h"
#include "kernels/narrow.h"
#include "tests/unit/kernels/kernels_support.h"

static void tables_are_complete(void **state)
{
    const struct kernels *tables[] = {kernels_ref_f32(), kernels_ref_f64(), kernels_cpu(KERNELS_ISA_BASE),
                                      kernels_cpu((unsigned)-1)};
    (void)state;
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        assert_int_equal(tables[i]->abi, KERNELS_ABI);
        assert_int_equal(tables[i]->size, sizeof(struct kernels));
        assert_int_equal(tables[i]->value, i == 1 ? DTYPE_F64 : DTYPE_F32);
        assert_int_equal(tables[i]->row_multiple, 1); /* plans of the CPU have no gaps */
        /* Everything after the head is function pointers. */
        for (size_t at = offsetof(struct kernels, linear_forward); at < offsetof(struct kernels, by);
             at += sizeof(void *)) {
            void *slot;
            memcpy(&slot, (const char *)tables[i] + at, sizeof slot);
            assert_non_null(slot);
        }
    }
    assert_string_equal(kernels_cpu(KERNELS_ISA_BASE)->name, "cpu-base");
    assert_string_equal(kernels_cpu(0)->name, "cpu-base"); /* an empty mask leaves what every machine has */
}

static void rows_lie_a_multiple_apart(void **state)
{
    struct kernels table = {.row_multiple = 1};
    (void)state;
    assert_int_equal(kernels_row(&table, 50257), 50257);
    table.row_multiple = 32;
    assert_int_equal(kernels_row(&table, 1), 32);
    assert_int_equal(kernels_row(&table, 64), 64);
    assert_int_equal(kernels_row(&table, 50257), 50272);
    assert_int_equal(kernels_row(&table, INT32_MAX), INT32_MAX); /* the multiple is beyond an int */
}

static void dtypes_are_named(void **state)
{
    (void)state;
    assert_int_equal(dtype_size(DTYPE_BF16), 2);
    assert_int_equal(dtype_size(DTYPE_F64), 8);
    assert_string_equal(dtype_name(DTYPE_U8), "u8");
    assert_int_equal(dtype_size(DTYPE_COUNT), 0);
    assert_string_equal(dtype_name(DTYPE_COUNT), "unknown");
}

/* The bound that exp.h documents. Every 4,099th float in the range where the result is a normal number. */
static void exp_error(void **state)
{
    double largest = 0;
    (void)state;
    for (uint32_t bits = 0; bits < 0x42b00000u; bits += 4099) { /* up to 88 */
        float positive, values[2];
        memcpy(&positive, &bits, sizeof positive);
        values[0] = positive, values[1] = positive > 87.0f ? 0.0f : -positive;
        for (int i = 0; i < 2; i++) {
            double exact = exp((double)values[i]);
            double ulp = ldexp(1, ilogb(exact) - 23), off = fabs((double)cpu_exp(values[i]) - exact) / ulp;
            largest = fmax(largest, off);
        }
    }
    print_message("cpu_exp: largest error %.3f units in the last place\n", largest);
    assert_true(largest <= 1.5);
    assert_true(cpu_exp(0.0f) == 1.0f);
    assert_true(cpu_exp(-INFINITY) >= 0 && cpu_exp(-INFINITY) < 2e-38f);
    assert_true(cpu_exp(INFINITY) > 2e38f && isfinite(cpu_exp(INFINITY)));
    assert_true(isnan(cpu_exp(NAN)));
}

/* Known values of the narrow formats, and all 65,536 codes there and back. */
static void narrow_formats(void **state)
{
    static const struct {
        double value;
        uint16_t bf16, f16;
    } known[] = {
        {0.0, 0x0000, 0x0000},
        {-0.0, 0x8000, 0x8000},
        {1.0, 0x3f80, 0x3c00},
        {-2.0, 0xc000, 0xc000},
        {65504.0, 0x4780, 0x7bff},
        {65520.0, 0x4780, 0x7c00},
        {1e39, 0x7f80, 0x7c00},
        {0x1p-24, 0x3380, 0x0001},
        {0x1p-25, 0x3300, 0x0000},
        {0x1.8p-25, 0x3340, 0x0001},
        {0x1p-133, 0x0001, 0x0000},
        {0x1.ffp0, 0x4000, 0x3ffc},
        {0x1.01p0, 0x3f80, 0x3c04},
        {0x1.03p0, 0x3f82, 0x3c0c},
        /* just above a tie of bf16: rounding through float first would lose the last bit */
        {0x1.0100000000001p0, 0x3f81, 0x3c04},
    };
    const struct kernels *ref = kernels_ref_f32();
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        uint16_t bf16, f16;
        ref->cast(&bf16, DTYPE_BF16, &known[i].value, DTYPE_F64, 1, NULL);
        ref->cast(&f16, DTYPE_F16, &known[i].value, DTYPE_F64, 1, NULL);
        if (bf16 != known[i].bf16 || f16 != known[i].f16)
            fail_msg("%a: bf16 %04x f16 %04x, expected %04x %04x", known[i].value, bf16, f16, known[i].bf16,
                     known[i].f16);
    }
    for (uint32_t code = 0; code < 65536; code++) {
        for (int is_bf16 = 0; is_bf16 < 2; is_bf16++) {
            enum dtype dtype = is_bf16 ? DTYPE_BF16 : DTYPE_F16;
            uint16_t in = (uint16_t)code, back;
            float value;
            ref->cast(&value, DTYPE_F32, &in, dtype, 1, NULL);
            ref->cast(&back, dtype, &value, DTYPE_F32, 1, NULL);
            if (isnan(value) ? (back & 0x7fff) <= (is_bf16 ? 0x7f80 : 0x7c00) : back != in)
                fail_msg("%s code %04x is %g and comes back as %04x", dtype_name(dtype), in, (double)value,
                         back);
        }
    }
}

static void integers_saturate(void **state)
{
    static const float from[] = {0.0f, 1.9f, -1.9f, 300.0f, 3e9f, -3e9f, INFINITY, NAN};
    static const int32_t i32[] = {0, 1, -1, 300, INT32_MAX, INT32_MIN, INT32_MAX, 0};
    static const uint8_t u8[] = {0, 1, 0, 255, 255, 0, 255, 0};
    int32_t got_i32[8];
    uint8_t got_u8[8];
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++) {
        (*k)->cast(got_i32, DTYPE_I32, from, DTYPE_F32, 8, NULL);
        assert_memory_equal(got_i32, i32, sizeof i32);
        (*k)->cast(got_u8, DTYPE_U8, from, DTYPE_F32, 8, NULL);
        assert_memory_equal(got_u8, u8, sizeof u8);
    }
}

/* All pairs of types, and every 65,537th float pattern to bf16 and back: equal to the reference bit for bit.
 * Arrays are converted whole: emulated processors take 50 times as long for everything. */
static void casts_match(void **state)
{
    enum { COUNT = 65535 };
    scope_memory uint32_t *patterns = (uint32_t *)floats_new(COUNT, FILL_UNIT);
    scope_memory double *got = (double *)floats_new(COUNT * 2, FILL_UNIT);
    scope_memory double *expected = (double *)floats_new(COUNT * 2, FILL_UNIT);
    scope_memory double *source = (double *)floats_new(COUNT * 2, FILL_UNIT);
    scope_memory float *a = floats_new(COUNT, FILL_UNIT), *b = floats_new(COUNT, FILL_UNIT);
    (void)state;
    for (uint32_t i = 0; i < COUNT; i++)
        patterns[i] = i * 65537u;
    for (const struct kernels *const *k = kernels_variants(); *k; k++)
        for (enum dtype from = 0; from < DTYPE_COUNT; from++) {
            kernels_ref_f32()->cast(source, from, patterns, DTYPE_F32, COUNT, NULL);
            for (enum dtype to = 0; to < DTYPE_COUNT; to++) {
                kernels_ref_f32()->cast(expected, to, source, from, COUNT, NULL);
                (*k)->cast(got, to, source, from, COUNT, NULL);
                if (memcmp(got, expected, (size_t)COUNT * (size_t)dtype_size(to)) == 0)
                    continue;
                kernels_ref_f32()->cast(a, DTYPE_F32, got, to, COUNT, NULL); /* NaNs may differ */
                kernels_ref_f32()->cast(b, DTYPE_F32, expected, to, COUNT, NULL);
                for (size_t i = 0; i < COUNT; i++)
                    if (!(a[i] == b[i] || (isnan(a[i]) && isnan(b[i]))))
                        fail_msg("%s cast %s to %s, element %zu: %a, expected %a", (*k)->name,
                                 dtype_name(from), dtype_name(to), i, (double)a[i], (double)b[i]);
            }
        }
}

/* All codes of both types, alone and added. */
static void widening_matches(void **state)
{
    enum { COUNT = 65536 };
    static uint16_t codes[COUNT];
    static float got[COUNT], expected[COUNT];
    (void)state;
    for (uint32_t i = 0; i < COUNT; i++)
        codes[i] = (uint16_t)i;
    for (const struct kernels *const *k = kernels_variants(); *k; k++)
        for (int run = 0; run < 4; run++) {
            enum dtype dtype = run & 1 ? DTYPE_BF16 : DTYPE_F16;
            for (int i = 0; i < COUNT; i++)
                got[i] = expected[i] = (float)i * 0.125f;
            kernels_ref_f32()->widen(expected, codes, dtype, run >> 1, COUNT, NULL);
            (*k)->widen(got, codes, dtype, run >> 1, COUNT, NULL);
            for (int i = 0; i < COUNT; i++)
                if (memcmp(&got[i], &expected[i], sizeof got[i]) != 0 &&
                    !(isnan(got[i]) && isnan(expected[i])))
                    fail_msg("%s widen %s of %04x, beta %d: %a, expected %a", (*k)->name, dtype_name(dtype),
                             codes[i], run >> 1, (double)got[i], (double)expected[i]);
        }
}

/* narrow.h on the processor that every build has, of every 257th float that f16 can hold or nearly so, every
 * 4,112th of the others, and a value next to a tie near each. */
static void narrow_is_the_reference(void **state)
{
    const uint32_t least = 100u << 23, most = 145u << 23; /* 2^-27 and 2^18, as bits */
    static float values[1 << 14];
    static uint16_t expected[1 << 14];
    const size_t room = sizeof values / sizeof values[0];
    size_t count = 0;
    (void)state;
    for (uint64_t i = 0; i < (uint64_t)1 << 32;) {
        const uint32_t plain = (uint32_t)i, magnitude = plain & 0x7fffffffu;
        const uint32_t tie = (plain & ~0x1fffu) | (i & 1 ? 0x1000u : 0x0fffu) | (i & 2 ? 0x1u : 0);
        memcpy(&values[count++], &plain, sizeof plain);
        memcpy(&values[count++], &tie, sizeof tie);
        i += magnitude >= least && magnitude < most ? 257 : 16 * 257;
        if (count < room && i < (uint64_t)1 << 32)
            continue;
        kernels_ref_f32()->cast(expected, DTYPE_F16, values, DTYPE_F32, (int64_t)count, NULL);
        for (size_t at = 0; at < count; at++)
            if (narrow_to_f16(values[at]) != expected[at])
                fail_msg("%a: %04x, expected %04x", (double)values[at], narrow_to_f16(values[at]),
                         expected[at]);
        count = 0;
    }
}

static void threads_are_checked(void **state)
{
    struct muster_error err = {0};
    (void)state;
    assert_int_equal(kernels_cpu_threads(0, &err), -1);
    assert_int_equal(err.code, MUSTER_E_INVALID);
    assert_non_null(strstr(err.text, "must be 1 to"));
    assert_int_equal(kernels_cpu_threads(-3, NULL), -1);
    if (kernels_cpu_threads(1, &err) < 0)
        fail_msg("%s", err.text);
    assert_non_null(strstr(kernels_cpu_blas(), "OpenBLAS"));
#ifdef __SSE__
    volatile float tiny = 0x1p-126f; /* the smallest normal number */
    assert_true(tiny * 0.5f == 0.0f);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_are_complete),
        cmocka_unit_test(rows_lie_a_multiple_apart),
        cmocka_unit_test(dtypes_are_named),
        cmocka_unit_test(exp_error),
        cmocka_unit_test(narrow_formats),
        cmocka_unit_test(integers_saturate),
        cmocka_unit_test(casts_match),
        cmocka_unit_test(widening_matches),
        cmocka_unit_test(narrow_is_the_reference),
        cmocka_unit_test(threads_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
