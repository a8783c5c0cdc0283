/* kernels_elementwise_test.c - activations, gated unit, rotation, dropout and the sums of every CPU variant
 * against the reference. Tolerances as in kernels_cpu_test.c. */
#include "tests/support/cmocka_all.h"

#include <math.h>

#include "kernels/dropout_place.h"
#include "tests/unit/kernels/kernels_support.h"

#define U FLOAT_ROUNDOFF

static const struct kernels *reference(void)
{
    return kernels_ref_f32();
}

static const struct kernels *exact(void)
{
    return kernels_ref_f64();
}

static const size_t sizes[] = {0, 1, 7, 8, 17, 4097, 20000};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

/* Inputs where the curves bend, and two whose squares and cubes overflow. */
static float *activation_inputs(size_t n, enum kernels_fill fill)
{
    float *in = floats_new(n, fill);
    for (size_t j = 0; j < n && fill == FILL_LARGE; j += 3)
        in[j] /= 8; /* -3.75..3.75 */
    if (n > 2 && fill == FILL_LARGE)
        in[1] = 1e20f, in[2] = -1e20f;
    return in;
}

/* Each value is a product and a quotient of exponentials: relatively off by 4 u |A| for the argument A, which
 * counts only up to 88, beyond which the exponential stays at 1e-38 instead of vanishing. A slope's two parts
 * cancel near its zeros: absolute, in units of x A' <= 88 s (1-s). */
static void check_activation(const struct kernels *k, int kind, size_t n, enum kernels_fill fill)
{
    scope_memory float *in = activation_inputs(n, fill), *dout = floats_new(n, FILL_UNIT);
    scope_memory float *out = floats_new(n, FILL_UNIT), *din = floats_new(n, FILL_UNIT);
    scope_memory double *in64 = doubles_of(in, n), *dout64 = doubles_of(dout, n);
    scope_memory double *out64 = doubles_of(out, n), *din64 = doubles_of(din, n);
    double vanished = 1e-35 + 1e-37 * floats_largest(in, n);
    if (kind == ACTIVATION_GELU_TANH)
        vanished = 1e-14 * 30; /* the reference's 1 + tanh loses everything below double's 1e-16 */
    computing("%s activation %d n=%zu fill=%s", k->name, kind, n, kernels_fill_name(fill));
    exact()->activation_forward(out64, in64, kind, (int64_t)n, NULL);
    k->activation_forward(out, in, kind, (int64_t)n, NULL);
    assert_true(doubles_close("out", out, out64, n, vanished, (4 * 88 + 8) * U));
    exact()->activation_backward(din64, in64, dout64, kind, 1, (int64_t)n, NULL);
    k->activation_backward(din, in, dout, kind, 1, (int64_t)n, NULL);
    assert_true(doubles_close("din, added", din, din64, n, 40 * U, (4 * 88 + 8) * U));
    exact()->activation_backward(din64, in64, dout64, kind, 0, (int64_t)n, NULL);
    k->activation_backward(dout, in, dout, kind, 0, (int64_t)n, NULL); /* in place, as documented */
    assert_true(doubles_close("din", dout, din64, n, 40 * U, (4 * 88 + 8) * U));
    k->activation_forward(in, in, kind, (int64_t)n, NULL);
    assert_true(floats_close("out in place", in, out, n, 0, 0));
}

static void activation_matches(void **state)
{
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++)
        for (int kind = 0; kind < ACTIVATION_KINDS; kind++)
            for (int i = 0; i < SIZES; i++)
                for (enum kernels_fill fill = 0; fill < FILL_COUNT; fill++)
                    check_activation(*k, kind, sizes[i], fill);
}

/* A kind that does not exist gives NaN and not some other kind's values. */
static void activation_keeps_nan(void **state)
{
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++)
        for (int kind = 0; kind <= ACTIVATION_KINDS; kind++) {
            float in[3] = {NAN, 1, NAN}, out[3] = {0}, dout[3] = {1, 1, 1};
            (*k)->activation_forward(out, in, kind, 3, NULL);
            assert_true(isnan(out[0]) && isnan(out[2]));
            assert_true(isnan(out[1]) == (kind == ACTIVATION_KINDS));
            if (kind == ACTIVATION_RELU)
                continue; /* its slope at NaN is 0, not NaN */
            (*k)->activation_backward(out, in, dout, kind, 0, 3, NULL);
            assert_true(isnan(out[0]) && isnan(out[2]));
        }
}

