/* kernels_cuda_test.c - every CUDA operation against the reference for float, over shapes that are awkward
 * for warps, blocks and grids. Needs a GPU; without one it says why and is skipped (status 77).
 *
 * Tolerances are bounds of rounding
 * analysis, as in kernels_cpu_test.c: u is float's unit roundoff, a sum of n terms in any order is off by at
 * most n u sum|terms|, and the reference, which sums in double, only by its last rounding. */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <stdio.h>

#include "tests/unit/kernels/kernels_cuda_support.h"

#define U       FLOAT_ROUNDOFF
#define EPSILON 1e-5

static const struct kernels *reference(void)
{
    return kernels_ref_f32();
}

static void elementwise_matches(void **state)
{
    (void)state;
    for (int i = 0; i < ELEMENT_COUNTS; i++) {
        size_t n = element_counts[i];
        scope_memory float *a = floats_new(n, FILL_UNIT), *b = floats_new(n, FILL_LARGE);
        scope_device void *da = device_floats(a, n), *db = device_floats(b, n);
        computing("cuda add, scale n=%zu", n);
        reference()->add(a, a, b, (int64_t)n, NULL);
        ENQUEUED(cuda_add(da, da, db, (int64_t)n, NULL, &failed));
        assert_close("add", da, a, n, 0, 0); /* one addition: exact */
        reference()->accumulate(a, b, 1, (int64_t)n, NULL);
        ENQUEUED(cuda_accumulate(da, db, 1, (int64_t)n, NULL, &failed));
        assert_close("accumulate", da, a, n, 0, 0);
        reference()->scale(a, 0.3, (int64_t)n, NULL);
        ENQUEUED(cuda_scale(da, 0.3, (int64_t)n, NULL, &failed));
        assert_close("scale", da, a, n, 0, 3 * U); /* the factor is rounded too */
    }
}

/* With R the largest rstd and X the largest |in|: the mean is off by C u X, so xhat by about C u X R and,
 * from the rounding of rstd (relative C u), by C u |xhat| with |xhat| <= sqrt(C). The mean's error adds its
 * square to the variance, in units of the deviation. */
static void check_layernorm_forward(int N, int C, enum kernels_fill fill)
{
    size_t n = (size_t)N * C, columns = (size_t)C, rows = (size_t)N;
    scope_memory float *in = floats_new(n, fill), *weight = floats_new(columns, FILL_UNIT);
    scope_memory float *bias = floats_new(columns, FILL_UNIT), *out = floats_new(n, FILL_UNIT);
    scope_memory float *mean = floats_new(rows, FILL_UNIT), *rstd = floats_new(rows, FILL_UNIT);
    scope_device void *d_in = device_floats(in, n), *d_weight = device_floats(weight, columns);
    scope_device void *d_bias = device_floats(bias, columns), *d_out = device_floats(out, n);
    scope_device void *d_mean = device_floats(mean, rows), *d_rstd = device_floats(rstd, rows);
    computing("cuda layernorm_forward N=%d C=%d fill=%s", N, C, kernels_fill_name(fill));
    const bool biased = N % 2 == 0; /* some norms have none */
    reference()->layernorm_forward(out, mean, rstd, in, weight, biased ? bias : NULL, N, C, EPSILON, NULL);
    ENQUEUED(cuda_layernorm_forward(d_out, d_mean, d_rstd, d_in, d_weight, biased ? d_bias : NULL, N, C,
                                    EPSILON, NULL, &failed));
    double X = floats_largest(in, n), R = floats_largest(rstd, rows), c = C + 8;
    double mean_part = c * U * X * R, xhat_off = mean_part + c * U * sqrt((double)C);
    double rstd_off = mean_part * mean_part + 4 * U * X * R;
    assert_close("mean", d_mean, mean, rows, c * U * X, U);
    assert_close("rstd", d_rstd, rstd, rows, 0, c * U + rstd_off);
    assert_close("out", d_out, out, n, 2 * xhat_off + rstd_off * sqrt((double)C) + 4 * U, U);
}

/* mean and rstd are given: xhat is off by 4 u (X R + |xhat|), |xhat| at most sqrt(C) + u X R for both, and
 * each mean over C adds c u. */
