/* kernels_cpu_test.c - every CPU variant against the plain reference, over shapes that are awkward for
 * vectors.
 *
 * Tolerances are bounds of rounding analysis, not fitted constants: u is float's unit roundoff, a sum of n
 * products is off by at most n u sum|a b| (Higham, Accuracy and Stability of Numerical Algorithms, 3.1), and
 * the reference, which sums in double, only by its last rounding. */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <string.h>

#include "kernels/narrow.h"
#include "tests/unit/kernels/kernels_support.h"

#define U       FLOAT_ROUNDOFF
#define EPSILON 1e-5

static const struct kernels *reference(void)
{
    return kernels_ref_f32();
}

static const struct kernels *exact(void)
{
    return kernels_ref_f64();
}

static const int linear_shapes[][3] = {
    {0, 3, 5},   {1, 1, 1},    {1, 5, 3},      {2, 1, 7},     {3, 16, 1},
    {7, 17, 33}, {33, 31, 64}, {65, 100, 129}, {130, 64, 65},
};

/* Factors that bf16 holds: of a product only the sums are rounded then, as in fp32. */
static void round_all(float *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        values[i] = narrow_from_bf16(narrow_to_bf16(values[i]));
}

/* Rows of out and dout lie OC + gap apart; the reference has them dense. */
static void check_linear(const struct kernels *k, int N, int C, int OC, int gap, enum kernels_fill fill)
{
    const int row = OC + gap;
    size_t in_n = (size_t)N * C, out_n = (size_t)N * OC, weight_n = (size_t)OC * C;
    scope_memory float *in = floats_new(in_n, fill), *weight = floats_new(weight_n, FILL_UNIT);
    scope_memory float *bias = floats_new((size_t)OC, FILL_UNIT), *dout = floats_new(out_n, FILL_UNIT);
    scope_memory float *expected = floats_new(out_n, FILL_UNIT), *got = floats_apart(expected, N, OC, row);
    if (strstr(k->name, "bf16")) {
        round_all(in, in_n);
        round_all(weight, weight_n);
        round_all(dout, out_n);
    }
    scope_memory float *dout_apart = floats_apart(dout, N, OC, row);
    double in_max = floats_largest(in, in_n);
    for (int with_bias = 0; with_bias < 2; with_bias++) {
        computing("%s linear_forward N=%d C=%d OC=%d row=%d bias=%d fill=%s", k->name, N, C, OC, row,
                  with_bias, kernels_fill_name(fill));
        reference()->linear_forward(expected, in, weight, with_bias ? bias : NULL, N, C, OC, OC, NULL);
        k->linear_forward(got, in, weight, with_bias ? bias : NULL, N, C, OC, row, NULL);
        scope_memory float *expected_apart = floats_apart(expected, N, OC, row);
        assert_true(floats_close("out", got, expected_apart, floats_apart_count(N, OC, row),
                                 (C + 1) * U * (C * in_max + with_bias) + FLOAT_FLUSHED, U));
    }
    for (int beta = 0; beta < 2; beta++) {
        scope_memory float *din = floats_new(in_n, FILL_UNIT), *din_got = floats_copy(din, in_n);
        scope_memory float *dweight = floats_new(weight_n, FILL_UNIT);
        scope_memory float *dweight_got = floats_copy(dweight, weight_n);
        scope_memory float *dbias = floats_new((size_t)OC, FILL_UNIT);
        scope_memory float *dbias_got = floats_copy(dbias, (size_t)OC);
        computing("%s linear_backward N=%d C=%d OC=%d row=%d beta=%d fill=%s", k->name, N, C, OC, row, beta,
                  kernels_fill_name(fill));
        reference()->linear_backward_input(din, dout, weight, N, C, OC, OC, beta, NULL);
        k->linear_backward_input(din_got, dout_apart, weight, N, C, OC, row, beta, NULL);
        assert_true(floats_close("din", din_got, din, in_n, (OC + 1) * U * (OC + beta), U));
        reference()->linear_backward_weight(dweight, dbias, dout, in, N, C, OC, OC, beta, NULL);
        k->linear_backward_weight(dweight_got, dbias_got, dout_apart, in, N, C, OC, row, beta, NULL);
        assert_true(floats_close("dweight", dweight_got, dweight, weight_n,
                                 (N + 1) * U * (N * in_max + beta) + FLOAT_FLUSHED, U));
        assert_true(floats_close("dbias", dbias_got, dbias, (size_t)OC, (N + 1) * U * (N + beta), U));
        k->linear_backward_weight(dweight_got, NULL, dout_apart, in, N, C, OC, row, 0, NULL);
        k->linear_backward_input(NULL, dout_apart, weight, N, C, OC, row, beta, NULL);
    }
}

