/* kernels_cpu_test.c - every CPU variant against the plain reference, over shapes that are awkward for
 * vectors.
 *
 * Tolerances are bounds of rounding analysis, not fitted constants: u is float's unit roundoff, a sum of n
 * products is off by at most n u sum|a b| (Higham, Accuracy and Stability of Numerical Algorithms, 3.1), and
 * the reference, which sums in double, only by its last rounding. */
#include "tests/support/cmocka_all.h"

#include <math.h>

#include "tests/unit/kernels/kernels_support.h"

#define U       FLOAT_ROUNDOFF
#define EPSILON 1e-5

static const struct kernels *reference(void)
{
    return kernels_ref_f32();
}

static const int linear_shapes[][3] = {
    {0, 3, 5},   {1, 1, 1},    {1, 5, 3},      {2, 1, 7},     {3, 16, 1},
    {7, 17, 33}, {33, 31, 64}, {65, 100, 129}, {130, 64, 65},
};

static void check_linear(const struct kernels *k, int N, int C, int OC, enum kernels_fill fill)
{
    size_t in_n = (size_t)N * C, out_n = (size_t)N * OC, weight_n = (size_t)OC * C;
    scope_memory float *in = floats_new(in_n, fill), *weight = floats_new(weight_n, FILL_UNIT);
    scope_memory float *bias = floats_new((size_t)OC, FILL_UNIT), *dout = floats_new(out_n, FILL_UNIT);
    scope_memory float *expected = floats_new(out_n, FILL_UNIT), *got = floats_copy(expected, out_n);
    double in_max = floats_largest(in, in_n);
    for (int with_bias = 0; with_bias < 2; with_bias++) {
        computing("%s linear_forward N=%d C=%d OC=%d bias=%d fill=%s", k->name, N, C, OC, with_bias,
                  kernels_fill_name(fill));
        reference()->linear_forward(expected, in, weight, with_bias ? bias : NULL, N, C, OC, NULL);
        k->linear_forward(got, in, weight, with_bias ? bias : NULL, N, C, OC, NULL);
        assert_true(floats_close("out", got, expected, out_n,
                                 (C + 1) * U * (C * in_max + with_bias) + FLOAT_FLUSHED, U));
    }
    for (int beta = 0; beta < 2; beta++) {
        scope_memory float *din = floats_new(in_n, FILL_UNIT), *din_got = floats_copy(din, in_n);
        scope_memory float *dweight = floats_new(weight_n, FILL_UNIT);
        scope_memory float *dweight_got = floats_copy(dweight, weight_n);
        scope_memory float *dbias = floats_new((size_t)OC, FILL_UNIT);
        scope_memory float *dbias_got = floats_copy(dbias, (size_t)OC);
        computing("%s linear_backward N=%d C=%d OC=%d beta=%d fill=%s", k->name, N, C, OC, beta,
                  kernels_fill_name(fill));
        reference()->linear_backward_input(din, dout, weight, N, C, OC, beta, NULL);
        k->linear_backward_input(din_got, dout, weight, N, C, OC, beta, NULL);
        assert_true(floats_close("din", din_got, din, in_n, (OC + 1) * U * (OC + beta), U));
        reference()->linear_backward_weight(dweight, dbias, dout, in, N, C, OC, beta, NULL);
        k->linear_backward_weight(dweight_got, dbias_got, dout, in, N, C, OC, beta, NULL);
        assert_true(floats_close("dweight", dweight_got, dweight, weight_n,
                                 (N + 1) * U * (N * in_max + beta) + FLOAT_FLUSHED, U));
        assert_true(floats_close("dbias", dbias_got, dbias, (size_t)OC, (N + 1) * U * (N + beta), U));
        k->linear_backward_weight(dweight_got, NULL, dout, in, N, C, OC, 0, NULL);
        k->linear_backward_input(NULL, dout, weight, N, C, OC, beta, NULL);
    }
}