static void check_layernorm_backward(int N, int C, int beta_in, int beta, enum kernels_fill fill)
{
    size_t n = (size_t)N * C, columns = (size_t)C, rows = (size_t)N;
    scope_memory float *in = floats_new(n, fill), *weight = floats_new(columns, FILL_UNIT);
    scope_memory float *dout = floats_new(n, FILL_UNIT), *din = floats_new(n, FILL_UNIT);
    scope_memory float *mean = floats_new(rows, FILL_UNIT), *rstd = floats_new(rows, FILL_UNIT);
    scope_memory float *dweight = floats_new(columns, FILL_UNIT), *dbias = floats_new(columns, FILL_UNIT);
    size_t work_floats = cuda_layernorm_backward_work(N, C) / sizeof(float);
    scope_memory float *work = floats_new(work_floats, FILL_LARGE);
    computing("cuda layernorm_backward N=%d C=%d beta_in=%d beta=%d fill=%s", N, C, beta_in, beta,
              kernels_fill_name(fill));
    reference()->layernorm_forward(din, mean, rstd, in, weight, dweight, N, C, EPSILON, NULL);
    scope_device void *d_in = device_floats(in, n), *d_weight = device_floats(weight, columns);
    scope_device void *d_dout = device_floats(dout, n), *d_din = device_floats(din, n);
    scope_device void *d_mean = device_floats(mean, rows), *d_rstd = device_floats(rstd, rows);
    scope_device void *d_dweight = device_floats(dweight, columns), *d_dbias = device_floats(dbias, columns);
    scope_device void *d_work = device_floats(work, work_floats);
    double X = floats_largest(in, n), R = floats_largest(rstd, rows), c = C + 8;
    double before = floats_largest(din, n); /* what beta_in adds */
    reference()->layernorm_backward(din, dweight, dbias, dout, in, mean, rstd, weight, N, C, beta_in, beta,
                                    NULL, NULL);
    ENQUEUED(cuda_layernorm_backward(d_din, d_dweight, d_dbias, d_dout, d_in, d_mean, d_rstd, d_weight, N, C,
                                     beta_in, beta, d_work, NULL, &failed));
    double xhat = sqrt((double)C) + U * X * R, off = 4 * U * (X * R + xhat), sum_off = c * U * xhat + off;
    double din_off = R * (c * U + xhat * sum_off + off * xhat + 4 * U * (1 + xhat * xhat));
    assert_close("din", d_din, din, n, din_off + 2 * U * (1 + before), U);
    assert_close("dweight", d_dweight, dweight, columns, N * off + (N + 1) * U * (N * xhat + beta), U);
    assert_close("dbias", d_dbias, dbias, columns, (N + 1) * U * (N + beta), U);
}

static void layernorm_matches(void **state)
{
    static const int shapes[][2] = {{0, 4},     {1, 1},    {1, 2},   {2, 31},   {7, 32},
                                    {8, 33},    {9, 255},  {65, 64}, {257, 96}, {1025, 40},
                                    {129, 257}, {3, 1600}, {8200, 8}};
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (enum kernels_fill fill = 0; fill < FILL_COUNT; fill++) {
            check_layernorm_forward(shapes[i][0], shapes[i][1], fill);
            for (int betas = 0; betas < 4; betas++)
                check_layernorm_backward(shapes[i][0], shapes[i][1], betas & 1, betas >> 1, fill);
        }
}

/* The same additions in the same order as the reference: exact. */
static void check_embedding_backward(const float *wte, const float *wpe, const float *dout, void *d_dout,
                                     const int32_t *tokens, void *d_tokens, const int *s, int beta)
{
    int B = s[0], T = s[1], C = s[2], V = s[3], maxT = s[4];
    size_t wte_n = (size_t)V * C, wpe_n = (size_t)maxT * C;
    scope_memory float *dwte = floats_copy(wte, wte_n), *dwpe = floats_copy(wpe, wpe_n);
    scope_device void *d_dwte = device_floats(wte, wte_n), *d_dwpe = device_floats(wpe, wpe_n);
    reference()->embedding_backward(dwte, dwpe, dout, tokens, B, T, C, V, maxT, beta, NULL);
    ENQUEUED(
        cuda_embedding_backward(d_dwte, d_dwpe, d_dout, d_tokens, B, T, C, V, maxT, beta, NULL, &failed));
    assert_close("dwte", d_dwte, dwte, wte_n, 0, 0);
    assert_close("dwpe", d_dwpe, dwpe, wpe_n, 0, 0);
    /* Each alone, as the tied head needs it. */
    reference()->embedding_backward(dwte, NULL, dout, tokens, B, T, C, V, maxT, 1, NULL);
    ENQUEUED(cuda_embedding_backward(d_dwte, NULL, d_dout, d_tokens, B, T, C, V, maxT, 1, NULL, &failed));
    reference()->embedding_backward(NULL, dwpe, dout, tokens, B, T, C, V, maxT, 0, NULL);
    ENQUEUED(cuda_embedding_backward(NULL, d_dwpe, d_dout, d_tokens, B, T, C, V, maxT, 0, NULL, &failed));
    assert_close("dwte alone", d_dwte, dwte, wte_n, 0, 0);
    assert_close("dwpe alone", d_dwpe, dwpe, wpe_n, 0, 0);
}