static void linear_matches(void **state)
{
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++)
        for (size_t i = 0; i < sizeof linear_shapes / sizeof linear_shapes[0]; i++)
            for (enum kernels_fill fill = 0; fill < FILL_COUNT; fill++)
                for (int gap = 0; gap < 10; gap += 9)
                    check_linear(*k, linear_shapes[i][0], linear_shapes[i][1], linear_shapes[i][2], gap,
                                 fill);
}

/* ---- products by oneDNN ---- */

/* A shape with a block more than one in each direction of products of bf16. */
static const int block_shapes[][3] = {{1030, 40, 70}, {70, 40, 1100}, {40, 1100, 300}, {33, 2050, 600}};

static void check_rounding(const struct kernels *k, int N, int C, int OC)
{
    const size_t in_n = (size_t)N * C, weight_n = (size_t)OC * C, out_n = (size_t)N * OC;
    scope_memory float *in = floats_new(in_n, FILL_UNIT), *weight = floats_new(weight_n, FILL_UNIT);
    scope_memory float *got = floats_new(out_n, FILL_UNIT), *expected = floats_new(out_n, FILL_UNIT);
    computing("%s rounds N=%d C=%d OC=%d", k->name, N, C, OC);
    k->linear_forward(got, in, weight, NULL, N, C, OC, OC, NULL);
    round_all(in, in_n);
    round_all(weight, weight_n);
    k->linear_forward(expected, in, weight, NULL, N, C, OC, OC, NULL);
    assert_true(floats_close("out", got, expected, out_n, 0, 0)); /* rounded to nearest, ties to even */
    reference()->linear_forward(expected, in, weight, NULL, N, C, OC, OC, NULL);
    assert_true(floats_close("out", got, expected, out_n, (C + 1) * U * C, U));
}

static void other_libraries_match(void **state)
{
    struct muster_error err = {0};
    (void)state;
    for (enum kernels_products by = KERNELS_ONEDNN; by < KERNELS_PRODUCTS; by++) {
        const struct kernels *k = kernels_cpu_by(by, &err);
        if (!k) {
            assert_true(err.code == MUSTER_E_NOT_FOUND || err.code == MUSTER_E_UNSUPPORTED);
            assert_non_null(strstr(err.text, by == KERNELS_BF16 || err.code == MUSTER_E_UNSUPPORTED
                                                 ? "training.matmul_precision: fp32"
                                                 : "libdnnl2"));
            skip_because("%s", err.text);
        }
        for (size_t i = 0; i < sizeof linear_shapes / sizeof linear_shapes[0]; i++)
            for (enum kernels_fill fill = 0; fill < FILL_COUNT; fill++)
                check_linear(k, linear_shapes[i][0], linear_shapes[i][1], linear_shapes[i][2], 9, fill);
        for (size_t i = 0; i < sizeof block_shapes / sizeof block_shapes[0]; i++) {
            check_linear(k, block_shapes[i][0], block_shapes[i][1], block_shapes[i][2], 0, FILL_UNIT);
            if (by == KERNELS_BF16)
                check_rounding(k, block_shapes[i][0], block_shapes[i][1], block_shapes[i][2]);
        }
    }
}