static void linear_matches(void **state)
{
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++)
        for (size_t i = 0; i < sizeof linear_shapes / sizeof linear_shapes[0]; i++)
            for (enum kernels_fill fill = 0; fill < FILL_COUNT; fill++)
                check_linear(*k, linear_shapes[i][0], linear_shapes[i][1], linear_shapes[i][2], fill);
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

/* With R the largest rstd and X the largest |in|: the mean is off by C u X, so xhat by about C u X R and,
 * from the rounding of rstd (relative C u), by C u |xhat| with |xhat| <= sqrt(C). */
static void check_layernorm(const struct kernels *k, int N, int C, enum kernels_fill fill)
{
    size_t n = (size_t)N * C;
    scope_memory float *in = floats_new(n, fill), *weight = floats_new((size_t)C, FILL_UNIT);
    scope_memory float *bias = floats_new((size_t)C, FILL_UNIT), *dout = floats_new(n, FILL_UNIT);
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

/* A score is off by S = (HS + 4) u |q||k| scale, so a probability relatively by that, by its exponential (4
 * u) and by its sum ((T/32 + 40) u); out and each gradient are sums of at most T products. */
static void check_attention(const struct kernels *k, int B, int T, int C, int NH, enum kernels_fill fill)
{
    int HS = C / NH;
    const struct attention a = packed_attention(B, T, C, NH);
    size_t n = (size_t)B * T * C, lse_n = (size_t)B * NH * T;
    scope_memory float *qkv = floats_new(3 * n, fill), *dout = floats_new(n, FILL_UNIT);
    scope_memory float *out = floats_new(n, FILL_UNIT), *got = floats_copy(out, n);
    scope_memory float *lse = floats_new(lse_n, FILL_UNIT), *lse_got = floats_copy(lse, lse_n);
    scope_memory float *dqkv = floats_new(3 * n, FILL_UNIT), *dqkv_got = floats_new(3 * n, FILL_LARGE);
    scope_memory float *work = floats_new(k->attention_work(&a) / sizeof(float), FILL_LARGE);
    computing("%s attention B=%d T=%d C=%d NH=%d fill=%s", k->name, B, T, C, NH, kernels_fill_name(fill));
    reference()->attention_forward(out, lse, qkv, qkv + C, qkv + 2 * C, &a, NULL, NULL);
    k->attention_forward(got, lse_got, qkv, qkv + C, qkv + 2 * C, &a, work, NULL);
    double X = floats_largest(qkv, 3 * n), scale = 1 / sqrt((double)HS), largest_score = HS * X * X * scale;
    double score_off = (HS + 4) * U * largest_score, p_off = 2 * score_off + (4 + T / 32 + 40) * U;
    assert_true(floats_close("lse", lse_got, lse, lse_n, score_off + (T / 32 + 48) * U, 2 * U));
    assert_true(floats_close("out", got, out, n, (2 * p_off + T * U) * X + FLOAT_FLUSHED, U));
    reference()->attention_backward(dqkv, dqkv + C, dqkv + 2 * C, dout, qkv, qkv + C, qkv + 2 * C, out, lse,
                                    &a, (const int[3]){0}, NULL, NULL);
    k->attention_backward(dqkv_got, dqkv_got + C, dqkv_got + 2 * C, dout, qkv, qkv + C, qkv + 2 * C, out, lse,
                          &a, (const int[3]){0}, work, NULL);
    /* dp and D are at most HS X and off by (HS + 4) u of that; ds = p (dp - D) scale. lse was rounded to
     * float. */
    double lse_off = U * (largest_score + 8), ds = 2 * HS * X * scale;
    double ds_off = ds * (p_off + lse_off) + 2 * (HS + 4) * U * HS * X * scale;
    double d_off = T * (X * ds_off + U * X * ds) + T * (p_off + lse_off + T * U);
    assert_true(floats_close("dqkv", dqkv_got, dqkv, 3 * n, d_off + FLOAT_FLUSHED, T * U));
}

static void attention_matches(void **state)
{
    static const int shapes[][4] = {{0, 4, 8, 2},   {1, 1, 1, 1},   {2, 1, 8, 2},   {2, 7, 6, 3},
                                    {1, 31, 32, 4}, {1, 32, 64, 1}, {2, 33, 36, 3}, {1, 65, 80, 2},
                                    {3, 5, 50, 2},  {1, 97, 17, 1}, {7, 3, 40, 10}, {1, 130, 64, 2}};
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++)
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
            const int *s = shapes[i];
            for (enum kernels_fill fill = 0; fill < FILL_COUNT; fill++)
                if (fill != FILL_OFFSET) /* scores of 1e4 x HS: their float rounding alone is more than 1 */
                    check_attention(*k, s[0], s[1], s[2], s[3], fill);
        }
}