/* Each product adds a rounding to the roundings of silu. */
static void check_gated(const struct kernels *k, size_t n, enum kernels_fill fill, int kind)
{
    scope_memory float *gate = activation_inputs(n, fill), *up = floats_new(n, FILL_UNIT);
    scope_memory float *dout = floats_new(n, FILL_UNIT), *out = floats_new(n, FILL_UNIT);
    scope_memory double *gate64 = doubles_of(gate, n), *up64 = doubles_of(up, n);
    scope_memory double *dout64 = doubles_of(dout, n), *out64 = doubles_of(out, n);
    double vanished = 1e-35 + 1e-37 * floats_largest(gate, n), relative = (4 * 88 + 12) * U;
    if (kind == ACTIVATION_GELU_TANH)
        vanished = 1e-14 * 30; /* as in check_activation */
    computing("%s gated kind=%d n=%zu fill=%s", k->name, kind, n, kernels_fill_name(fill));
    exact()->gated_forward(out64, gate64, up64, kind, (int64_t)n, NULL);
    k->gated_forward(out, gate, up, kind, (int64_t)n, NULL);
    assert_true(doubles_close("out", out, out64, n, vanished, relative));
    for (int betas = 0; betas < 4; betas++) {
        scope_memory float *dgate = floats_new(n, FILL_UNIT), *dup = floats_new(n, FILL_UNIT);
        scope_memory double *dgate64 = doubles_of(dgate, n), *dup64 = doubles_of(dup, n);
        computing("%s gated_backward kind=%d n=%zu betas=%d fill=%s", k->name, kind, n, betas,
                  kernels_fill_name(fill));
        exact()->gated_backward(dgate64, dup64, gate64, up64, dout64, kind, betas & 1, betas >> 1, (int64_t)n,
                                NULL);
        k->gated_backward(dgate, dup, gate, up, dout, kind, betas & 1, betas >> 1, (int64_t)n, NULL);
        assert_true(doubles_close("dgate", dgate, dgate64, n, 40 * U, relative));
        assert_true(doubles_close("dup", dup, dup64, n, vanished + 40 * U, relative));
        if (betas == 0) { /* dgate may be dout */
            scope_memory float *kept = floats_copy(dout, n);
            k->gated_backward(kept, dup, gate, up, kept, kind, 0, 0, (int64_t)n, NULL);
            assert_true(floats_close("dgate in place", kept, dgate, n, 0, 0));
            assert_true(doubles_close("dup", dup, dup64, n, vanished + 40 * U, relative));
        }
    }
    k->gated_forward(gate, gate, up, kind, (int64_t)n, NULL);
    assert_true(floats_close("out in place", gate, out, n, 0, 0));
}

static void gated_matches(void **state)
{
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++)
        for (int i = 0; i < SIZES; i++)
            for (enum kernels_fill fill = 0; fill < FILL_COUNT; fill++)
                for (int kind = ACTIVATION_GELU_TANH; kind <= ACTIVATION_SILU; kind++)
                    check_gated(*k, sizes[i], fill, kind);
}

/* For heads of up to 262 elements; beyond 40 positions other ones. */
static double rotary_lists[2 * 131];
static const struct rotary rotaries[ROTARY_KINDS] = {
    {.theta = 10000, .kind = ROTARY_PLAIN},
    {.theta = 10000, .kind = ROTARY_LINEAR, .factor = 2.5, .first = 37},
    {.theta = 500000, .kind = ROTARY_LLAMA3, .factor = 8, .low = 1, .high = 4, .original = 64},
    {.theta = 10000, .kind = ROTARY_DYNAMIC, .factor = 2, .original = 30, .first = 11},
    {.theta = 10000,
     .kind = ROTARY_YARN,
     .factor = 4,
     .low = 1,
     .high = 32,
     .original = 64,
     .amplitude = 1.2},
    {.theta = 10000, .kind = ROTARY_LISTED, .original = 40, .lists = rotary_lists, .amplitude = 1.1},
};