static void embedding_matches(void **state)
{
    /* B T C V maxT: one token everywhere, more rows than a block looks at at once, all different, tokens that
     * come again after more rows than that */
    static const int shapes[][5] = {{0, 4, 3, 5, 4},          {1, 1, 1, 1, 1},       {3, 5, 7, 4, 9},
                                    {3, 100, 33, 1, 100},     {2, 257, 65, 11, 257}, {4, 64, 300, 256, 64},
                                    {2, 128, 32, 50257, 130}, {3, 200, 8, 300, 200}};
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const int *s = shapes[i];
        size_t rows = (size_t)s[0] * s[1], n = rows * s[2];
        size_t wte_n = (size_t)s[3] * s[2], wpe_n = (size_t)s[4] * s[2];
        scope_memory float *wte = floats_new(wte_n, FILL_UNIT), *wpe = floats_new(wpe_n, FILL_UNIT);
        scope_memory float *out = floats_new(n, FILL_UNIT);
        scope_memory int32_t *tokens = tokens_new(rows, s[3], false);
        scope_device void *d_wte = device_floats(wte, wte_n), *d_wpe = device_floats(wpe, wpe_n);
        scope_device void *d_out = device_floats(out, n);
        scope_device void *d_tokens = device_copy(tokens, rows * sizeof *tokens);
        computing("cuda embedding B=%d T=%d C=%d V=%d maxT=%d", s[0], s[1], s[2], s[3], s[4]);
        reference()->embedding_forward(out, tokens, wte, wpe, s[0], s[1], s[2], NULL);
        ENQUEUED(cuda_embedding_forward(d_out, d_tokens, d_wte, d_wpe, s[0], s[1], s[2], NULL, &failed));
        assert_close("out", d_out, out, n, 0, 0);
        reference()->embedding_forward(out, tokens, wte, NULL, s[0], s[1], s[2], NULL);
        ENQUEUED(cuda_embedding_forward(d_out, d_tokens, d_wte, NULL, s[0], s[1], s[2], NULL, &failed));
        assert_close("out without positions", d_out, out, n, 0, 0);
        for (int beta = 0; beta < 2; beta++)
            check_embedding_backward(wte, wpe, out, d_out, tokens, d_tokens, s, beta);
    }
}

/* exp is off by 4 u, its argument l - max by 88 u at most (below, p is 0), a thread's sum by its V / 32 + 2
 * additions and scalings at most; the loss is formed in double from the threads' sums. */
static void check_cross_entropy(int N, int V, int row, int gradient, enum kernels_fill fill)
{
    size_t n = floats_apart_count(N, V, row), rows = (size_t)N;
    struct step_scalars scalars = {.inverse_tokens = 1.0 / 7};
    scope_memory float *dense = floats_new(rows * (size_t)V, fill), *losses = floats_new(rows, FILL_UNIT);
    scope_memory float *logits = floats_apart(dense, N, V, row);
    scope_memory int32_t *targets = tokens_new(rows, V, true);
    scope_device void *d_logits = device_floats(logits, n), *d_losses = device_floats(losses, rows);
    scope_device void *d_targets = device_copy(targets, rows * sizeof *targets);
    scope_device void *d_scalars = device_copy(&scalars, sizeof scalars);
    double relative = (88 + 4 + V / 32 + 8) * U;
    computing("cuda cross_entropy N=%d V=%d row=%d gradient=%d fill=%s", N, V, row, gradient,
              kernels_fill_name(fill));
    reference()->cross_entropy(logits, losses, targets, N, V, row, gradient, &scalars, NULL);
    ENQUEUED(
        cuda_cross_entropy(d_logits, d_losses, d_targets, N, V, row, gradient, d_scalars, NULL, &failed));
    assert_close("losses", d_losses, losses, rows, relative, U);
    /* p - 1 cancels at the target: absolute. */
    assert_close("dlogits", d_logits, logits, n, gradient ? (relative + 2 * U) / 7 + FLOAT_FLUSHED : 0, 0);
}