/* y = x s: s is off relatively by the error of exp's argument A = 2u, which is 4 u |A|, and |A| counts only
 * up to 88, beyond which the result is less than 1e-36. */
static void gelu_matches(void **state)
{
    static const int64_t sizes[] = {0, 1, 7, 8, 17, 4097, 20000};
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            for (enum kernels_fill fill = 0; fill < FILL_COUNT; fill++) {
                size_t n = (size_t)sizes[i];
                scope_memory float *in = floats_new(n, fill), *dout = floats_new(n, FILL_UNIT);
                scope_memory float *out = floats_new(n, FILL_UNIT), *got = floats_copy(out, n);
                for (size_t j = 0; j < n && fill == FILL_LARGE; j += 3)
                    in[j] /= 8; /* -3.75..3.75, where the curve bends */
                computing("%s gelu n=%zu fill=%s", (*k)->name, n, kernels_fill_name(fill));
                reference()->activation_forward(out, in, ACTIVATION_GELU_TANH, (int64_t)n, NULL);
                (*k)->activation_forward(got, in, ACTIVATION_GELU_TANH, (int64_t)n, NULL);
                /* Absolute: the reference's 1 + tanh loses everything below double's 1e-16. */
                assert_true(floats_close("out", got, out, n, 1e-14 * 30, (4 * 88 + 8) * U));
                reference()->activation_backward(out, in, dout, ACTIVATION_GELU_TANH, 0, (int64_t)n, NULL);
                (*k)->activation_backward(dout, in, dout, ACTIVATION_GELU_TANH, 0, (int64_t)n,
                                          NULL); /* in place, as documented */
                /* The slope's two parts cancel near its zeros: absolute, in units of x A' <= 88 s (1-s). */
                assert_true(floats_close("din", dout, out, n, 40 * U, (4 * 88 + 8) * U));
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
            computing("%s add, scale n=%zu", (*k)->name, n);
            reference()->add(expected, a, b, (int64_t)n, NULL);
            (*k)->add(a, a, b, (int64_t)n, NULL);
            assert_true(floats_close("add", a, expected, n, 0, 0)); /* one addition: exact */
            reference()->scale(expected, 0.3, (int64_t)n, NULL);
            (*k)->scale(a, 0.3, (int64_t)n, NULL);
            assert_true(floats_close("scale", a, expected, n, 0, 3 * U)); /* the factor is rounded too */
        }
}

/* exp is off by 4 u, its argument l - max by 88 u at most (below, p is 0), the sum by the 1,024 / lanes + 2
 * additions of a lane; the loss is formed in double from that sum. */
