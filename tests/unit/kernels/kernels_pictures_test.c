/* kernels_pictures_test.c - the CPU's operations on planes against the reference, over shapes that are
 * awkward for tiles, edges and strides; the same bits with any number of threads. Bounds: see
 * kernels_cpu_test.c. */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <string.h>

#include "kernels/narrow.h"
#include "proto/base/mem.h"
#include "tests/support/rank_threads.h"
#include "tests/unit/kernels/kernels_support.h"

#define U FLOAT_ROUNDOFF

struct conv_case {
    int N;
    struct conv2d c;
};
static const struct conv_case convs[] = {
    {0, {3, 5, 5, 2, 3, 1, 1}},    {1, {1, 1, 1, 1, 1, 1, 0}},    {2, {1, 1, 1, 3, 3, 1, 1}},
    {3, {3, 32, 32, 32, 3, 1, 1}}, {5, {3, 9, 7, 17, 3, 1, 1}},   {2, {4, 9, 11, 3, 3, 2, 1}},
    {2, {2, 13, 5, 5, 5, 1, 2}},   {2, {2, 12, 12, 3, 4, 3, 0}},  {19, {5, 6, 6, 7, 1, 1, 0}},
    {3, {5, 7, 6, 4, 1, 2, 0}},    {1, {64, 26, 24, 8, 3, 1, 1}}, {2, {2, 3, 3, 2, 3, 1, 2}},
    {17, {2, 5, 3, 2, 3, 3, 2}},   {2, {96, 39, 40, 3, 3, 2, 1}}, {2, {64, 14, 13, 48, 3, 1, 1}},
};

static size_t conv_outs(const struct conv_case *t)
{
    const struct conv2d *c = &t->c;
    return (size_t)(t->N * c->filters * conv2d_size(c->height, c->kernel, c->stride, c->padding) *
                    conv2d_size(c->width, c->kernel, c->stride, c->padding));
}

static void round_all(float *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        values[i] = narrow_from_bf16(narrow_to_bf16(values[i]));
}

static void check_conv(const struct kernels *k, const struct conv_case *t)
{
    const struct kernels *ref = kernels_ref_f32();
    const struct conv2d *c = &t->c;
    size_t ins = (size_t)(t->N * c->channels * c->height * c->width), outs = conv_outs(t);
    size_t depth = (size_t)(c->channels * c->kernel * c->kernel), filters = (size_t)c->filters;
    size_t weights = filters * depth, sum = outs / filters; /* outputs of a filter */
    scope_memory float *in = floats_new(ins, FILL_UNIT), *weight = floats_new(weights, FILL_UNIT);
    scope_memory float *bias = floats_new(filters, FILL_UNIT), *dout = floats_new(outs, FILL_UNIT);
    scope_memory float *work = floats_new(k->conv2d_work(c, t->N) / sizeof(float), FILL_UNIT);
    scope_memory float *expected = floats_new(outs, FILL_UNIT), *got = floats_copy(expected, outs);
    if (strstr(k->name, "bf16")) {
        round_all(in, ins);
        round_all(weight, weights);
        round_all(dout, outs);
    }
    computing("%s conv2d N=%d channels=%d %dx%d filters=%d kernel=%d stride=%d padding=%d", k->name, t->N,
              c->channels, c->height, c->width, c->filters, c->kernel, c->stride, c->padding);
    for (int with = 0; with < 2; with++) {
        ref->conv2d_forward(expected, in, weight, with ? bias : NULL, c, t->N, NULL, NULL);
        k->conv2d_forward(got, in, weight, with ? bias : NULL, c, t->N, work, NULL);
        assert_true(
            floats_close("out", got, expected, outs, (double)(depth + 1) * U * (double)(depth + 1), U));
    }
    for (int beta = 0; beta < 2; beta++) {
        scope_memory float *din = floats_new(ins, FILL_UNIT), *din_got = floats_copy(din, ins);
        scope_memory float *dweight = floats_new(weights, FILL_UNIT);
        scope_memory float *dweight_got = floats_copy(dweight, weights);
        scope_memory float *dbias = floats_new(filters, FILL_UNIT), *dbias_got = floats_copy(dbias, filters);
        const double terms = (double)(filters * (size_t)(c->kernel * c->kernel)) + 1;
        ref->conv2d_backward_input(din, dout, weight, c, t->N, beta, NULL, NULL);
        k->conv2d_backward_input(din_got, dout, weight, c, t->N, beta, work, NULL);
        assert_true(floats_close("din", din_got, din, ins, terms * U * (terms + beta), U));
        ref->conv2d_backward_weight(dweight, dbias, dout, in, c, t->N, beta, NULL, NULL);
        k->conv2d_backward_weight(dweight_got, dbias_got, dout, in, c, t->N, beta, work, NULL);
        assert_true(floats_close("dweight", dweight_got, dweight, weights,
                                 (double)(sum + 1) * U * (double)(sum + 1), U));
        assert_true(
            floats_close("dbias", dbias_got, dbias, filters, (double)(sum + 1) * U * (double)(sum + 1), U));
        k->conv2d_backward_weight(NULL, dbias_got, dout, in, c, t->N, 0, work, NULL);
        k->conv2d_backward_weight(dweight_got, NULL, dout, in, c, t->N, 0, work, NULL);
        ref->conv2d_backward_weight(dweight, dbias, dout, in, c, t->N, 0, NULL, NULL);
        assert_true(floats_close("dweight alone", dweight_got, dweight, weights,
                                 (double)(sum + 1) * U * (double)(sum + 1), U));
        assert_true(floats_close("dbias alone", dbias_got, dbias, filters,
                                 (double)(sum + 1) * U * (double)(sum + 1), U));
    }
}

