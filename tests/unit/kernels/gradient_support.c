/* gradient_support.c - see gradient_support.h. */
#include "tests/unit/kernels/gradient_support.h"

#include <math.h>

#include "proto/base/mem.h"
#include "tests/support/cmocka_all.h"

static const double step = 1e-5, BOUND = 3e-8;

const struct kernels *table(void)
{
    return kernels_ref_f64();
}

double *doubles_new(size_t n)
{
    double *values = mem_calloc(n, sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < n; i++)
        values[i] = random_unit();
    return values;
}

void check_gradient(const char *what, loss_function *loss, void *context, double *x, const double *gradient,
                    size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double kept = x[i];
        x[i] = kept + step;
        double above = loss(context);
        x[i] = kept - step;
        double below = loss(context);
        x[i] = kept;
        double expected = (above - below) / (2 * step);
        if (!(fabs(gradient[i] - expected) <= BOUND * (1 + fabs(expected))))
            fail_msg("%s[%zu] of %zu: %.12g, by differences %.12g (seed %llu)", what, i, n, gradient[i],
                     expected, (unsigned long long)kernels_test_seed());
    }
}

void check_added(const char *what, const double *added, const double *plain, const double *before, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs(added[i] - (before[i] + plain[i])) <= 1e-14 * (1 + fabs(plain[i])) * 10))
            fail_msg("%s[%zu]: beta = 1 gives %.17g, expected %.17g + %.17g", what, i, added[i], before[i],
                     plain[i]);
}

double weighted_sum(const double *out, const double *r, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += out[i] * r[i];
    return sum;
}

double *doubles_copy(const double *from, size_t n)
{
    double *values = mem_calloc(n, sizeof *values);
    assert_non_null(values);
    memcpy(values, from, n * sizeof *values);
    return values;
}
