/* kernels_optimizer_test.c - norm, clip factor and optimizers of every CPU variant against the reference, and
 * their rules by hand. Tolerances as in kernels_cpu_test.c. */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <stdlib.h>

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
        s = (struct step_scalars){.norm_squared = 16 * 256 * 256, .clip_norm = 1, .loss_scale = 256};
        (*k)->clip_factor(&s, NULL); /* from the norm without the scale, which the factor removes */
        assert_true(fabs(s.clip - 1 / (4 + 1e-6) / 256) < 1e-17);
        s = (struct step_scalars){.norm_squared = 1, .loss_scale = 256};
        (*k)->clip_factor(&s, NULL);
        assert_true(s.clip == 1.0 / 256 && !s.skip);
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

typedef void adam_function(void *, void *, void *, const void *, const struct optimizer_segment *, int,
                           void *, enum dtype, const struct step_scalars *, void *);

/* An optimizer moves its parameters, rounded. */
static bool moved_matches(const uint16_t *moved, enum dtype dtype, const float *param, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t expected;
        reference()->cast(&expected, dtype, &param[i], DTYPE_F32, 1, NULL);
        if (moved[i] != expected)
            return false;
    }
    return true;
}

static void check_adamw(const struct kernels *k, bool coupled, size_t n, int parameter_class,
                        enum kernels_fill fill)
{
    adam_function *run = coupled ? k->adam : k->adamw;
    adam_function *expected = coupled ? exact()->adam : exact()->adamw;
    struct step_scalars s = adamw_scalars();
    scope_memory float *param = floats_new(n, FILL_UNIT);
    scope_memory float *m = floats_new(n, fill), *v = floats_new(n, fill), *grad = floats_new(n, fill);
    for (size_t i = 0; i < n; i++)
        v[i] = v[i] * v[i] + grad[i] * grad[i];
    scope_memory double *param64 = doubles_of(param, n), *m64 = doubles_of(m, n), *v64 = doubles_of(v, n);
    scope_memory double *grad64 = doubles_of(grad, n);
    double G = floats_largest(grad, n) + (coupled ? 0.1 : 0), M = floats_largest(m, n) + G;
    computing("%s %s n=%zu class=%d fill=%s", k->name, coupled ? "adam" : "adamw", n, parameter_class,
              kernels_fill_name(fill));
    scope_memory uint16_t *moved = (uint16_t *)floats_new(n, FILL_UNIT);
    enum dtype dtype = parameter_class ? DTYPE_BF16 : DTYPE_F16;
    expected(param64, m64, v64, grad64, OPTIMIZER_WHOLE((int64_t)n, parameter_class), NULL, DTYPE_F32, &s,
             NULL);
    run(param, m, v, grad, OPTIMIZER_WHOLE((int64_t)n, parameter_class), moved, dtype, &s, NULL);
    assert_true(moved_matches(moved, dtype, param, n));
    /* Each constant, product and sum rounds once; the sum for m may cancel, and g where the decay is part of
     * it, so they are absolute in the size of their terms. */
    assert_true(doubles_close("m", m, m64, n, 4 * U * M, U));
    assert_true(doubles_close("v", v, v64, n, FLOAT_FLUSHED + (coupled ? 8 * U * G * G : 0), 8 * U));
    /* The step's size is at most M / sqrt(v) / c1 with v >= (1 - beta2) clip^2 g^2 ...: at most 1e3 here, and
     * relatively off by 16 u; times the rate. The parameter itself rounds once, its decay twice. */
    double step_off = s.learning_rate[parameter_class] * 1e3 * 16 * U;
    assert_true(doubles_close("param", param, param64, n, step_off, 4 * U));
    s.skip = 1;
    scope_memory float *before = floats_copy(param, n);
    memset(moved, 0x5a, n * sizeof *moved);
    run(param, m, v, grad, OPTIMIZER_WHOLE((int64_t)n, parameter_class), moved, dtype, &s, NULL);
    assert_true(n == 0 || moved[n - 1] == 0x5a5a);
    assert_memory_equal(before, param, n * sizeof *before);
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
                        FILL_TINY) { /* squares vanish: the step is g/0 by rounding, see gradient_vanishes */
                        check_adamw(*k, false, sizes[i], parameter_class, fill);
                        check_adamw(*k, true, sizes[i], parameter_class, fill);
                    }
}

/* v = 0 exactly: the step is m/c1/epsilon and finite, and no NaN is made of 0/0. */
static void gradient_vanishes(void **state)
{
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++) {
        struct step_scalars s = adamw_scalars();
        float param[3] = {1, 2, 3}, m[3] = {0}, v[3] = {0}, grad[3] = {0, 1e-30f, -1e-30f};
        (*k)->adamw(param, m, v, grad, OPTIMIZER_WHOLE(3, 1), NULL, DTYPE_F32, &s, NULL);
        assert_true(floats_close("param", param, (const float[]){1, 2, 3}, 3, 1e-20, U));
    }
}