/* Two products of a value with a rounded sine or cosine, and a sum. */
static void check_rotary(const struct kernels *k, const struct rotary *rotary, int B, int T, int NH, int HS)
{
    size_t n = (size_t)B * T * NH * HS;
    for (int mode = 0; mode < 4; mode++) {
        int backward = mode & 1, beta = mode >> 1;
        scope_memory float *in = floats_new(n, FILL_LARGE), *out = floats_new(n, FILL_UNIT);
        scope_memory double *in64 = doubles_of(in, n), *out64 = doubles_of(out, n);
        computing("%s rotary kind=%d B=%d T=%d NH=%d HS=%d backward=%d beta=%d", k->name, rotary->kind, B, T,
                  NH, HS, backward, beta);
        exact()->rotary(out64, in64, rotary, B, T, NH, HS, backward, beta, NULL);
        k->rotary(out, in, rotary, B, T, NH, HS, backward, beta, NULL);
        assert_true(doubles_close("out", out, out64, n, 8 * U * 30, U));
        if (beta)
            continue;
        k->rotary(in, in, rotary, B, T, NH, HS, backward, 0, NULL);
        assert_true(floats_close("out in place", in, out, n, 0, 0));
    }
}

/* With a part of each head that does not turn, where heads are large enough. */
static void check_partial_rotary(const struct kernels *k, struct rotary rotary, int B, int T, int NH, int HS)
{
    check_rotary(k, &rotary, B, T, NH, HS);
    scope_memory int32_t *positions = positions_new(B, T);
    rotary.positions = positions;
    check_rotary(k, &rotary, B, T, NH, HS);
    rotary.positions = NULL;
    rotary.size = HS / 4 * 2;
    if (rotary.size > 0)
        check_rotary(k, &rotary, B, T, NH, HS);
}

static void rotary_matches(void **state)
{
    static const int shapes[][4] = {{0, 4, 2, 8},   {2, 0, 1, 4},   {1, 1, 1, 2},    {2, 5, 3, 6},
                                    {1, 65, 2, 34}, {3, 33, 1, 64}, {1, 40, 2, 262}, {1, 5000, 1, 4}};
    (void)state;
    for (size_t i = 0; i < sizeof rotary_lists / sizeof *rotary_lists; i++)
        rotary_lists[i] = 1 + 0.1 * (double)i;
    for (const struct kernels *const *k = kernels_variants(); *k; k++)
        for (int kind = 0; kind < ROTARY_KINDS; kind++) {
            for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
                check_partial_rotary(*k, rotaries[kind], shapes[i][0], shapes[i][1], shapes[i][2],
                                     shapes[i][3]);
            for (int i = 0; i < 10; i++)
                check_partial_rotary(*k, rotaries[kind], (int)random_below(4), (int)random_below(80),
                                     1 + (int)random_below(5), 2 + 2 * (int)random_below(50));
        }
}

/* The three ranges of ROTARY_LLAMA3, whose ends meet. */
static void llama3_frequencies(void **state)
{
    const struct rotary r = rotaries[ROTARY_LLAMA3];
    const double two_pi = 6.28318530717958647693;
    int between = 0;
    (void)state;
    for (int i = 0; i < 32; i++) {
        double plain = pow(r.theta, -i / 32.0), f = rotary_frequency(&r, 64, 64, i), wave = two_pi / plain;
        if (wave > r.original / r.low)
            assert_true(fabs(f - plain / r.factor) <= 1e-15 * plain);
        else if (wave < r.original / r.high)
            assert_true(fabs(f - plain) <= 1e-15 * plain);
        else {
            assert_true(f > plain / r.factor && f < plain);
            between++;
        }
    }
    assert_true(between > 0);
    assert_true(rotary_frequency(&rotaries[ROTARY_LINEAR], 64, 1, 0) == 1 / 2.5);
    assert_true(rotary_frequency(&rotaries[ROTARY_PLAIN], 64, 1, 0) == 1);
}