static void conv2d_matches(void **state)
{
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++)
        for (size_t i = 0; i < sizeof convs / sizeof *convs; i++)
            check_conv(*k, &convs[i]);
    for (enum kernels_products by = KERNELS_ONEDNN; by < KERNELS_PRODUCTS; by++) {
        const struct kernels *k = kernels_cpu_by(by, NULL);
        for (size_t i = 0; k && i < sizeof convs / sizeof *convs; i++)
            check_conv(k, &convs[i]);
    }
}

struct pool_case {
    int N;
    struct pool2d p;
};
static const struct pool_case pools[] = {
    {0, {2, 4, 4, 2, 2, 0}},  {1, {1, 2, 2, 2, 2, 0}}, {3, {5, 32, 32, 2, 2, 0}}, {2, {3, 9, 35, 2, 2, 0}},
    {2, {3, 11, 7, 3, 2, 1}}, {2, {2, 6, 5, 3, 1, 1}}, {1, {2, 5, 5, 2, 2, 1}},   {2, {2, 7, 8, 4, 3, 2}},
};

/* Equal values, so that the first wins, and NaN next to them. */
static void spoil(float *in, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        in[i] = roundf(2 * in[i]);
        if (random_below(16) == 0)
            in[i] = NAN;
    }
}

static void check_max_pool(const struct kernels *k, const struct pool_case *t, bool spoiled)
{
    const struct pool2d *p = &t->p;
    const struct kernels *ref = kernels_ref_f32();
    size_t ins = (size_t)(t->N * p->channels * p->height * p->width);
    size_t outs = (size_t)(t->N * p->channels * conv2d_size(p->height, p->kernel, p->stride, p->padding) *
                           conv2d_size(p->width, p->kernel, p->stride, p->padding));
    scope_memory float *in = floats_new(ins, FILL_UNIT), *dout = floats_new(outs, FILL_UNIT);
    scope_memory float *expected = floats_new(outs, FILL_UNIT), *got = floats_copy(expected, outs);
    computing("%s max_pool2d N=%d channels=%d %dx%d kernel=%d stride=%d padding=%d%s", k->name, t->N,
              p->channels, p->height, p->width, p->kernel, p->stride, p->padding, spoiled ? " NaN" : "");
    if (spoiled)
        spoil(in, ins);
    ref->max_pool2d_forward(expected, in, p, t->N, NULL);
    k->max_pool2d_forward(got, in, p, t->N, NULL);
    assert_true(floats_close("out", got, expected, outs, 0, 0));
    for (int beta = 0; beta < 2; beta++) {
        scope_memory float *din = floats_new(ins, FILL_UNIT), *din_got = floats_copy(din, ins);
        ref->max_pool2d_backward(din, in, dout, p, t->N, beta, NULL);
        k->max_pool2d_backward(din_got, in, dout, p, t->N, beta, NULL);
        assert_true(floats_close("din", din_got, din, ins, 0, 0)); /* the same additions in the same order */
    }
}

static void max_pool2d_matches(void **state)
{
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++)
        for (size_t i = 0; i < sizeof pools / sizeof *pools; i++)
            for (int spoiled = 0; spoiled < 2; spoiled++)
                check_max_pool(*k, &pools[i], spoiled);
}