/* Every value is a sum of at most four terms, each rounded twice on the way; terms may cancel. */
static void check_sgd(const struct kernels *k, size_t n, double factor, double dampening, int nesterov,
                      int parameter_class, enum kernels_fill fill)
{
    struct step_scalars s = adamw_scalars();
    scope_memory float *param = floats_new(n, FILL_UNIT), *momentum = floats_new(n, FILL_UNIT);
    scope_memory double *param64 = doubles_of(param, n), *momentum64 = doubles_of(momentum, n);
    scope_memory uint16_t *moved = (uint16_t *)floats_new(n, FILL_UNIT);
    bool plain = factor == 0;
    double G = 0, M = 1;
    if (n > 0)
        momentum[0] = NAN; /* the first step does not read it */
    for (s.step = 1; s.step <= 4; s.step++) {
        scope_memory float *grad = floats_new(n, fill);
        scope_memory double *grad64 = doubles_of(grad, n);
        computing("%s sgd n=%zu factor=%g dampening=%g nesterov=%d class=%d step=%d fill=%s", k->name, n,
                  factor, dampening, nesterov, parameter_class, (int)s.step, kernels_fill_name(fill));
        exact()->sgd(param64, plain ? NULL : momentum64, grad64, OPTIMIZER_WHOLE((int64_t)n, parameter_class),
                     factor, dampening, nesterov, NULL, DTYPE_F32, &s, NULL);
        k->sgd(param, plain ? NULL : momentum, grad, OPTIMIZER_WHOLE((int64_t)n, parameter_class), factor,
               dampening, nesterov, moved, DTYPE_BF16, &s, NULL);
        assert_true(moved_matches(moved, DTYPE_BF16, param, n));
        G = fmax(G, floats_largest(grad, n) + 1), M = factor * M + G;
        if (!plain)
            assert_true(doubles_close("momentum", momentum, momentum64, n, (double)s.step * 8 * U * M, U));
        assert_true(doubles_close("param", param, param64, n,
                                  (double)s.step * (s.learning_rate[0] * 16 * U * (M + G) + 2 * U), U));
    }
    s.skip = 1;
    scope_memory float *before = floats_copy(param, n);
    k->sgd(param, plain ? NULL : momentum, before, OPTIMIZER_WHOLE((int64_t)n, parameter_class), factor,
           dampening, nesterov, moved, DTYPE_BF16, &s, NULL);
    assert_memory_equal(before, param, n * sizeof *before);
}

/* ---- segments ---- */

enum { SEGMENTS = 6, SEGMENT_ROOM = 3 * 4096 + 5 + 4096 + 1 + 9000 + 6 * 40 };

struct optimizer_buffers {
    float param[SEGMENT_ROOM], m[SEGMENT_ROOM], v[SEGMENT_ROOM];
    uint16_t moved[SEGMENT_ROOM];
};

static void run_optimizer(const struct kernels *k, int which, struct optimizer_buffers *b, const float *grad,
                          const struct optimizer_segment *segments, int count, const struct step_scalars *s)
{
    if (which == 0)
        k->adamw(b->param, b->m, b->v, grad, segments, count, b->moved, DTYPE_BF16, s, NULL);
    else if (which == 1)
        k->adam(b->param, b->m, b->v, grad, segments, count, b->moved, DTYPE_F16, s, NULL);
    else
        k->sgd(b->param, which == 2 ? NULL : b->m, grad, segments, count, 0.9, 0.1, 1, b->moved, DTYPE_BF16,
               s, NULL);
}