static void cross_entropy_matches(void **state)
{
    static const int shapes[][2] = {{0, 3},   {1, 1},   {1, 2},    {5, 31},   {9, 33},
                                    {4, 256}, {3, 513}, {3, 1025}, {2, 50257}};
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (enum kernels_fill fill = 0; fill < FILL_COUNT; fill++)
            for (int gradient = 0; gradient < 2; gradient++)
                for (int way = 0; way < 3; way++) {
                    const int V = shapes[i][1], rows[] = {V, V + 1, (V + 31) / 32 * 32};
                    check_cross_entropy(shapes[i][0], V, rows[way], gradient, fill);
                }
}

/* Row by row: the first half is -infinity, so that many threads see nothing else for a while or at all; all
 * of it is; one +infinity; one NaN; -infinity at the target. */
static void cross_entropy_of_infinities(void **state)
{
    enum { N = 5, V = 2051, ROW = 2080 };
    const struct step_scalars scalars = {.inverse_tokens = 1};
    const int32_t targets[N] = {V - 1, 3, 8, 1000, 5};
    scope_memory float *dense = floats_new((size_t)N * V, FILL_LARGE), *losses = floats_new(N, FILL_UNIT);
    (void)state;
    for (int i = 0; i < V; i++) {
        dense[i] = i < V / 2 ? -INFINITY : dense[i];
        dense[V + i] = -INFINITY;
    }
    dense[2 * V + 70] = INFINITY;
    dense[3 * V + V - 1] = NAN;
    dense[4 * V + 5] = -INFINITY;
    for (int gradient = 0; gradient < 2; gradient++) {
        const size_t n = floats_apart_count(N, V, ROW);
        scope_memory float *logits = floats_apart(dense, N, V, ROW);
        scope_device void *d_logits = device_floats(logits, n), *d_losses = device_floats(losses, N);
        scope_device void *d_targets = device_copy(targets, sizeof targets);
        scope_device void *d_scalars = device_copy(&scalars, sizeof scalars);
        computing("cuda cross_entropy of infinities, gradient=%d", gradient);
        reference()->cross_entropy(logits, losses, targets, N, V, ROW, gradient, &scalars, NULL);
        assert_true(isfinite(losses[0]) && isnan(losses[1]) && isnan(losses[3]) && isinf(losses[4]));
        ENQUEUED(
            cuda_cross_entropy(d_logits, d_losses, d_targets, N, V, ROW, gradient, d_scalars, NULL, &failed));
        assert_close("losses", d_losses, losses, N, 200 * U, U);
        assert_close("dlogits", d_logits, logits, n, gradient ? 200 * U : 0, 0);
    }
}

/* Rows that are read by 16 bytes, and the same ones element by element. */
static void an_address_changes_no_bit_of_cross_entropy(void **state)
{
    enum { N = 3, V = 5003, ALIGNED = 5024 };
    const struct step_scalars scalars = {.inverse_tokens = 0.3};
    const int32_t targets[N] = {V - 1, 0, 77};
    scope_memory float *dense = floats_new((size_t)N * V, FILL_UNIT), *losses = floats_new(N, FILL_UNIT);
    scope_device void *d_targets = device_copy(targets, sizeof targets);
    scope_device void *d_scalars = device_copy(&scalars, sizeof scalars);
    float losses_of[2][N];
    scope_memory float *gradients = floats_new((size_t)2 * N * V, FILL_UNIT);
    (void)state;
    for (int i = 0; i < 2; i++) {
        const int row = ALIGNED + i;
        scope_memory float *logits = floats_apart(dense, N, V, row);
        scope_device float *d_logits = device_floats(logits, floats_apart_count(N, V, row));
        scope_device void *d_losses = device_floats(losses, N);
        ENQUEUED(cuda_cross_entropy(d_logits, d_losses, d_targets, N, V, row, 1, d_scalars, NULL, &failed));
        fetch(losses_of[i], d_losses, sizeof losses_of[i]);
        for (int n = 0; n < N; n++)
            fetch(gradients + (size_t)(i * N + n) * V, d_logits + (size_t)n * (size_t)row, V * sizeof(float));
    }
    assert_memory_equal(losses_of[0], losses_of[1], sizeof losses_of[0]);
    assert_memory_equal(gradients, gradients + (size_t)N * V, (size_t)N * V * sizeof(float));
}