static void check_embedding(const struct kernels *k, int B, int T, int C, int V, int maxT)
{
    size_t n = (size_t)B * T * C, wte_n = (size_t)V * C, wpe_n = (size_t)maxT * C;
    scope_memory float *wte = floats_new(wte_n, FILL_UNIT), *wpe = floats_new(wpe_n, FILL_UNIT);
    scope_memory float *expected = floats_new(n, FILL_UNIT), *got = floats_new(n, FILL_UNIT);
    scope_memory int32_t *tokens = tokens_new((size_t)B * T, V, false);
    computing("%s embedding B=%d T=%d C=%d V=%d maxT=%d", k->name, B, T, C, V, maxT);
    reference()->embedding_forward(expected, tokens, wte, wpe, B, T, C, NULL);
    k->embedding_forward(got, tokens, wte, wpe, B, T, C, NULL);
    assert_true(floats_close("out", got, expected, n, 0, 0)); /* one addition: exact */
    reference()->embedding_forward(expected, tokens, wte, NULL, B, T, C, NULL);
    k->embedding_forward(got, tokens, wte, NULL, B, T, C, NULL);
    assert_true(floats_close("out without positions", got, expected, n, 0, 0));
    for (int beta = 0; beta < 2; beta++) {
        scope_memory float *wte_got = floats_copy(wte, wte_n), *wpe_got = floats_copy(wpe, wpe_n);
        scope_memory float *wte_expected = floats_copy(wte, wte_n), *wpe_expected = floats_copy(wpe, wpe_n);
        reference()->embedding_backward(wte_expected, wpe_expected, expected, tokens, B, T, C, V, maxT, beta,
                                        NULL);
        k->embedding_backward(wte_got, wpe_got, expected, tokens, B, T, C, V, maxT, beta, NULL);
        /* Same additions in the same order: exact. */
        assert_true(floats_close("dwte", wte_got, wte_expected, wte_n, 0, 0));
        assert_true(floats_close("dwpe", wpe_got, wpe_expected, wpe_n, 0, 0));
        /* Each alone, as the tied head needs it: added once more, the other one untouched. */
        reference()->embedding_backward(wte_expected, NULL, expected, tokens, B, T, C, V, maxT, 1, NULL);
        k->embedding_backward(wte_got, NULL, expected, tokens, B, T, C, V, maxT, 1, NULL);
        reference()->embedding_backward(NULL, wpe_expected, expected, tokens, B, T, C, V, maxT, 0, NULL);
        k->embedding_backward(NULL, wpe_got, expected, tokens, B, T, C, V, maxT, 0, NULL);
        assert_true(floats_close("dwte alone", wte_got, wte_expected, wte_n, 0, 0));
        assert_true(floats_close("dwpe alone", wpe_got, wpe_expected, wpe_n, 0, 0));
    }
}

static void embedding_matches(void **state)
{
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++) {
        check_embedding(*k, 0, 4, 3, 5, 4);
        check_embedding(*k, 1, 1, 1, 1, 1);
        check_embedding(*k, 3, 5, 7, 4, 9);
        check_embedding(*k, 2, 33, 65, 11, 33);
        check_embedding(*k, 4, 64, 130, 256, 64);
    }
}

/* All parts of a flat array that holds a table of tokens and a table of positions become the whole tables'
 * gradient of the reference: the same sums in the same order. */