static void avg_pool2d_matches(void **state)
{
    static const int sizes[][5] = {/* planes, height, width, out_height, out_width */
                                   {0, 3, 3, 1, 1},  {1, 1, 1, 1, 1}, {129, 8, 8, 1, 1},
                                   {5, 9, 35, 2, 3}, {3, 7, 5, 7, 5}, {2, 3, 2, 5, 4}};
    const struct kernels *ref = kernels_ref_f32();
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            const int *s = sizes[i];
            size_t ins = (size_t)(s[0] * s[1] * s[2]), outs = (size_t)(s[0] * s[3] * s[4]);
            double terms = s[1] * s[2] + 2;
            scope_memory float *in = floats_new(ins, FILL_UNIT), *dout = floats_new(outs, FILL_UNIT);
            scope_memory float *expected = floats_new(outs, FILL_UNIT), *got = floats_copy(expected, outs);
            computing("%s avg_pool2d planes=%d %dx%d to %dx%d", (*k)->name, s[0], s[1], s[2], s[3], s[4]);
            ref->avg_pool2d_forward(expected, in, s[0], s[1], s[2], s[3], s[4], NULL);
            (*k)->avg_pool2d_forward(got, in, s[0], s[1], s[2], s[3], s[4], NULL);
            assert_true(floats_close("out", got, expected, outs, terms * U, U));
            for (int beta = 0; beta < 2; beta++) {
                scope_memory float *din = floats_new(ins, FILL_UNIT), *din_got = floats_copy(din, ins);
                ref->avg_pool2d_backward(din, dout, s[0], s[1], s[2], s[3], s[4], beta, NULL);
                (*k)->avg_pool2d_backward(din_got, dout, s[0], s[1], s[2], s[3], s[4], beta, NULL);
                assert_true(floats_close("din", din_got, din, ins, 16 * U, 4 * U));
            }
        }
}

/* ---- batch normalisation ---- */

struct norm_case {
    int N;
    int64_t samples; /* rows of the step on this rank */
    struct batch_norm b;
};
static const struct norm_case norms[] = {
    {0, 0, {3, 4, 1e-5, 0.1, 0, 1, 1, 1}},    {1, 1, {1, 1, 1e-5, 0.1, 0, 1, 1, 1}},
    {4, 4, {3, 1024, 1e-5, 0.1, 0, 1, 1, 1}}, {5, 8, {7, 35, 1e-3, 0.3, 5, 1, 3, 0}},
    {6, 30, {5, 9, 1e-5, 0.1, 6, 1, 2, 1}},   {6, 5, {2, 64, 1e-5, 0.1, 6, 1, 2, 1}},
    {6, 2, {4, 33, 1e-5, 0.1, 0, 2, 1, 1}},   {65, 65, {16, 64, 1e-5, 0.1, 0, 1, 1, 1}},
};