/* The difference, its square or product with the factor and the factor itself are rounded once each. */
static void squared_error_matches(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * ELEMENT_COUNTS; i++) {
        size_t n = element_counts[i / 2];
        struct step_scalars scalars = {.inverse_tokens = 1.0 / 7};
        scope_memory float *values = floats_new(n, FILL_UNIT), *losses = floats_new(n, FILL_UNIT),
                           *targets = floats_new(n, FILL_UNIT);
        scope_memory int32_t *counted = tokens_new(n, 9, true), *got = tokens_new(n, 9, true);
        for (size_t j = 0; j < n; j += 3)
            targets[j] = NAN;
        scope_device void *d_values = device_floats(values, n), *d_losses = device_floats(losses, n);
        scope_device void *d_targets = device_floats(targets, n);
        scope_device void *d_counted = device_copy(counted, n * sizeof *counted);
        scope_device void *d_scalars = device_copy(&scalars, sizeof scalars);
        computing("cuda squared_error n=%zu gradient=%d", n, i % 2);
        reference()->squared_error(values, losses, counted, targets, (int64_t)n, i % 2, &scalars, NULL);
        ENQUEUED(cuda_squared_error(d_values, d_losses, d_counted, d_targets, (int64_t)n, i % 2, d_scalars,
                                    NULL, &failed));
        assert_close("losses", d_losses, losses, n, 4 * U, FLOAT_FLUSHED);
        assert_close("gradient", d_values, values, n, 4 * U, FLOAT_FLUSHED);
        fetch(got, d_counted, n * sizeof *got);
        assert_memory_equal(got, counted, n * sizeof *got);
    }
}

/* n losses of 0..1 in double, in another order: n times double's roundoff of the sum at most. */
static void loss_sum_matches(void **state)
{
    (void)state;
    for (int i = 0; i < ELEMENT_COUNTS; i++) {
        size_t n = element_counts[i];
        double total = 1.5, got = 1.5;
        int64_t count = 2, got_count = 2;
        scope_memory float *losses = floats_new(n, FILL_UNIT);
        scope_memory int32_t *targets = tokens_new(n, 9, true);
        for (size_t j = 0; j < n; j++)
            losses[j] = fabsf(losses[j]);
        scope_device void *d_losses = device_floats(losses, n), *d_total = device_copy(&total, sizeof total);
        scope_device void *d_targets = device_copy(targets, n * sizeof *targets);
        scope_device void *d_count = device_copy(&count, sizeof count);
        reference()->loss_sum(&total, &count, losses, targets, (int64_t)n, NULL);
        ENQUEUED(cuda_loss_sum(d_total, d_count, d_losses, d_targets, (int64_t)n, NULL, &failed));
        fetch(&got, d_total, sizeof got);
        fetch(&got_count, d_count, sizeof got_count);
        assert_int_equal(got_count, count);
        if (!(fabs(got - total) <= (double)n * 0x1p-53 * total * 2))
            fail_msg("loss_sum n=%zu: %.17g, expected %.17g", n, got, total);
    }
}

/* Both in double, in different orders: n times double's roundoff at most. Twice: the same bits. */
static void norm_matches(void **state)
{
    (void)state;
    for (int i = 0; i < ELEMENT_COUNTS; i++)
        for (int beta = 0; beta < 2; beta++) {
            size_t n = element_counts[i];
            double expected = 3.25, got[2];
            scope_memory float *values = floats_new(n, FILL_LARGE);
            scope_memory float *work = floats_new(cuda_norm_squared_work() / sizeof(float), FILL_LARGE);
            scope_device void *d_values = device_floats(values, n);
            scope_device void *d_work = device_copy(work, cuda_norm_squared_work());
            for (int run = 0; run < 2; run++) {
                scope_device double *d_out = device_copy(&expected, sizeof expected);
                ENQUEUED(cuda_norm_squared(d_out, d_values, (int64_t)n, beta, d_work, NULL, &failed));
                fetch(&got[run], d_out, sizeof got[run]);
            }
            reference()->norm_squared(&expected, values, (int64_t)n, beta, NULL);
            if (!(fabs(got[0] - expected) <= (double)n * 0x1p-53 * expected * 2))
                fail_msg("norm_squared n=%zu beta=%d: %.17g, expected %.17g", n, beta, got[0], expected);
            assert_memory_equal(&got[0], &got[1], sizeof got[0]);
        }
}