static void check_rows_add(const struct kernels *k, int B, int T, int C, int V, int parts)
{
    const int64_t gap = 5, wpe_at = (int64_t)V * C + gap, all = wpe_at + (int64_t)T * C + gap;
    const int64_t part = (all + parts - 1) / parts;
    scope_memory float *whole = floats_new((size_t)(part * parts), FILL_UNIT);
    scope_memory float *got = floats_copy(whole, (size_t)(part * parts));
    scope_memory float *again = floats_copy(whole, (size_t)(part * parts));
    scope_memory float *rows = floats_new((size_t)B * T * C, FILL_UNIT);
    scope_memory int32_t *tokens = tokens_new((size_t)B * T, V, false);
    computing("%s rows_add B=%d T=%d C=%d V=%d parts=%d", k->name, B, T, C, V, parts);
    reference()->embedding_backward(whole, whole + wpe_at, rows, tokens, B, T, C, V, T, 1, NULL);
    for (int p = 0; p < parts; p++) {
        k->rows_add(got + p * part, p * part, part, 0, rows, tokens, B * T, T, C, NULL);
        k->rows_add(got + p * part, p * part, part, wpe_at, rows, NULL, B * T, T, C, NULL);
        reference()->rows_add(again + p * part, p * part, part, 0, rows, tokens, B * T, T, C, NULL);
        reference()->rows_add(again + p * part, p * part, part, wpe_at, rows, NULL, B * T, T, C, NULL);
    }
    assert_true(floats_close("parts", got, whole, (size_t)(part * parts), 0, 0));
    assert_true(floats_close("reference's parts", again, whole, (size_t)(part * parts), 0, 0));
}

static void rows_add_matches(void **state)
{
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++)
        for (int parts = 1; parts < 8; parts++) {
            check_rows_add(*k, 0, 4, 3, 5, parts);
            check_rows_add(*k, 1, 1, 1, 1, parts);
            check_rows_add(*k, 3, 5, 7, 4, parts);
            check_rows_add(*k, 2, 33, 65, 11, parts);
            check_rows_add(*k, 4, 64, 130, 256, parts);
        }
}

/* With R the largest rstd and X the largest |in|: the mean is off by C u X, so xhat by about C u X R and,
 * from the rounding of rstd (relative C u), by C u |xhat| with |xhat| <= sqrt(C). */
static void check_layernorm(const struct kernels *k, int N, int C, enum kernels_fill fill)
{
    size_t n = (size_t)N * C;
    scope_memory float *in = floats_new(n, fill), *weight = floats_new((size_t)C, FILL_UNIT);
    scope_memory float *bias_memory = floats_new((size_t)C, FILL_UNIT), *dout = floats_new(n, FILL_UNIT);
    const float *bias = N % 2 ? NULL : bias_memory; /* some norms have none */
    scope_memory float *out = floats_new(n, FILL_UNIT), *got = floats_copy(out, n);
    scope_memory float *mean = floats_new((size_t)N, FILL_UNIT), *mean_got = floats_copy(mean, (size_t)N);
    scope_memory float *rstd = floats_new((size_t)N, FILL_UNIT), *rstd_got = floats_copy(rstd, (size_t)N);
    scope_memory char *work = (char *)floats_new(k->layernorm_backward_work(N, C) / sizeof(float), FILL_UNIT);
    computing("%s layernorm N=%d C=%d fill=%s", k->name, N, C, kernels_fill_name(fill));
    reference()->layernorm_forward(out, mean, rstd, in, weight, bias, N, C, EPSILON, NULL);
    k->layernorm_forward(got, mean_got, rstd_got, in, weight, bias, N, C, EPSILON, NULL);
    double X = floats_largest(in, n), R = floats_largest(rstd, (size_t)N), c = C + 8;
    double xhat_off = c * U * X * R + c * U * sqrt((double)C);
    double mean_part = c * U * X * R; /* the mean's error adds its square, in units of the deviation */
    assert_true(floats_close("mean", mean_got, mean, (size_t)N, c * U * X, U));
    assert_true(
        floats_close("rstd", rstd_got, rstd, (size_t)N, 0, c * U + mean_part * mean_part + 4 * U * X * R));
    assert_true(floats_close("out", got, out, n,
                             2 * xhat_off + (mean_part * mean_part + 4 * U * X * R) * sqrt((double)C) + 4 * U,
                             U));
    for (int betas = 0; betas < 4; betas++) {
        int beta_in = betas & 1, beta = betas >> 1;
        scope_memory float *din = floats_new(n, FILL_UNIT), *din_got = floats_copy(din, n);
        scope_memory float *dweight = floats_new((size_t)C, FILL_UNIT),
                           *dbias = floats_new((size_t)C, FILL_UNIT);
        scope_memory float *dweight_got = floats_copy(dweight, (size_t)C);
        scope_memory float *dbias_got = floats_copy(dbias, (size_t)C);
        computing("%s layernorm_backward N=%d C=%d beta_in=%d beta=%d fill=%s", k->name, N, C, beta_in, beta,
                  kernels_fill_name(fill));
        reference()->layernorm_backward(din, dweight, dbias, dout, in, mean, rstd, weight, N, C, beta_in,
                                        beta, NULL, NULL);
        k->layernorm_backward(din_got, dweight_got, dbias_got, dout, in, mean, rstd, weight, N, C, beta_in,
                              beta, work, NULL);
        /* mean and rstd are given: xhat is off by 4 u (X R + |xhat|), |xhat| at most X R + ... for both, and
         * each mean over C adds c u. */
        double xhat = sqrt((double)C) + U * X * R, off = 4 * U * (X * R + xhat);
        double sum_off = c * U * xhat + off;
        assert_true(
            floats_close("din", din_got, din, n,
                         R * (c * U + xhat * sum_off + off * xhat + 4 * U * (1 + xhat * xhat)) + 2 * U, U));
        assert_true(floats_close("dweight", dweight_got, dweight, (size_t)C,
                                 N * off + (N + 1) * U * (N * xhat + beta), U));
        assert_true(floats_close("dbias", dbias_got, dbias, (size_t)C, (N + 1) * U * (N + beta), U));
    }
}

