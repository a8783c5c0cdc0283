/* kernels_products_test.c - which library multiplies a product of which shape, and in which type. */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <string.h>

#include "kernels/narrow.h"
#include "kernels/ready.h"
#include "tests/support/machine_code.h"
#include "tests/unit/kernels/kernels_support.h"

/* out (N,OC) = in (N,C) weight (OC,C)^T, its library where each product chooses its own, and where large ones
 * are of bf16. */
static const struct {
    int N, C, OC;
    enum kernels_products by, by_bf16;
} choices[] = {
    {64, 2048, 64, KERNELS_ONEDNN, KERNELS_BF16},
    {1, 2048, 1024, KERNELS_ONEDNN, KERNELS_ONEDNN},      /* few rows */
    {1024, 2048, 16, KERNELS_ONEDNN, KERNELS_BF16},       /* just enough columns */
    {1024, 2048, 15, KERNELS_OPENBLAS, KERNELS_OPENBLAS}, /* few columns */
    {20, 1000, 50, KERNELS_OPENBLAS, KERNELS_BF16},       /* 10^6 multiplications */
    {20, 1001, 50, KERNELS_ONEDNN, KERNELS_BF16},
    {16, 1000, 32, KERNELS_OPENBLAS, KERNELS_OPENBLAS}, /* below 2^19 */
};

static bool same_bits(const struct kernels *a, const struct kernels *b, const float *in, const float *weight,
                      size_t i)
{
    const int N = choices[i].N, C = choices[i].C, OC = choices[i].OC;
    const size_t n = (size_t)N * (size_t)OC;
    scope_memory float *one = floats_new(n, FILL_UNIT), *other = floats_new(n, FILL_UNIT);
    a->linear_forward(one, in, weight, NULL, N, C, OC, OC, NULL);
    b->linear_forward(other, in, weight, NULL, N, C, OC, OC, NULL);
    return !memcmp(one, other, n * sizeof *one);
}

static void hold_choices(const struct kernels *k, bool bf16)
{
    struct muster_error err = {0};
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        const size_t C = (size_t)choices[i].C;
        const enum kernels_products by = bf16 ? choices[i].by_bf16 : choices[i].by;
        const struct kernels *wanted = kernels_cpu_by(by, &err);
        scope_memory float *in = floats_new((size_t)choices[i].N * C, FILL_UNIT);
        scope_memory float *weight = floats_new((size_t)choices[i].OC * C, FILL_UNIT);
        assert_non_null(wanted);
        computing("%s: N=%d C=%d OC=%d", k->name, choices[i].N, choices[i].C, choices[i].OC);
        if (by != KERNELS_BF16) { /* whose own table is asked */
            if (!same_bits(k, wanted, in, weight, i))
                fail_msg("product %zu of %s is not by %s", i, k->name, wanted->name);
        } else if (same_bits(k, kernels_cpu_by(KERNELS_AUTO, &err), in, weight, i)) {
            fail_msg("product %zu of %s is not of bf16", i, k->name);
        }
    }
}

/* The first test: nothing was multiplied before. */
static void the_first_product_finds_its_code(void **state)
{
    enum { N = 128, C = 128, OC = 128 };
    struct muster_error err = {0};
    (void)state;
    assert_true(kernels_cpu_ready_pays(KERNELS_ONEDNN, 1));
    assert_true(kernels_cpu_ready_pays(KERNELS_AUTO, (double)N * C * OC));
    assert_false(kernels_cpu_ready_pays(KERNELS_AUTO, 1e6));
    assert_false(kernels_cpu_ready_pays(KERNELS_OPENBLAS, 1e9));
    const struct kernels *k = kernels_cpu_by(KERNELS_AUTO, &err);
    const int before = machine_code_pieces();
    kernels_cpu_ready(KERNELS_AUTO);
    const int ready = machine_code_pieces();
    if (k == kernels_cpu(~0u)) { /* all products are OpenBLAS's, and nothing is made */
        assert_int_equal(ready, before);
        return;
    }
    assert_true(ready > before);
    scope_memory float *in = floats_new((size_t)N * C, FILL_UNIT),
                       *weight = floats_new((size_t)OC * C, FILL_UNIT),
                       *out = floats_new((size_t)N * OC, FILL_UNIT);
    k->linear_forward(out, in, weight, NULL, N, C, OC, OC, NULL);
    k->linear_backward_input(in, out, weight, N, C, OC, OC, 0, NULL);
    k->linear_backward_weight(weight, NULL, out, in, N, C, OC, OC, 1, NULL);
    assert_int_equal(machine_code_pieces(), ready);
}

static void the_shape_chooses_the_library(void **state)
{
    struct muster_error err = {0};
    (void)state;
    const struct kernels *k = kernels_cpu_by(KERNELS_AUTO, &err), *openblas = kernels_cpu(~0u);
    assert_non_null(k);
    if (k == openblas)
        skip_because("no oneDNN with AVX-512 here: all products are OpenBLAS's");
    assert_non_null(strstr(k->name, "-auto"));
    assert_non_null(strstr(kernels_cpu_library(k), "OpenBLAS"));
    assert_non_null(strstr(kernels_cpu_library(k), "; oneDNN"));
    hold_choices(k, false);
}

static void small_products_of_bf16_stay_fp32(void **state)
{
    struct muster_error err = {0};
    (void)state;
    const struct kernels *k = kernels_cpu_by(KERNELS_BF16, &err);
    if (!k)
        skip_because("%s", err.text);
    hold_choices(k, true);
}