static void check_norm(const struct kernels *k, const struct norm_case *t)
{
    const struct kernels *ref = kernels_ref_f32();
    const struct batch_norm *b = &t->b;
    const struct step_scalars scalars = {.samples = t->samples};
    const size_t C = (size_t)b->channels, n = (size_t)t->N * C * (size_t)b->plane;
    const double terms = t->N * (double)b->plane + 4;
    scope_memory float *in = floats_new(n, FILL_UNIT), *dout = floats_new(n, FILL_UNIT);
    scope_memory float *weight = floats_new(C, FILL_UNIT), *bias = floats_new(C, FILL_UNIT);
    scope_memory float *out = floats_new(n, FILL_UNIT), *got = floats_copy(out, n);
    scope_memory float *mean = floats_new(C, FILL_UNIT), *mean_got = floats_copy(mean, C);
    scope_memory float *var = floats_new(C, FILL_UNIT), *var_got = floats_copy(var, C);
    computing("%s batch_norm N=%d channels=%d plane=%d samples=%d first=%d", k->name, t->N, b->channels,
              (int)b->plane, (int)t->samples, (int)b->first);
    ref->batch_norm_forward(out, mean, var, in, weight, bias, b, t->N, &scalars, NULL);
    k->batch_norm_forward(got, mean_got, var_got, in, weight, bias, b, t->N, &scalars, NULL);
    assert_true(floats_close("mean", mean_got, mean, C, terms * U, 2 * U));
    assert_true(floats_close("var", var_got, var, C, terms * U, terms * U));
    /* a channel of one element has variance 0 and is divided by sqrt(epsilon) */
    const double steep = 1 / sqrt(b->epsilon);
    assert_true(floats_close("out", got, out, n, (terms > 5 ? 8 * terms : steep) * U, 16 * U));
    ref->batch_norm_fixed(out, in, weight, bias, mean, var, b, t->N, NULL);
    k->batch_norm_fixed(got, in, weight, bias, mean, var, b, t->N, NULL);
    assert_true(floats_close("fixed", got, out, n, (terms > 5 ? 8 * terms : steep) * U, 16 * U));
    for (int beta = 0; beta < 2; beta++) {
        const int betas[] = {beta, !beta, beta};
        scope_memory float *din = floats_new(n, FILL_UNIT), *din_got = floats_copy(din, n);
        scope_memory float *dweight = floats_new(C, FILL_UNIT), *dweight_got = floats_copy(dweight, C);
        scope_memory float *dbias = floats_new(C, FILL_UNIT), *dbias_got = floats_copy(dbias, C);
        ref->batch_norm_backward(din, dweight, dbias, dout, in, mean, var, weight, b, t->N, betas, &scalars,
                                 NULL);
        k->batch_norm_backward(din_got, dweight_got, dbias_got, dout, in, mean, var, weight, b, t->N, betas,
                               &scalars, NULL);
        assert_true(floats_close("din", din_got, din, n, (terms > 5 ? 8 * terms : 4 * steep) * U, 16 * U));
        assert_true(floats_close("dweight", dweight_got, dweight, C, 8 * terms * U, 16 * U));
        assert_true(floats_close("dbias", dbias_got, dbias, C, 2 * terms * U, 2 * U));
        k->batch_norm_backward(NULL, NULL, NULL, dout, in, mean, var, weight, b, t->N, betas, &scalars, NULL);
    }
}

static void batch_norm_matches(void **state)
{
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++)
        for (size_t i = 0; i < sizeof norms / sizeof *norms; i++)
            check_norm(*k, &norms[i]);
}

/* Two ranks with 5 and 2 samples in micro-batches of 2: the running statistics move as the formula of one
 * rank says, one micro-batch after the other, and their mean is taken. */
static void running_statistics_move(void **state)
{
    enum { RANKS = 2, MICRO = 3, ROWS = 2 };
    const int samples[RANKS] = {5, 2};
    const float batch[RANKS][MICRO][2] = {{{1, 4}, {2, 5}, {3, 6}}, {{-1, 7}, {100, 100}, {100, 100}}};
    const double momentum = 0.25;
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++) {
        float running[3] = {0.5F, 2, 10}, change[3] = {0};
        double expected[2] = {0};
        for (int r = 0; r < RANKS; r++) {
            const struct step_scalars scalars = {.samples = samples[r]};
            double own[2] = {running[0], running[1]};
            for (int m = 0; m < MICRO; m++) {
                const struct batch_norm b = {1, 3, 1e-5, momentum, (int64_t)m * ROWS, 1, RANKS, r == 0};
                const int left = samples[r] - m * ROWS, rows = left < ROWS ? left : ROWS;
                (*k)->batch_norm_change(&change[0], &change[1], &change[2], &batch[r][m][0], &batch[r][m][1],
                                        &running[0], &running[1], &b, ROWS, (const int[]){1, 1, 1}, &scalars,
                                        NULL);
                if (rows <= 0)
                    continue;
                own[0] += momentum * ((double)batch[r][m][0] - own[0]);
                own[1] += momentum * ((double)batch[r][m][1] * (3 * rows) / (3 * rows - 1) - own[1]);
            }
            expected[0] += own[0] / RANKS;
            expected[1] += own[1] / RANKS;
        }
        struct step_scalars scalars = {.skip = 1};
        uint16_t moved[3] = {0};
        (*k)->batch_norm_step(running, change, 3, moved, DTYPE_BF16, &scalars, NULL);
        assert_true(running[0] == 0.5F && moved[2] == 0);
        scalars.skip = 0;
        (*k)->batch_norm_step(running, change, 3, moved, DTYPE_BF16, &scalars, NULL);
        assert_true(fabs((double)running[0] - expected[0]) < 1e-6 * fabs(expected[0]));
        assert_true(fabs((double)running[1] - expected[1]) < 1e-6 * fabs(expected[1]));
        assert_true(running[2] == 13 && moved[2] == 0x4150); /* 13 as bf16 */
    }
}