static void layernorm_matches(void **state)
{
    static const int shapes[][2] = {{0, 4},   {1, 1},   {1, 2},    {2, 3},    {5, 8},
                                    {31, 17}, {33, 64}, {100, 33}, {257, 128}};
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++)
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
            for (enum kernels_fill fill = 0; fill < FILL_COUNT; fill++)
                check_layernorm(*k, shapes[i][0], shapes[i][1], fill);
}

/* A NULL output is not formed, and the others are the same bits. */
static void layernorm_parts_are_optional(void **state)
{
    enum { N = 37, C = 19 };
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++) {
        scope_memory float *in = floats_new(N * C, FILL_UNIT), *weight = floats_new(C, FILL_UNIT);
        scope_memory float *dout = floats_new(N * C, FILL_UNIT), *mean = floats_new(N, FILL_UNIT);
        scope_memory float *rstd = floats_new(N, FILL_CONSTANT), *din = floats_new(N * C, FILL_UNIT);
        scope_memory float *dweight = floats_new(C, FILL_UNIT), *dbias = floats_new(C, FILL_UNIT);
        scope_memory float *din2 = floats_copy(din, N * C), *dweight2 = floats_copy(dweight, C);
        scope_memory float *dbias2 = floats_copy(dbias, C);
        scope_memory float *work =
            floats_new((*k)->layernorm_backward_work(N, C) / sizeof(float), FILL_LARGE);
        computing("%s layernorm_backward in parts", (*k)->name);
        (*k)->layernorm_backward(din, dweight, dbias, dout, in, mean, rstd, weight, N, C, 1, 1, work, NULL);
        (*k)->layernorm_backward(din2, NULL, NULL, dout, in, mean, rstd, weight, N, C, 1, 1, work, NULL);
        (*k)->layernorm_backward(NULL, dweight2, NULL, dout, in, mean, rstd, weight, N, C, 1, 1, work, NULL);
        (*k)->layernorm_backward(NULL, NULL, dbias2, dout, in, mean, rstd, weight, N, C, 1, 1, work, NULL);
        assert_true(floats_close("din", din2, din, N * C, 0, 0));
        assert_true(floats_close("dweight", dweight2, dweight, C, 0, 0));
        assert_true(floats_close("dbias", dbias2, dbias, C, 0, 0));
    }
}