/* More shapes than a run has: each is multiplied in bf16, and none by OpenBLAS. */
static void any_number_of_shapes_is_multiplied(void **state)
{
    enum { LEAST = 16, MOST = 640, C = 1024, OC = 32 };
    struct muster_error err = {0};
    (void)state;
    const struct kernels *k = kernels_cpu_by(KERNELS_BF16, &err), *openblas = kernels_cpu(~0u);
    if (!k)
        skip_because("%s", err.text);
    scope_memory float *in = floats_new((size_t)MOST * C, FILL_UNIT);
    scope_memory float *weight = floats_new((size_t)OC * C, FILL_UNIT);
    scope_memory float *one = floats_new((size_t)MOST * OC, FILL_UNIT), *other = floats_copy(one, MOST * OC);
    for (int N = LEAST; N <= MOST; N++)
        k->linear_forward(one, in, weight, NULL, N, C, OC, OC, NULL);
    openblas->linear_forward(other, in, weight, NULL, MOST, C, OC, OC, NULL);
    assert_memory_not_equal(one, other, sizeof(float) * MOST * OC);
}

/* Sums 63 deep, for which a library's own code ended the process. */
static void depths_next_to_64_are_multiplied(void **state)
{
    enum { N = 513, LEAST = 61, MOST = 66, OC = 62 };
    struct muster_error err = {0};
    (void)state;
    const struct kernels *k = kernels_cpu_by(KERNELS_BF16, &err), *openblas = kernels_cpu(~0u),
                         *values = kernels_cpu_values(DTYPE_BF16);
    if (!k)
        skip_because("%s", err.text);
    scope_memory float *in = floats_new(N * MOST, FILL_UNIT), *weight = floats_new(OC * MOST, FILL_UNIT);
    scope_memory float *one = floats_new(N * OC, FILL_UNIT), *other = floats_new(N * OC, FILL_UNIT);
    static uint16_t narrow_in[N * MOST], narrow_weight[OC * MOST], narrow_out[N * OC];
    for (int i = 0; i < N * MOST; i++)
        narrow_in[i] = narrow_to_bf16(in[i]);
    for (int i = 0; i < OC * MOST; i++)
        narrow_weight[i] = narrow_to_bf16(weight[i]);
    for (int depth = LEAST; depth <= MOST; depth++) {
        k->linear_forward(one, in, weight, NULL, N, depth, OC, OC, NULL);
        values->linear_forward(narrow_out, narrow_in, narrow_weight, NULL, N, depth, OC, OC, NULL);
        openblas->linear_forward(other, in, weight, NULL, N, depth, OC, OC, NULL);
        for (int i = 0; i < N * OC; i++) {
            const double found[] = {(double)one[i], (double)narrow_from_bf16(narrow_out[i])};
            for (int w = 0; w < 2; w++)
                if (!(fabs(found[w] - (double)other[i]) <= 0.1))
                    fail_msg("depth %d, %s, %d: %g and %g", depth, w ? "values" : "products", i, found[w],
                             (double)other[i]);
        }
    }
}

static void convolutions_choose_as_well(void **state)
{
    enum { PICTURES = 2, PLANE = 8 * 8, CHANNELS = 256, FILTERS = 64, WEIGHTS = CHANNELS * FILTERS * 9 };
    static const struct conv2d c = {CHANNELS, 8, 8, FILTERS, 3, 1, 1};
    const size_t n = (size_t)PICTURES * FILTERS * PLANE;
    scope_memory float *in = floats_new((size_t)PICTURES * CHANNELS * PLANE, FILL_UNIT),
                       *weight = floats_new(WEIGHTS, FILL_UNIT);
    scope_memory float *work =
        floats_new(kernels_cpu(~0u)->conv2d_work(&c, PICTURES) / sizeof(float), FILL_UNIT);
    float *outs[KERNELS_PRODUCTS] = {NULL};
    (void)state;
    for (enum kernels_products by = 0; by < KERNELS_PRODUCTS; by++) {
        const struct kernels *k = kernels_cpu_by(by, NULL);
        outs[by] = floats_new(n, FILL_UNIT);
        if (k)
            k->conv2d_forward(outs[by], in, weight, NULL, &c, PICTURES, work, NULL);
    }
    if (kernels_cpu_by(KERNELS_AUTO, NULL) != kernels_cpu(~0u)) {
        assert_memory_equal(outs[KERNELS_AUTO], outs[KERNELS_ONEDNN], n * sizeof(float));
        assert_memory_not_equal(outs[KERNELS_AUTO], outs[KERNELS_OPENBLAS], n * sizeof(float));
    }
    if (kernels_cpu_by(KERNELS_BF16, NULL))
        assert_memory_not_equal(outs[KERNELS_BF16], outs[KERNELS_AUTO], n * sizeof(float));
    for (enum kernels_products by = 0; by < KERNELS_PRODUCTS; by++)
        kernels_scope_free(&outs[by]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_product_finds_its_code),
        cmocka_unit_test(the_shape_chooses_the_library),
        cmocka_unit_test(small_products_of_bf16_stay_fp32),
        cmocka_unit_test(convolutions_choose_as_well),
        cmocka_unit_test(any_number_of_shapes_is_multiplied),
        cmocka_unit_test(depths_next_to_64_are_multiplied),
    };
    kernels_test_begin(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