/* One call for all segments gives the bits of a call for each, and leaves the bytes between them. */
static void check_segments(const struct kernels *k, int which)
{
    static const int64_t counts[SEGMENTS] = {3 * 4096 + 5, 0, 1, 4096, 9000, 7};
    struct optimizer_segment segments[SEGMENTS];
    struct step_scalars s = adamw_scalars();
    scope_memory struct optimizer_buffers *once = calloc(1, sizeof *once), *each = calloc(1, sizeof *each);
    scope_memory float *grad = floats_new(SEGMENT_ROOM, FILL_UNIT);
    int64_t at = 3;
    s.step = 2;
    for (int i = 0; i < SEGMENTS; i++) {
        segments[i] = (struct optimizer_segment){at, counts[i], i % 2};
        at += counts[i] + i * 5; /* some gaps, and none */
    }
    assert_true(once && each && at <= SEGMENT_ROOM);
    for (int i = 0; i < SEGMENT_ROOM; i++) {
        once->param[i] = grad[SEGMENT_ROOM - 1 - i], once->m[i] = grad[i] / 3, once->v[i] = grad[i] * grad[i];
        once->moved[i] = 0x5a5a;
    }
    *each = *once;
    const struct optimizer_buffers before = *once;
    computing("%s optimizer %d of %d segments", k->name, which, SEGMENTS);
    run_optimizer(k, which, once, grad, segments, SEGMENTS, &s);
    for (int i = 0; i < SEGMENTS; i++)
        run_optimizer(k, which, each, grad, &segments[i], 1, &s);
    assert_memory_equal(once, each, sizeof *once);
    at = 0;
    for (int i = 0; i <= SEGMENTS; i++) {
        int64_t end = i < SEGMENTS ? segments[i].offset : SEGMENT_ROOM;
        assert_memory_equal(once->param + at, before.param + at, (size_t)(end - at) * sizeof *once->param);
        assert_memory_equal(once->moved + at, before.moved + at, (size_t)(end - at) * sizeof *once->moved);
        if (i < SEGMENTS) {
            at = end + segments[i].count;
            assert_true(segments[i].count == 0 || once->param[end] != before.param[end]);
        }
    }
    run_optimizer(k, which, once, grad, segments, 0, &s);
    assert_memory_equal(once, each, sizeof *once);
}

static void segments_are_one_pass(void **state)
{
    (void)state;
    for (int which = 0; which < 4; which++) {
        check_segments(kernels_ref_f32(), which);
        for (const struct kernels *const *k = kernels_variants(); *k; k++)
            check_segments(*k, which);
    }
}

static void sgd_matches(void **state)
{
    static const size_t sizes[] = {0, 1, 7, 16, 33, 4097, 20001};
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            for (int parameter_class = 0; parameter_class < 2; parameter_class++)
                for (enum kernels_fill fill = 0; fill < FILL_COUNT; fill++) {
                    check_sgd(*k, sizes[i], 0, 0, 0, parameter_class, fill);
                    check_sgd(*k, sizes[i], 0.9, 0, 0, parameter_class, fill);
                    check_sgd(*k, sizes[i], 0.9, 0, 1, parameter_class, fill);
                    check_sgd(*k, sizes[i], 0.9, 0.3, 0, parameter_class, fill);
                }
}

/* ---- the moving average ---- */

/* A value is a sum of two terms, each rounded twice on the way, and the weight is rounded once. */
static void check_average(const struct kernels *k, size_t n, double decay)
{
    struct step_scalars s = {0};
    scope_memory float *average = floats_new(n, FILL_UNIT);
    scope_memory double *average64 = doubles_of(average, n);
    if (n > 0)
        average[0] = NAN; /* the first update does not read it */
    for (s.step = 1; s.step <= 5; s.step++) {
        scope_memory float *param = floats_new(n, FILL_UNIT);
        scope_memory double *param64 = doubles_of(param, n);
        computing("%s average n=%zu decay=%g step=%d", k->name, n, decay, (int)s.step);
        exact()->average(average64, param64, decay, (int64_t)n, &s, NULL);
        k->average(average, param, decay, (int64_t)n, &s, NULL);
        if (s.step == 1)
            assert_memory_equal(average, param, n * sizeof *param);
        assert_true(doubles_close("average", average, average64, n, (double)s.step * 8 * U, U));
    }
    s.skip = 1;
    scope_memory float *before = floats_copy(average, n), *other = floats_new(n, FILL_UNIT);
    k->average(average, other, decay, (int64_t)n, &s, NULL);
    assert_memory_equal(before, average, n * sizeof *before);
}

static void average_matches(void **state)
{
    static const size_t sizes[] = {0, 1, 7, 16, 33, 4097, 20001};
    static const double decays[] = {0.999, 0.9, 0.5, 0.3};
    (void)state;
    for (const struct kernels *const *k = kernels_variants(); *k; k++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (size_t d = 0; d < sizeof decays / sizeof *decays; d++)
                check_average(*k, sizes[i], decays[d]);
}

/* 0.9 x 1 + 0.1 x 3 after a first parameter of 1. */
static void average_by_hand(void **state)
{
    (void)state;
    double average = 77, param = 1;
    struct step_scalars s = {.step = 1};
    exact()->average(&average, &param, 0.9, 1, &s, NULL);
    assert_true(average == 1);
    param = 3;
    s.step = 2;
    exact()->average(&average, &param, 0.9, 1, &s, NULL);
    assert_true(fabs(average - 1.2) < 1e-15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norm_matches),          cmocka_unit_test(clip_factor_rules),
        cmocka_unit_test(adamw_matches),         cmocka_unit_test(gradient_vanishes),
        cmocka_unit_test(segments_are_one_pass), cmocka_unit_test(sgd_matches),
        cmocka_unit_test(average_matches),       cmocka_unit_test(average_by_hand),
    };
    kernels_test_begin(2);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