/* The mean of squares is a sum of positive terms: rstd is off relatively by half of (C + 4) u. |xhat| is at
 * most sqrt(C), and a mean over C of products with it is off by (C + 8) u sqrt(C) relatively to 1. */
static void check_rms_norm(const struct kernels *k, int N, int C, enum kernels_fill fill)
{
    size_t n = (size_t)N * C, rows = (size_t)N, columns = (size_t)C;
    scope_memory float *in = floats_new(n, fill), *weight = floats_new(columns, FILL_UNIT);
    scope_memory float *dout = floats_new(n, FILL_UNIT), *out = floats_new(n, FILL_UNIT);
    scope_memory float *rstd = floats_new(rows, FILL_UNIT);
    scope_memory double *in64 = doubles_of(in, n), *weight64 = doubles_of(weight, columns);
    scope_memory double *dout64 = doubles_of(dout, n), *out64 = doubles_of(out, n);
    scope_memory double *rstd64 = doubles_of(rstd, rows);
    scope_memory float *work = floats_new(k->rms_norm_backward_work(N, C) / sizeof(float), FILL_LARGE);
    double c = C + 8, xhat = sqrt((double)C), R = 0;
    computing("%s rms_norm N=%d C=%d fill=%s", k->name, N, C, kernels_fill_name(fill));
    exact()->rms_norm_forward(out64, rstd64, in64, weight64, N, C, EPSILON, 0, NULL);
    k->rms_norm_forward(out, rstd, in, weight, N, C, EPSILON, 0, NULL);
    assert_true(doubles_close("rstd", rstd, rstd64, rows, 0, c * U));
    assert_true(doubles_close("out", out, out64, n, FLOAT_FLUSHED, (c + 4) * U));
    for (int betas = 0; betas < 4; betas++) {
        int beta_in = betas & 1, beta = betas >> 1;
        scope_memory float *din = floats_new(n, FILL_UNIT), *dweight = floats_new(columns, FILL_UNIT);
        scope_memory double *din64 = doubles_of(din, n), *dweight64 = doubles_of(dweight, columns);
        scope_memory double *kept = doubles_of(rstd, rows); /* both from the same statistics */
        computing("%s rms_norm_backward N=%d C=%d beta_in=%d beta=%d fill=%s", k->name, N, C, beta_in, beta,
                  kernels_fill_name(fill));
        exact()->rms_norm_backward(din64, dweight64, dout64, in64, kept, weight64, 0, N, C, beta_in, beta,
                                   NULL, NULL);
        k->rms_norm_backward(din, dweight, dout, in, rstd, weight, 0, N, C, beta_in, beta, work, NULL);
        R = floats_largest(rstd, rows);
        assert_true(doubles_close("din", din, din64, n, R * (1 + xhat * xhat) * 2 * c * U + 2 * U, U));
        assert_true(doubles_close("dweight", dweight, dweight64, columns,
                                  (N + 4) * U * (N * xhat * (1 + c * U) + beta), U));
    }
}

static void rms_norm_matches(void **state)
{
    static const int shapes[][2] = {{0, 4},   {1, 1},   {1, 2},    {2, 3},    {5, 8},
                                    {31, 17}, {33, 64}, {100, 33}, {257, 128}};
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++)
        for (enum kernels_fill fill = 0; fill < FILL_COUNT; fill++) {
            for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
                check_rms_norm(*k, shapes[i][0], shapes[i][1], fill);
            for (int i = 0; i < 10; i++)
                check_rms_norm(*k, (int)random_below(70), 1 + (int)random_below(300), fill);
        }
}