/* All in double, one root and one division: two units in the last place. */
static void clip_factor_matches(void **state)
{
    static const struct step_scalars cases[] = {
        {.norm_squared = 16, .clip_norm = 1},  {.norm_squared = 0.25, .clip_norm = 1},
        {.norm_squared = 1e6, .clip_norm = 0}, {.norm_squared = (double)NAN, .clip_norm = 1},
        {.norm_squared = (double)INFINITY},    {.norm_squared = 0, .clip_norm = 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct step_scalars expected = cases[i], got;
        scope_device void *device = device_copy(&cases[i], sizeof cases[i]);
        reference()->clip_factor(&expected, NULL);
        ENQUEUED(cuda_clip_factor(device, NULL, &failed));
        fetch(&got, device, sizeof got);
        assert_int_equal(got.skip, expected.skip);
        if (!(fabs(got.clip - expected.clip) <= 0x1p-51 * expected.clip))
            fail_msg("clip_factor case %zu: %.17g, expected %.17g", i, got.clip, expected.clip);
    }
}

static void check_adamw(size_t n, int parameter_class, enum kernels_fill fill)
{
    struct step_scalars s = {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .clip = 0.7};
    s.bias_correction1 = 1 - pow(0.9, 3), s.bias_correction2 = 1 - pow(0.95, 3);
    s.learning_rate[0] = 6e-4, s.weight_decay[0] = 0.1, s.learning_rate[7] = 3e-4;
    scope_memory float *param = floats_new(n, FILL_UNIT), *grad = floats_new(n, fill);
    scope_memory float *m = floats_new(n, fill), *v = floats_new(n, fill);
    for (size_t i = 0; i < n; i++)
        v[i] = v[i] * v[i] + grad[i] * grad[i];
    double M = floats_largest(m, n) + floats_largest(grad, n);
    scope_device void *d_param = device_floats(param, n), *d_grad = device_floats(grad, n);
    scope_device void *d_m = device_floats(m, n), *d_v = device_floats(v, n);
    scope_device void *d_scalars = device_copy(&s, sizeof s);
    computing("cuda adamw n=%zu class=%d fill=%s", n, parameter_class, kernels_fill_name(fill));
    for (int skip = 0; skip < 2; skip++) { /* the second time nothing may change */
        ENQUEUED(cuda_adamw(d_param, d_m, d_v, d_grad, OPTIMIZER_WHOLE((int64_t)n, parameter_class), NULL,
                            DTYPE_F32, d_scalars, NULL, &failed));
        if (!skip)
            reference()->adamw(param, m, v, grad, OPTIMIZER_WHOLE((int64_t)n, parameter_class), NULL,
                               DTYPE_F32, &s, NULL);
        /* Each constant, product and sum rounds once; the sum for m may cancel, so it is absolute in the size
         * of its terms. */
        assert_close("m", d_m, m, n, 4 * U * M, U);
        assert_close("v", d_v, v, n, FLOAT_FLUSHED, 8 * U);
        /* The step is at most 1e3 here (v >= (1 - beta2) clip^2 g^2), relatively off by 16 u, times the rate;
         * the parameter itself rounds once, its decay twice. */
        assert_close("param", d_param, param, n, s.learning_rate[parameter_class] * 1e3 * 16 * U, 4 * U);
        s.skip = 1;
        CUDA_OK(cudaMemcpy(d_scalars, &s, sizeof s, cudaMemcpyHostToDevice));
    }
}

static void adamw_matches(void **state)
{
    (void)state;
    for (int i = 0; i < ELEMENT_COUNTS; i++)
        for (enum kernels_fill fill = 0; fill < FILL_COUNT; fill++)
            if (fill != FILL_TINY) { /* squares vanish: the step is g/0 by rounding */
                check_adamw(element_counts[i], 0, fill);
                check_adamw(element_counts[i], 7, fill);
            }
}

/* Bits that are float patterns, cast to `from` by the reference, then to `to` by both: the same value, or
 * both NaN (whose payload may differ). */
static void check_cast(const uint32_t *patterns, size_t n, enum dtype from, enum dtype to)
{
    size_t size_from = n * (size_t)dtype_size(from), size_to = n * (size_t)dtype_size(to);
    scope_memory float *source = floats_new(2 * n, FILL_UNIT), *got = floats_new(2 * n, FILL_UNIT);
    scope_memory float *expected = floats_new(2 * n, FILL_UNIT);
    scope_memory double *a = (double *)floats_new(2 * n, FILL_UNIT);
    scope_memory double *b = (double *)floats_new(2 * n, FILL_UNIT);
    reference()->cast(source, from, patterns, DTYPE_F32, (int64_t)n, NULL);
    scope_device void *d_source = device_copy(source, size_from), *d_got = device_copy(got, size_to);
    reference()->cast(expected, to, source, from, (int64_t)n, NULL);
    ENQUEUED(cuda_cast(d_got, to, d_source, from, (int64_t)n, NULL, &failed));
    fetch(got, d_got, size_to);
    reference()->cast(a, DTYPE_F64, got, to, (int64_t)n, NULL);
    reference()->cast(b, DTYPE_F64, expected, to, (int64_t)n, NULL);
    for (size_t i = 0; i < n; i++)
        if (!(a[i] == b[i] || (isnan(a[i]) && isnan(b[i]))))
            fail_msg("cuda cast %s to %s, element %zu: %a, expected %a", dtype_name(from), dtype_name(to), i,
                     a[i], b[i]);
}

/* Doubles next to a tie of the narrow types: going through float would round them twice. */
static void check_double_ties(enum dtype to)
{
    static const double ties[] = {0x1.0100000000001p0,   0x1.00ffffffffffep0,  0x1.0020000000001p0,
                                  0x1.001fffffffffep0,   0x1.0060000000001p3,  65519.999999999993,
                                  0x1.0000000000001p-25, 0x1.fffffffffffffp-26};
    enum { TIES = sizeof ties / sizeof ties[0] };
    uint16_t got[TIES], expected[TIES];
    scope_device void *d_ties = device_copy(ties, sizeof ties), *d_got = device_copy(ties, sizeof got);
    reference()->cast(expected, to, ties, DTYPE_F64, TIES, NULL);
    ENQUEUED(cuda_cast(d_got, to, d_ties, DTYPE_F64, TIES, NULL, &failed));
    fetch(got, d_got, sizeof got);
    assert_memory_equal(got, expected, sizeof got);
}

static void casts_match(void **state)
{
    enum { COUNT = 65535 };
    scope_memory uint32_t *patterns = (uint32_t *)floats_new(COUNT, FILL_UNIT);
    (void)state;
    for (uint32_t i = 0; i < COUNT; i++)
        patterns[i] = i * 65537u;
    for (enum dtype from = 0; from < DTYPE_COUNT; from++)
        for (enum dtype to = 0; to < DTYPE_COUNT; to++)
            check_cast(patterns, COUNT, from, to);
    check_double_ties(DTYPE_BF16);
    check_double_ties(DTYPE_F16);
}

int main(void)
{
    const struct CMUnitTest casts[] = {cmocka_unit_test(casts_match)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elementwise_matches),
        cmocka_unit_test(layernorm_matches),
        cmocka_unit_test(embedding_matches),
        cmocka_unit_test(cross_entropy_matches),
        cmocka_unit_test(cross_entropy_of_infinities),
        cmocka_unit_test(an_address_changes_no_bit_of_cross_entropy),
        cmocka_unit_test(squared_error_matches),
        cmocka_unit_test(loss_sum_matches),
        cmocka_unit_test(norm_matches),
        cmocka_unit_test(clip_factor_matches),
        cmocka_unit_test(adamw_matches),
    };
    const char *missing = gpu_missing();
    if (missing) {
        printf("skipped: no GPU: %s\n", missing);
        return 77;
    }
    /* Conversions first: kernels_test_begin flushes the reference's denormals, and the GPU keeps its own. */
    int failures = cmocka_run_group_tests(casts, NULL, NULL);
    kernels_test_begin(1);
    failures += cmocka_run_group_tests(tests, NULL, NULL);
    return failures > 0; /* the sum may be 77 */
}