static void correct_rows_are_counted(void **state)
{
    enum { ROWS = 4, CLASSES = 3 };
    const float logits[ROWS * CLASSES] = {1, 3, 2, /* equal: the first */ 5, 5, 1, 0, 0, 7, 9, 1, 2};
    const int32_t targets[ROWS] = {1, 1, 2, -1};
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++) {
        double total = 10;
        (*k)->correct_sum(&total, logits, targets, ROWS, CLASSES, CLASSES, NULL);
        assert_true(total == 12);
        const float apart[2 * CLASSES + 2] = {1, 3, 2, /* between the rows */ 9, 9, 5, 5, 1};
        total = 0;
        (*k)->correct_sum(&total, apart, (const int32_t[]){1, 0}, 2, CLASSES, CLASSES + 2, NULL);
        assert_true(total == 2);
    }
}

/* ---- threads ---- */

enum { PICTURES = 37, OUTPUTS = 5 };
static const struct conv2d wide = {7, 24, 24, 33, 3, 1, 1};
static const struct pool2d pairs = {33, 24, 24, 2, 2, 0};

struct threads_run {
    const struct kernels *kernels;
    int threads;
    const void *in, *weight, *dout; /* values of the table */
    float *output[OUTPUTS], *work;
};

static int run_with_threads(int rank, int ranks, void *context)
{
    struct threads_run *r = context;
    struct muster_error err;
    const struct kernels *k = r->kernels;
    (void)rank, (void)ranks;
    if (kernels_cpu_threads(r->threads, &err) < 0)
        return -1;
    k->conv2d_forward(r->output[0], r->in, r->weight, NULL, &wide, PICTURES, r->work, NULL);
    k->conv2d_backward_input(r->output[1], r->dout, r->weight, &wide, PICTURES, 0, r->work, NULL);
    k->conv2d_backward_weight(r->output[2], r->output[3], r->dout, r->in, &wide, PICTURES, 0, r->work, NULL);
    k->max_pool2d_forward(r->output[4], r->output[0], &pairs, PICTURES, NULL);
    return 0;
}

/* Values of the table's type. */
static void *values_new(const struct kernels *k, size_t n)
{
    float *values = floats_new(n, FILL_UNIT);
    if (k->value == DTYPE_F32)
        return values;
    uint16_t *halves = mem_calloc(n, sizeof *halves);
    assert_non_null(halves);
    for (size_t i = 0; i < n; i++)
        halves[i] = narrow_to_bf16(values[i]);
    mem_free(values);
    return halves;
}

static void same_with_any_threads(const struct kernels *k)
{
    const size_t ins = PICTURES * 7 * 576, outs = PICTURES * 33 * 576, weights = 33 * 63;
    const size_t sizes[OUTPUTS] = {outs, ins, weights, 33, outs / 4};
    scope_memory void *in = values_new(k, ins), *weight = values_new(k, weights), *dout = values_new(k, outs);
    scope_memory float *work = floats_new(k->conv2d_work(&wide, PICTURES) / sizeof(float), FILL_UNIT);
    struct threads_run runs[3];
    for (int i = 0; i < 3; i++) {
        runs[i] = (struct threads_run){
            .kernels = k, .threads = i + 1, .in = in, .weight = weight, .dout = dout, .work = work};
        for (int o = 0; o < OUTPUTS; o++) {
            runs[i].output[o] = floats_new(sizes[o], FILL_UNIT);
            if (k->value != DTYPE_F32) /* half of the memory is not written */
                memset(runs[i].output[o], 0, sizes[o] * sizeof(float));
        }
        assert_int_equal(rank_threads_run(1, run_with_threads, &runs[i]), 0);
    }
    for (int o = 0; o < OUTPUTS; o++) {
        for (int i = 1; i < 3; i++)
            assert_memory_equal(runs[i].output[o], runs[0].output[o], sizes[o] * sizeof(float));
        for (int i = 0; i < 3; i++)
            kernels_scope_free(&runs[i].output[o]);
    }
}

static void any_threads_the_same(void **state)
{
    (void)state;
    same_with_any_threads(kernels_cpu((unsigned)-1));
    if (kernels_cpu_values(DTYPE_BF16) != kernels_ref_bf16())
        same_with_any_threads(kernels_cpu_values(DTYPE_BF16));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conv2d_matches),       cmocka_unit_test(max_pool2d_matches),
        cmocka_unit_test(batch_norm_matches),   cmocka_unit_test(running_statistics_move),
        cmocka_unit_test(avg_pool2d_matches),   cmocka_unit_test(correct_rows_are_counted),
        cmocka_unit_test(any_threads_the_same),
    };
    kernels_test_begin(2);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