static void rms_norm_parts_are_optional(void **state)
{
    enum { N = 37, C = 19 };
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++) {
        scope_memory float *in = floats_new(N * C, FILL_UNIT), *weight = floats_new(C, FILL_UNIT);
        scope_memory float *dout = floats_new(N * C, FILL_UNIT), *rstd = floats_new(N, FILL_UNIT);
        scope_memory float *din = floats_new(N * C, FILL_UNIT), *dweight = floats_new(C, FILL_UNIT);
        scope_memory float *din2 = floats_copy(din, N * C), *dweight2 = floats_copy(dweight, C);
        scope_memory float *work = floats_new((*k)->rms_norm_backward_work(N, C) / sizeof(float), FILL_LARGE);
        computing("%s rms_norm_backward in parts", (*k)->name);
        (*k)->rms_norm_backward(din, dweight, dout, in, rstd, weight, 0, N, C, 1, 1, work, NULL);
        (*k)->rms_norm_backward(din2, NULL, dout, in, rstd, weight, 0, N, C, 1, 1, work, NULL);
        (*k)->rms_norm_backward(NULL, dweight2, dout, in, rstd, weight, 0, N, C, 1, 1, work, NULL);
        assert_true(floats_close("din", din2, din, N * C, 0, 0));
        assert_true(floats_close("dweight", dweight2, dweight, C, 0, 0));
    }
}

/* exp is off by 4 u, its argument l - max by 88 u at most (below, p is 0), the sum by the 1,024 / lanes + 2
 * additions of a lane; the loss is formed in double from that sum. */
static void check_cross_entropy(const struct kernels *k, int N, int V, int gap, int gradient,
                                enum kernels_fill fill)
{
    const int row = V + gap;
    struct step_scalars scalars = {.inverse_tokens = 1.0 / 7};
    scope_memory float *logits = floats_new((size_t)N * V, fill), *got = floats_apart(logits, N, V, row);
    scope_memory float *losses = floats_new((size_t)N, FILL_UNIT),
                       *losses_got = floats_new((size_t)N, FILL_UNIT);
    scope_memory int32_t *targets = tokens_new((size_t)N, V, true);
    double relative = (88 + 4 + (V < 1024 ? V : 1024) + 8) * U;
    double total = 1.5, total_expected = 1.5;
    int64_t count = 2, count_expected = 2;
    computing("%s cross_entropy N=%d V=%d row=%d gradient=%d fill=%s", k->name, N, V, row, gradient,
              kernels_fill_name(fill));
    reference()->cross_entropy(logits, losses, targets, N, V, V, gradient, &scalars, NULL);
    k->cross_entropy(got, losses_got, targets, N, V, row, gradient, &scalars, NULL);
    scope_memory float *expected = floats_apart(logits, N, V, row);
    assert_true(floats_close("losses", losses_got, losses, (size_t)N, relative, U));
    /* p - 1 cancels at the target: absolute. */
    assert_true(floats_close("dlogits", got, expected, floats_apart_count(N, V, row),
                             gradient ? (relative + 2 * U) / 7 + FLOAT_FLUSHED : 0, 0));
    reference()->loss_sum(&total_expected, &count_expected, losses, targets, N, NULL);
    k->loss_sum(&total, &count, losses, targets, N, NULL);
    assert_int_equal(count, count_expected);
    assert_true(total == total_expected);
}

static void cross_entropy_matches(void **state)
{
    static const int shapes[][2] = {{0, 3}, {1, 1}, {1, 2}, {5, 7}, {9, 33}, {4, 256}, {3, 1025}, {2, 5003}};
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++)
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
            for (enum kernels_fill fill = 0; fill < FILL_COUNT; fill++)
                for (int gradient = 0; gradient < 2; gradient++)
                    for (int gap = 0; gap < 10; gap += 9)
                        check_cross_entropy(*k, shapes[i][0], shapes[i][1], gap, gradient, fill);
}

/* The reference's own rows, against its dense ones: what other tables are compared with. */
static void the_references_rows_may_lie_apart(void **state)
{
    (void)state;
    check_linear(reference(), 7, 17, 33, 5, FILL_UNIT);
    check_cross_entropy(reference(), 5, 7, 4, 1, FILL_UNIT);
}