/* Same mask as the reference, and one product. */
static void check_dropout(const struct kernels *k, int64_t rows, int width, int rows_per_sample, double p)
{
    size_t n = (size_t)(rows * width);
    const struct step_scalars scalars = {.seed = 0x123456789abcdef, .first_sample = 0xfffffffe};
    for (int beta = 0; beta < 2; beta++) {
        scope_memory float *in = floats_new(n, FILL_LARGE), *out = floats_new(n, FILL_UNIT);
        scope_memory double *in64 = doubles_of(in, n), *out64 = doubles_of(out, n);
        if (n > 0)
            in[0] = 0; /* kept or not, it is 0 */
        if (n > 0)
            in64[0] = 0;
        computing("%s dropout rows=%lld width=%d rows_per_sample=%d p=%g beta=%d", k->name, (long long)rows,
                  width, rows_per_sample, p, beta);
        exact()->dropout(out64, in64, rows, width, rows_per_sample, 3, 9, p, beta, &scalars, NULL);
        k->dropout(out, in, rows, width, rows_per_sample, 3, 9, p, beta, &scalars, NULL);
        double largest = p < 1 ? 30 / (1 - p) : 0;
        assert_true(doubles_close("out", out, out64, n, beta ? 2 * U * largest : 0, 2 * U));
        if (beta)
            continue;
        k->dropout(in, in, rows, width, rows_per_sample, 3, 9, p, 0, &scalars, NULL);
        assert_true(floats_close("out in place", in, out, n, 0, 0));
    }
}

static void dropout_matches(void **state)
{
    static const double ps[] = {0, 0.1, 0.5, 0.999, 1};
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++)
        for (size_t i = 0; i < sizeof ps / sizeof ps[0]; i++) {
            check_dropout(*k, 0, 5, 3, ps[i]);
            check_dropout(*k, 1, 1, 1, ps[i]);
            check_dropout(*k, 12, 7, 4, ps[i]);
            check_dropout(*k, 10, 63, 4, ps[i]); /* the last sample is cut short */
            check_dropout(*k, 6, 4099, 2, ps[i]);
            check_dropout(*k, 3, 64, 1, ps[i]);
        }
}

/* The mask as kernels/dropout_place.h defines it, its share, and its inputs. */
static void dropout_mask(void **state)
{
    enum { WIDTH = 100, ROWS = 5, SAMPLES = 40, PER_SAMPLE = ROWS * WIDTH, ALL = SAMPLES * PER_SAMPLE };
    struct step_scalars scalars = {.seed = UINT64_C(77) << 32 | 5, .first_sample = 1000};
    scope_memory float *ones = floats_new(ALL, FILL_CONSTANT), *whole = floats_new(ALL, FILL_UNIT);
    scope_memory float *part = floats_new(ALL, FILL_UNIT);
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++) {
        int kept = 0;
        (*k)->dropout(whole, ones, SAMPLES * ROWS, WIDTH, ROWS, 0, 6, 0.3, 0, &scalars, NULL);
        for (uint32_t i = 0; i < ALL; i++) {
            uint32_t e = i % PER_SAMPLE, word[4];
            const uint32_t counter[4] = {e / 64 * 16 + e % 16, 6, 1000 + i / PER_SAMPLE, 0x80000000u};
            philox4x32_10(counter, (const uint32_t[2]){5, 77}, word);
            assert_true((whole[i] != 0) == (word[e / 16 % 4] >= (uint32_t)(0.3 * 4294967296.0)));
            kept += whole[i] != 0;
        }
        /* Five standard deviations of a binomial distribution. */
        assert_true(fabs(kept - 0.7 * ALL) < 5 * sqrt(0.3 * 0.7 * ALL));
        /* Samples 15.. of another call, wherever they come from, are the same. */
        struct step_scalars later = scalars;
        later.first_sample = 1010;
        (*k)->dropout(part, ones, (SAMPLES - 15) * ROWS, WIDTH, ROWS, 5, 6, 0.3, 0, &later, NULL);
        assert_memory_equal(part, whole + 15 * PER_SAMPLE, (ALL - 15 * PER_SAMPLE) * sizeof *part);
        (*k)->dropout(part, ones, SAMPLES * ROWS, WIDTH, ROWS, 0, 7, 0.3, 0, &scalars, NULL);
        assert_memory_not_equal(part, whole, PER_SAMPLE * sizeof *part);
        later = scalars, later.seed++;
        (*k)->dropout(part, ones, SAMPLES * ROWS, WIDTH, ROWS, 0, 6, 0.3, 0, &later, NULL);
        assert_memory_not_equal(part, whole, PER_SAMPLE * sizeof *part);
    }
}