static void check_cross_entropy(const struct kernels *k, int N, int V, int gradient, enum kernels_fill fill)
{
    size_t n = (size_t)N * V;
    struct step_scalars scalars = {.inverse_tokens = 1.0 / 7};
    scope_memory float *logits = floats_new(n, fill), *got = floats_copy(logits, n);
    scope_memory float *losses = floats_new((size_t)N, FILL_UNIT),
                       *losses_got = floats_new((size_t)N, FILL_UNIT);
    scope_memory int32_t *targets = tokens_new((size_t)N, V, true);
    double relative = (88 + 4 + (V < 1024 ? V : 1024) + 8) * U;
    double total = 1.5, total_expected = 1.5;
    int64_t count = 2, count_expected = 2;
    computing("%s cross_entropy N=%d V=%d gradient=%d fill=%s", k->name, N, V, gradient,
              kernels_fill_name(fill));
    reference()->cross_entropy(logits, losses, targets, N, V, gradient, &scalars, NULL);
    k->cross_entropy(got, losses_got, targets, N, V, gradient, &scalars, NULL);
    assert_true(floats_close("losses", losses_got, losses, (size_t)N, relative, U));
    /* p - 1 cancels at the target: absolute. */
    assert_true(
        floats_close("dlogits", got, logits, n, gradient ? (relative + 2 * U) / 7 + FLOAT_FLUSHED : 0, 0));
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
                    check_cross_entropy(*k, shapes[i][0], shapes[i][1], gradient, fill);
}

static void norm_matches(void **state)
{
    static const int64_t sizes[] = {0, 1, 2, 63, 64, 65, 1000, 20011};
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            for (int beta = 0; beta < 2; beta++) {
                scope_memory float *values = floats_new((size_t)sizes[i], FILL_LARGE);
                double expected = 3.25, got = 3.25;
                reference()->norm_squared(&expected, values, sizes[i], beta, NULL);
                (*k)->norm_squared(&got, values, sizes[i], beta, NULL);
                /* Both in double, in different orders: n times double's roundoff at most. */
                if (!(fabs(got - expected) <= (double)sizes[i] * 0x1p-53 * expected * 2))
                    fail_msg("%s norm_squared n=%lld beta=%d: %.17g, expected %.17g", (*k)->name,
                             (long long)sizes[i], beta, got, expected);
            }
}

static void clip_factor_rules(void **state)
{
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++) {
        struct step_scalars s = {.norm_squared = 16, .clip_norm = 1};
        (*k)->clip_factor(&s, NULL);
        assert_true(fabs(s.clip - 1 / (4 + 1e-6)) < 1e-15);
        s = (struct step_scalars){.norm_squared = 0.25, .clip_norm = 1};
        (*k)->clip_factor(&s, NULL);
        assert_true(s.clip == 1.0 && !s.skip);
        s = (struct step_scalars){.norm_squared = 1e6, .clip_norm = 0};
        (*k)->clip_factor(&s, NULL);
        assert_true(s.clip == 1.0 && !s.skip);
        s = (struct step_scalars){.norm_squared = (double)NAN, .clip_norm = 1};
        (*k)->clip_factor(&s, NULL);
        assert_true(s.skip == 1);
        s = (struct step_scalars){.norm_squared = (double)INFINITY};
        (*k)->clip_factor(&s, NULL);
        assert_true(s.skip == 1);
    }
}

static struct step_scalars adamw_scalars(void)
{
    struct step_scalars s = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .clip = 0.7};
    s.bias_correction1 = 1 - pow(0.9, 3);
    s.bias_correction2 = 1 - pow(0.95, 3);
    s.learning_rate[0] = 6e-4, s.weight_decay[0] = 0.1;
    s.learning_rate[1] = 3e-4;
    return s;
}