/* Differences are formed in double by the one and in float by the other at the most: three roundings. */
static void squared_error_matches(void **state)
{
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++)
        for (int n = 0; n < 70; n += 23)
            for (int gradient = 0; gradient < 2; gradient++) {
                struct step_scalars scalars = {.inverse_tokens = 1.0 / 7};
                scope_memory float *targets = floats_new((size_t)n, FILL_UNIT);
                scope_memory float *values = floats_new((size_t)n, FILL_UNIT),
                                   *got = floats_copy(values, (size_t)n);
                scope_memory float *losses = floats_new((size_t)n, FILL_UNIT),
                                   *losses_got = floats_new((size_t)n, FILL_UNIT);
                int32_t counted[70] = {0}, counted_got[70] = {0};
                for (int i = 0; i < n; i += 5)
                    targets[i] = NAN;
                computing("%s squared_error n=%d gradient=%d", (*k)->name, n, gradient);
                reference()->squared_error(values, losses, counted, targets, n, gradient, &scalars, NULL);
                (*k)->squared_error(got, losses_got, counted_got, targets, n, gradient, &scalars, NULL);
                assert_true(floats_close("losses", losses_got, losses, (size_t)n, 3 * U, FLOAT_FLUSHED));
                assert_true(floats_close("gradient", got, values, (size_t)n, 3 * U, FLOAT_FLUSHED));
                assert_memory_equal(counted_got, counted, sizeof counted);
                assert_int_equal(counted[0], n ? -1 : 0);
            }
}

/* A NaN that goes in comes out: the guard against -ffast-math. */
static void nan_is_kept(void **state)
{
    enum { T = 40, C = 24, NH = 2, V = 37 };
    const struct attention a = packed_attention(1, T, C, NH);
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++) {
        scope_memory float *x = floats_new((size_t)T * C * 3, FILL_UNIT),
                           *y = floats_new((size_t)T * C * 3, FILL_UNIT);
        scope_memory float *work = floats_new((*k)->attention_work(&a, 1) / sizeof(float), FILL_UNIT);
        scope_memory float *mean = floats_new(T, FILL_UNIT), *rstd = floats_new(NH * T, FILL_UNIT);
        struct step_scalars scalars = {.inverse_tokens = 1};
        const int32_t target = 3;
        double norm = 0;
        x[5] = NAN;
        (*k)->activation_forward(y, x, ACTIVATION_GELU_TANH, C, NULL);
        assert_true(isnan(y[5]) && !isnan(y[4]));
        (*k)->layernorm_forward(y, mean, rstd, x, x, x + C, 1, C, EPSILON, NULL);
        assert_true(isnan(mean[0]) && isnan(rstd[0]) && isnan(y[0]));
        (*k)->rms_norm_forward(y, rstd, x, x + C, 1, C, EPSILON, 0, NULL);
        assert_true(isnan(rstd[0]) && isnan(y[0]));
        (*k)->norm_squared(&norm, x, C, 0, NULL);
        assert_true(isnan(norm));
        (*k)->attention_forward(y, rstd, x, x + C, x + 2 * C, &a, work, NULL);
        assert_true(isnan(y[0]) && isnan(rstd[0]));
        (*k)->cross_entropy(x, mean, &target, 1, V, V, 1, &scalars, NULL);
        assert_true(isnan(mean[0]) && isnan(x[0]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_matches),
        cmocka_unit_test(other_libraries_match),
        cmocka_unit_test(embedding_matches),
        cmocka_unit_test(layernorm_matches),
        cmocka_unit_test(layernorm_parts_are_optional),
        cmocka_unit_test(rms_norm_matches),
        cmocka_unit_test(rms_norm_parts_are_optional),
        cmocka_unit_test(cross_entropy_matches),
        cmocka_unit_test(squared_error_matches),
        cmocka_unit_test(nan_is_kept),
        cmocka_unit_test(rows_add_matches),
        cmocka_unit_test(the_references_rows_may_lie_apart),
    };
    kernels_test_begin(2);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