static void elementwise_matches(void **state)
{
    static const int64_t sizes[] = {0, 1, 3, 8, 4095, 4097, 20001};
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            size_t n = (size_t)sizes[i];
            scope_memory float *a = floats_new(n, FILL_UNIT), *b = floats_new(n, FILL_LARGE);
            scope_memory float *expected = floats_new(n, FILL_UNIT);
            computing("%s add, accumulate, scale n=%zu", (*k)->name, n);
            reference()->add(expected, a, b, (int64_t)n, NULL);
            (*k)->add(a, a, b, (int64_t)n, NULL);
            assert_true(floats_close("add", a, expected, n, 0, 0)); /* one addition: exact */
            reference()->accumulate(expected, b, 1, (int64_t)n, NULL);
            (*k)->accumulate(a, b, 1, (int64_t)n, NULL);
            assert_true(floats_close("accumulate", a, expected, n, 0, 0));
            (*k)->accumulate(expected, a, 0, (int64_t)n, NULL);
            assert_true(floats_close("accumulate, beta 0", expected, a, n, 0, 0));
            reference()->scale(expected, 0.3, (int64_t)n, NULL);
            (*k)->scale(a, 0.3, (int64_t)n, NULL);
            assert_true(floats_close("scale", a, expected, n, 0, 3 * U)); /* the factor is rounded too */
        }
}

/* A sum and its norm as one call and as two: the same bits, wherever the sum and the result lie. */
static void check_normalised_sums(const struct kernels *k, int N, int C)
{
    const size_t n = (size_t)N * C, rows = (size_t)N;
    scope_memory float *a = floats_new(n, FILL_UNIT), *b = floats_new(n, FILL_UNIT);
    scope_memory float *weight = floats_new((size_t)C, FILL_UNIT), *bias = floats_new((size_t)C, FILL_UNIT);
    scope_memory float *sum = floats_new(n, FILL_UNIT), *out = floats_new(n, FILL_UNIT);
    scope_memory float *mean = floats_new(rows, FILL_UNIT), *rstd = floats_new(rows, FILL_UNIT);
    computing("%s normalised sums N=%d C=%d", k->name, N, C);
    for (int rms = 0; rms < 2; rms++) {
        k->add(sum, a, b, (int64_t)n, NULL);
        if (rms)
            k->rms_norm_forward(out, rstd, sum, weight, N, C, 1e-5, 1, NULL);
        else
            k->layernorm_forward(out, mean, rstd, sum, weight, bias, N, C, 1e-5, NULL);
        for (int place = 0; place < 3; place++) { /* apart, sum over a, out over a and sum over b */
            scope_memory float *x = floats_copy(a, n), *y = floats_copy(b, n);
            scope_memory float *sums = floats_new(n, FILL_UNIT), *outs = floats_new(n, FILL_UNIT);
            scope_memory float *means = floats_new(rows, FILL_UNIT), *rstds = floats_new(rows, FILL_UNIT);
            float *to = place == 1 ? x : place == 2 ? y : sums, *result = place == 2 ? x : outs;
            if (rms)
                k->add_rms_norm_forward(result, to, rstds, x, y, weight, N, C, 1e-5, 1, NULL);
            else
                k->add_layernorm_forward(result, to, means, rstds, x, y, weight, bias, N, C, 1e-5, NULL);
            assert_memory_equal(to, sum, n * sizeof *sum);
            assert_memory_equal(result, out, n * sizeof *out);
            assert_memory_equal(rstds, rstd, rows * sizeof *rstd);
            if (!rms)
                assert_memory_equal(means, mean, rows * sizeof *mean);
        }
    }
}

static void normalised_sums_are_sums_and_norms(void **state)
{
    static const int shapes[][2] = {{0, 4}, {1, 1}, {2, 3}, {31, 17}, {33, 64}, {257, 128}};
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++)
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
            check_normalised_sums(*k, shapes[i][0], shapes[i][1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(normalised_sums_are_sums_and_norms),
        cmocka_unit_test(activation_matches),
        cmocka_unit_test(activation_keeps_nan),
        cmocka_unit_test(gated_matches),
        cmocka_unit_test(rotary_matches),
        cmocka_unit_test(llama3_frequencies),
        cmocka_unit_test(dropout_matches),
        cmocka_unit_test(dropout_mask),
        cmocka_unit_test(elementwise_matches),
    };
    kernels_test_begin(2);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