static void check_adamw(const struct kernels *k, size_t n, int parameter_class, enum kernels_fill fill)
{
    struct step_scalars s = adamw_scalars();
    scope_memory float *param = floats_new(n, FILL_UNIT), *param_got = floats_copy(param, n);
    scope_memory float *m = floats_new(n, fill), *v = floats_new(n, fill), *grad = floats_new(n, fill);
    for (size_t i = 0; i < n; i++)
        v[i] = v[i] * v[i] + grad[i] * grad[i];
    scope_memory float *m_got = floats_copy(m, n), *v_got = floats_copy(v, n);
    double M = floats_largest(m, n) + floats_largest(grad, n);
    computing("%s adamw n=%zu class=%d fill=%s", k->name, n, parameter_class, kernels_fill_name(fill));
    reference()->adamw(param, m, v, grad, (int64_t)n, parameter_class, &s, NULL);
    k->adamw(param_got, m_got, v_got, grad, (int64_t)n, parameter_class, &s, NULL);
    /* Each constant, product and sum rounds once; the sum for m may cancel, so it is absolute in the size of
     * its terms. */
    assert_true(floats_close("m", m_got, m, n, 4 * U * M, U));
    assert_true(floats_close("v", v_got, v, n, FLOAT_FLUSHED, 8 * U));
    /* The step's size is at most M / sqrt(v) / c1 with v >= (1 - beta2) clip^2 g^2 ...: at most 1e3 here, and
     * relatively off by 16 u; times the rate. The parameter itself rounds once, its decay twice. */
    double step_off = s.learning_rate[parameter_class] * 1e3 * 16 * U;
    assert_true(floats_close("param", param_got, param, n, step_off, 4 * U));
    s.skip = 1;
    scope_memory float *before = floats_copy(param_got, n);
    k->adamw(param_got, m_got, v_got, grad, (int64_t)n, parameter_class, &s, NULL);
    assert_memory_equal(before, param_got, n * sizeof *before);
}

static void adamw_matches(void **state)
{
    static const size_t sizes[] = {1, 7, 16, 33, 4096, 20001};
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            for (int parameter_class = 0; parameter_class < 2; parameter_class++)
                for (enum kernels_fill fill = 0; fill < FILL_COUNT; fill++)
                    if (fill !=
                        FILL_TINY) /* squares vanish: the step is g/0 by rounding, see gradient_vanishes */
                        check_adamw(*k, sizes[i], parameter_class, fill);
}

/* v = 0 exactly: the step is m/c1/epsilon and finite, and no NaN is made of 0/0. */
static void gradient_vanishes(void **state)
{
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++) {
        struct step_scalars s = adamw_scalars();
        float param[3] = {1, 2, 3}, m[3] = {0}, v[3] = {0}, grad[3] = {0, 1e-30f, -1e-30f};
        (*k)->adamw(param, m, v, grad, 3, 1, &s, NULL);
        assert_true(floats_close("param", param, (const float[]){1, 2, 3}, 3, 1e-20, U));
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
        scope_memory float *work = floats_new((*k)->attention_work(&a) / sizeof(float), FILL_UNIT);
        scope_memory float *mean = floats_new(T, FILL_UNIT), *rstd = floats_new(NH * T, FILL_UNIT);
        struct step_scalars scalars = {.inverse_tokens = 1};
        const int32_t target = 3;
        double norm = 0;
        x[5] = NAN;
        (*k)->activation_forward(y, x, ACTIVATION_GELU_TANH, C, NULL);
        assert_true(isnan(y[5]) && !isnan(y[4]));
        (*k)->layernorm_forward(y, mean, rstd, x, x, x + C, 1, C, EPSILON, NULL);
        assert_true(isnan(mean[0]) && isnan(rstd[0]) && isnan(y[0]));
        (*k)->norm_squared(&norm, x, C, 0, NULL);
        assert_true(isnan(norm));
        (*k)->attention_forward(y, rstd, x, x + C, x + 2 * C, &a, work, NULL);
        assert_true(isnan(y[0]) && isnan(rstd[0]));
        (*k)->cross_entropy(x, mean, &target, 1, V, 1, &scalars, NULL);
        assert_true(isnan(mean[0]) && isnan(x[0]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_matches),        cmocka_unit_test(embedding_matches),
        cmocka_unit_test(layernorm_matches),     cmocka_unit_test(attention_matches),
        cmocka_unit_test(gelu_matches),          cmocka_unit_test(elementwise_matches),
        cmocka_unit_test(cross_entropy_matches), cmocka_unit_test(norm_matches),
        cmocka_unit_test(clip_factor_rules),     cmocka_unit_test(adamw_matches),
        cmocka_unit_test(gradient_vanishes),     cmocka_unit_test(nan_is_kept),
    };
    kernels_test_begin(2);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
